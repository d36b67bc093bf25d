package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// space sees to it that badger never finds the disk full. Badger writes through
// mapped files, and a write to a mapped page that has no block behind it kills
// the process.
type space struct {
	dir     string
	reserve int64
	free    func(dir string) (int64, error)
	// tables is the size of badger's tables, once it is open.
	tables func() int64

	mu sync.Mutex
	// logs are the write-ahead files that are there, oldest first, once badger is
	// open. It writes the last one, and makes tables of the others.
	logs []logFile
}

// logFile is a write-ahead file.
type logFile struct {
	number int
	// used bounds what was written to it and the table that it becomes, claimed is
	// how far it has blocks.
	used, claimed int64
}

const (
	// walBytes is how far badger may fill a write-ahead file: it begins a new one
	// before the batch after the one that passes memtableBytes.
	walBytes = memtableBytes * 5 / 4
	// claimBytes is how much of a write-ahead file is allocated at a time.
	claimBytes = 2 << 20
	// compactBytes bounds what the compactions of one moment write before they
	// remove what they read.
	compactBytes = 512 << 20
	// smallFilesBytes is what the other files grow by: the list of tables, a value
	// log without a value.
	smallFilesBytes = 1 << 20
)

func newSpace(dir string, reserve int64) *space {
	return &space{dir: dir, reserve: reserve, free: freeBytes}
}

// check reports ErrFull if a batch of size bytes could leave too little for
// badger to finish what it has begun and what the batch may make it begin. One that
// frees room may have the reserve.
func (s *space) check(size int, frees bool) error {
	bytes := s.safe(int64(size))
	if frees {
		bytes -= s.reserve
	}
	return s.need(bytes, bytes)
}

// safe is how much a batch of size bytes wants to find free.
func (s *space) safe(size int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	// The batch in this write-ahead file and perhaps the next, and what is claimed
	// ahead of it.
	log := size + 2*claimBytes
	for _, l := range s.logs {
		size += min(l.used, walBytes)
	}
	return log + settle(size, s.tables()) + s.reserve
}

// settle is how much it takes to make tables of what write-ahead files hold, and
// to compact these, which has old and new tables side by side.
func settle(logs, tables int64) int64 {
	logs += logs / 16 // filters and indexes
	return logs + min(logs+tables, compactBytes) + smallFilesBytes
}

// checkOpen is check for the opening of what may be a killed process's store.
func (s *space) checkOpen() error {
	bytes, err := s.safeToOpen()
	if err != nil {
		return err
	}
	return s.need(bytes, s.thenWrite(bytes))
}

// thenWrite is how much a small batch wants to find free right after an opening
// that wants to find bytes.
func (s *space) thenWrite(bytes int64) int64 { return bytes + claimBytes + s.reserve }

// safeToOpen is how much opening wants to find free.
func (s *space) safeToOpen() (int64, error) {
	logs, err := s.sizes(".mem", walBytes)
	if err != nil {
		return 0, err
	}
	tables, err := s.sizes(".sst", compactBytes)
	if err != nil {
		return 0, err
	}
	return claimBytes + settle(logs, tables), nil
}

// roomToOpen is the Room of a store that is not open for writing.
func (s *space) roomToOpen() (Room, error) {
	free, err := s.free(s.dir)
	if err != nil {
		return Room{}, fmt.Errorf("free space of %q: %w", s.dir, err)
	}
	bytes, err := s.safeToOpen()
	return Room{Free: free, Need: s.thenWrite(bytes)}, err
}

// need reports ErrFull unless bytes are free. It then tells how much a write wants.
func (s *space) need(bytes, write int64) error {
	free, err := s.free(s.dir)
	if err != nil {
		return fmt.Errorf("%w: free space of %q: %w", ErrFull, s.dir, err)
	}
	if free < bytes {
		return fmt.Errorf("%w: %q has %d MB free, and a write needs %d MB to be safe: %d MB are missing",
			ErrFull, s.dir, free>>20, megabytes(write), megabytes(write-free))
	}
	return nil
}

// megabytes is bytes rounded up.
func megabytes(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// files are the names of dir's files with the extension. What dir is called means
// nothing here, as it would to filepath.Glob.
func (s *space) files(extension string) ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == extension {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// sizes adds up what files take of the disk, each at most limit.
func (s *space) sizes(extension string, limit int64) (int64, error) {
	names, err := s.files(extension)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, name := range names {
		info, err := os.Stat(filepath.Join(s.dir, name))
		if err != nil {
			return 0, err
		}
		total += min(allocated(info), limit)
	}
	return total, nil
}

// open looks for the write-ahead files that badger, just opened, has.
func (s *space) open() error {
	s.mu.Lock()
	s.logs = nil
	err := s.find()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.begun()
}

func (s *space) find() error {
	names, err := s.files(".mem")
	if err != nil {
		return err
	}
	for _, name := range names {
		l := logFile{}
		if _, err := fmt.Sscanf(name, "%d.mem", &l.number); err != nil {
			continue
		}
		info, err := os.Stat(filepath.Join(s.dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // it is a table now
		}
		if err != nil {
			return err
		}
		l.used = info.Size()
		s.logs = append(s.logs, l)
	}
	slices.SortFunc(s.logs, func(a, b logFile) int { return a.number - b.number })
	if len(s.logs) == 0 {
		return fmt.Errorf("%w: no write-ahead file in %q", os.ErrNotExist, s.dir)
	}
	s.last().used = 0 // the last one was made just now
	return nil
}

func (s *space) last() *logFile { return &s.logs[len(s.logs)-1] }

func (s *space) logName(number int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%05d.mem", number))
}

// claim has blocks allocated for size more bytes of the write-ahead file that badger
// writes. ErrFull says that there are none.
func (s *space) claim(size int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.last()
	want := min(l.used+int64(size), walBytes)
	if want <= l.claimed {
		return nil
	}
	want = min((want/claimBytes+1)*claimBytes, walBytes)
	name := s.logName(l.number)
	if err := allocate(name, want); err != nil {
		return fmt.Errorf("allocate %d MB of %q: %w", megabytes(want), name, accessError(err))
	}
	l.claimed = want
	return nil
}

// wrote takes note that badger wrote size bytes, and whether it began a
// write-ahead file to do so. Without a new one it is one failing stat.
func (s *space) wrote(size int) error {
	if !s.add(int64(size)) {
		return nil
	}
	return s.begun()
}

func (s *space) add(size int64) (begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.last().number + 1
	if _, err := os.Stat(s.logName(next)); err == nil {
		s.logs = append(s.logs, logFile{number: next})
		begun = true
	}
	s.last().used += size
	return begun
}

// begun has blocks allocated for a new write-ahead file, and makes its name
// durable, which badger does not.
func (s *space) begun() error {
	if err := s.claim(0); err != nil && !errors.Is(err, ErrFull) { // the next claim says so
		return err
	}
	return syncDir(s.dir)
}

// forget drops the write-ahead files that have become tables.
func (s *space) forget() {
	last := *s.last()
	s.logs = slices.DeleteFunc(s.logs[:len(s.logs)-1], func(l logFile) bool {
		_, err := os.Stat(s.logName(l.number))
		return errors.Is(err, os.ErrNotExist)
	})
	s.logs = append(s.logs, last)
}

// tryName is the file that tryWrite makes.
const tryName = "agentcell.try"

// tryWrite makes a file in dir and removes it.
func tryWrite(dir string) error {
	name := filepath.Join(dir, tryName)
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		return errors.Join(err, os.RemoveAll(name))
	}
	return os.Remove(name)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

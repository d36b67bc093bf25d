package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// space sees to it that badger never finds the disk full. Badger writes through
// mapped files, and a write to a mapped page that has no block behind it kills
// the process.
type space struct {
	dir     string
	reserve int64
	// newest is the number in the name of the newest write-ahead file whose
	// blocks are claimed.
	newest int
	free   func(dir string) (int64, error)
	// tables is the size of badger's tables, once it is open.
	tables func() int64
}

// walBytes is how far badger may fill a write-ahead file: it begins a new one
// before the batch after the one that passes memtableBytes.
const walBytes = memtableBytes * 5 / 4

const (
	// unflushedBytes is what badger may hold in memory and will write as tables.
	unflushedBytes = (numMemtables + 1) * memtableBytes
	// compactBytes bounds what the compactions of one moment write before they
	// remove what they read.
	compactBytes = 512 << 20
)

func newSpace(dir string, reserve int64) *space {
	return &space{dir: dir, reserve: reserve, free: freeBytes}
}

// check reports ErrFull if a batch of size bytes could leave too little for
// badger to finish what it has begun and what the batch may make it begin: a
// write-ahead file, tables of what is in memory, and their compaction, which has
// old and new tables side by side.
func (s *space) check(size int) error { return s.need(s.safe(size), "a write") }

// safe is how much a batch of size bytes wants to find free.
func (s *space) safe(size int) int64 {
	compact := min(s.tables()+unflushedBytes, compactBytes)
	return int64(size) + walBytes + unflushedBytes + compact + s.reserve
}

// checkOpen is check for the opening of what may be a killed process's store.
func (s *space) checkOpen() error {
	bytes, err := s.safeToOpen()
	if err != nil {
		return err
	}
	return s.need(bytes, "opening it to write")
}

// safeToOpen is how much opening wants to find free: the write-ahead files become
// tables, and these are compacted.
func (s *space) safeToOpen() (int64, error) {
	logs, err := s.sizes(".mem", walBytes)
	if err != nil {
		return 0, err
	}
	tables, err := s.sizes(".sst", compactBytes)
	if err != nil {
		return 0, err
	}
	return walBytes + logs + min(logs+tables, compactBytes), nil
}

// roomToOpen is the Room of a store that is not open for writing.
func (s *space) roomToOpen() (Room, error) {
	free, err := s.free(s.dir)
	if err != nil {
		return Room{}, fmt.Errorf("free space of %q: %w", s.dir, err)
	}
	need, err := s.safeToOpen()
	return Room{Free: free, Need: need}, err
}

func (s *space) need(bytes int64, what string) error {
	free, err := s.free(s.dir)
	if err != nil {
		return fmt.Errorf("%w: free space of %q: %w", ErrFull, s.dir, err)
	}
	if free < bytes {
		return fmt.Errorf("%w: %q has %d MB free, and %s needs %d MB to be safe", ErrFull, s.dir, free>>20, what, bytes>>20)
	}
	return nil
}

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

// sizes adds up the sizes of files, of each at most limit.
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
		total += min(info.Size(), limit)
	}
	return total, nil
}

// open claims the write-ahead file that badger, just opened, writes to.
func (s *space) open() error {
	names, err := s.files(".mem")
	if err != nil {
		return err
	}
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(name, "%d.mem", &n); err == nil {
			s.newest = max(s.newest, n-1)
		}
	}
	return s.claim()
}

// claim has blocks allocated for a write-ahead file that badger has begun since,
// and makes its name durable, which badger does not. Without a new file it is one
// failing stat.
func (s *space) claim() error {
	for {
		name := filepath.Join(s.dir, fmt.Sprintf("%05d.mem", s.newest+1))
		if _, err := os.Stat(name); err != nil {
			return nil
		}
		if err := allocate(name, walBytes); err != nil {
			return fmt.Errorf("allocate %q: %w", name, err)
		}
		if err := syncDir(s.dir); err != nil {
			return err
		}
		s.newest++
	}
}

// tryWrite makes a file in dir and removes it.
func tryWrite(dir string) error {
	name := filepath.Join(dir, "agentcell.try")
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

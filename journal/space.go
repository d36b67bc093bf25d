package journal

import (
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
}

// walBytes is how far badger may fill a write-ahead file: it begins a new one
// before the batch after the one that passes memtableBytes.
const walBytes = memtableBytes * 5 / 4

func newSpace(dir string, reserve int64) *space {
	return &space{dir: dir, reserve: reserve, free: freeBytes}
}

// check reports ErrFull if a batch of size bytes could leave too little: it may
// make badger begin a write-ahead file, and write the full one as a table.
func (s *space) check(size int) error {
	free, err := s.free(s.dir)
	if err != nil {
		return fmt.Errorf("%w: free space of %q: %w", ErrFull, s.dir, err)
	}
	need := int64(size) + walBytes + memtableBytes + s.reserve
	if free < need {
		return fmt.Errorf("%w: %q has %d MB free, and a write needs %d MB to be safe", ErrFull, s.dir, free>>20, need>>20)
	}
	return nil
}

// open claims the write-ahead file that badger, just opened, writes to.
func (s *space) open() error {
	names, err := filepath.Glob(filepath.Join(s.dir, "*.mem"))
	if err != nil {
		return err
	}
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(name), "%d.mem", &n); err == nil {
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

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

package journal

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
)

var _ diskStorage = (*badgerStorage)(nil)

// kindNothing is the kind of a key that no row has.
const kindNothing = 'z'

// compact merges all tables, so that what was deleted leaves the files. Without the
// room that this takes for a while it leaves that to the compactions that badger
// does by itself as more is written; with a damaged table nothing is merged. Views may
// be read meanwhile, and batches committed, though one may have to wait.
func (s *badgerStorage) compact() (err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	s.merging.Lock()
	defer s.merging.Unlock()
	s.use.RLock()
	defer s.use.RUnlock()
	switch {
	case s.lost != nil:
		return s.lost
	case s.space.check(0, true) != nil || s.damaged() != nil:
		return nil
	case s.db.Opts().NumCompactors == 0: // nobody has looked at the tables yet
		err := checkTables(s.space, false, s.stop)
		if errors.Is(err, ErrCorrupt) {
			s.foundDamage(err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.db.Flatten(1)
}

// flush makes a table of what is in memory. Badger does that for who drops all keys
// with a prefix that there is.
func (s *badgerStorage) flush() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	nothing := []byte{kindNothing}
	if err := s.write(nil, []Entry{{nothing, nil}}); err != nil {
		return err
	}
	if err := s.db.DropPrefix(nothing); err != nil {
		return err
	}
	return s.space.wrote(0)
}

// diskBytes is what the files take.
func (s *badgerStorage) diskBytes() (int64, error) {
	files, err := os.ReadDir(s.space.dir)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, f := range files {
		info, err := os.Stat(filepath.Join(s.space.dir, f.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // badger has just removed it
		}
		if err != nil {
			return 0, err
		}
		total += allocated(info)
	}
	return total, nil
}

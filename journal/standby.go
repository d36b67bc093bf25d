package journal

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// standby is the Storage of a store that cannot be opened for writing: it is read
// as it is on the disk. Each Commit tries again to open it, and once one succeeds
// all that follows goes there.
type standby struct {
	files *fileStore
	// why the store could not be opened for writing at first.
	why error
	// open opens the store for writing, or says why that cannot be.
	open  func() (*badgerStorage, error)
	store atomic.Pointer[badgerStorage]
}

var _ Storage = (*standby)(nil)

// openStandby opens the store in dir for reading. why is what keeps it from being
// written, and the error if there is nothing to be read either.
func openStandby(dir string, why error, open func() (*badgerStorage, error)) (*standby, error) {
	if _, err := readManifest(dir); errors.Is(err, ErrCorrupt) {
		return nil, err
	} else if err != nil {
		return nil, why
	}
	files, err := openFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("open for reading only, as it cannot be written (%w): %w", why, err)
	}
	return &standby{files: files, why: why, open: open}, nil
}

func (s *standby) Commit(b *Batch) error {
	store := s.store.Load()
	if store == nil {
		var err error
		if store, err = s.open(); err != nil {
			return err
		}
		s.store.Store(store)
	}
	return store.Commit(b)
}

func (s *standby) Limits() Limits { return storeLimits }

func (s *standby) View() View {
	if store := s.store.Load(); store != nil {
		return store.View()
	}
	return s.files.View()
}

func (s *standby) Close() error {
	err := s.files.Close()
	if store := s.store.Load(); store != nil {
		err = errors.Join(err, store.Close())
	}
	return err
}

func (s *standby) readOnly() error {
	if s.store.Load() != nil {
		return nil
	}
	return s.why
}

func (s *standby) room() (Room, error) {
	if store := s.store.Load(); store != nil {
		return store.room()
	}
	return s.files.space.roomToOpen()
}

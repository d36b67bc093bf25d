package journal

import (
	"errors"
	"fmt"
	"sync"
)

// standby is the Storage of a store that cannot be opened for writing: it is read
// as it is on the disk. A Commit tries again to open it, and once one succeeds
// all that follows goes there.
type standby struct {
	space *space
	// open opens the store for writing, or says why that cannot be.
	open func() (*badgerStorage, error)

	mu sync.Mutex
	// why the store could not be opened for writing.
	why error
	// views counts those of files that are open.
	views int
	files *fileStore
	// store takes the place of files.
	store *badgerStorage
}

var _ Storage = (*standby)(nil)

// openStandby opens the store there for reading. why is what keeps it from being
// written, and the error if there is nothing to be read either.
func openStandby(sp *space, why error, open func() (*badgerStorage, error)) (*standby, error) {
	if _, err := readManifest(sp.dir); errors.Is(err, ErrCorrupt) {
		return nil, err
	} else if err != nil {
		return nil, why
	}
	files, err := openFiles(sp)
	if err != nil {
		return nil, fmt.Errorf("open for reading only, as it cannot be written (%w): %w", why, err)
	}
	return &standby{space: sp, files: files, why: why, open: open}, nil
}

func (s *standby) Commit(b *Batch) error {
	store, err := s.reopen()
	if err != nil {
		return err
	}
	return store.Commit(b)
}

// reopen opens the store for writing, if nobody is just reading the files that
// this would change.
func (s *standby) reopen() (*badgerStorage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store != nil {
		return s.store, nil
	}
	if s.views > 0 {
		return nil, fmt.Errorf("%w: it is tried again when nobody reads", s.why)
	}
	store, err := s.open()
	if err != nil {
		s.why = err
		return nil, err
	}
	s.store = store
	return store, s.files.Close()
}

func (s *standby) Limits() Limits { return storeLimits }

func (s *standby) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store != nil {
		return s.store.View()
	}
	s.views++
	return &standbyView{View: s.files.View(), of: s}
}

type standbyView struct {
	View
	of *standby
}

func (v *standbyView) Close() {
	v.of.mu.Lock()
	defer v.of.mu.Unlock()
	v.of.views--
}

func (s *standby) Close() error {
	if s.store != nil {
		return s.store.Close()
	}
	return s.files.Close()
}

// readOnly is why the store is not open for writing, or nil if it is.
func (s *standby) readOnly() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store != nil {
		return nil
	}
	return s.why
}

func (s *standby) room() (Room, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store != nil {
		return s.store.room()
	}
	return s.space.roomToOpen()
}

func (s *standby) damaged() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		return nil
	}
	return s.store.damaged()
}

package journal

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// tender has badger merge tables, after it has looked at them.
//
// Badger's compactions trust the tables that they read: a damaged key ends the
// process, in a goroutine of badger's where nobody can recover, or comes out in a
// place where it hides the keys of others. So a store is opened without
// compactions. When some are due, and every table is what was written, it is closed and opened
// again with them. If one is not, nothing is merged: the damage stays where it is.
type tender struct {
	stop  chan struct{}
	ended sync.WaitGroup
	// lost is why there is no db: it was closed, and did not open again. Guarded by
	// badgerStorage.use.
	lost error
	// merging is held by who looks at the tables or merges them, not by badger itself.
	merging sync.Mutex

	mu     sync.Mutex
	damage error
}

const (
	// tendPause is how long a store is open before anything is merged, and the
	// time from one look at what is due to the next. Commands are done by then.
	tendPause = time.Second
	// tendPoll is how often the moment is tried at which nobody uses the store.
	tendPoll = 5 * time.Millisecond
)

// unattended are options without compactions, which so do not keep tables of what
// is in memory from being made.
func unattended(o badger.Options) badger.Options {
	return o.WithNumCompactors(0).WithNumLevelZeroTablesStall(1 << 30)
}

// tend begins, unless tables are known to be damaged already.
func (s *badgerStorage) tend() {
	if s.damage == nil {
		s.ended.Go(s.mergeWhenDue)
	}
}

func (s *badgerStorage) untend() {
	close(s.stop)
	s.ended.Wait()
}

// damaged is what is known to be wrong with tables.
func (s *badgerStorage) damaged() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damage
}

func (s *badgerStorage) foundDamage(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damage = err
}

// mergeWhenDue waits until tables should be merged, and sees to it that they are.
func (s *badgerStorage) mergeWhenDue() {
	tick := time.NewTicker(tendPause)
	defer tick.Stop()
	for merging := false; !merging; {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		if !s.due() {
			continue
		}
		err := s.merge()
		if errors.Is(err, ErrCorrupt) {
			s.foundDamage(err)
			return
		}
		merging = err == nil
	}
}

// merge has badger merge tables if they are what was written.
func (s *badgerStorage) merge() error {
	s.merging.Lock()
	defer s.merging.Unlock()
	if err := checkTables(s.space, false, s.stop); err != nil {
		return err
	}
	if !s.reopen() {
		return errStopped
	}
	return nil
}

// due reports whether badger would merge tables.
func (s *badgerStorage) due() bool {
	s.use.RLock()
	defer s.use.RUnlock()
	if s.lost != nil {
		return false
	}
	for _, level := range s.db.Levels() {
		if level.Score >= 1 {
			return true
		}
	}
	return false
}

// reopen opens the store anew, with compactions, at a moment when nobody uses it.
// It reports false if that has to wait for room, or for ever.
func (s *badgerStorage) reopen() bool {
	for !s.use.TryLock() { // which keeps nobody waiting, as Lock would
		select {
		case <-s.stop:
			return false
		case <-time.After(tendPoll):
		}
	}
	defer s.use.Unlock()
	if s.space.checkOpen() != nil {
		return false
	}
	err := s.db.Close()
	if err == nil {
		s.db, err = openDB(badgerOptions(s.space.dir))
	}
	if err == nil {
		s.db.SetDiscardTs(s.versions.newest())
		err = s.space.open()
	}
	if err != nil {
		s.lost = fmt.Errorf("the store could not be opened again: %w", err)
	}
	return true
}

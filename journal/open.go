package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// formatVersion is the version of the keys and rows that this code writes. An older
// store becomes one of it with the first thing that the older version did not know:
// deleted sessions (version 1), accounts (1 and 2), packed pages (1 to 3). Nothing
// else differs.
const formatVersion = 4

// Journal is one store and the rules that hold in it. It is safe for concurrent
// use; each append is refused or atomic, and durable when it returns.
type Journal struct {
	store  Storage
	writer *writer
	closed atomic.Bool
	// format is the version that the store had when it was opened.
	format uint32
	// imports has the uids of sessions that are being imported.
	imports sync.Map
	// spare has buffers of pages that images were made of: a turn reads some forty.
	spare sync.Pool
	// guard and handles say what Collect must leave, collecting that it runs.
	guard      guard
	handles    handles
	collecting sync.Mutex
	// open ends when the journal is being closed.
	open    context.Context
	closing context.CancelCauseFunc
	// release gives back what Open took beside the store.
	release func() error
}

// Options say how to open a journal. The zero value is right for most.
type Options struct {
	// FreeReserve is how many bytes of the disk stay free, beyond what the
	// store may need to finish what it has begun: below it, writes are refused
	// with ErrFull. It is for what other processes write meanwhile. Zero means
	// 16 MB, negative none.
	FreeReserve int64
	// LockWait is how long Open waits for another process to let go of the
	// directory before it gives up with ErrLocked.
	LockWait time.Duration
	// Beside are the names of files that others may keep in the directory: one with
	// nothing else in it is an empty one.
	Beside []string
}

const defaultFreeReserve = 16 << 20

func (o Options) freeReserve() int64 {
	if o.FreeReserve == 0 {
		return defaultFreeReserve
	}
	return max(o.FreeReserve, 0)
}

// Open opens the journal in dir, and makes one if dir is empty or missing. One
// process at a time can have it open: ErrLocked says which one has. ErrFormat says
// that dir holds something else, or was written by a newer version; ErrUnreadable
// that it is damaged.
//
// A journal that is there can be read where it cannot be written: in a directory
// that is read-only, or on a disk without the room that opening it for writing
// needs, what a killed process left in it included. Appends then fail with
// ErrReadOnly or ErrFull, which ReadOnly tells beforehand, and so does Open if there
// is nothing to be read. Processes that only read a read-only directory may have
// it open together.
func Open(dir string, o Options) (*Journal, error) {
	j, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open journal %q: %w", dir, err)
	}
	return j, nil
}

func open(dir string, o Options) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, accessError(err)
	}
	foreign := checkDir(dir, o.Beside)
	// With a lock file it may be a journal that another process is just making.
	if _, err := os.Stat(filepath.Join(dir, lockName)); foreign != nil && err != nil {
		return nil, foreign
	}
	lock, err := lockDir(dir, o.LockWait)
	if err != nil {
		return nil, err
	}
	if err := checkDir(dir, o.Beside); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	store, err := openStore(dir, lock, o)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	j, err := New(store, o)
	if err != nil {
		return nil, errors.Join(err, store.Close(), lock.Close())
	}
	j.release = lock.Close
	return j, nil
}

// openStore opens the store for writing if it can, or else for reading.
func openStore(dir string, lock *dirLock, o Options) (Storage, error) {
	write := func() (*badgerStorage, error) {
		if lock.why != nil {
			return nil, lock.why
		}
		store, err := openBadger(dir, o.freeReserve())
		if err != nil && !readable(err) {
			// Badger's errors do not say of what kind they are.
			if why := accessError(tryWrite(dir)); readable(why) {
				err = fmt.Errorf("%w (%w)", why, err)
			}
		}
		return store, err
	}
	store, err := write()
	switch {
	case err == nil:
		return store, nil
	case readable(err):
		return openStandby(newSpace(dir, o.freeReserve()), err, write)
	}
	return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
}

// checkDir refuses a directory that has files but no store, before anything is
// written there. Those called as in beside do not count.
func checkDir(dir string, beside []string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return accessError(err)
	}
	begun := func(f os.DirEntry) bool {
		switch f.Name() {
		case lockName, tryName, "MANIFEST-REWRITE":
			return true
		}
		return slices.Contains(beside, f.Name())
	}
	if !slices.ContainsFunc(files, func(f os.DirEntry) bool { return !begun(f) }) {
		return nil // all there is, is what making a store begins with
	}
	if _, err := os.Stat(filepath.Join(dir, "MANIFEST")); err != nil {
		return fmt.Errorf("%w: the directory has files but no journal; name an empty one", ErrFormat)
	}
	return nil
}

// OpenMemory makes a journal that lives as long as the process, for tests.
func OpenMemory() *Journal {
	j, err := New(newMemory(), Options{})
	if err != nil {
		panic(err) // an empty map always opens
	}
	return j
}

// New opens the journal in store, and makes one if store is empty. The journal
// then owns the store and closes it. If New fails the caller still owns it.
func New(store Storage, _ Options) (*Journal, error) {
	format, err := checkFormat(store)
	if err != nil {
		return nil, err
	}
	j := &Journal{store: store, format: format, release: func() error { return nil }}
	j.open, j.closing = context.WithCancelCause(context.Background())
	j.guard.holds = make(map[uint64]int)
	j.handles.all = make(map[weak.Pointer[Image]]struct{})
	j.writer = newWriter(store)
	go j.writer.run()
	return j, nil
}

// checkFormat writes the format version into an empty store, and refuses one
// that this code does not know. It gives the store's.
func checkFormat(store Storage) (uint32, error) {
	view := store.View()
	defer view.Close()
	key := []byte{kindFormat}
	row, err := view.Get(key)
	switch {
	case errors.Is(err, ErrNotFound):
		for range view.Scan(nil, []byte{0xff}, false) {
			return 0, fmt.Errorf("%w: the store holds something else", ErrFormat)
		}
		b := new(Batch)
		b.Require(key, nil)
		b.Put(formatRow())
		return formatVersion, store.Commit(b)
	case err != nil:
		return 0, err
	case len(row) != 4:
		return 0, fmt.Errorf("%w: its version cannot be read", ErrFormat)
	}
	v := binary.BigEndian.Uint32(row)
	if v < 1 || v > formatVersion {
		return 0, fmt.Errorf("%w: version %d, and this program knows version %d; use a newer one", ErrFormat, v, formatVersion)
	}
	return v, nil
}

func formatRow() Entry {
	return Entry{[]byte{kindFormat}, binary.BigEndian.AppendUint32(nil, formatVersion)}
}

// Close waits for the appends that are being written, ends Collect, refuses the
// others with ErrClosed, and closes the store. No walk of Read may be under way; later reads
// give ErrClosed.
func (j *Journal) Close() error {
	if !j.writer.close() {
		return nil
	}
	j.closing(ErrClosed)
	j.collecting.Lock()
	defer j.collecting.Unlock()
	j.closed.Store(true)
	return errors.Join(j.store.Close(), j.release())
}

// Commits counts the synced commits to the storage since the journal was opened.
func (j *Journal) Commits() uint64 { return j.writer.commits.Load() }

// Idle reports whether no append is waiting or being written.
func (j *Journal) Idle() bool { return j.writer.idle() }

// get is a point read of the newest state. It wraps ErrNotFound.
func (j *Journal) get(key []byte) ([]byte, error) {
	view := j.view()
	defer view.Close()
	return view.Get(key)
}

// view is the newest state, or nothing but ErrClosed.
func (j *Journal) view() View {
	if j.closed.Load() {
		return closedView{ErrClosed}
	}
	return j.store.View()
}

// closedView is the View of what is not there any more: nothing but an error.
type closedView struct{ err error }

func (v closedView) Get([]byte) ([]byte, error) { return nil, v.err }

func (v closedView) Scan(_, _ []byte, _ bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { yield(Entry{}, v.err) }
}

func (closedView) Close() {}

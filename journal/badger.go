package journal

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// memtableBytes bounds what badger holds in memory before it makes a table of
// it, twice: as a heap arena, and as a mapped write-ahead file. A transaction may
// have 15 % of it, of which storeLimits leaves a little to badger itself.
const memtableBytes = 16 << 20

// maxInline is the least length of a value that badger would put into its value
// log.
const maxInline = 1 << 20

// numMemtables is how many full memtables may wait to become tables.
const numMemtables = 2

// badgerOptions are for a store that is opened and closed by every command, and
// whose every commit is one synced transaction. All values stay in the tree: the
// value log has its own sync, whose failure badger does not report, and a file
// that can be cut apart from the write-ahead file.
func badgerOptions(dir string) badger.Options {
	return badger.DefaultOptions(dir).
		WithSyncWrites(true).
		WithDetectConflicts(false). // there is one writer
		WithBypassLockGuard(true).  // Open holds a lock that names its holder
		WithLogger(nil).
		WithMetricsEnabled(false).
		WithCompression(options.None).
		WithBlockCacheSize(0). // tables are mapped, not compressed
		WithIndexCacheSize(0).
		WithNumVersionsToKeep(1).
		WithMemTableSize(memtableBytes).
		WithNumMemtables(numMemtables).
		WithNumLevelZeroTables(4).
		WithNumLevelZeroTablesStall(8).
		WithNumCompactors(2).
		WithBlockSize(blockBytes).
		WithValueThreshold(maxInline).
		WithValueLogFileSize(1 << 20)
}

// badgerStorage is the Storage in a directory.
type badgerStorage struct {
	// use is held for reading by whoever uses db, each View for as long as it is
	// open, and for writing while another one takes its place.
	use   sync.RWMutex
	db    *badger.DB
	space *space
	// known has the values of keys that batches required and put, which are
	// required again and again: heads. This process alone writes here.
	known map[string][]byte
	// writing is held over all that writes: Commit, and flush beside it.
	writing sync.Mutex

	versions versions
	tender
}

// maxKnown bounds badgerStorage.known.
const maxKnown = 16 << 10

var _ Storage = (*badgerStorage)(nil)

func openBadger(dir string, reserve int64) (*badgerStorage, error) {
	s, err := openUntended(dir, reserve)
	if err == nil {
		s.tend()
	}
	return s, err
}

// openUntended is openBadger without merging tables before Close.
func openUntended(dir string, reserve int64) (*badgerStorage, error) {
	if err := removeEmptyLogs(dir); err != nil {
		return nil, err
	}
	space := newSpace(dir, reserve)
	if err := space.checkOpen(); err != nil {
		return nil, err
	}
	crowded, err := isCrowded(dir)
	if err != nil {
		return nil, err
	}
	damage := error(nil)
	if crowded {
		if damage = checkTables(space, true, nil); damage != nil && !errors.Is(damage, ErrCorrupt) {
			return nil, damage
		}
	}
	db, err := openDB(unattended(badgerOptions(dir)).WithCompactL0OnClose(crowded && damage == nil))
	if err != nil {
		return nil, err
	}
	s := &badgerStorage{db: db, space: space, known: make(map[string][]byte)}
	s.stop, s.damage = make(chan struct{}), damage
	s.versions.open(db.MaxVersion())
	s.space.tables = s.tableBytes
	if err := s.space.open(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// maxLevelZero is how many tables level 0 may have before Close merges them.
const maxLevelZero = 16

// isCrowded reports whether level 0 has so many tables that Close should merge
// them. Each process that writes leaves one there, and a command ends before
// badger's compactors, which take a moment to begin, see to it.
func isCrowded(dir string) (bool, error) {
	m, err := readManifest(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return len(m.Levels) > 0 && len(m.Levels[0].Tables) >= maxLevelZero, err
}

func (s *badgerStorage) tableBytes() int64 {
	size := int64(0)
	for _, level := range s.db.Levels() {
		size += level.Size
	}
	return size
}

func (s *badgerStorage) Limits() Limits { return storeLimits }

func (s *badgerStorage) Commit(b *Batch) error {
	if err := s.Limits().check(b); err != nil {
		return err
	}
	s.use.RLock()
	defer s.use.RUnlock()
	if s.lost != nil {
		return s.lost
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.space.check(b.Size()+b.AheadSize(), b.Frees); err != nil {
		return err
	}
	if err := s.require(b.Requires); err != nil {
		return err
	}
	ahead, size := b.Ahead, b.AheadSize()
	for size > 0 && size+b.Size() > storeLimits.Size {
		n := prefix(ahead, storeLimits.Size)
		if err := s.write(nil, ahead[:n]); err != nil {
			return err
		}
		size -= entriesSize(ahead[:n])
		ahead = ahead[n:]
	}
	if err := s.write(b.Deletes, ahead, b.Puts); err != nil {
		return err
	}
	for _, key := range b.Deletes {
		delete(s.known, string(key))
	}
	for _, e := range b.Puts {
		if _, ok := s.known[string(e.Key)]; ok {
			s.known[string(e.Key)] = e.Value
		}
	}
	return nil
}

// prefix is how many of the first entries have at most size bytes together, but
// at least one.
func prefix(entries []Entry, size int) int {
	for i, e := range entries {
		if size -= e.size(); size < 0 && i > 0 {
			return i
		}
	}
	return len(entries)
}

// require checks the preconditions of a batch. There is one writer: what holds
// now holds when the batch is written.
func (s *badgerStorage) require(requires []Requirement) error {
	if len(s.known) > maxKnown {
		clear(s.known)
	}
	txn := s.db.NewTransactionAt(s.versions.newest(), false)
	defer txn.Discard()
	for _, r := range requires {
		value, found := s.known[string(r.Key)]
		if !found {
			var err error
			value, err = get(txn, r.Key)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
			found = err == nil
		}
		if !r.holds(value, found) {
			return ErrConflict
		}
		if found {
			s.known[string(r.Key)] = value
		}
	}
	return nil
}

// write deletes the keys and puts all entries in one synced transaction.
func (s *badgerStorage) write(deletes [][]byte, entries ...[]Entry) error {
	version := s.versions.newest() + 1
	txn := s.db.NewTransactionAt(version-1, true)
	defer txn.Discard()
	size := 0
	for _, key := range deletes {
		size += Entry{Key: key}.size()
		if err := txn.Delete(key); err != nil {
			return fmt.Errorf("%w: %w", ErrTooLarge, err)
		}
	}
	for _, e := range slices.Concat(entries...) {
		size += e.size()
		if err := txn.Set(e.Key, e.Value); err != nil {
			return fmt.Errorf("%w: %w", ErrTooLarge, err)
		}
	}
	if err := s.space.claim(size); err != nil {
		return err
	}
	if err := txn.CommitAt(version, nil); err != nil {
		return err
	}
	s.db.SetDiscardTs(s.versions.committed(version))
	return s.space.wrote(size)
}

func (s *badgerStorage) View() View {
	s.use.RLock()
	if s.lost != nil {
		s.use.RUnlock()
		return closedView{s.lost}
	}
	version := s.versions.acquire()
	return &badgerView{s, version, s.db.NewTransactionAt(version, false)}
}

func (s *badgerStorage) Close() error {
	s.untend()
	if s.lost != nil {
		return nil
	}
	return s.db.Close()
}

// badgerView is the state as of one version.
type badgerView struct {
	storage *badgerStorage
	version uint64
	txn     *badger.Txn
}

func (v *badgerView) Get(key []byte) ([]byte, error) { return get(v.txn, key) }

func (v *badgerView) Close() {
	v.txn.Discard()
	v.storage.versions.release(v.version)
	v.storage.use.RUnlock()
}

func openDB(o badger.Options) (db *badger.DB, err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	return badger.OpenManaged(o)
}

// corrupted makes an error of a panic of badger's, which trusts what its files say
// of themselves, and of a mapped file that the disk cannot read. A function that
// defers it has faults panic, and hands over whether they did before.
func corrupted(err *error, faults bool) {
	debug.SetPanicOnFault(faults)
	if r := recover(); r != nil {
		text := strings.Fields(fmt.Sprint(r)) // badger's has many lines
		*err = fmt.Errorf("%w: a file of the store cannot be read: %s", ErrCorrupt, strings.Join(text, " "))
	}
}

func get(txn *badger.Txn, key []byte) (value []byte, err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return item.ValueCopy(nil)
}

func (v *badgerView) Scan(from, to []byte, reverse bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		it, err := v.iterator(badger.IteratorOptions{
			Reverse: reverse,
			Prefix:  commonPrefix(from, to),
		})
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer it.Close()
		v.scan(it, from, to, reverse, yield)
	}
}

func (v *badgerView) iterator(o badger.IteratorOptions) (it *badger.Iterator, err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	return v.txn.NewIterator(o), nil
}

// touch reads a value's pages from the disk, where that can fail in good order.
//
//go:noinline
func touch(value []byte) (sum byte) {
	for i := 0; i < len(value); i += 4096 {
		sum ^= value[i]
	}
	if len(value) > 0 {
		sum ^= value[len(value)-1]
	}
	return sum
}

func (v *badgerView) scan(it *badger.Iterator, from, to []byte, reverse bool, yield func(Entry, error) bool) {
	start := from
	if reverse {
		start = to // the greatest key <= to, which may be to itself
	}
	step := func(move func()) (err error) {
		defer corrupted(&err, debug.SetPanicOnFault(true))
		move()
		if it.Valid() {
			return it.Item().Value(func(value []byte) error { touch(value); return nil })
		}
		return nil
	}
	for err := step(func() { it.Seek(start) }); ; err = step(it.Next) {
		if err != nil {
			yield(Entry{}, err)
			return
		}
		if !it.Valid() {
			return
		}
		item := it.Item()
		key := item.Key()
		if reverse && string(key) >= string(to) {
			continue
		}
		if !reverse && string(key) >= string(to) || reverse && string(key) < string(from) {
			return
		}
		var stop bool
		err := item.Value(func(value []byte) error {
			stop = !yield(Entry{key, value}, nil)
			return nil
		})
		if err != nil {
			yield(Entry{}, err)
			return
		}
		if stop {
			return
		}
	}
}

func commonPrefix(a, b []byte) []byte {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n:n]
}

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sort"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// fileStore is what the files of a badger store say, read without changing any of
// them. Badger itself cannot do that: opened read-only it refuses a store whose
// last writer was killed. It may be read by many goroutines, but not while badger
// has the store open, which cuts files before it removes them.
type fileStore struct {
	// ahead has what the write-ahead files do, in the order of y.CompareKeys.
	ahead []aheadEntry
	// levels are the tables. Those of level 0 may overlap, those of another are
	// in order.
	levels [][]*table.Table
	unmap  []func() error
}

// aheadEntry is a value that a key was given. The key ends with when it was, as
// badger has it.
type aheadEntry struct {
	key   []byte
	value y.ValueStruct
}

// deletedBit is set in the Meta of a value that stands for none.
const deletedBit = 1

func openFiles(sp *space) (*fileStore, error) {
	s, err := openTables(sp)
	if err != nil {
		return nil, err
	}
	if s.ahead, err = readAheadFiles(sp); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	slices.SortFunc(s.ahead, func(a, b aheadEntry) int { return y.CompareKeys(a.key, b.key) })
	return s, nil
}

// openTables is openFiles without the write-ahead files.
func openTables(sp *space) (*fileStore, error) {
	m, err := readManifest(sp.dir)
	if err != nil {
		return nil, err
	}
	s := new(fileStore)
	for id, t := range m.Tables {
		for len(s.levels) <= int(t.Level) {
			s.levels = append(s.levels, nil)
		}
		opened, err := s.openTable(sp.dir, id, table.Options{ReadOnly: true, Compression: t.Compression, BlockSize: blockBytes})
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.levels[t.Level] = append(s.levels[t.Level], opened)
	}
	for _, tables := range s.levels {
		slices.SortFunc(tables, func(a, b *table.Table) int { return y.CompareKeys(a.Smallest(), b.Smallest()) })
	}
	return s, nil
}

// blockBytes is about how large the blocks of a table are.
const blockBytes = 4 << 10

// readManifest reads which tables a store has.
func readManifest(dir string) (m badger.Manifest, err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		return m, err
	}
	defer f.Close()
	o := badgerOptions(dir)
	m, _, err = badger.ReplayManifestFile(f, o.ExternalMagicVersion, o)
	return m, err
}

func (s *fileStore) openTable(dir string, id uint64, o table.Options) (t *table.Table, err error) {
	name := table.NewFilename(id, dir)
	defer func() {
		if err != nil {
			err = fmt.Errorf("table %q: %w", name, err)
		}
	}()
	defer corrupted(&err, debug.SetPanicOnFault(true))
	data, unmap, err := mapFile(name)
	if err != nil {
		return nil, err
	}
	s.unmap = append(s.unmap, unmap)
	t, err = table.OpenInMemoryTable(data, id, &o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return t, nil
}

func (s *fileStore) Close() error {
	var errs []error
	for _, unmap := range s.unmap {
		errs = append(errs, unmap())
	}
	return errors.Join(errs...)
}

// View is the state that was found, as every View is.
func (s *fileStore) View() View { return filesView{s} }

type filesView struct{ *fileStore }

func (filesView) Close() {}

func (v filesView) Get(key []byte) (value []byte, err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	first := y.KeyWithTs(key, math.MaxUint64) // the newest version is the first
	found, newest := y.ValueStruct{}, uint64(0)
	look := func(it y.Iterator) error {
		it.Seek(first)
		if it.Valid() && y.SameKey(first, it.Key()) {
			if when := y.ParseTs(it.Key()); when > newest {
				found, newest = it.Value(), when
			}
		}
		return it.Close()
	}
	err = look(&aheadIterator{all: v.ahead})
	hash := y.Hash(key)
	for _, t := range v.tablesOf(first) {
		if !t.DoesNotHave(hash) {
			err = errors.Join(err, look(t.NewIterator(0)))
		}
	}
	if err != nil {
		return nil, err
	}
	if newest == 0 || found.Meta&deletedBit != 0 {
		return nil, ErrNotFound
	}
	return slices.Clone(found.Value), nil
}

// tablesOf are the tables that may have a key.
func (s *fileStore) tablesOf(key []byte) []*table.Table {
	var found []*table.Table
	for level, tables := range s.levels {
		if level == 0 {
			found = append(found, tables...)
			continue
		}
		i := sort.Search(len(tables), func(i int) bool { return y.CompareKeys(tables[i].Biggest(), key) >= 0 })
		if i < len(tables) {
			found = append(found, tables[i])
		}
	}
	return found
}

func (v filesView) Scan(from, to []byte, reverse bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		c := &cursor{it: v.iterator(reverse), reverse: reverse, from: from, to: to}
		defer c.it.Close()
		for e, ok, err := c.first(); ok || err != nil; e, ok, err = c.next() {
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// iterator walks all versions of all keys.
func (s *fileStore) iterator(reverse bool) y.Iterator {
	way := 0
	if reverse {
		way = table.REVERSED
	}
	all := []y.Iterator{&aheadIterator{all: s.ahead, reverse: reverse}}
	for level, tables := range s.levels {
		if level > 0 {
			all = append(all, table.NewConcatIterator(tables, way))
			continue
		}
		for _, t := range tables {
			all = append(all, t.NewIterator(way))
		}
	}
	return table.NewMergeIterator(all, reverse)
}

// cursor walks the newest versions of the keys from one to another.
type cursor struct {
	it       y.Iterator
	reverse  bool
	from, to []byte
	key      []byte // the last one
	begun    bool
}

func (c *cursor) first() (_ Entry, _ bool, err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	start := c.from
	if c.reverse {
		start = c.to
	}
	c.it.Seek(y.KeyWithTs(start, math.MaxUint64)) // before all versions of start
	return c.next()
}

func (c *cursor) next() (_ Entry, _ bool, err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	for c.it.Valid() {
		key := y.ParseKey(c.it.Key())
		if bytes.Compare(key, c.from) < 0 || bytes.Compare(key, c.to) >= 0 {
			break
		}
		if c.begun && bytes.Equal(key, c.key) {
			c.it.Next() // an older version, as those go downwards
			continue
		}
		c.key, c.begun = append(c.key[:0], key...), true
		newest := c.it.Value()
		for c.reverse && c.it.Valid() && bytes.Equal(y.ParseKey(c.it.Key()), c.key) {
			newest = c.it.Value()
			c.it.Next()
		}
		if newest.Meta&deletedBit == 0 {
			touch(newest.Value)
			return Entry{c.key, newest.Value}, true, nil
		}
	}
	return Entry{}, false, nil
}

// aheadIterator walks what the write-ahead files have.
type aheadIterator struct {
	all     []aheadEntry
	reverse bool
	at      int
}

var _ y.Iterator = (*aheadIterator)(nil)

func (a *aheadIterator) Seek(key []byte) {
	a.at = sort.Search(len(a.all), func(i int) bool { return y.CompareKeys(a.all[i].key, key) >= 0 })
	if a.reverse && (a.at == len(a.all) || !bytes.Equal(a.all[a.at].key, key)) {
		a.at--
	}
}

func (a *aheadIterator) Rewind() {
	a.at = 0
	if a.reverse {
		a.at = len(a.all) - 1
	}
}

func (a *aheadIterator) Next() {
	if a.reverse {
		a.at--
	} else {
		a.at++
	}
}

func (a *aheadIterator) Valid() bool          { return a.at >= 0 && a.at < len(a.all) }
func (a *aheadIterator) Key() []byte          { return a.all[a.at].key }
func (a *aheadIterator) Value() y.ValueStruct { return a.all[a.at].value }
func (a *aheadIterator) Close() error         { return nil }

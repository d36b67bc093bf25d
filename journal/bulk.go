package journal

import (
	"bytes"
	"errors"
	"runtime/debug"

	"github.com/dgraph-io/badger/v4"
)

// bulkView is a View that reads many values for less than a Get each.
type bulkView interface {
	// getAll reads the values of keys, which ascend, and hands each to use, in
	// order, with its place among them, as Get would return it. The value is valid
	// until use returns. The first error of use ends it and is returned.
	getAll(keys [][]byte, use func(i int, value []byte, err error) error) error
}

// getAll is that of view, or gets one value after another.
func getAll(view View, keys [][]byte, use func(i int, value []byte, err error) error) error {
	if bulk, ok := view.(bulkView); ok {
		return bulk.getAll(keys, use)
	}
	for i, key := range keys {
		value, err := view.Get(key)
		if err := use(i, value, err); err != nil {
			return err
		}
	}
	return nil
}

var _ bulkView = (*badgerView)(nil)

const (
	// scanFrom is for how many keys it pays to walk.
	scanFrom = 256
	// scanSteps is how many keys are walked over for one that is wanted. A look-up
	// costs five to eight steps: it goes through indexes that no cache of the processor holds,
	// and badger copies the value three times.
	scanSteps = 6
	// scanMisses is how many keys may lie farther away until look-ups are
	// cheaper.
	scanMisses = 16
)

// getAll walks along the keys as long as those that are wanted are near to one
// another, and then looks them up. Hashes are spread evenly: what is true of the first
// keys is true of all.
func (v *badgerView) getAll(keys [][]byte, use func(i int, value []byte, err error) error) error {
	i := 0
	if len(keys) >= scanFrom {
		it, err := v.iterator(badger.IteratorOptions{Prefix: commonPrefix(keys[0], keys[len(keys)-1])})
		if err != nil {
			return use(0, nil, err)
		}
		defer it.Close()
		for misses := 0; i < len(keys) && misses < scanMisses; i++ {
			found, near, err := walkTo(it, keys[i])
			if !near {
				misses++
			}
			if err := useItem(found, i, err, use); err != nil {
				return err
			}
		}
	}
	for ; i < len(keys); i++ {
		item, err := v.item(keys[i])
		if err := useItem(item, i, err, use); err != nil {
			return err
		}
	}
	return nil
}

// walkTo finds key, by a few steps if it is near. Without an error, item is not nil.
func walkTo(it *badger.Iterator, key []byte) (item *badger.Item, near bool, err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	for range scanSteps {
		if !it.Valid() || bytes.Compare(it.Item().Key(), key) >= 0 {
			break
		}
		it.Next()
	}
	near = it.Valid() && bytes.Equal(it.Item().Key(), key)
	if !near {
		it.Seek(key)
	}
	if !it.Valid() || !bytes.Equal(it.Item().Key(), key) {
		return nil, near, ErrNotFound
	}
	return it.Item(), near, nil
}

func (v *badgerView) item(key []byte) (item *badger.Item, err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	item, err = v.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		err = ErrNotFound
	}
	return item, err
}

// useItem hands an item's value, which badger has copied from the disk already, to
// use.
func useItem(item *badger.Item, i int, err error, use func(i int, value []byte, err error) error) error {
	if err != nil {
		return use(i, nil, err)
	}
	return item.Value(func(value []byte) error { return use(i, value, nil) })
}

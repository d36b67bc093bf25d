package journal

import (
	"fmt"
	"iter"
)

// Storage is what a Journal keeps everything in: an ordered map of byte strings
// that takes atomic batches and makes them durable. Open uses badger,
// OpenMemory a map; journal tests hold the contract for both.
//
// Views may be used while a Commit runs and from many goroutines, each view by
// one at a time. Only one Commit runs at a time.
type Storage interface {
	// Commit checks b's requirements and applies all of b's deletes and puts or
	// none. It returns nil only after b is on stable storage, and keeps the
	// slices in b.
	//
	// An error that is ErrConflict (a requirement does not hold), ErrCorrupt
	// (its key cannot be read), ErrTooLarge (see Limits), ErrFull or ErrReadOnly
	// says that none was written, though something of b.Ahead may have been. After
	// any other it is unknown what was, and the Storage must not be written again.
	Commit(b *Batch) error
	// Limits are the same at every call.
	Limits() Limits
	// View is a consistent view of what was committed before the call. It holds
	// resources until it is closed.
	View() View
	// Close releases the storage once no View is open and no Commit runs.
	Close() error
}

// View is a consistent view of a Storage.
type View interface {
	// Get returns the value of key, which the caller must not change, or
	// ErrNotFound.
	Get(key []byte) ([]byte, error)
	// Scan walks the keys k with from <= k < to, upwards or (reverse) downwards.
	// What an Entry points to is valid until the next one is asked for. An
	// error is the last thing it yields.
	Scan(from, to []byte, reverse bool) iter.Seq2[Entry, error]
	Close()
}

// Entry is a key and its value.
type Entry struct{ Key, Value []byte }

// Limits bound a batch.
type Limits struct {
	// Size is the greatest Batch.Size that a Storage takes, Ahead the greatest
	// Batch.AheadSize, Value the greatest length of a value.
	Size, Ahead, Value int
}

// storeLimits are those of both implementations here. Ahead has room for 8 MiB
// of pages and their nodes.
var storeLimits = Limits{
	Size:  memtableBytes*15/100 - 4<<10,
	Ahead: 9 << 20,
	Value: maxInline - 1,
}

// Batch is a set of changes that a Storage applies together.
type Batch struct {
	// Ahead are entries that must be durable before or with Puts, one not
	// before those in front of it. They are named by their content: writing
	// one again, or without the rest, does no harm.
	Ahead []Entry
	// Deletes are the keys of entries that go, where they are there. A put of the
	// same key counts more.
	Deletes [][]byte
	// Puts are written in order; of two for one key the later counts.
	Puts []Entry
	// Requires must all hold in the state before the batch.
	Requires []Requirement
	// Frees: the batch makes room, or lets it be made, and may have room that is
	// kept free otherwise.
	Frees bool
	size  int
	ahead int
}

// Requirement is a precondition of a Batch: the value of Key begins with
// Prefix; if Prefix is nil, the key is absent.
type Requirement struct{ Key, Prefix []byte }

// entryOverhead is what an entry costs a Storage beyond its own bytes, more
// than badger's own reckoning by size and by count.
const entryOverhead = 96

// size is what e adds to a batch.
func (e Entry) size() int { return len(e.Key) + len(e.Value) + entryOverhead }

// Put adds an entry. The batch keeps the slices.
func (b *Batch) Put(e Entry) {
	b.Puts = append(b.Puts, e)
	b.size += e.size()
}

// Delete lets the entry of key go. The batch keeps the slice.
func (b *Batch) Delete(key []byte) {
	b.Deletes = append(b.Deletes, key)
	b.size += Entry{Key: key}.size()
}

// PutAhead adds entries to b.Ahead. The batch keeps the slices.
func (b *Batch) PutAhead(entries ...Entry) {
	b.Ahead = append(b.Ahead, entries...)
	b.ahead += entriesSize(entries)
}

func entriesSize(entries []Entry) int {
	n := 0
	for _, e := range entries {
		n += e.size()
	}
	return n
}

// Require adds a precondition.
func (b *Batch) Require(key, prefix []byte) {
	b.Requires = append(b.Requires, Requirement{key, prefix})
}

// Size is what the deletes and puts cost a Storage, in bytes.
func (b *Batch) Size() int { return b.size }

// AheadSize is what the entries ahead cost a Storage, in bytes.
func (b *Batch) AheadSize() int { return b.ahead }

// check reports ErrTooLarge for a batch beyond the limits.
func (l Limits) check(b *Batch) error {
	if b.size > l.Size || b.ahead > l.Ahead {
		return fmt.Errorf("%w: a batch of %d bytes with %d ahead", ErrTooLarge, b.size, b.ahead)
	}
	for _, entries := range [][]Entry{b.Ahead, b.Puts} {
		for _, e := range entries {
			if len(e.Value) > l.Value {
				return fmt.Errorf("%w: a value of %d bytes, at most %d", ErrTooLarge, len(e.Value), l.Value)
			}
		}
	}
	return nil
}

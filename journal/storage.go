package journal

import "iter"

// Storage is what a Journal keeps everything in: an ordered map of byte strings
// that takes atomic batches and makes them durable. Open uses badger,
// OpenMemory a map; journal tests hold the contract for both.
//
// Views may be used while a Commit runs and from many goroutines, each view by
// one at a time. Only one Commit runs at a time.
type Storage interface {
	// Commit checks b's requirements and applies all of b or nothing. It
	// returns nil only after b is on stable storage, and keeps the slices in b.
	//
	// An error that is ErrConflict (a requirement does not hold), ErrTooLarge or
	// ErrFull says that nothing was written. After any other it is unknown what
	// was, and the Storage must not be written again.
	Commit(b *Batch) error
	// MaxBatch is the greatest Batch.Size that Commit takes.
	MaxBatch() int
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

// Batch is a set of changes that a Storage applies together.
type Batch struct {
	// Puts are written in order; of two for one key the later counts.
	Puts []Entry
	// Requires must all hold in the state before the batch.
	Requires []Requirement
	size     int
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

// Require adds a precondition.
func (b *Batch) Require(key, prefix []byte) {
	b.Requires = append(b.Requires, Requirement{key, prefix})
}

// Size is what the batch costs the Storage, in bytes.
func (b *Batch) Size() int { return b.size }

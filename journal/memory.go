package journal

import (
	"bytes"
	"hash/maphash"
	"iter"
	"slices"
	"sync/atomic"
)

// memory is the Storage without a disk: a persistent treap, so that a View is
// one pointer. What it calls durable lives as long as the process.
type memory struct {
	seed maphash.Seed
	root atomic.Pointer[treapNode]
	size atomic.Int64 // of all rows, keys and values
}

var (
	_ Storage     = (*memory)(nil)
	_ diskStorage = (*memory)(nil)
)

// treapNode is a node of a treap: ordered by key, a heap by priority. Nodes are never
// changed once they can be reached from a root.
type treapNode struct {
	entry       Entry
	priority    uint64
	left, right *treapNode
}

// NewMemory makes the Storage of OpenMemory, for tests that put faults in front of
// one.
func NewMemory() Storage { return newMemory() }

func newMemory() *memory { return &memory{seed: maphash.MakeSeed()} }

func (m *memory) Commit(b *Batch) error {
	if err := m.Limits().check(b); err != nil {
		return err
	}
	root := m.root.Load()
	for _, r := range b.Requires {
		e, found := root.find(r.Key)
		if !r.holds(e.Value, found) {
			return ErrConflict
		}
	}
	grown := 0
	for _, key := range b.Deletes {
		grown -= root.rowSize(key)
		root = root.without(key)
	}
	for _, e := range slices.Concat(b.Ahead, b.Puts) {
		grown += len(e.Key) + len(e.Value) - root.rowSize(e.Key)
		root = root.with(e, maphash.Bytes(m.seed, e.Key))
	}
	m.root.Store(root)
	m.size.Add(int64(grown))
	return nil
}

// compact does nothing: rows that were deleted take no room.
func (m *memory) compact() error { return nil }

func (m *memory) diskBytes() (int64, error) { return m.size.Load(), nil }

func (m *memory) Limits() Limits { return storeLimits }

func (m *memory) View() View { return memoryView{m.root.Load()} }

func (m *memory) Close() error { return nil }

// holds reports whether a key with this value, or without one, meets r.
func (r Requirement) holds(value []byte, found bool) bool {
	if r.Prefix == nil {
		return !found
	}
	return found && bytes.HasPrefix(value, r.Prefix)
}

func (n *treapNode) find(key []byte) (Entry, bool) {
	for n != nil {
		switch c := bytes.Compare(key, n.entry.Key); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n.entry, true
		}
	}
	return Entry{}, false
}

// rowSize is what the row of key takes, nothing if there is none.
func (n *treapNode) rowSize(key []byte) int {
	e, found := n.find(key)
	if !found {
		return 0
	}
	return len(e.Key) + len(e.Value)
}

// with returns a treap that also has e and shares all it can with n.
func (n *treapNode) with(e Entry, priority uint64) *treapNode {
	if n == nil {
		return &treapNode{entry: e, priority: priority}
	}
	m := *n
	switch c := bytes.Compare(e.Key, n.entry.Key); {
	case c < 0:
		child := n.left.with(e, priority)
		m.left = child
		if child.priority > m.priority {
			m.left, child.right = child.right, &m
			return child
		}
	case c > 0:
		child := n.right.with(e, priority)
		m.right = child
		if child.priority > m.priority {
			m.right, child.left = child.left, &m
			return child
		}
	default:
		m.entry = e
	}
	return &m
}

// without returns a treap that has no entry of key and shares all it can with n.
func (n *treapNode) without(key []byte) *treapNode {
	if n == nil {
		return nil
	}
	m := *n
	switch c := bytes.Compare(key, n.entry.Key); {
	case c < 0:
		if m.left = n.left.without(key); m.left == n.left {
			return n
		}
	case c > 0:
		if m.right = n.right.without(key); m.right == n.right {
			return n
		}
	default:
		return join(n.left, n.right)
	}
	return &m
}

// join makes one treap of two, of which all keys of left are below those of right.
func join(left, right *treapNode) *treapNode {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case left.priority > right.priority:
		m := *left
		m.right = join(left.right, right)
		return &m
	default:
		m := *right
		m.left = join(left, right.left)
		return &m
	}
}

type memoryView struct{ root *treapNode }

func (v memoryView) Get(key []byte) ([]byte, error) {
	e, found := v.root.find(key)
	if !found {
		return nil, ErrNotFound
	}
	return e.Value, nil
}

func (v memoryView) Scan(from, to []byte, reverse bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		v.root.walk(from, to, reverse, func(e Entry) bool { return yield(e, nil) })
	}
}

func (v memoryView) Close() {}

// walk visits the entries in [from, to) and reports whether visit always did.
func (n *treapNode) walk(from, to []byte, reverse bool, visit func(Entry) bool) bool {
	if n == nil {
		return true
	}
	low := bytes.Compare(n.entry.Key, from) >= 0 // n, and perhaps what is left of it
	high := to == nil || bytes.Compare(n.entry.Key, to) < 0
	first, second := n.left, n.right
	inFirst, inSecond := low, high
	if reverse {
		first, second, inFirst, inSecond = second, first, high, low
	}
	if inFirst && !first.walk(from, to, reverse, visit) {
		return false
	}
	if low && high && !visit(n.entry) {
		return false
	}
	return !inSecond || second.walk(from, to, reverse, visit)
}

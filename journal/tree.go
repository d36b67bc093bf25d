package journal

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/agentcell/agentcell/sdk/abi"
)

// The kinds of an image's rows, beside those in keys.go.
const (
	kindPage  = 'p' // p hash of a page leaf -> the page, packed or not, see pack.go
	kindNode  = 't' // t hash of an inner node -> the hashes of its children
	kindImage = 'i' // i root of an image -> what the root hashes, see imageRow
)

// digestKey is the key of a row that is named by a hash.
func digestKey(kind byte, d abi.Digest) []byte {
	key := make([]byte, 1+len(d))
	key[0] = kind
	copy(key[1:], d[:])
	return key
}

// The shape of a page tree: leaves are pages (level 0), a node at level k has up
// to fanout children at level k-1, the last node of a level may have fewer.
const (
	fanout    = 16
	maxPages  = 1 << 20 // 4 GiB, all a 32-bit memory can address
	maxHeight = 5       // fanout^maxHeight == maxPages
)

// span is how many pages a full node at level covers.
func span(level int) uint32 { return 1 << (4 * level) }

// covered is how many of the first total pages stand below the node at level
// whose first page is first.
func covered(total uint32, level int, first uint32) uint32 {
	if first >= total {
		return 0
	}
	return min(total-first, span(level))
}

// height is the level of the root of a tree of pages pages.
func height(pages uint32) int {
	h := 0
	for span(h) < pages {
		h++
	}
	return h
}

// kidCount is how many children a node at level has that covers pages pages.
func kidCount(level int, pages uint32) int {
	return int((pages + span(level-1) - 1) / span(level-1))
}

// The first byte of what is hashed, so that no page can pass for a node.
const (
	leafTag  = 0
	innerTag = 1
)

func hashPage(page []byte) (d abi.Digest) {
	h := sha256.New()
	h.Write([]byte{leafTag})
	h.Write(page)
	h.Sum(d[:0])
	return d
}

// hashInner hashes the concatenated hashes of up to fanout children.
func hashInner(kids []byte) abi.Digest {
	var buf [1 + fanout*sha256.Size]byte
	buf[0] = innerTag
	return sha256.Sum256(buf[:1+copy(buf[1:], kids)])
}

// fullZero has the hash of a full all-zero subtree of each level.
var fullZero = func() (z [maxHeight + 1]abi.Digest) {
	z[0] = hashPage(make([]byte, abi.PageSize))
	for level := 1; level <= maxHeight; level++ {
		z[level] = hashInner(bytes.Repeat(z[level-1][:], fanout))
	}
	return z
}()

// zeroHash is the hash of an all-zero subtree at level of pages pages.
func zeroHash(level int, pages uint32) abi.Digest {
	if pages == span(level) {
		return fullZero[level]
	}
	if pages == 0 {
		return hashInner(nil)
	}
	return hashKids(new([fanout]*pageNode), level, pages)
}

// pageNode is a subtree that is not all zero; an all-zero one is a nil *pageNode, and is
// never stored. Its hash, and through it all that is below, never changes. The
// other fields only cache what the store has or will get, so trees share nodes
// freely and any number of goroutines may use them.
type pageNode struct {
	hash abi.Digest
	// stored: the node and all below it are durable. Until then a leaf has its
	// page and an inner node its kids.
	stored atomic.Bool
	page   atomic.Pointer[[abi.PageSize]byte]
	// kids is nil until loaded. Where it has nil, a subtree is zero or beyond
	// the end.
	kids atomic.Pointer[[fanout]*pageNode]
}

// hashKids is the hash of a node at level that covers pages pages.
func hashKids(kids *[fanout]*pageNode, level int, pages uint32) abi.Digest {
	var buf [fanout * sha256.Size]byte
	return hashInner(appendKids(buf[:0], kids, level, pages))
}

// appendKids appends the hashes of a node's children, which are both what its
// row holds and what its hash covers.
func appendKids(dst []byte, kids *[fanout]*pageNode, level int, pages uint32) []byte {
	for i := range kidCount(level, pages) {
		var hash abi.Digest
		if kids[i] != nil {
			hash = kids[i].hash
		} else {
			hash = zeroHash(level-1, covered(pages, level-1, uint32(i)*span(level-1)))
		}
		dst = append(dst, hash[:]...)
	}
	return dst
}

// decodeKids reads a node's row.
func decodeKids(row []byte, level int, pages uint32) (*[fanout]*pageNode, error) {
	n := kidCount(level, pages)
	if len(row) != n*sha256.Size {
		return nil, fmt.Errorf("%d bytes, want %d", len(row), n*sha256.Size)
	}
	kids := new([fanout]*pageNode)
	for i := range n {
		hash := abi.Digest(row[i*sha256.Size:])
		if hash == zeroHash(level-1, covered(pages, level-1, uint32(i)*span(level-1))) {
			continue
		}
		kids[i] = storedNode(hash)
	}
	return kids, nil
}

// storedNode is a node that the store has.
func storedNode(hash abi.Digest) *pageNode {
	nd := &pageNode{hash: hash}
	nd.stored.Store(true)
	return nd
}

// tree is all pages of an image.
type tree struct {
	root  *pageNode
	pages uint32
	// get is the store's point read.
	get func(key []byte) ([]byte, error)
}

func (t *tree) hash() abi.Digest {
	if t.root == nil {
		return zeroHash(height(t.pages), t.pages)
	}
	return t.root.hash
}

// top is the subtree at level that begins with page 0. Above the root that is
// the root, with kids to fit.
func (t *tree) top(level int) (*pageNode, error) {
	nd := t.root
	for l := height(t.pages); l > level && nd != nil; l-- {
		kids, err := t.kids(nd, l, 0)
		if err != nil {
			return nil, err
		}
		nd = kids[0]
	}
	return nd, nil
}

// kids are the children of the node at level whose first page is first.
func (t *tree) kids(nd *pageNode, level int, first uint32) (*[fanout]*pageNode, error) {
	if nd == nil {
		return new([fanout]*pageNode), nil
	}
	if level > height(t.pages) {
		return &[fanout]*pageNode{nd}, nil
	}
	if kids := nd.kids.Load(); kids != nil {
		return kids, nil
	}
	kids, err := t.loadKids(nd, level, covered(t.pages, level, first))
	if err != nil {
		return nil, fmt.Errorf("node %v, pages %d to %d: %w", nd.hash, first, first+covered(t.pages, level, first)-1, err)
	}
	if !nd.kids.CompareAndSwap(nil, kids) {
		kids = nd.kids.Load() // one set of children, so that equal subtrees are one pointer
	}
	return kids, nil
}

func (t *tree) loadKids(nd *pageNode, level int, pages uint32) (*[fanout]*pageNode, error) {
	row, err := t.named(digestKey(kindNode, nd.hash))
	if err != nil {
		return nil, err
	}
	if got := hashInner(row[:min(len(row), fanout*sha256.Size)]); got != nd.hash {
		return nil, fmt.Errorf("%w: its bytes have the hash %v", ErrCorrupt, got)
	}
	kids, err := decodeKids(row, level, pages)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return kids, nil
}

// named reads a row that another row names: that it is missing is corruption.
func (t *tree) named(key []byte) ([]byte, error) {
	row, err := t.get(key)
	return row, mustExist(err)
}

// mustExist is err, which is corruption if it says that what is named is not there.
func mustExist(err error) error {
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: missing", ErrCorrupt)
	}
	return err
}

// read fills dst with page.
func (t *tree) read(page uint32, dst []byte) error {
	nd, err := t.leaf(page)
	if err != nil {
		return err
	}
	if nd == nil {
		clear(dst)
		return nil
	}
	if p := nd.page.Load(); p != nil {
		copy(dst, p[:])
		return nil
	}
	row, err := t.get(digestKey(kindPage, nd.hash))
	content, err := storedPage{nd.hash, page}.content(row, err, (*[abi.PageSize]byte)(dst))
	if err != nil {
		return err
	}
	copy(dst, content)
	return nil
}

func (t *tree) leaf(page uint32) (*pageNode, error) {
	nd, first := t.root, uint32(0)
	for level := height(t.pages); level > 0 && nd != nil; level-- {
		kids, err := t.kids(nd, level, first)
		if err != nil {
			return nil, err
		}
		i := (page - first) / span(level-1)
		nd, first = kids[i], first+i*span(level-1)
	}
	return nd, nil
}

// rebuild is the making of a tree from a base and the pages that changed.
type rebuild struct {
	base     *tree
	pages    uint32
	changed  []uint32 // those not in the tree yet
	read     func(page uint32, dst []byte) error
	anyOrder bool       // read takes pages in any order, and side by side
	ahead    []newPage  // the first of changed, which are read
	spare    *sync.Pool // of *[abi.PageSize]byte
	keep     bool       // the new pages
	differ   int        // pages that are not the base's
}

// newPage is a page that may have changed.
type newPage struct {
	hash    abi.Digest
	content *[abi.PageSize]byte
}

// readAhead is how many pages are read before they are hashed side by side.
const readAhead = 256

func (r *rebuild) run() (*pageNode, error) {
	level := height(r.pages)
	base, err := r.base.top(level)
	if err != nil || r.pages == 0 {
		return nil, err
	}
	return r.subtree(base, level, 0)
}

// subtree makes the subtree at level from page first on, where base has the
// subtree base. It is base itself if nothing differs.
func (r *rebuild) subtree(base *pageNode, level int, first uint32) (*pageNode, error) {
	pages := covered(r.pages, level, first)
	same := pages == covered(r.base.pages, level, first) || base == nil
	if same && (len(r.changed) == 0 || r.changed[0] >= first+pages) {
		return base, nil
	}
	if level == 0 {
		return r.leaf(base, first)
	}
	old, err := r.base.kids(base, level, first)
	if err != nil {
		return nil, err
	}
	kids, zero := new([fanout]*pageNode), true
	for i := range kidCount(level, pages) {
		kids[i], err = r.subtree(old[i], level-1, first+uint32(i)*span(level-1))
		if err != nil {
			return nil, err
		}
		same = same && kids[i] == old[i]
		zero = zero && kids[i] == nil
	}
	switch {
	case zero:
		return nil, nil
	case same:
		return base, nil
	}
	nd := &pageNode{hash: hashKids(kids, level, pages)}
	nd.kids.Store(kids)
	return nd, nil
}

func (r *rebuild) leaf(base *pageNode, page uint32) (*pageNode, error) {
	if len(r.ahead) == 0 {
		if err := r.more(); err != nil {
			return nil, err
		}
	}
	next := r.ahead[0]
	r.ahead, r.changed = r.ahead[1:], r.changed[1:]
	nd := &pageNode{hash: next.hash}
	switch {
	case next.hash == fullZero[0]:
		nd = nil
	case base != nil && next.hash == base.hash:
		nd = base
	case r.keep:
		nd.page.Store(next.content)
		next.content = nil
	}
	if nd != base {
		r.differ++
	}
	if next.content != nil {
		r.spare.Put(next.content)
	}
	return nd, nil
}

// more reads and hashes the next pages.
func (r *rebuild) more() error {
	r.ahead = make([]newPage, min(len(r.changed), readAhead))
	if !r.anyOrder {
		for i := range r.ahead {
			if err := r.readPage(i); err != nil {
				return err
			}
		}
	}
	return sideBySide(len(r.ahead), packChunk, func(low, high int) error {
		for i := low; i < high; i++ {
			if r.anyOrder {
				if err := r.readPage(i); err != nil {
					return err
				}
			}
			r.ahead[i].hash = hashPage(r.ahead[i].content[:])
		}
		return nil
	})
}

// readPage reads the i-th of the pages ahead.
func (r *rebuild) readPage(i int) error {
	content, ok := r.spare.Get().(*[abi.PageSize]byte)
	if !ok {
		content = new([abi.PageSize]byte)
	}
	r.ahead[i].content = content
	if err := r.read(r.changed[i], content[:]); err != nil {
		return fmt.Errorf("read page %d: %w", r.changed[i], err)
	}
	return nil
}

// diff appends to pages the pages of b that differ from a's, given both trees'
// subtrees at level from page first on.
func diff(pages []uint32, a, b *tree, an, bn *pageNode, level int, first uint32) ([]uint32, error) {
	if an == bn || an != nil && bn != nil && an.hash == bn.hash {
		return pages, nil
	}
	if level == 0 {
		return append(pages, first), nil
	}
	aKids, err := a.kids(an, level, first)
	if err != nil {
		return nil, err
	}
	bKids, err := b.kids(bn, level, first)
	if err != nil {
		return nil, err
	}
	kids := kidCount(level, covered(b.pages, level, first))
	below := func(pages []uint32, i int) ([]uint32, error) {
		return diff(pages, a, b, aKids[i], bKids[i], level-1, first+uint32(i)*span(level-1))
	}
	if level == diffSideBySide {
		parts := make([][]uint32, kids)
		err := sideBySide(kids, 1, func(low, high int) (err error) {
			for i := low; i < high && err == nil; i++ {
				parts[i], err = below(nil, i)
			}
			return err
		})
		return append(pages, slices.Concat(parts...)...), err
	}
	for i := range kids {
		if pages, err = below(pages, i); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// diffSideBySide is the level of the nodes whose children are compared side by side:
// below each child stand up to 17 nodes, which may have to be read.
const diffSideBySide = 3

// unstored gathers the rows that the store does not have yet.
type unstored struct {
	get          func(key []byte) ([]byte, error)
	touch        func(touched)
	pages, nodes []Entry
	seen         map[abi.Digest]bool
}

// subtree adds what is below nd, a node at level that covers pages pages, and
// nd itself, pages in order and children before parents.
func (c *unstored) subtree(nd *pageNode, level int, pages uint32) error {
	if nd == nil || nd.stored.Load() || c.seen[nd.hash] {
		return nil
	}
	c.seen[nd.hash] = true
	kind := byte(kindNode)
	if level == 0 {
		kind = kindPage
	}
	key := digestKey(kind, nd.hash)
	c.touch(touched{kind: kind, digest: nd.hash, level: level, pages: pages})
	// Nothing is ever stored before what it names, so a row that is there
	// proves all that is below it.
	switch _, err := c.get(key); {
	case err == nil:
		markStored(nd)
		return nil
	case !errors.Is(err, ErrNotFound):
		return err
	}
	if level == 0 {
		if page := nd.page.Load(); page != nil { // else another image's save was just done
			c.pages = append(c.pages, Entry{key, page[:]})
		}
		return nil
	}
	kids := nd.kids.Load()
	for i := range kidCount(level, pages) {
		err := c.subtree(kids[i], level-1, covered(pages, level-1, uint32(i)*span(level-1)))
		if err != nil {
			return err
		}
	}
	c.nodes = append(c.nodes, Entry{key, appendKids(nil, kids, level, pages)})
	return nil
}

// markStored records that nd and all below it are durable, and lets go of the
// pages.
func markStored(nd *pageNode) {
	if nd == nil || nd.stored.Load() {
		return
	}
	if kids := nd.kids.Load(); kids != nil {
		for _, kid := range kids {
			markStored(kid)
		}
	}
	nd.stored.Store(true)
	nd.page.Store(nil)
}

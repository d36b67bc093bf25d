package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/agentcell/agentcell/sdk/abi"
)

// imagePrefix begins what a root hashes.
const imagePrefix = "agentcell image 1\n"

// Image is an immutable handle on one memory image: its page tree, size, globals
// and clock. It is safe for concurrent use, belongs to the journal that made it,
// and needs no closing.
//
// Images share what they have in common. A new image keeps the bytes of its new
// pages in memory until it is saved, by an Append that carries it or by
// SaveImage; of a saved one, pages are read from the store each time.
type Image struct {
	journal *Journal
	root    abi.Digest
	row     imageRow
	tree    tree
	changed int
	stored  atomic.Bool
}

// Root names the image: it is the hash of all it holds.
func (im *Image) Root() abi.Digest { return im.root }

// Size is the length of memory in bytes, a multiple of abi.PageSize.
func (im *Image) Size() uint64 { return im.row.size }

// Globals are the mutable globals, in index order. The caller must not change
// them.
func (im *Image) Globals() []abi.Global { return im.row.globals }

// Clock is the cell's clock in nanoseconds.
func (im *Image) Clock() int64 { return im.row.clock }

// Changed is how many pages differ from those of base, of which im was made.
func (im *Image) Changed(base *Image) int {
	if im == base {
		return 0 // nothing had changed, and its own count is about another base
	}
	return im.changed
}

// ImageSpec describes a new image by what differs from another one.
type ImageSpec struct {
	// Size is the length of memory in bytes, a multiple of abi.PageSize, at
	// most 4 GiB.
	Size    uint64
	Globals []abi.Global
	Clock   int64
	// Changed lists, ascending, the pages below Size that may differ from the
	// base. Beyond the base's size, and without a base, pages count as zero.
	Changed []uint32
	// Read fills dst, of abi.PageSize bytes, with a page named in Changed. It
	// is called once for each, in order, before NewImage returns.
	Read func(page uint32, dst []byte) error
	// AnyOrder allows Read to be called in any order, and from several goroutines.
	AnyOrder bool
}

// NewImage makes an image that differs from base, or from all-zero memory where
// base is nil, as spec says. It reads and hashes only the changed pages, and
// writes nothing. It keeps nothing of spec.
func (j *Journal) NewImage(base *Image, spec ImageSpec) (*Image, error) {
	return j.newImage(base, spec, true)
}

// ImageRoot is the root of the image that NewImage would make, and how many
// pages it has changed. It costs less, because no page is kept.
func (j *Journal) ImageRoot(base *Image, spec ImageSpec) (root abi.Digest, changed int, err error) {
	im, err := j.newImage(base, spec, false)
	if err != nil {
		return abi.Digest{}, 0, err
	}
	return im.root, im.Changed(base), nil
}

// newImage makes an image. Unless it keeps its new pages, it has a root and is
// of no other use.
func (j *Journal) newImage(base *Image, spec ImageSpec, keep bool) (*Image, error) {
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("new image: %w", err)
	}
	from := &tree{get: j.get}
	if base != nil {
		if base.journal != j {
			return nil, fmt.Errorf("new image: %w", errForeign)
		}
		from = &base.tree
	}
	pages := uint32(spec.Size / abi.PageSize)
	r := rebuild{base: from, pages: pages, changed: spec.Changed, read: spec.Read, anyOrder: spec.AnyOrder, keep: keep, spare: &j.spare}
	root, err := r.run()
	if err != nil {
		return nil, fmt.Errorf("new image: %w", err)
	}
	im := &Image{
		journal: j,
		tree:    tree{root: root, pages: pages, get: j.get},
		changed: r.differ,
		row: imageRow{
			size:    spec.Size,
			globals: append([]abi.Global(nil), spec.Globals...),
			clock:   spec.Clock,
		},
	}
	im.row.pages = im.tree.hash()
	im.root = im.row.root()
	if base != nil && im.root == base.root {
		return base, nil
	}
	if keep {
		j.handles.add(im)
		runtime.KeepAlive(base) // until im itself keeps what they share
	}
	return im, nil
}

var errForeign = errors.New("the image belongs to another journal")

func (s *ImageSpec) check() error {
	if s.Size%abi.PageSize != 0 || s.Size > maxPages*abi.PageSize {
		return fmt.Errorf("size %d is not a multiple of %d up to 4 GiB", s.Size, abi.PageSize)
	}
	if uint64(len(s.Globals)) > math.MaxUint32 {
		return fmt.Errorf("%d globals", len(s.Globals))
	}
	next := uint64(0)
	for _, page := range s.Changed {
		if uint64(page) < next {
			return fmt.Errorf("changed pages are not ascending at page %d", page)
		}
		next = uint64(page) + 1
	}
	if next > s.Size/abi.PageSize {
		return fmt.Errorf("changed page %d is beyond the size of %d bytes", next-1, s.Size)
	}
	return nil
}

// LoadImage gives the stored image that root names. It reads one row; nodes and
// pages are read, and checked, when they are needed. It wraps ErrNotFound if
// there is no such image and ErrCorrupt if its row is not what root names.
func (j *Journal) LoadImage(root abi.Digest) (*Image, error) {
	j.guard.sweeping.RLock()
	defer j.guard.sweeping.RUnlock()
	j.guard.touchRow(kindImage, root)
	stored, err := j.get(digestKey(kindImage, root))
	if err != nil {
		return nil, fmt.Errorf("load image %v: %w", root, err)
	}
	row, err := decodeImageRow(stored)
	if err != nil {
		return nil, fmt.Errorf("load image %v: %w: %w", root, ErrCorrupt, err)
	}
	if got := row.root(); got != root {
		return nil, fmt.Errorf("load image %v: %w: its row has the root %v", root, ErrCorrupt, got)
	}
	im := &Image{journal: j, root: root, row: row}
	im.tree = tree{pages: uint32(row.size / abi.PageSize), get: j.get}
	if row.pages != im.tree.hash() {
		im.tree.root = storedNode(row.pages)
	}
	im.stored.Store(true)
	return j.handles.add(im), nil
}

// DiffImages lists, ascending, the pages of b that differ from a's. Pages beyond
// a's size count as zero there. It walks only where the trees differ.
func (j *Journal) DiffImages(a, b *Image) ([]uint32, error) {
	if a.journal != j || b.journal != j {
		return nil, fmt.Errorf("compare images: %w", errForeign)
	}
	if b.tree.pages == 0 {
		return nil, nil
	}
	level := height(b.tree.pages)
	top, err := a.tree.top(level)
	if err != nil {
		return nil, fmt.Errorf("compare images: image %v: %w", a.root, err)
	}
	pages, err := diff(nil, &a.tree, &b.tree, top, b.tree.root, level, 0)
	if err != nil {
		return nil, fmt.Errorf("compare images %v and %v: %w", a.root, b.root, err)
	}
	return pages, nil
}

// ReadPage fills dst, of abi.PageSize bytes, with a page of im. A page that is
// not what the image names is ErrCorrupt, and dst is not to be used.
func (j *Journal) ReadPage(im *Image, page uint32, dst []byte) error {
	switch {
	case im.journal != j:
		return fmt.Errorf("read page: %w", errForeign)
	case page >= im.tree.pages:
		return fmt.Errorf("read page: image %v has no page %d", im.root, page)
	case len(dst) != abi.PageSize:
		return fmt.Errorf("read page: a buffer of %d bytes", len(dst))
	}
	if err := im.tree.read(page, dst); err != nil {
		return fmt.Errorf("image %v: %w", im.root, err)
	}
	return nil
}

// SaveImage makes im durable; one that is already costs nothing. Its errors are
// those of Append, and it may be called again after any of them.
func (j *Journal) SaveImage(ctx context.Context, im *Image) error {
	defer j.Hold()()
	rows, err := j.unsaved(im)
	if err == nil {
		err = j.put(ctx, rows)
	}
	if err != nil {
		return fmt.Errorf("save image %v: %w", im.root, err)
	}
	im.markSaved()
	return nil
}

// unsaved lists the rows that the store lacks for im: pages, then nodes with
// children before parents, then the image's own row. They must be written in
// that order, in one batch or several, each durable before the next, so that a
// row that is there proves all it names (M4). Values are shared, not to be
// changed.
func (j *Journal) unsaved(im *Image) ([]Entry, error) {
	if im.journal != j {
		return nil, errForeign
	}
	if im.stored.Load() {
		return nil, nil
	}
	c, err := j.unstored(im)
	if err != nil || im.stored.Load() {
		return nil, err
	}
	return append(j.imageRows(c.pages, c.nodes), Entry{digestKey(kindImage, im.root), im.row.encode()}), nil
}

// unstored gathers what the store lacks for im. If it has the image itself, it lacks
// nothing, and im is marked saved.
func (j *Journal) unstored(im *Image) (c unstored, err error) {
	j.guard.sweeping.RLock()
	defer j.guard.sweeping.RUnlock()
	view := j.view()
	defer view.Close()
	j.guard.touchRow(kindImage, im.root)
	switch _, err := view.Get(digestKey(kindImage, im.root)); {
	case err == nil:
		im.markSaved()
		return c, nil
	case !errors.Is(err, ErrNotFound):
		return c, err
	}
	c = unstored{get: view.Get, touch: j.guard.touch, seen: map[abi.Digest]bool{}}
	return c, c.subtree(im.tree.root, height(im.tree.pages), im.tree.pages)
}

// imageRows are the rows of pages, packed where that pays, and of nodes.
func (j *Journal) imageRows(pages, nodes []Entry) []Entry {
	var rows []Entry
	if packPages(pages) && j.format < formatVersion {
		rows = append(rows, formatRow()) // older programs would take them for damaged
	}
	return slices.Concat(rows, pages, nodes)
}

// markSaved records that all rows of unsaved are durable, and lets go of the
// pages.
func (im *Image) markSaved() {
	markStored(im.tree.root)
	im.stored.Store(true)
}

// imageRow is an image without its pages: what stands in its row, and what its
// root hashes.
type imageRow struct {
	size    uint64
	pages   abi.Digest
	globals []abi.Global
	clock   int64
}

const globalSize = 1 + len(abi.Global{}.Value)

func (r *imageRow) encode() []byte {
	b := make([]byte, 0, 8+len(r.pages)+4+len(r.globals)*globalSize+8)
	b = binary.LittleEndian.AppendUint64(b, r.size)
	b = append(b, r.pages[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.globals)))
	for _, g := range r.globals {
		b = append(b, g.Type)
		b = append(b, g.Value[:]...)
	}
	return binary.LittleEndian.AppendUint64(b, uint64(r.clock))
}

func (r *imageRow) root() abi.Digest {
	return abi.DigestOf(append([]byte(imagePrefix), r.encode()...))
}

func decodeImageRow(b []byte) (imageRow, error) {
	var r imageRow
	fixed := 8 + len(r.pages) + 4 + 8
	if len(b) < fixed {
		return r, fmt.Errorf("an image row of %d bytes", len(b))
	}
	r.size = binary.LittleEndian.Uint64(b)
	b = b[8+copy(r.pages[:], b[8:]):]
	count := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if uint64(len(b)) != uint64(count)*uint64(globalSize)+8 {
		return r, fmt.Errorf("an image row of %d bytes for %d globals", fixed-8+len(b), count)
	}
	if r.size%abi.PageSize != 0 || r.size > maxPages*abi.PageSize {
		return r, fmt.Errorf("an image of %d bytes", r.size)
	}
	for range count {
		g := abi.Global{Type: b[0]}
		b = b[1+copy(g.Value[:], b[1:]):]
		r.globals = append(r.globals, g)
	}
	r.clock = int64(binary.LittleEndian.Uint64(b))
	return r, nil
}

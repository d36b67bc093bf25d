package journal

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Flaw is a row of an image that is missing, or is not what its name says.
type Flaw struct {
	// Name is the hash, or root, that names the row.
	Name abi.Digest
	// Page is the first page that cannot be read for it, and Pages how many: all
	// below a node, none of the row of the image itself.
	Page, Pages uint32
	// Err is ErrCorrupt and says what is there.
	Err error
}

// String says which row it is.
func (f Flaw) String() string {
	switch f.Pages {
	case 0:
		return "the row of the image"
	case 1:
		return fmt.Sprintf("page %d, %v", f.Page, f.Name)
	default:
		return fmt.Sprintf("node %v, pages %d to %d", f.Name, f.Page, f.Page+f.Pages-1)
	}
}

// Whole remembers what InspectImage has found to be as it must, so that rows which
// images share are read once. The zero value remembers nothing yet; it is for one
// goroutine.
type Whole struct{ rows digestSet }

func (w *Whole) has(kind byte, d abi.Digest) bool { return w.rows.has(kind, d) }

func (w *Whole) add(kind byte, d abi.Digest) {
	if w.rows == nil {
		w.rows = make(digestSet)
	}
	w.rows.add(kind, d)
}

// InspectImage reads all rows of a stored image, but for what whole remembers, and
// tells found of those that are missing or not what they are named by, in the order
// of pages. It wraps ErrNotFound if there is no such image.
func (j *Journal) InspectImage(ctx context.Context, root abi.Digest, whole *Whole, found func(Flaw)) error {
	im, err := j.LoadImage(root)
	if errors.Is(err, ErrCorrupt) {
		found(Flaw{Name: root, Err: err})
		return nil
	}
	if err != nil {
		return err
	}
	i := inspection{ctx: ctx, tree: &im.tree, whole: whole, found: found}
	if err := i.subtree(im.tree.root, height(im.tree.pages), 0); err != nil {
		return fmt.Errorf("inspect image %v: %w", root, err)
	}
	return nil
}

type inspection struct {
	ctx   context.Context
	tree  *tree
	whole *Whole
	found func(Flaw)
	page  [abi.PageSize]byte
}

// subtree inspects what is stored at and below a node whose first page is first.
func (i *inspection) subtree(nd *pageNode, level int, first uint32) error {
	kind := byte(kindNode)
	if level == 0 {
		kind = kindPage
	}
	if nd == nil || i.whole.has(kind, nd.hash) {
		return nil
	}
	if err := context.Cause(i.ctx); err != nil {
		return err
	}
	flaws := 0
	found := i.found
	defer func() { i.found = found }()
	i.found = func(f Flaw) { flaws++; found(f) }
	var kids *[fanout]*pageNode
	var err error
	if level == 0 {
		err = i.tree.read(first, i.page[:])
	} else {
		kids, err = i.tree.kids(nd, level, first)
	}
	switch {
	case errors.Is(err, ErrCorrupt):
		i.found(Flaw{Name: nd.hash, Page: first, Pages: covered(i.tree.pages, level, first), Err: err})
		return nil
	case err != nil:
		return err
	case level > 0:
		for k := range kidCount(level, covered(i.tree.pages, level, first)) {
			if err := i.subtree(kids[k], level-1, first+uint32(k)*span(level-1)); err != nil {
				return err
			}
		}
	}
	if flaws == 0 {
		i.whole.add(kind, nd.hash)
	}
	return nil
}

// MendImage writes the rows of im that are missing, or are not what their names say,
// and leaves all others as they are. It returns how many it has written; other images
// that have them in common are mended with it.
//
// im must have in memory what it does not share with images that InspectImage found
// whole: it is made by NewImage, from such a one or from nothing, and was never saved.
// It can be ended by a crash at any moment: what it writes is right by itself, and what
// names others comes after them (M4). Its errors are those of Append.
func (j *Journal) MendImage(ctx context.Context, im *Image) (int, error) {
	defer j.Hold()()
	rows, err := j.flawed(im)
	if err == nil {
		err = j.put(ctx, rows)
	}
	if err != nil {
		return 0, fmt.Errorf("mend image %v: %w", im.root, err)
	}
	im.markSaved()
	return len(rows), nil
}

// flawed lists the rows that the store lacks, or has wrong, in the order in which
// they are to be written.
func (j *Journal) flawed(im *Image) ([]Entry, error) {
	if im.journal != j {
		return nil, errForeign
	}
	j.guard.sweeping.RLock()
	defer j.guard.sweeping.RUnlock()
	view := j.view()
	defer view.Close()
	m := mending{get: view.Get, touch: j.guard.touch, seen: map[abi.Digest]bool{}}
	if err := m.subtree(im.tree.root, height(im.tree.pages), im.tree.pages); err != nil {
		return nil, err
	}
	rows := j.imageRows(m.pages, m.nodes)
	key := digestKey(kindImage, im.root)
	j.guard.touchRow(kindImage, im.root)
	stored, err := m.get(key)
	if err != nil && !lacking(err) {
		return nil, err
	}
	if row := im.row.encode(); err != nil || string(stored) != string(row) {
		rows = append(rows, Entry{key, row})
	}
	return rows, nil
}

// lacking reports whether an error of a look for a row says that it has to be written.
func lacking(err error) bool { return errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) }

// mending gathers the rows of a tree in memory that the store does not have as they
// are.
type mending struct {
	get          func(key []byte) ([]byte, error)
	touch        func(touched)
	pages, nodes []Entry
	seen         map[abi.Digest]bool
}

// subtree adds what is below nd, a node at level that covers pages pages, and nd
// itself. A row that is there proves nothing here.
func (m *mending) subtree(nd *pageNode, level int, pages uint32) error {
	if nd == nil || nd.stored.Load() || m.seen[nd.hash] {
		return nil
	}
	m.seen[nd.hash] = true
	if level == 0 {
		m.touch(touched{kind: kindPage, digest: nd.hash, pages: pages})
		t := tree{root: storedNode(nd.hash), pages: 1, get: m.get}
		err := t.read(0, new([abi.PageSize]byte)[:])
		if !lacking(err) {
			return err
		}
		page := nd.page.Load()
		if page == nil {
			return fmt.Errorf("page %v is not in memory: %w", nd.hash, err)
		}
		m.pages = append(m.pages, Entry{digestKey(kindPage, nd.hash), page[:]})
		return nil
	}
	m.touch(touched{kind: kindNode, digest: nd.hash, level: level, pages: pages})
	kids := nd.kids.Load()
	for i := range kidCount(level, pages) {
		err := m.subtree(kids[i], level-1, covered(pages, level-1, uint32(i)*span(level-1)))
		if err != nil {
			return err
		}
	}
	key := digestKey(kindNode, nd.hash)
	row, err := m.get(key)
	if err != nil && !lacking(err) {
		return err
	}
	if err != nil || hashInner(row[:min(len(row), fanout*sha256.Size)]) != nd.hash {
		m.nodes = append(m.nodes, Entry{key, appendKids(nil, kids, level, pages)})
	}
	return nil
}

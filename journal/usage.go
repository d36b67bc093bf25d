package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Amount is so much of what is stored. Bytes are those of rows, keys and values.
type Amount struct {
	Records, RecordBytes int64
	Blobs, BlobBytes     int64
	// PageBytes are those of the rows around pages, too, which are TreeBytes of them.
	Images, Pages, PageBytes, TreeBytes int64
}

// Bytes is the sum.
func (a Amount) Bytes() int64 { return a.RecordBytes + a.BlobBytes + a.PageBytes }

func (a *Amount) add(b Amount) { a.times(1, b) }

func (a *Amount) subtract(b Amount) { a.times(-1, b) }

func (a *Amount) times(n int64, b Amount) {
	a.Records += n * b.Records
	a.RecordBytes += n * b.RecordBytes
	a.Blobs += n * b.Blobs
	a.BlobBytes += n * b.BlobBytes
	a.Images += n * b.Images
	a.Pages += n * b.Pages
	a.PageBytes += n * b.PageBytes
	a.TreeBytes += n * b.TreeBytes
}

// around is a with the bytes of a row around pages.
func around(bytes int, a Amount) Amount {
	a.PageBytes, a.TreeBytes = int64(bytes), int64(bytes)
	return a
}

// Keeper is a session or a pin: what it needs is kept.
type Keeper struct {
	Session Session    // of a pin, the one that it is a point of
	Pin     string     // its name, empty for a session
	image   abi.Digest // that the pin names
	// Total is all that it needs, its ancestors' records and what these name
	// among it. Own is what nobody else needs: it goes when the keeper goes.
	Total, Own Amount
}

// Remains are what is left of a deleted session.
type Remains struct {
	Session Session
	// Kept is what others need of its records, and what these name beyond what
	// its ancestors' do; For are these others, in the order of Usage.Keepers.
	Kept Amount
	For  []*Keeper
}

// Usage tells what holds what.
type Usage struct {
	Keepers []*Keeper // sessions by uid, then pins as they were told
	Deleted []Remains
	// All is what all of them take together, each thing once, and Garbage with it.
	// Garbage is what of deleted sessions nobody needs: it goes with the next
	// Collect.
	All, Garbage Amount
}

// Usage walks all sessions and tells what holds what. It reads each record once, and
// has in memory about 100 bytes for each row that is named by its content. Collect
// waits for it. Of what cannot be read it counts what is known, tells of all the rest, and
// gives an *Unreadable beside it.
func (j *Journal) Usage(ctx context.Context, namer Namer) (Usage, error) {
	j.collecting.Lock()
	defer j.collecting.Unlock()
	view := j.view()
	defer view.Close()
	w := &usageWalk{
		ctx: ctx, namer: namer, view: view, cuts: map[abi.SessionID][]abi.Seq{},
		items: map[[16]byte]*item{}, stretches: map[stretch]*item{}, deleted: map[abi.SessionID]*Remains{},
	}
	err := w.run()
	if err == nil {
		err = w.unreadable.err()
	}
	if err != nil {
		err = fmt.Errorf("usage: %w", err)
	}
	return w.out, err
}

// usageWalk is one run of Usage. It puts the records of all sessions and pins into
// a tree of stretches, in which each of them ends somewhere and has what stands
// above, and walks that tree once.
type usageWalk struct {
	ctx   context.Context
	namer Namer
	view  View
	paths []path
	cuts  map[abi.SessionID][]abi.Seq // where stretches begin, and end before
	tree  branch
	// items are the rows that are named by their content, stretches the records.
	items     map[[16]byte]*item
	stretches map[stretch]*item
	deleted   map[abi.SessionID]*Remains

	at    *branch // where the walk is
	way   []*item // what stands at and above it
	total Amount  // of way
	out   Usage

	unreadable Unreadable
}

// path are the records of a keeper, or of a deleted session, which is none.
type path struct {
	keeper *Keeper
	parts  []stretch
}

// branch is a stretch of records in the tree.
type branch struct {
	stretch
	next []*branch
	ends []*Keeper // whose records end here
	held held      // of those that end here or below
}

// held tells who needs something: nobody, one, or many.
type held struct {
	one  *Keeper
	many bool
}

func (h *held) by(others held) {
	h.many = h.many || others.many || h.one != nil && others.one != nil && h.one != others.one
	if h.one == nil {
		h.one = others.one
	}
}

// item is something stored.
type item struct {
	amount Amount
	held   held
	onWay  bool
}

func (w *usageWalk) run() error {
	for _, step := range []func() error{w.gather, w.pins, w.plant} {
		if err := step(); err != nil {
			return err
		}
	}
	share := func(it *item) {
		w.out.All.add(it.amount)
		switch {
		case it.held.many:
		case it.held.one != nil:
			it.held.one.Own.add(it.amount)
		default:
			w.out.Garbage.add(it.amount)
		}
	}
	for _, it := range w.items {
		share(it)
	}
	for _, it := range w.stretches {
		share(it)
	}
	place := map[*Keeper]int{}
	for i, k := range w.out.Keepers {
		place[k] = i
	}
	for _, uid := range slices.Sorted(maps.Keys(w.deleted)) {
		slices.SortFunc(w.deleted[uid].For, func(a, b *Keeper) int { return place[a] - place[b] })
		w.out.Deleted = append(w.out.Deleted, *w.deleted[uid])
	}
	return nil
}

// gather finds all sessions and where their records are.
func (w *usageWalk) gather() error {
	for e, err := range w.view.Scan([]byte{kindMeta}, []byte{kindMeta + 1}, false) {
		if err != nil {
			return err
		}
		uid := abi.SessionID(e.Key[1:])
		s, segs, err := session(w.view, uid)
		if err != nil {
			if err := w.unreadable.met(uid, err); err != nil {
				return err
			}
			continue
		}
		var h *Keeper
		if s.IsDeleted() {
			w.deleted[s.UID] = &Remains{Session: s}
		} else {
			h = &Keeper{Session: s}
			w.out.Keepers = append(w.out.Keepers, h)
		}
		w.add(h, s.UID, segs, s.last())
	}
	return nil
}

// pins finds what is needed for other reasons. What refs name by themselves is of
// a keeper that is not told of.
func (w *usageWalk) pins() error {
	names := w.names()
	names.point = func(uid abi.SessionID, at abi.Seq, pin string, root abi.Digest) error {
		s, segs, err := session(w.view, uid)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err == nil {
			h := &Keeper{Session: s, Pin: pin, image: root}
			w.out.Keepers = append(w.out.Keepers, h)
			w.add(h, uid, segs, min(at, s.last()))
		}
		return err
	}
	w.at = &branch{held: held{one: new(Keeper)}}
	defer w.leave(0)
	return w.namer.Pins(names)
}

// add takes note of the records of a session up to one, which h needs.
func (w *usageWalk) add(h *Keeper, uid abi.SessionID, segs []segment, upto abi.Seq) {
	p := path{h, ranges(append(segs, segment{uid, upto}), 1, upto, false)}
	for _, part := range p.parts {
		w.cuts[part.uid] = append(w.cuts[part.uid], part.low, part.high+1)
	}
	w.paths = append(w.paths, p)
}

// plant makes the tree of all paths and walks it.
func (w *usageWalk) plant() error {
	for uid, cuts := range w.cuts {
		slices.Sort(cuts)
		w.cuts[uid] = slices.Compact(cuts)
	}
	for _, p := range w.paths {
		b := &w.tree
		for _, part := range p.parts {
			cuts := w.cuts[part.uid]
			i, _ := slices.BinarySearch(cuts, part.low)
			for ; cuts[i] <= part.high; i++ {
				b = b.child(stretch{part.uid, cuts[i], cuts[i+1] - 1})
			}
		}
		if p.keeper != nil {
			b.ends = append(b.ends, p.keeper)
		}
	}
	w.tree.count()
	return w.walk(&w.tree)
}

func (b *branch) child(s stretch) *branch {
	for _, next := range b.next {
		if next.stretch == s {
			return next
		}
	}
	next := &branch{stretch: s}
	b.next = append(b.next, next)
	return next
}

// count finds out who needs the stretch and those below.
func (b *branch) count() {
	for _, h := range b.ends {
		b.held.by(held{one: h})
	}
	for _, next := range b.next {
		next.count()
		b.held.by(next.held)
	}
}

// keepers appends all that need b.
func (b *branch) keepers(all []*Keeper) []*Keeper {
	all = append(all, b.ends...)
	for _, next := range b.next {
		all = next.keepers(all)
	}
	return all
}

// walk visits b and all below it.
func (w *usageWalk) walk(b *branch) error {
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	w.at = b
	before, mark := w.total, len(w.way)
	if err := w.records(b.stretch); err != nil {
		return err
	}
	if r := w.deleted[b.uid]; r != nil && b.held.one != nil {
		kept := w.total
		kept.subtract(before)
		r.Kept.add(kept)
		for _, h := range b.keepers(nil) {
			if !slices.Contains(r.For, h) {
				r.For = append(r.For, h)
			}
		}
	}
	for _, h := range b.ends {
		if err := w.end(h); err != nil {
			return err
		}
	}
	for _, next := range b.next {
		if err := w.walk(next); err != nil {
			return err
		}
	}
	w.leave(mark)
	return nil
}

// records visits records and what they name.
func (w *usageWalk) records(s stretch) (failed error) {
	if s.uid == "" {
		return nil
	}
	var sum Amount
	s.walk(w.view, false, func(r Record, err error) bool {
		if err == nil {
			sum.Records++
			sum.RecordBytes += int64(len(recordKey(s.uid, r.Seq)) + recordHeader + len(r.Line))
			if err = w.namer.Record(s.uid, r, w.names()); err != nil {
				err = fmt.Errorf("record %d of session %q: %w", r.Seq, s.uid, err)
			}
		}
		failed = err
		return err == nil
	})
	it := w.stretches[s]
	if it == nil {
		it = new(item)
		w.stretches[s] = it
	}
	it.amount = sum
	w.meet(it)
	if failed != nil {
		failed = w.unreadable.met(s.uid, failed)
	}
	return failed
}

// end visits what a keeper names beside its records, and knows then all it needs.
func (w *usageWalk) end(h *Keeper) error {
	mark := len(w.way)
	at := w.at
	w.at = &branch{held: held{one: h}}
	s := h.Session
	if h.Pin != "" && !s.IsDeleted() {
		s.Deleted = s.Created // a fork needs no more
	}
	err := w.namer.Session(s, w.names())
	if err == nil && h.Pin != "" {
		err = w.image(h.image)
	}
	h.Total = w.total
	w.at = at
	w.leave(mark)
	if err != nil {
		err = w.unreadable.met(s.UID, fmt.Errorf("session %q: %w", s.UID, err))
	}
	return err
}

// meet adds it to what is on the way, and reports whether it was not there yet.
func (w *usageWalk) meet(it *item) bool {
	it.held.by(w.at.held)
	if it.onWay {
		return false
	}
	it.onWay = true
	w.way = append(w.way, it)
	w.total.add(it.amount)
	return true
}

// leave goes back to where there was so much on the way.
func (w *usageWalk) leave(mark int) {
	for _, it := range w.way[mark:] {
		it.onWay = false
		w.total.subtract(it.amount)
	}
	w.way = w.way[:mark]
}

// row visits a row that is named by its content; amount tells what it is when it is
// new.
func (w *usageWalk) row(kind byte, d abi.Digest, amount func() (Amount, error)) (isNew bool, err error) {
	key := setKey(kind, d)
	it := w.items[key]
	if it == nil {
		it = new(item)
		if it.amount, err = amount(); err != nil {
			return false, err
		}
		w.items[key] = it
	}
	return w.meet(it), nil
}

func (w *usageWalk) names() *Names {
	return &Names{
		blob:  w.blob,
		image: w.image,
		spare: w.spare,
		point: func(abi.SessionID, abi.Seq, string, abi.Digest) error { return nil },
		once: func(d abi.Digest) bool {
			isNew, _ := w.row(kindOnce, d, func() (Amount, error) { return Amount{}, nil })
			return isNew
		},
	}
}

func (w *usageWalk) blob(d abi.Digest) error {
	_, err := w.row(kindBlob, d, func() (Amount, error) {
		first, err := w.view.Get(blobKey(d, 0))
		if errors.Is(err, ErrNotFound) {
			return Amount{}, nil
		}
		if err == nil && len(first) < 8 {
			err = fmt.Errorf("%w: blob %v", ErrCorrupt, d)
		}
		if err != nil {
			return Amount{}, err
		}
		length := int64(binary.BigEndian.Uint64(first))
		chunks := max(1, (length+blobChunk-1)/blobChunk)
		return Amount{Blobs: 1, BlobBytes: 8 + length + chunks*int64(len(blobKey(d, 0)))}, nil
	})
	return err
}

func (w *usageWalk) image(root abi.Digest) error {
	key := digestKey(kindImage, root)
	stored, err := w.view.Get(key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	isNew, err := w.row(kindImage, root, func() (Amount, error) {
		return around(len(key)+len(stored), Amount{Images: 1}), nil
	})
	if err != nil || !isNew {
		return err
	}
	r, err := decodeImageRow(stored)
	if err != nil {
		return fmt.Errorf("image %v: %w: %w", root, ErrCorrupt, err)
	}
	pages := uint32(r.size / abi.PageSize)
	if level := height(pages); r.pages != zeroHash(level, pages) {
		err = w.subtree(r.pages, level, pages)
	}
	if err != nil {
		return fmt.Errorf("image %v: %w", root, err)
	}
	return nil
}

// spare visits an image for nobody.
func (w *usageWalk) spare(root abi.Digest) error {
	at, mark := w.at, len(w.way)
	w.at = new(branch)
	err := w.image(root)
	w.at = at
	w.leave(mark)
	return err
}

func (w *usageWalk) subtree(hash abi.Digest, level int, pages uint32) error {
	if level == 0 {
		_, err := w.row(kindPage, hash, func() (Amount, error) {
			key := digestKey(kindPage, hash)
			stored, err := w.view.Get(key)
			if errors.Is(err, ErrNotFound) {
				return Amount{}, nil
			}
			return Amount{Pages: 1, PageBytes: int64(len(key) + len(stored))}, err
		})
		return err
	}
	isNew, err := w.row(kindNode, hash, func() (Amount, error) {
		return around(1+len(hash)+len(hash)*kidCount(level, pages), Amount{}), nil
	})
	if err != nil || !isNew {
		return err
	}
	return eachKid(w.view.Get, hash, level, pages, w.subtree)
}

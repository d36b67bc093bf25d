package journal

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Namer says what stored bytes name, which the journal does not know. Its functions
// tell Names and keep nothing of what they are given. They may read blobs (Blob),
// sessions and refs and make images (NewImage), and must call nothing else of the
// journal, which may be waiting for them.
type Namer struct {
	// Session tells what a session names beside its records. Of a deleted one, of
	// which others need something, that is what a fork of it needs.
	Session func(Session, *Names) error
	// Record tells what a record of a session names. Its Line is valid until the
	// function returns, and Prev is not set.
	Record func(abi.SessionID, Record, *Names) error
	// Pins tells what is needed for other reasons: by refs, which it must read
	// when it is called.
	Pins func(*Names) error
	// Rest, if set, is called by Collect every few rows while nobody waits for it:
	// who wants it to take little of the machine waits there. Such a Collect leaves
	// a large store to be compacted bit by bit as more is written, so that it can be
	// ended soon at any moment.
	Rest func(context.Context)
}

// Names takes what is named.
type Names struct {
	blob, image, spare func(abi.Digest) error
	point              func(uid abi.SessionID, at abi.Seq, pin string, root abi.Digest) error
	once               func(abi.Digest) bool
}

// Blob names a blob, which may be missing.
func (n *Names) Blob(d abi.Digest) error { return n.blob(d) }

// Image names an image, with all of its pages. It may be missing: of many an
// image the root is known and no more.
func (n *Names) Image(root abi.Digest) error { return n.image(root) }

// Spare tells of an image that may be stored and is not needed for this: Usage
// counts it as garbage unless something else names it.
func (n *Names) Spare(root abi.Digest) error { return n.spare(root) }

// Point names the records of a session up to one, and what they name, and an image,
// under the name of the pin. A session that is not there has none.
func (n *Names) Point(uid abi.SessionID, at abi.Seq, pin string, root abi.Digest) error {
	return n.point(uid, at, pin, root)
}

// Once reports whether it is asked for d for the first time. It is for blobs that
// name others: those need not be told again.
func (n *Names) Once(d abi.Digest) bool { return n.once(d) }

// kindOnce stands for what Names.Once was asked, among the kinds of rows.
const kindOnce = 'o'

// digestSet is a set of rows that are named by a digest, of which it keeps 128 bits.
// In memory a row takes 20 to 40 bytes, as the map grows.
type digestSet map[[16]byte]struct{}

func setKey(kind byte, d abi.Digest) (key [16]byte) {
	copy(key[:], d[:])
	key[0] ^= kind
	return key
}

func (s digestSet) has(kind byte, d abi.Digest) bool {
	_, ok := s[setKey(kind, d)]
	return ok
}

// add reports whether the row was not there yet.
func (s digestSet) add(kind byte, d abi.Digest) bool {
	n := len(s)
	s[setKey(kind, d)] = struct{}{}
	return len(s) > n
}

// Unreadable tells what Collect and Usage could not read of what somebody needs. It is an
// ErrCorrupt.
type Unreadable struct {
	// Sessions are those that the damage was met in, each once; errs is why, of each.
	Sessions []abi.SessionID
	errs     []error
}

// Error tells all of it.
func (u *Unreadable) Error() string { return errors.Join(u.errs...).Error() }

// Unwrap gives why, of each session.
func (u *Unreadable) Unwrap() []error { return u.errs }

// met takes note of damage, and is nil; it is err if that is something else.
func (u *Unreadable) met(uid abi.SessionID, err error) error {
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	if !slices.Contains(u.Sessions, uid) {
		u.Sessions, u.errs = append(u.Sessions, uid), append(u.errs, err)
	}
	return nil
}

// err is u as an error, nil if nothing was met.
func (u *Unreadable) err() error {
	if len(u.errs) == 0 {
		return nil
	}
	return u
}

// needed are the records under one uid that somebody needs.
type needed struct {
	low, high abi.Seq // the first and the last one, which are there
	// pin is the last record of the session, its ancestors' among them, that a
	// point needs.
	pin abi.Seq
	// all: the session is just being imported.
	all bool
}

// collector is one run of Collect.
type collector struct {
	j     *Journal
	ctx   context.Context
	namer Namer
	rows  int  // that go in one commit
	view  View // that is walked
	// live are the rows that somebody needs, need the records.
	live digestSet
	need map[abi.SessionID]*needed
	// deleted are the sessions that were, when the walk began.
	deleted []abi.SessionID
	// sweeping: others wait for what is being done.
	sweeping bool
	// marking: nothing was swept yet, and what cannot be read goes to unreadable.
	marking    bool
	unreadable Unreadable
	out        Collected
}

// rest lets the caller wait, unless others would have to wait with it.
func (c *collector) rest() {
	if c.namer.Rest != nil && !c.sweeping {
		c.namer.Rest(c.ctx)
	}
}

func (c *collector) names() *Names {
	return &Names{
		blob:  func(d abi.Digest) error { c.live.add(kindBlob, d); return nil },
		image: c.image,
		spare: func(abi.Digest) error { return nil },
		point: func(uid abi.SessionID, at abi.Seq, _ string, root abi.Digest) error {
			return errors.Join(c.image(root), c.point(uid, at))
		},
		once: func(d abi.Digest) bool { return c.live.add(kindOnce, d) },
	}
}

// mark finds all that somebody needs.
func (c *collector) mark() error {
	for _, im := range c.j.handles.inUse() {
		if err := c.handle(im); err != nil {
			return fmt.Errorf("image %v: %w", im.root, err)
		}
	}
	for e, err := range c.view.Scan([]byte{kindMeta}, []byte{kindMeta + 1}, false) {
		if err != nil {
			return err
		}
		if err := c.session(abi.SessionID(e.Key[1:])); err != nil {
			return err
		}
		if err := c.follow(); err != nil {
			return err
		}
	}
	if err := c.namer.Pins(c.names()); err != nil {
		return err
	}
	for _, uid := range c.deleted {
		if c.need[uid] == nil {
			continue
		}
		if err := c.kept(uid); err != nil {
			return err
		}
	}
	return nil
}

// kept marks what a deleted session, of which somebody needs something, needs.
func (c *collector) kept(uid abi.SessionID) error {
	s, segs, err := session(c.view, uid)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("session %q: %w", uid, err)
	}
	if err := c.named(s); err != nil {
		return err
	}
	if n := c.needs(uid); n.high > 0 {
		return c.records([]stretch{own(uid, segs, n.high)})
	}
	return nil
}

// own are the records up to one that are stored under the uid of a session whose
// ancestors' are segs.
func own(uid abi.SessionID, segs []segment, upto abi.Seq) stretch {
	low := abi.Seq(1)
	if n := len(segs); n > 0 {
		low = segs[n-1].upto + 1
	}
	return stretch{uid, low, upto}
}

// session marks what a session needs, unless it was deleted.
func (c *collector) session(uid abi.SessionID) error {
	s, segs, err := session(c.view, uid)
	if err != nil {
		return err
	}
	if s.IsDeleted() {
		c.deleted = append(c.deleted, uid)
		return nil
	}
	if err := c.named(s); err != nil {
		return err
	}
	return c.records(ranges(append(segs, segment{uid, s.Head.Seq}), 1, s.Head.Seq, false))
}

// named marks what a session names beside its records.
func (c *collector) named(s Session) error {
	err := c.namer.Session(s, c.names())
	if err != nil {
		err = c.damaged(s.UID, fmt.Errorf("session %q: %w", s.UID, err))
	}
	return err
}

// damaged is nil if there is a way to go on although err was met in a session: what is
// known by its session is known for all that, and what is named by content stays.
func (c *collector) damaged(uid abi.SessionID, err error) error {
	if !c.marking {
		return err
	}
	return c.unreadable.met(uid, err)
}

// point marks what the record of a session up to at needs.
func (c *collector) point(uid abi.SessionID, at abi.Seq) error {
	s, segs, err := session(c.view, uid)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	at = min(at, s.last())
	n := c.needs(uid)
	n.pin = max(n.pin, at)
	return c.records(ranges(append(segs, segment{uid, s.last()}), 1, at, false))
}

// needs is what is needed under uid.
func (c *collector) needs(uid abi.SessionID) *needed {
	n := c.need[uid]
	if n == nil {
		n = new(needed)
		c.need[uid] = n
	}
	return n
}

// records marks records and what they name, each once.
func (c *collector) records(all []stretch) error {
	for _, s := range all {
		n := c.needs(s.uid)
		if n.high == 0 {
			n.low, n.high = s.low, s.low-1
		}
		// Of a fork that came back whole children may know the later part alone.
		for _, part := range []stretch{{s.uid, s.low, n.low - 1}, {s.uid, n.high + 1, s.high}} {
			if err := c.stretch(part); err != nil {
				return err
			}
		}
		n.low, n.high = min(n.low, s.low), max(n.high, s.high)
	}
	return nil
}

func (c *collector) stretch(s stretch) (failed error) {
	if s.low > s.high {
		return nil
	}
	s.walk(c.view, false, func(r Record, err error) bool {
		c.rest()
		if err == nil {
			err = context.Cause(c.ctx)
		}
		if err == nil {
			if err = c.namer.Record(s.uid, r, c.names()); err != nil {
				err = fmt.Errorf("record %d of session %q: %w", r.Seq, s.uid, err)
			}
		}
		failed = err
		return err == nil
	})
	if failed != nil {
		failed = c.damaged(s.uid, failed)
	}
	return failed
}

// image marks an image and its pages.
func (c *collector) image(root abi.Digest) error {
	if !c.live.add(kindImage, root) {
		return nil
	}
	row, err := c.view.Get(digestKey(kindImage, root))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	var r imageRow
	if err == nil {
		if r, err = decodeImageRow(row); err == nil && r.root() != root {
			err = errors.New("its row has another root")
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	if err == nil {
		pages := uint32(r.size / abi.PageSize)
		if level := height(pages); r.pages != zeroHash(level, pages) {
			err = c.subtree(r.pages, level, pages)
		}
	}
	if err != nil {
		return fmt.Errorf("image %v: %w", root, err)
	}
	return nil
}

// subtree marks a node, or page, that is stored, and all below it.
func (c *collector) subtree(hash abi.Digest, level int, pages uint32) error {
	if level == 0 {
		c.live.add(kindPage, hash)
		return nil
	}
	if !c.live.add(kindNode, hash) {
		return nil
	}
	c.rest()
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	return eachKid(c.view.Get, hash, level, pages, c.subtree)
}

// eachKid visits what is stored directly below a stored node: its hash, its level
// and how many pages it covers.
func eachKid(get func([]byte) ([]byte, error), hash abi.Digest, level int, pages uint32, visit func(abi.Digest, int, uint32) error) error {
	t := tree{pages: pages, get: get}
	kids, err := t.loadKids(&pageNode{hash: hash}, level, pages)
	if err != nil {
		return fmt.Errorf("node %v: %w", hash, err)
	}
	for i, kid := range kids {
		if kid == nil {
			continue
		}
		if err := visit(kid.hash, level-1, covered(pages, level-1, uint32(i)*span(level-1))); err != nil {
			return err
		}
	}
	return nil
}

// found marks a row and what is below it, if it is stored.
func (c *collector) found(kind byte, hash abi.Digest, level int, pages uint32) error {
	_, err := c.view.Get(digestKey(kind, hash))
	if errors.Is(err, ErrNotFound) { // it will be, with what is below it
		c.live.add(kind, hash)
		return nil
	}
	if err != nil {
		return err
	}
	if kind == kindImage {
		return c.image(hash)
	}
	return c.subtree(hash, level, pages)
}

// handle marks what an image in use takes for stored.
func (c *collector) handle(im *Image) error {
	if im.stored.Load() {
		if err := c.found(kindImage, im.root, 0, 0); err != nil {
			return err
		}
	}
	return c.pageNode(im.tree.root, height(im.tree.pages), im.tree.pages)
}

func (c *collector) pageNode(nd *pageNode, level int, pages uint32) error {
	switch {
	case nd == nil:
		return nil
	case nd.stored.Load() && level == 0:
		return c.found(kindPage, nd.hash, 0, 1)
	case nd.stored.Load():
		return c.found(kindNode, nd.hash, level, pages)
	}
	kids := nd.kids.Load()
	if kids == nil { // a page in memory
		return nil
	}
	for i := range kidCount(level, pages) {
		if err := c.pageNode(kids[i], level-1, covered(pages, level-1, uint32(i)*span(level-1))); err != nil {
			return err
		}
	}
	return nil
}

// follow marks what was touched since the last call.
func (c *collector) follow() error {
	touched := c.j.guard.take()
	if len(touched) == 0 {
		return nil
	}
	walked := c.view
	c.view = c.j.view()
	defer func() {
		c.view.Close()
		c.view = walked
	}()
	for _, t := range touched {
		var err error
		switch t.kind {
		case kindRecord:
			err = c.touchedRecords(t.records)
		case kindBlob:
			c.live.add(kindBlob, t.digest)
		default:
			err = c.found(t.kind, t.digest, t.level, t.pages)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) touchedRecords(s stretch) error {
	if s.high < math.MaxInt64 {
		if err := c.records([]stretch{s}); err != nil {
			return err
		}
		return c.kept(s.uid)
	}
	c.needs(s.uid).all = true
	if err := c.point(s.uid, s.high); err != nil { // one that was deleted and comes back
		return err
	}
	return c.kept(s.uid)
}

// kidHashes calls f for each hash that a node's row holds.
func kidHashes(row []byte, f func(abi.Digest)) {
	for ; len(row) >= sha256.Size; row = row[sha256.Size:] {
		f(abi.Digest(row))
	}
}

// seqOf is the seq at the end of a record's key.
func seqOf(key []byte) abi.Seq { return abi.Seq(binary.BigEndian.Uint64(key[len(key)-8:])) }

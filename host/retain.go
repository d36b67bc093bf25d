package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Retention says which images of past turns a session keeps, beside the one its next
// turn begins from. Turns are counted as Session.Turns does, failed ones too, whose
// image is that of the turn before. The zero value is DefaultRetention.
//
// It decides what Collect takes away and nothing else: whoever needs an image that
// is gone has it rebuilt, by running the turns behind the one before it again. What
// cannot be rebuilt stays.
type Retention struct {
	// Last keeps those of the last so many turns; one at least is always there.
	Last int `json:"last,omitempty"`
	// Every keeps that of every so-manyth turn, counted from the first: rebuilding
	// one between them takes fewer turns than that. 1 keeps all; 0 none.
	Every int `json:"every,omitempty"`
}

// DefaultRetention is that of a session that names none.
func DefaultRetention() Retention { return Retention{Last: 8, Every: 16} }

// OrDefault is r, or DefaultRetention if r names none.
func (r Retention) OrDefault() Retention {
	if r == (Retention{}) {
		return DefaultRetention()
	}
	return r
}

// keeps reports whether r keeps the image of a turn of a session that has so many.
func (r Retention) keeps(turn, turns int64) bool {
	return turn > turns-int64(max(r.Last, 1)) || r.Every > 0 && turn%int64(r.Every) == 0
}

// keepsAll reports whether r keeps all images of a session that has so many turns.
func (r Retention) keepsAll(turns int64) bool { return int64(r.Last) >= turns || r.Every == 1 }

func checkRetention(r Retention) error {
	if r.Last < 0 || r.Every < 0 {
		return fmt.Errorf("%w: retention of the last %d and every %d turns", ErrInvalid, r.Last, r.Every)
	}
	return nil
}

// retained judges the images of turns, for one walk over all records.
type retained struct {
	host *Host
	ctx  context.Context
	// current is the session that was met last, ancestors those that were met in
	// the records of others.
	current   keeping
	ancestors map[abi.SessionID]keeping
	// programs tells of code whether this host can run its turns again; stuck are
	// the turns that it cannot.
	programs map[program]bool
	stuck    map[abi.ExecutionID]struct{}
	// pins are those of sessions that were met, and of their upgrades, by module.
	pins map[abi.Digest]pin
}

// keeping is what must be known of a session to judge the images of its turns.
type keeping struct {
	uid   abi.SessionID
	meta  meta
	turns int64
}

// program is what a turn ran: two turns with one program run again on the same host,
// or neither does.
type program struct {
	module   abi.Digest
	rewriter int32
	runtime  string
	golden   abi.Digest
}

func (h *Host) retained(ctx context.Context) *retained {
	return &retained{
		host: h, ctx: ctx, ancestors: map[abi.SessionID]keeping{},
		programs: map[program]bool{}, stuck: map[abi.ExecutionID]struct{}{}, pins: map[abi.Digest]pin{},
	}
}

// meet tells of a session whose records may come next.
func (k *retained) meet(r row) { k.current = k.keeping(r) }

func (k *retained) keeping(r row) keeping {
	for _, p := range []pin{r.made, r.meta.pin} {
		k.pins[p.Module] = p
	}
	return keeping{r.UID, r.meta, r.sum.Turns}
}

// session is the one that records are stored under, which may have been deleted: it
// has left to its forks what it kept.
func (k *retained) session(uid abi.SessionID) (keeping, error) {
	if k.current.uid == uid {
		return k.current, nil
	}
	if known, ok := k.ancestors[uid]; ok {
		return known, nil
	}
	s, err := k.host.journal.Session(uid)
	if err != nil {
		return keeping{}, err
	}
	r, err := decodeRow(s)
	if err != nil {
		return keeping{}, fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
	}
	k.ancestors[uid] = k.keeping(r)
	return k.ancestors[uid], nil
}

// began takes note of a turn that begins in the records of a session.
func (k *retained) began(uid abi.SessionID, e *abi.Event) error {
	s, err := k.session(uid)
	if err != nil || !s.meta.HoldsMemory || s.meta.Retention.OrDefault().keepsAll(s.turns) {
		return err
	}
	p := program{e.Cell.Module, e.Cell.Rewriter, s.meta.Runtime, k.pins[e.Cell.Module].GoldenRoot}
	runs, known := k.programs[p]
	if !known {
		runs = k.runs(p)
		k.programs[p] = runs
	}
	if !runs {
		k.stuck[e.ExecutionID] = struct{}{}
	}
	return nil
}

// upgraded takes note of an upgrade, whose turns are behind it.
func (k *retained) upgraded(c *abi.Cell) {
	k.pins[c.Module] = pin{Harness: c.Harness, Module: c.Module, GoldenRoot: c.GoldenRoot}
}

// runs reports whether this host can run the turns of a program again. If it cannot
// tell, it says no: nothing is lost by that.
func (k *retained) runs(p program) bool {
	h, had := k.host, k.pins[p.module]
	mod, err := h.pinnedModule(k.ctx, had, p.runtime)
	switch {
	case err != nil:
		h.log.Warn("images are kept that this host could not rebuild", "harness", had.Harness, "module", p.module.Short(), "error", err)
		return false
	case mod.golden == nil || !mod.runtime.Capabilities().Reexecutable:
		return false
	}
	return mod.code.Digest == p.module && mod.desc.Rewriter == p.rewriter
}

// ended reports whether the image that a turn has led to is kept for its own sake.
func (k *retained) ended(uid abi.SessionID, e *abi.Event) (bool, error) {
	s, err := k.session(uid)
	if err != nil || !s.meta.HoldsMemory {
		return false, err
	}
	_, stuck := k.stuck[e.ExecutionID]
	return stuck || s.meta.Retention.OrDefault().keeps(int64(e.Cell.Turn), s.turns), nil
}

// Rebuild tells of turns that are run again because an image is not stored.
type Rebuild struct {
	Session abi.SessionID
	// At is where the image stands in the session's record, and Turns how many
	// turns before it are run.
	At    abi.Seq
	Turns int
}

// needImage sees to it that the image of a point is stored. One that is not is
// reached by running the turns behind the nearest one before it again, and then
// saved; the caller holds the journal, so that it stays. The error is
// ErrDivergence if the turns reach another one, and *ImageDamage if it, or the one
// they begin from, is stored and damaged.
func (h *Host) needImage(ctx context.Context, r row, at abi.Seq, root abi.Digest) error {
	if !r.meta.HoldsMemory || root == r.meta.GoldenRoot {
		return nil
	}
	_, err := h.journal.LoadImage(root)
	if errors.Is(err, journal.ErrNotFound) {
		err = h.rebuildImage(ctx, r, at, root)
	}
	if err != nil {
		return fmt.Errorf("image of seq %d: %w", at, asDamage(r.UID, root, err))
	}
	return nil
}

func (h *Host) rebuildImage(ctx context.Context, r row, at abi.Seq, root abi.Digest) error {
	from, turns, err := h.nearest(r, at)
	if err != nil {
		return err
	}
	began := time.Now()
	if h.cfg.Rebuilding != nil {
		h.cfg.Rebuilding(Rebuild{r.UID, at, turns})
	}
	again, err := h.rerun(ctx, r, from, at)
	if err != nil {
		return err
	}
	defer again.close(ctx)
	if err := again.reach(ctx, root); err != nil {
		return err
	}
	if err := h.journal.SaveImage(ctx, again.image); err != nil {
		return err
	}
	h.log.Info("image rebuilt", "session", r.UID, "at", at, "root", root.Short(), "turns", turns, "took", time.Since(began))
	return nil
}

// nearest is the last point up to at whose image is stored, or golden, and how many
// completed turns stand between them.
func (h *Host) nearest(r row, at abi.Seq) (point, int, error) {
	turns := 0
	for rec, err := range h.journal.ReadReverse(r.UID, at, 1) {
		if err != nil {
			return point{}, 0, err
		}
		if !arrives(rec.Line) {
			continue
		}
		e, err := lineEvent(rec)
		if err != nil {
			return point{}, 0, fmt.Errorf("seq %d: %w", rec.Seq, err)
		}
		p, ok := arrival(rec.Seq, e)
		if !ok {
			continue
		}
		_, err = h.journal.LoadImage(p.root)
		if err == nil {
			return p, turns, nil
		}
		if !errors.Is(err, journal.ErrNotFound) {
			return point{}, 0, asDamage(r.UID, p.root, err)
		}
		turns++
	}
	return beginning(r), turns, nil
}

// arrival is the point behind a record that names a new image: the END of a turn that
// has completed, or an upgrade.
func arrival(seq abi.Seq, e *abi.Event) (point, bool) {
	ended := e.Kind == abi.EventEnd && e.End != nil && e.End.State == abi.StateCompleted
	if e.Cell == nil || !ended && !isUpgrade(e) {
		return point{}, false
	}
	return point{at: seq, root: e.Cell.Root, turns: int64(e.Cell.Turn), modelCalls: int64(e.Cell.ModelCalls)}, true
}

// arrives reports whether a line may be a record that has an arrival. Its own text says
// so, in the form that all records are written in: decoding each to find the few that
// matter takes as long as all the rest that is done with them.
func arrives(line []byte) bool {
	return bytes.Contains(line, []byte(abi.EventEnd)) || bytes.Contains(line, []byte(abi.LifecycleUpgrade))
}

// baseImage is the image of a root that the next turn of a session, or its open one,
// begins from.
func (h *Host) baseImage(ctx context.Context, m *module, r row, root abi.Digest) (*journal.Image, error) {
	im, err := h.loadImage(m, root)
	if errors.Is(err, journal.ErrNotFound) {
		defer h.journal.Hold()() // from Collect
		at := r.sum.Closed
		if r.sum.Open != 0 {
			at = r.sum.Open - 1
		}
		if err = h.needImage(ctx, r, at, root); err == nil {
			im, err = h.loadImage(m, root)
		}
	}
	return im, asDamage(r.UID, root, err)
}

// reach runs the turns that have changed memory, up to the last record, and compares
// the root that they reach.
func (r *rerun) reach(ctx context.Context, root abi.Digest) error {
	for {
		o, ok, err := r.next()
		if err != nil {
			return err
		}
		if !ok || o.end == nil && o.upgrade == nil {
			break
		}
		if o.end != nil && o.end.End.State != abi.StateCompleted {
			r.pass(o)
			continue
		}
		p, err := r.turn(ctx, o)
		if err == nil && p != proofWhole {
			err = fmt.Errorf("seq %d: %w: its turn cannot be run again here", o.start, ErrPlacement)
		}
		if err != nil {
			return err
		}
	}
	if got := r.here.root; got != root {
		return fmt.Errorf("%w: its root is %s, the turns reach %s", ErrDivergence, root.Short(), got.Short())
	}
	return nil
}

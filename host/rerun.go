package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// point is a state between the turns of a session's record.
type point struct {
	// at is the record behind which it is, 0 before the first one.
	at abi.Seq
	// root is that of the image the next turn begins from.
	root abi.Digest
	// turns and modelCalls had ended there.
	turns, modelCalls int64
}

// beginning is where the first turn of a session's record begins.
func beginning(r row) point { return point{root: r.made.GoldenRoot} }

// rerun runs the recorded turns of a session again, one after the other, in one
// incarnation as long as that lives. What leaves the turns is compared with the
// record, which also answers it: nothing outside the journal is asked (I1). It reads
// committed records only, so the session may run meanwhile.
type rerun struct {
	host   *Host
	row    row
	feed   *feed // from here on
	load   moduleLoader
	module *module // that the next turn ran
	// rehearsal: module is not what the turns ran, and they hold no memory. What they
	// do and how they end is compared, but for the root and the fuel.
	rehearsal bool

	// here is how far it has come, and image what the next turn begins from, nil
	// where the runtime has no images.
	here  point
	image *journal.Image

	inc runtimes.Incarnation // nil: to be made from image
}

// moduleLoader loads the module of a pin on the runtime of that name.
type moduleLoader func(ctx context.Context, p pin, runtime string) (*module, error)

// rerun makes one that goes from a point, whose image is golden or stored, to the
// record last. The caller closes it.
func (h *Host) rerun(ctx context.Context, r row, from point, last abi.Seq) (*rerun, error) {
	return h.rerunOn(ctx, h.pinnedModule, r, from, last)
}

// rerunOn is rerun on modules that are loaded in another way.
func (h *Host) rerunOn(ctx context.Context, load moduleLoader, r row, from point, last abi.Seq) (*rerun, error) {
	up, err := h.upgradeAt(r, from.at)
	if err != nil {
		return nil, err
	}
	m, err := load(ctx, r.pinned(up), r.meta.Runtime)
	if err != nil {
		return nil, err
	}
	again := &rerun{host: h, row: r, feed: h.feed(r.UID, from.at+1, last), load: load, module: m, here: from}
	if again.image, err = h.loadImage(m, from.root); err != nil {
		return nil, err
	}
	return again, nil
}

// close ends the incarnation.
func (r *rerun) close(ctx context.Context) {
	if r.inc == nil {
		return
	}
	if err := r.inc.Stop(context.WithoutCancel(ctx)); err != nil {
		r.host.log.Warn("stop incarnation", "session", r.row.UID, "error", err)
	}
	r.inc = nil
}

// outline is what must be known of a turn before it is run: where it stands, and
// how it ended if it did. What stands between two turns and changes what the next
// begins from, which is an upgrade, is gone through like a turn.
type outline struct {
	start, last abi.Seq
	end         *abi.Event // nil: it is open, and its record a prefix
	modelCalls  int64
	upgrade     *abi.Event // set: it is no turn
}

// add takes up the next record, and reports whether the outline is whole.
func (o *outline) add(seq abi.Seq, e *abi.Event) (whole bool, err error) {
	switch {
	case o.start == 0 && isUpgrade(e):
		if e.Cell == nil {
			return false, fmt.Errorf("seq %d: incomplete %s: %w", seq, abi.LifecycleUpgrade, journal.ErrCorrupt)
		}
		*o = outline{start: seq, last: seq, upgrade: e}
		return true, nil
	case o.start == 0 && e.Kind == abi.EventLifecycle:
		return false, nil // a fork inside a turn is part of how that turn went on
	case o.start == 0:
		o.start = seq
	}
	o.last = seq
	switch e.Kind {
	case abi.EventModelCall:
		o.modelCalls++
	case abi.EventEnd:
		if o.end = e; e.Cell == nil || e.End == nil {
			return false, fmt.Errorf("seq %d: incomplete %s: %w", seq, e.Kind, journal.ErrCorrupt)
		}
		return true, nil
	}
	return false, nil
}

// next finds the next turn, or upgrade; ok is false if there is none. Of a turn whose
// end is not among the records at hand it reads no bodies, and keeps nothing.
func (r *rerun) next() (o outline, ok bool, err error) {
	from := r.here.at + 1
	r.feed.skip(from)
	r.feed.fill()
	for _, rec := range r.feed.window {
		if whole, err := o.add(rec.Seq, rec.Event); whole || err != nil {
			return o, whole, err
		}
		from = rec.Seq + 1
	}
	if from > r.feed.last {
		return o, o.start != 0, nil
	}
	for rec, err := range r.host.journal.Read(r.row.UID, from, r.feed.last) {
		if err != nil {
			return o, false, err
		}
		if o.start != 0 && !counts(rec.Line) {
			o.last = rec.Seq
			continue
		}
		e, err := lineEvent(rec)
		if err != nil {
			return o, false, fmt.Errorf("seq %d: %w", rec.Seq, err)
		}
		if whole, err := o.add(rec.Seq, e); whole || err != nil {
			return o, whole, err
		}
	}
	return o, o.start != 0, nil
}

// counts reports whether a line may be a record that an outline of its turn tells of.
func counts(line []byte) bool {
	return bytes.Contains(line, []byte(abi.EventModelCall)) || bytes.Contains(line, []byte(abi.EventEnd))
}

// lineEvent is the event of a record as it stands in its line, without its body.
func lineEvent(r journal.Record) (*abi.Event, error) {
	encoded, _, _, err := journal.ParseLine(r.Line)
	if err != nil {
		return nil, err
	}
	return abi.DecodeEvent(encoded)
}

// pass goes behind a turn, whether it was run or not.
func (r *rerun) pass(o outline) {
	r.here.at = o.last
	r.here.modelCalls += o.modelCalls
	if o.end != nil {
		r.here.turns++
	}
}

// proof is what running a turn again has shown.
type proof int

const (
	proofNone   proof = iota // its runtime cannot run a turn again
	proofPrefix              // it matched as far as it had to
	proofWhole               // it reached the recorded end and root
)

// turn runs the turn that next has found, or carries the state over as the upgrade
// did, and goes behind it.
func (r *rerun) turn(ctx context.Context, o outline) (proof, error) {
	if o.upgrade != nil {
		return r.upgrade(ctx, o)
	}
	t, err := r.feed.turn(o.start, o.last)
	if err != nil {
		return proofNone, asDivergence(err)
	}
	before := r.here
	r.pass(o)
	if !r.module.runtime.Capabilities().Reexecutable || r.image == nil {
		return proofNone, nil
	}
	if !r.module.desc.Harness.HoldsMemory() {
		r.image = r.module.golden
	}
	start := t.start.Event
	if got := r.image.Root(); got != start.Cell.BaseRoot && !r.rehearsal {
		return proofNone, asDivergence(&turn.Divergence{
			Seq: t.start.Seq, Want: start.Cell.BaseRoot, Got: got,
			What: "the turn's base root is not the root that was reached",
		})
	}
	if err := r.fits(t.start); err != nil {
		return proofNone, err
	}
	done, err := r.run(ctx, t, o, before)
	switch {
	case err != nil:
		r.close(ctx)
		return proofNone, err
	case done:
		return proofWhole, nil
	default:
		return proofPrefix, nil
	}
}

// fits reports whether the module at hand is what ran the turn that opened with
// start.
func (r *rerun) fits(start turn.Recorded) error {
	had, has := start.Event.Cell, r.module
	if r.rehearsal {
		return nil
	}
	if had.Rewriter != has.desc.Rewriter || had.Module != has.code.Digest {
		return fmt.Errorf("seq %d: the turn ran module %s under rewriter %d, this host has module %s under rewriter %d: %w",
			start.Seq, had.Module.Short(), had.Rewriter, has.code.Digest.Short(), has.desc.Rewriter, ErrPlacement)
	}
	return nil
}

// run runs a turn on its record. It reports whether the recorded end was
// reached; a turn that was cut short only has to match as far as it goes.
func (r *rerun) run(ctx context.Context, t recordedTurn, o outline, before point) (bool, error) {
	start := t.start.Event
	whole := o.end != nil && o.end.Cell.Class == abi.ClassDeterministic
	p := &checkPort{host: r.host, uid: r.row.UID, last: historyEnd(t.start.Seq), prefix: !whole}
	p.machine = turn.New(turn.Opening{
		Execution: start.ExecutionID, Time: t.opened, Start: t.response,
		Model: start.Cell.Model, Tools: byName(t.grants), Limits: *start.Cell.Limits, BaseRoot: start.Cell.BaseRoot,
		Turn: before.turns, ModelCalls: before.modelCalls,
	}, turn.Check, t.rest)
	// Only what was recorded has to match, not how the run would go on.
	if matched, err := p.matched(); matched || err != nil {
		return false, err
	}
	out, err := r.drive(ctx, t, p)
	switch {
	case errors.Is(err, turn.ErrRecordEnds) && !whole:
		r.close(ctx)
		return false, nil
	case errors.Is(err, turn.ErrRecordEnds):
		return false, fmt.Errorf("seq %d: %w", t.start.Seq, err)
	case err != nil:
		return false, asDivergence(err)
	case !whole:
		next, err := p.machine.Front()
		if err != nil {
			return false, err
		}
		return false, asDivergence(&turn.Divergence{
			Seq: next.Seq, Want: abi.DigestOf(next.Encoded),
			What: fmt.Sprintf("the run ended (%s) before it asked for this", out.Reason),
		})
	case out.Reason.Class() == abi.ClassExternal:
		why := string(out.Reason)
		if out.Err != nil {
			why += ": " + out.Err.Description
		}
		return false, fmt.Errorf("seq %d: this host cannot run the turn to its end: %s", t.start.Seq, why)
	}
	return true, r.arrive(ctx, p, start, o, out)
}

// drive gives the turn to an incarnation, for as long as a turn of the session may
// take here.
func (r *rerun) drive(ctx context.Context, t recordedTurn, p *checkPort) (runtimes.Outcome, error) {
	deadline := max(cmp.Or(r.row.meta.Deadline, r.host.cfg.Deadline), r.host.cfg.Deadline)
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, fmt.Errorf("seq %d: running the turn again took longer than %s: %w",
		t.start.Seq, deadline.Round(time.Millisecond), context.DeadlineExceeded))
	defer cancel()
	if r.inc == nil {
		var err error
		if r.inc, err = r.module.incarnate(ctx, r.host, r.image); err != nil {
			return runtimes.Outcome{}, asDamage(r.row.UID, r.image.Root(), err)
		}
	}
	start := t.start.Event
	spec := runtimes.Turn{
		Execution: start.ExecutionID, Start: start.Time.Time, Limits: *start.Cell.Limits, Cloned: start.Cell.Cloned,
	}
	copy(spec.Seed[:], firstSeed(p.machine, start.Cell.Seed))
	return r.inc.Run(ctx, spec, p)
}

// arrive compares the end of a turn with the recorded one, and takes up what it has
// led to.
func (r *rerun) arrive(ctx context.Context, p *checkPort, start *abi.Event, o outline, out runtimes.Outcome) error {
	end := turn.End{Reason: out.Reason, Err: out.Err, Fuel: out.Fuel}
	var reached *journal.Image // by a turn that the next one goes on from
	var err error
	switch {
	case out.Reason != abi.ReasonCompleted:
	case r.module.desc.Harness.HoldsMemory():
		if reached, err = r.host.snapshot(ctx, r.inc, r.image); err == nil {
			end.Root = reached.Root()
		}
	default:
		end.Root, _, err = r.host.snapshotRoot(ctx, r.inc, r.image)
	}
	if err != nil {
		return asDamage(r.row.UID, r.image.Root(), err)
	}
	if r.rehearsal {
		end.Root, end.Fuel = o.end.Cell.Root, uint64(o.end.Cell.Fuel)
	}
	if _, err := p.machine.Finish(end, start.Time); err != nil {
		return asDivergence(err)
	}
	if reached == nil {
		r.close(ctx)
		return nil
	}
	r.image, r.here.root = reached, reached.Root()
	return nil
}

// upgrade goes on with another module, as the record of an upgrade says.
func (r *rerun) upgrade(ctx context.Context, o outline) (proof, error) {
	h, c := r.host, o.upgrade.Cell
	r.pass(o)
	r.close(ctx)
	var sum summary
	sum.upgrade(o.start, c)
	to, err := r.load(ctx, sum.Upgraded.pin, r.row.meta.Runtime)
	if err != nil {
		return proofNone, fmt.Errorf("seq %d: %w", o.start, err)
	}
	diverges := func(what string, want, got abi.Digest) (proof, error) {
		return proofNone, asDivergence(&turn.Divergence{Seq: o.start, Want: want, Got: got, What: what})
	}
	from, base := r.module, r.image
	r.module, r.image, r.here.root = to, to.golden, c.GoldenRoot
	switch {
	case c.OldModule != from.code.Digest:
		return diverges("the upgrade is from another module than the turns before it ran", c.OldModule, from.code.Digest)
	case !to.runtime.Capabilities().Reexecutable || base == nil:
		return proofNone, nil
	case c.Rewriter != to.desc.Rewriter:
		return proofNone, fmt.Errorf("seq %d: it was upgraded under rewriter %d, this host has rewriter %d: %w", o.start, c.Rewriter, to.desc.Rewriter, ErrPlacement)
	case !r.row.meta.HoldsMemory:
		return proofWhole, nil
	case base.Root() != c.BaseRoot:
		return diverges("the upgrade's base root is not the root that was reached", c.BaseRoot, base.Root())
	case c.Limits == nil || len(c.Seed) != 32:
		return proofNone, fmt.Errorf("seq %d: incomplete %s: %w", o.start, abi.LifecycleUpgrade, journal.ErrCorrupt)
	}
	moved, err := h.carry(ctx, from, to, base, o.upgrade)
	switch {
	case errors.Is(err, ErrNotPortable):
		return diverges(err.Error(), abi.Digest{}, abi.Digest{})
	case err != nil:
		return proofNone, fmt.Errorf("seq %d: %w", o.start, err)
	case moved.state != c.State:
		return diverges("agent_save gave another state than was recorded", c.State, moved.state)
	case moved.image.Root() != c.Root:
		return diverges("agent_load led to another image than was recorded", c.Root, moved.image.Root())
	}
	r.image, r.here.root = moved.image, c.Root
	return proofWhole, nil
}

// checkPort serves a turn from its record and nothing else (I1).
type checkPort struct {
	host    *Host
	uid     abi.SessionID
	machine *turn.Machine
	last    abi.Seq // newest record before the turn
	prefix  bool    // the run has matched where its record ends
}

var _ runtimes.Port = (*checkPort)(nil)

// matched reports whether the run has matched all that it had to.
func (p *checkPort) matched() (bool, error) {
	next, err := p.machine.Front()
	return p.prefix && next == nil, err
}

// Call serves one outward call of the harness.
func (p *checkPort) Call(ctx context.Context, op abi.Op, request []byte) (runtimes.Response, error) {
	ready, err := p.machine.Call(op, request, abi.Time{})
	if err != nil {
		return runtimes.Response{}, err
	}
	matched, err := p.matched()
	switch {
	case err != nil:
		return runtimes.Response{}, err
	case matched:
		return runtimes.Response{}, turn.ErrRecordEnds
	case ready.History != nil:
		return p.host.history(ctx, p.uid, p.last, ready.History)
	case ready.Reply == nil:
		return runtimes.Response{}, fmt.Errorf("the turn machine asks for an effect in a check")
	}
	return response(ready.Reply), nil
}

package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// UpgradeRequest asks for another module for a session.
type UpgradeRequest struct {
	Session abi.SessionID
	Harness Harness
	// DryRun only tells what would come of it: nothing is written.
	DryRun bool
	// Force accepts that the recorded turns do not go the same way under the new
	// module.
	Force bool
}

// Upgrade tells what came of one, or would.
type Upgrade struct {
	// Session is as it is now. Done: it runs Module since this call. It is not set
	// by a dry run, nor if the session ran that module before: then Module and
	// OldModule are the same.
	Session Session
	Done    bool
	// What the session is pinned to, and was; and the roots that its next turn
	// begins from, and would have.
	OldHarness, Harness string
	OldModule, Module   abi.Digest
	OldRoot, Root       abi.Digest
	// StateBytes is the size of what a harness that holds memory has carried over.
	StateBytes int
	// Of one that holds none, Turns is how many recorded turns were run under the
	// new module, and Divergence the first thing that one did in another way, an
	// ErrDivergence; nil if there is none.
	Turns      int64
	Divergence error
}

// Upgrade gives a session another module, between two turns: the next one runs it.
// LIFECYCLE_UPGRADE records the change, and everything that runs old turns again,
// or forks at them, goes on running them with the module that they had. It happens
// in one commit: a session is never between two modules.
//
// A harness without memory begins each turn anew, so nothing of it has to be moved.
// Its recorded turns, since the last upgrade, are run under the new module first,
// on what was recorded. One that goes another way is an ErrDivergence, and the
// session stays as it was, unless Force is set.
//
// A harness that holds memory hands what it remembers to the new module, by agent_save
// and agent_load. That one of them lacks its part, or fails in it, is ErrNotPortable,
// and so is a new module that holds memory where the old one does not, or the other
// way round.
//
// It is ErrBusy while a turn runs, ErrOpenTurn while one is open, parked or not,
// and ErrConflict for a session that has never run. What cannot be loaded or placed is
// refused as by Create, but that the runtime stays the same. After any error but
// journal.ErrPoisoned, which leaves open what was written, the session is as it was. The
// same request may be made again: one that runs the module already is left alone. A
// session that was suspended is awake then.
func (h *Host) Upgrade(ctx context.Context, req UpgradeRequest) (Upgrade, error) {
	up, err := h.upgrade(ctx, req)
	if err != nil {
		return Upgrade{}, fmt.Errorf("upgrade: session %s: %w", req.Session, err)
	}
	return up, nil
}

func (h *Host) upgrade(ctx context.Context, req UpgradeRequest) (Upgrade, error) {
	defer h.journal.Hold()() // from Collect
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(ErrClosed) })()
	o, err := h.outside(ctx, req.Session)
	if err != nil {
		return Upgrade{}, err
	}
	defer o.done()
	switch r := o.r; {
	case len(r.sum.Waiting) > 0:
		return Upgrade{}, fmt.Errorf("%w since seq %d and parked: settle what it waits for, or abandon it first", ErrOpenTurn, r.sum.Open)
	case r.sum.Open != 0:
		return Upgrade{}, fmt.Errorf("%w since seq %d: recover, cancel or abandon it first", ErrOpenTurn, r.sum.Open)
	case r.Head.Seq == 0:
		return Upgrade{}, fmt.Errorf("%w: it has never run: make one with the new harness instead", ErrConflict)
	}
	u, err := h.prepareUpgrade(ctx, o, req)
	if err != nil {
		return Upgrade{}, err
	}
	if u.OldModule == u.Module {
		u.Session = h.state(o.r, false)
		return u.Upgrade, nil
	}
	if err := h.enter(ctx); err != nil {
		return Upgrade{}, err
	}
	defer h.leave()
	if o.r.meta.HoldsMemory {
		err = u.carry(ctx)
	} else {
		err = u.rehearse(ctx)
	}
	if err == nil && u.Divergence != nil && !req.Force && !req.DryRun {
		err = u.Divergence
	}
	if err == nil && !req.DryRun {
		err = u.commit(ctx, req.Harness)
	}
	if err != nil {
		return Upgrade{}, err
	}
	u.Session, err = h.sessionNow(req.Session)
	return u.Upgrade, err
}

// upgrading is an upgrade under way.
type upgrading struct {
	Upgrade
	*outsider
	to    *module
	event *abi.Event
	image *journal.Image // nil where the next turn begins from the golden one
}

// prepareUpgrade loads the new module, and begins the record.
func (h *Host) prepareUpgrade(ctx context.Context, o *outsider, req UpgradeRequest) (*upgrading, error) {
	r, code := o.r, req.Harness.Module()
	u := &upgrading{
		outsider: o,
		Upgrade: Upgrade{
			OldHarness: r.meta.Harness, Harness: r.meta.Harness,
			OldModule: r.meta.Module, Module: code.Digest, OldRoot: r.sum.Root, Root: r.sum.Root,
		},
	}
	if code.Digest == r.meta.Module {
		return u, nil
	}
	var err error
	u.to, err = h.module(ctx, code, r.meta.Runtime)
	if err == nil {
		err = h.checkMemory(u.to, r.meta.Limits)
	}
	if err != nil {
		return nil, err
	}
	switch holds := u.to.desc.Harness.HoldsMemory(); {
	case holds && !r.meta.HoldsMemory:
		return nil, fmt.Errorf("%w: harness %q holds memory and %q, which the session runs, does not: it would remember nothing of what was; make a new session",
			ErrNotPortable, req.Harness.Name, r.meta.Harness)
	case !holds && r.meta.HoldsMemory:
		return nil, fmt.Errorf("%w: harness %q holds no memory and %q, which the session runs, does: what it remembers would be lost; make a new session",
			ErrNotPortable, req.Harness.Name, r.meta.Harness)
	}
	u.Harness = req.Harness.Name
	u.event = &abi.Event{
		Kind: abi.EventLifecycle, Time: later(o.x.now(), r.sum.Updated),
		Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleUpgrade},
		Cell: &abi.Cell{
			OldModule: u.OldModule, BaseRoot: u.OldRoot, Since: r.since(),
			Harness: u.Harness, Module: code.Digest, ABI: u.to.desc.ABI, Rewriter: u.to.desc.Rewriter,
			Turn: abi.Int64(r.sum.Turns), ModelCalls: abi.Int64(r.sum.ModelCalls),
		},
	}
	if u.to.golden != nil {
		u.event.Cell.GoldenRoot = u.to.golden.Root()
	}
	u.Root = u.event.Cell.GoldenRoot
	u.event.Cell.Root = u.Root
	return u, nil
}

// carry brings what the session remembers into the new module.
func (u *upgrading) carry(ctx context.Context) error {
	h, cell := u.x.host, u.event.Cell
	from, err := h.sessionModule(ctx, u.r)
	if err != nil {
		return err
	}
	base, err := h.loadImage(from, u.r.sum.Root)
	if err != nil {
		return err
	}
	cell.Seed = make([]byte, 32)
	if err := h.random(cell.Seed); err != nil {
		return err
	}
	limits := h.limits(u.r.meta)
	cell.Limits = &limits
	moved, err := h.carry(ctx, from, u.to, base, u.event)
	if err != nil {
		return err
	}
	u.image, u.Root, u.StateBytes = moved.image, moved.image.Root(), moved.size
	cell.Root, cell.State = u.Root, moved.state
	return nil
}

// rehearse runs the turns that ran the present module under the new one.
func (u *upgrading) rehearse(ctx context.Context) error {
	h, r := u.x.host, u.r
	var from point
	if up := r.sum.Upgraded; up != nil {
		e, err := h.upgradeRecord(r, up.Seq)
		if err != nil {
			return err
		}
		from, _ = arrival(up.Seq, e)
	}
	from.root = u.Root
	again := &rerun{
		host: h, row: r, feed: h.feed(r.UID, from.at+1, r.Head.Seq), load: h.pinnedModule, module: u.to,
		here: from, image: u.to.golden, rehearsal: true,
	}
	defer again.close(ctx)
	for {
		o, ok, err := again.next()
		if err != nil || !ok {
			return err
		}
		proof, err := again.turn(ctx, o)
		if errors.Is(err, ErrDivergence) {
			u.Divergence = fmt.Errorf("turn %d goes another way under module %s: %w", again.here.turns, u.Module.Short(), err)
			return nil
		}
		if err != nil {
			return err
		}
		if proof != proofNone {
			u.Turns++
		}
	}
}

// commit makes it so.
func (u *upgrading) commit(ctx context.Context, harness Harness) error {
	h, cell := u.x.host, u.event.Cell
	if err := h.storeModule(ctx, harness.Module()); err != nil {
		return err
	}
	if err := u.x.fault("upgrading"); err != nil {
		return err
	}
	seq := u.r.Head.Seq + 1
	u.outsider.image = u.image
	err := u.record(ctx, u.event, nil, func(s *summary) { s.upgrade(seq, cell) })
	if err != nil {
		return err
	}
	h.warm.drop(warmKey{u.OldModule, u.OldRoot})
	h.images.drop(u.OldRoot)
	if u.image != nil {
		h.images.put(u.image)
	}
	u.Done = true
	h.log.Info("session upgraded", "session", u.r.UID, "harness", u.Harness, "module", u.Module.Short(), "from", u.OldModule.Short())
	return u.x.fault("upgraded")
}

// carried is what agent_load has led to.
type carried struct {
	image *journal.Image
	state abi.Digest // of what agent_save gave
	size  int
}

// carry runs agent_save of one module on base, and agent_load of another on its
// golden image, as the record of the upgrade says: with its seed, its limits, and a
// clock that begins at its time and never goes back. What it leads to is a function
// of these. A harness that cannot do its part is ErrNotPortable.
func (h *Host) carry(ctx context.Context, from, to *module, base *journal.Image, upgrade *abi.Event) (carried, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.Deadline,
		fmt.Errorf("carrying its state over took longer than %s: %w", h.cfg.Deadline, context.DeadlineExceeded))
	defer cancel()
	t := runtimes.Turn{Start: upgrade.Time.Time, Limits: *upgrade.Cell.Limits}
	copy(t.Seed[:], upgrade.Cell.Seed)
	state, err := h.saveState(ctx, from, base, t)
	if err != nil {
		return carried{}, err
	}
	// The two streams of random bytes are not one (M6).
	t.Seed = abi.DigestOf(t.Seed[:])
	if clock := clockTime(base.Clock()); clock.After(t.Start) {
		t.Start = clock
	}
	image, err := h.loadState(ctx, to, t, state)
	return carried{image: image, state: abi.DigestOf(state), size: len(state)}, err
}

func (h *Host) saveState(ctx context.Context, m *module, base *journal.Image, t runtimes.Turn) ([]byte, error) {
	inc, err := m.incarnate(ctx, h, base)
	if err != nil {
		return nil, err
	}
	defer h.warm.stop(inc)
	mover, ok := inc.(runtimes.Mover)
	if !ok {
		return nil, m.immovable()
	}
	state, out, err := mover.Save(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("harness %q: agent_save: %w", m.code.Name, err)
	}
	switch {
	case out.Reason == abi.ReasonCompleted:
		return state, nil
	case out.Err != nil && out.Err.Code == abi.CodeUnimplemented:
		return nil, fmt.Errorf("%w: harness %q, which the session runs, cannot save what it remembers (%s): a session can leave only a build that has agent_save; in Go, implement sdk.Portable",
			ErrNotPortable, m.code.Name, out.Err.Description)
	}
	return nil, m.cannot("agent_save", out)
}

func (h *Host) loadState(ctx context.Context, m *module, t runtimes.Turn, state []byte) (*journal.Image, error) {
	inc, err := m.incarnate(ctx, h, nil)
	if err != nil {
		return nil, err
	}
	defer h.warm.stop(inc)
	mover, ok := inc.(runtimes.Mover)
	if !ok {
		return nil, m.immovable()
	}
	out, err := mover.Load(ctx, t, state)
	if err != nil {
		return nil, fmt.Errorf("harness %q: agent_load: %w", m.code.Name, err)
	}
	switch {
	case out.Reason == abi.ReasonCompleted:
		return h.snapshot(ctx, inc, m.golden)
	case out.Err != nil && out.Err.Code == abi.CodeUnimplemented:
		return nil, fmt.Errorf("%w: harness %q cannot load what the session remembers (%s): a build can take sessions over only if it has agent_load; in Go, implement sdk.Portable",
			ErrNotPortable, m.code.Name, out.Err.Description)
	}
	return nil, m.cannot("agent_load", out)
}

func (m *module) immovable() error {
	return fmt.Errorf("%w: runtime %q carries no state over", ErrNotPortable, m.runtime.Capabilities().Runtime)
}

// cannot is the error for a harness that has failed in its part; or for this host,
// if it could not let it come to its end.
func (m *module) cannot(what string, out runtimes.Outcome) error {
	why := string(out.Reason)
	if out.Err != nil {
		why += ": " + out.Err.Description
	}
	if out.Reason.Class() == abi.ClassExternal {
		return fmt.Errorf("harness %q: this host cannot run %s to its end (%s)", m.code.Name, what, why)
	}
	return fmt.Errorf("%w: harness %q: %s failed (%s)", ErrNotPortable, m.code.Name, what, why)
}

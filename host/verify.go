package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Verify checks a session's record from its first line: the chain, and with
// req.Reexecute every turn, by running it again on what was recorded and
// comparing every request, the end and the memory root. The first thing that does
// not hold is the error: a *journal.Broken (journal.ErrCorrupt) or a
// *turn.Divergence (ErrDivergence).
func (h *Host) Verify(ctx context.Context, req VerifyRequest) (Verification, error) {
	r, err := h.row(req.Session)
	if err != nil {
		return Verification{}, fmt.Errorf("verify: %w", err)
	}
	calls := h.ProviderCalls()
	records, head, err := h.journal.Verify(ctx, req.Session, journal.VerifyOptions{Strict: req.Strict, Head: req.Head})
	if err != nil {
		return Verification{}, fmt.Errorf("verify: session %s: %w", req.Session, err)
	}
	v := Verification{Records: records, Head: head, Root: r.sum.Root}
	c := checker{host: h, row: r, out: &v}
	for _, check := range []func() error{c.origin, c.summary} {
		if err := check(); err != nil {
			return Verification{}, fmt.Errorf("verify: session %s: %w", req.Session, err)
		}
	}
	if req.Reexecute && records > 0 {
		if err := c.reexecute(ctx); err != nil {
			return Verification{}, fmt.Errorf("verify: session %s: %w", req.Session, err)
		}
	}
	v.ProviderCalls = h.ProviderCalls() - calls
	return v, nil
}

// checker runs the turns of a record again, one after the other, in one
// incarnation as long as that lives.
type checker struct {
	host   *Host
	row    row
	module *module
	out    *Verification

	inc   runtimes.Incarnation // nil: to be made from image
	image *journal.Image

	turns, modelCalls int64 // ended turns and model calls so far
}

// origin checks that the record is this session's own: its first record, and
// that of every fork on its way, name the session and parent they belong to (I8).
// An imported session has its ancestors' records and need not have them: then
// who they were stands in the record alone.
func (c *checker) origin() error {
	for s := c.row.Session; ; {
		if s.Head.Seq == 0 {
			return nil
		}
		seq := s.At + 1
		var point abi.Digest // of the record it grew from
		want := abi.Cell{UID: s.UID, Parent: s.Parent, At: s.At}
		for r, err := range c.host.journal.Read(s.UID, seq, seq) {
			if err != nil {
				return err
			}
			e, _, err := c.host.decode(r)
			if err != nil {
				return err
			}
			if e.Cell == nil || e.Cell.UID != want.UID || e.Cell.Parent != want.Parent || e.Cell.At != want.At {
				return &journal.Broken{
					Session: s.UID, Seq: seq, Got: r.Hash,
					What: fmt.Sprintf("the first record is not this session's own: it names %+v", e.Cell),
				}
			}
			point = r.Prev
		}
		if s.Parent == "" {
			return nil
		}
		parent, err := c.host.row(s.Parent)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if s.At > parent.Head.Seq {
			return nil // imported before it had grown that far
		}
		for r, err := range c.host.journal.Read(parent.UID, s.At, s.At) {
			if err != nil {
				return err
			}
			if r.Hash != point {
				return &journal.Broken{
					Session: s.UID, Seq: seq, Want: r.Hash, Got: point,
					What: fmt.Sprintf("it says it grew from record %d of session %s, which is another one here", s.At, parent.UID),
				}
			}
		}
		s = parent.Session
	}
}

// summary checks that what is kept beside the head, which no hash covers, is what
// the record says.
func (c *checker) summary() error {
	if c.row.Head.Seq == 0 {
		return nil
	}
	sum := c.row.sum
	wrong := func(seq abi.Seq, what string) error {
		return &journal.Broken{Session: c.row.UID, Seq: seq, What: "the session's summary does not say what the record does: " + what}
	}
	if sum.Open == 0 && sum.Closed != c.row.Head.Seq {
		return wrong(c.row.Head.Seq, fmt.Sprintf("no turn is open, yet the last closed point is seq %d", sum.Closed))
	}
	seq := max(sum.Closed, sum.Open)
	for r, err := range c.host.journal.Read(c.row.UID, seq, seq) {
		if err != nil {
			return err
		}
		e, _, err := c.host.decode(r)
		if err != nil {
			return err
		}
		switch {
		case sum.Open != 0 && (e.Kind != abi.EventExecutionStart || e.ExecutionID != sum.Execution):
			return wrong(seq, fmt.Sprintf("turn %s is open", sum.Execution))
		case sum.Open == 0 && sum.Suspended != (isRest(e) && e.Lifecycle.Kind == abi.LifecycleSuspend):
			return wrong(seq, fmt.Sprintf("suspended is %t", sum.Suspended))
		case e.Kind == abi.EventEnd && (endRoot(c.row.meta, e.Cell.Root) != sum.Root || int64(e.Cell.Turn) != sum.Turns || int64(e.Cell.ModelCalls) != sum.ModelCalls):
			return wrong(seq, fmt.Sprintf("turn %d reached root %s", sum.Turns, sum.Root.Short()))
		}
	}
	return nil
}

func (c *checker) reexecute(ctx context.Context) error {
	var err error
	if c.module, err = c.host.sessionModule(ctx, c.row); err != nil {
		return err
	}
	c.image = c.module.golden
	defer func() { c.drop(ctx) }()
	for next := abi.Seq(1); ; {
		o, err := c.outline(next)
		if err != nil || o.start == 0 {
			return err
		}
		if err := c.turn(ctx, o); err != nil {
			return err
		}
		next = o.last + 1
	}
}

// outline is what must be known of a turn before it is run: where it stands, and
// how it ended if it did.
type outline struct {
	start, last abi.Seq
	end         *abi.Event // nil: it is open, and its record a prefix
	modelCalls  int64
}

// outline finds the first turn from a seq on; without any, start is 0. Bodies are
// not read, and nothing is kept.
func (c *checker) outline(from abi.Seq) (outline, error) {
	var o outline
	if from > c.row.Head.Seq {
		return o, nil
	}
	for r, err := range c.host.journal.Read(c.row.UID, from, c.row.Head.Seq) {
		if err != nil {
			return o, err
		}
		encoded, _, _, err := journal.ParseLine(r.Line)
		if err != nil {
			return o, fmt.Errorf("seq %d: %w", r.Seq, err)
		}
		e, err := abi.DecodeEvent(encoded)
		if err != nil {
			return o, fmt.Errorf("seq %d: %w", r.Seq, err)
		}
		if o.start == 0 && e.Kind == abi.EventLifecycle {
			continue // a fork inside a turn is part of how that turn went on
		}
		if o.start == 0 {
			o.start = r.Seq
		}
		o.last = r.Seq
		switch e.Kind {
		case abi.EventModelCall:
			o.modelCalls++
		case abi.EventEnd:
			if o.end = e; e.Cell == nil {
				return o, fmt.Errorf("seq %d: incomplete %s: %w", r.Seq, e.Kind, journal.ErrCorrupt)
			}
			return o, nil
		}
	}
	return o, nil
}

// turn checks one turn.
func (c *checker) turn(ctx context.Context, o outline) error {
	t, err := c.host.readTurn(c.row.UID, o.start, o.last)
	if err != nil {
		return asDivergence(err)
	}
	caps := c.module.runtime.Capabilities()
	if !caps.Reexecutable || c.image == nil {
		c.count(o)
		c.out.ChainOnly++
		return nil
	}
	start := t.start.Event
	if !c.module.desc.Harness.HoldsMemory() {
		c.image = c.module.golden
	}
	if got := c.image.Root(); got != start.Cell.BaseRoot {
		return asDivergence(&turn.Divergence{
			Seq: t.start.Seq, Want: start.Cell.BaseRoot, Got: got,
			What: "the turn's base root is not the root that was reached",
		})
	}
	if start.Cell.Rewriter != c.module.desc.Rewriter || start.Cell.Module != c.row.meta.Module {
		return fmt.Errorf("seq %d: the turn ran module %s under rewriter %d, this host has module %s under rewriter %d: %w",
			t.start.Seq, start.Cell.Module.Short(), start.Cell.Rewriter, c.row.meta.Module.Short(), c.module.desc.Rewriter, ErrPlacement)
	}
	done, err := c.run(ctx, t, o)
	switch {
	case err != nil:
		return err
	case done:
		c.out.Reexecuted++
		c.out.Root = o.end.Cell.Root
	default:
		c.out.Prefix++
	}
	return nil
}

// count moves the counters over a turn.
func (c *checker) count(o outline) {
	c.modelCalls += o.modelCalls
	if o.end != nil {
		c.turns++
	}
}

// run runs a turn on its record. It reports whether the recorded end was
// reached; a turn that was cut short only has to match as far as it goes.
func (c *checker) run(ctx context.Context, t recordedTurn, o outline) (bool, error) {
	start := t.start.Event
	whole := o.end != nil && o.end.Cell.Class == abi.ClassDeterministic
	p := &checkPort{host: c.host, uid: c.row.UID, last: historyEnd(t.start.Seq), prefix: !whole}
	p.machine = turn.New(turn.Opening{
		Execution: start.ExecutionID, Time: t.opened, Start: t.response,
		Model: start.Cell.Model, Tools: byName(t.grants), Limits: *start.Cell.Limits, BaseRoot: start.Cell.BaseRoot,
		Turn: c.turns, ModelCalls: c.modelCalls,
	}, turn.Check, t.rest)
	c.count(o)
	// Only what was recorded has to match, not how the run would go on.
	if matched, err := p.matched(); matched || err != nil {
		return false, err
	}
	if err := c.prepare(ctx); err != nil {
		return false, err
	}
	spec := runtimes.Turn{
		Execution: start.ExecutionID, Start: start.Time.Time, Limits: *start.Cell.Limits, Cloned: start.Cell.Cloned,
	}
	copy(spec.Seed[:], firstSeed(p.machine, start.Cell.Seed))
	out, err := c.inc.Run(ctx, spec, p)
	if errors.Is(err, turn.ErrRecordEnds) {
		c.drop(ctx)
		if whole {
			return false, fmt.Errorf("seq %d: %w", t.start.Seq, err)
		}
		return false, nil
	}
	if err != nil {
		c.drop(ctx)
		return false, asDivergence(err)
	}
	if !whole {
		c.drop(ctx)
		next, err := p.machine.Front()
		if err != nil {
			return false, err
		}
		return false, asDivergence(&turn.Divergence{
			Seq: next.Seq, Want: abi.DigestOf(next.Encoded),
			What: fmt.Sprintf("the run ended (%s) before it asked for this", out.Reason),
		})
	}
	if out.Reason.Class() == abi.ClassExternal {
		c.drop(ctx)
		why := string(out.Reason)
		if out.Err != nil {
			why += ": " + out.Err.Description
		}
		return false, fmt.Errorf("seq %d: this host cannot run the turn to its end: %s", t.start.Seq, why)
	}
	end := turn.End{Reason: out.Reason, Err: out.Err, Fuel: out.Fuel}
	var reached *journal.Image
	if out.Reason == abi.ReasonCompleted {
		if reached, err = c.host.snapshot(ctx, c.inc, c.image); err != nil {
			return false, err
		}
		end.Root = reached.Root()
	}
	if _, err := p.machine.Finish(end, start.Time); err != nil {
		return false, asDivergence(err)
	}
	if reached == nil || !c.module.desc.Harness.HoldsMemory() {
		c.drop(ctx)
	}
	if reached != nil {
		c.image = reached
	}
	return true, nil
}

// prepare sees to it that c.inc is in the state of c.image.
func (c *checker) prepare(ctx context.Context) error {
	if c.inc != nil {
		return nil
	}
	var err error
	c.inc, err = c.module.incarnate(ctx, c.host, c.image)
	return err
}

func (c *checker) drop(ctx context.Context) {
	if c.inc == nil {
		return
	}
	if err := c.inc.Stop(context.WithoutCancel(ctx)); err != nil {
		c.host.log.Warn("stop incarnation", "session", c.row.UID, "error", err)
	}
	c.inc = nil
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

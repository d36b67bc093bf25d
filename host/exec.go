package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// errDeadline is the cause of a turn's context that ran out of wall time.
var errDeadline = errors.New("deadline passed")

// Exec runs one turn to its end: a new one on req.Inputs, or without inputs the
// open turn of a session that was interrupted, whose recorded answers are served
// and whose missing ones are asked for.
//
// A turn that ended, however badly, is an Execution and no error. An error means
// that the turn did not end: it was refused before anything was written, or given
// up and left open to be recovered. Ending ctx cancels the turn, which then ends
// as CANCELED.
//
// Refused is what is not as it must be (ErrInvalid, ErrNotFound), a session that
// somebody else runs (ErrBusy) or has moved on (ErrConflict), input while a turn is
// open (ErrOpenTurn) and none while none is (ErrNothingOpen), and any turn of a host
// that was closed (ErrClosed). ErrDivergence means that the open turn cannot be
// recovered: abandon it. After any other error the same request may be made again;
// with a Key that is safe even if the turn has begun.
func (h *Host) Exec(ctx context.Context, req ExecRequest) (Execution, error) {
	end, err := h.exec(ctx, req)
	if err != nil {
		return Execution{}, fmt.Errorf("exec: %w", err)
	}
	r, err := h.row(req.Session)
	if err != nil {
		return Execution{}, err
	}
	end.Session = h.show(r)
	return end, nil
}

func (h *Host) exec(ctx context.Context, req ExecRequest) (Execution, error) {
	if err := checkExec(req); err != nil {
		return Execution{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x := newExecution(h, req.Session)
	x.cancel = cancel
	if err := h.claim(ctx, x, req.Wait); err != nil {
		return Execution{}, fmt.Errorf("session %s: %w", x.uid, err)
	}
	end, err := h.hold(ctx, x, req)
	// The session is free before anybody is told, and before a slow observer has
	// seen everything.
	h.release(x)
	x.finished(end, err)
	h.arm(x.uid, end.Waiting)
	x.stream.close()
	return end, err
}

// hold runs a turn of the session that x has.
func (h *Host) hold(ctx context.Context, x *execution, req ExecRequest) (Execution, error) {
	r, err := h.row(req.Session)
	if err != nil {
		return Execution{}, err
	}
	if req.Key != "" {
		end, over, err := x.repeat(r, &req)
		if over || err != nil {
			return end, err
		}
	}
	err = x.open(ctx, r, req)
	if errors.Is(err, errParked) {
		// Nothing it waits for is there: nothing is run, nothing written.
		return Execution{ID: x.sum.Execution, Waiting: x.sum.Waiting}, nil
	}
	if err != nil {
		return Execution{}, err
	}
	if err := h.enter(ctx); err != nil {
		return Execution{}, err // nothing has run, and nothing is written
	}
	defer h.leave()
	end, err := x.run(ctx, req)
	if err != nil {
		return Execution{}, fmt.Errorf("session %s: %w", req.Session, err)
	}
	return end, nil
}

// Resume recovers the open turn of a session: Exec without inputs, with its errors.
func (h *Host) Resume(ctx context.Context, uid abi.SessionID, observe func(Update)) (Execution, error) {
	return h.Exec(ctx, ExecRequest{Session: uid, Observe: observe})
}

// open brings the session to the point where its turn can run.
func (x *execution) open(ctx context.Context, r row, req ExecRequest) (err error) {
	h := x.host
	x.head, x.sum, x.fence, x.session, x.purse = r.Head, r.sum, r.Head.Fence+1, r.meta, newPurse(r.sum)
	if req.Expect != nil && *req.Expect != r.Head.Seq {
		return fmt.Errorf("session %s: %w: it is at seq %d, not %d", r.UID, ErrConflict, r.Head.Seq, *req.Expect)
	}
	waits := !req.Abandon && parked(r.sum.Waiting, h.cfg.Now())
	switch {
	case waits && len(req.Inputs) > 0:
		return fmt.Errorf("session %s: %w since seq %d and parked: settle what it waits for or abandon it first", r.UID, ErrOpenTurn, r.sum.Open)
	case waits:
		return errParked
	case r.sum.Open != 0 && len(req.Inputs) > 0 && !req.Abandon:
		return fmt.Errorf("session %s: %w since seq %d: recover or abandon it first", r.UID, ErrOpenTurn, r.sum.Open)
	case r.sum.Open == 0 && len(req.Inputs) == 0 && !req.Abandon:
		return fmt.Errorf("session %s: %w to recover", r.UID, ErrNothingOpen)
	case r.sum.Open == 0 && len(req.Inputs) == 0:
		return fmt.Errorf("session %s: %w to abandon", r.UID, ErrNothingOpen)
	}
	if x.module, err = h.sessionModule(ctx, r); err != nil {
		return fmt.Errorf("session %s: %w", r.UID, err)
	}
	x.sum.Waiting = nil
	x.stream = newStream(h, x.uid, req.Observe)
	if r.sum.Open != 0 {
		err = x.reopen(ctx, r, req.Abandon)
	} else {
		err = x.begin(ctx, r, req)
	}
	if err != nil {
		return fmt.Errorf("session %s: %w", r.UID, err)
	}
	return nil
}

// MaxInputBytes bounds one input message of a turn, MaxInputs their number: the
// opening of a turn is one append, and large messages are blobs beside it.
const (
	MaxInputBytes = 4 << 20
	MaxInputs     = 32
)

func checkExec(req ExecRequest) error {
	if err := CheckInputs(req.Inputs); err != nil {
		return err
	}
	if err := checkTimes(req.Deadline, req.CallTimeout); err != nil {
		return err
	}
	if err := checkKey(req.Key); err != nil {
		return err
	}
	if req.Key != "" && len(req.Inputs) == 0 {
		return fmt.Errorf("%w: a key is that of a turn with input", ErrInvalid)
	}
	return checkConfig(req.Config)
}

// CheckInputs reports ErrInvalid for inputs that no turn takes. Exec does it too;
// it is for those who make a session for its first input.
func CheckInputs(inputs []abi.Message) error {
	if n := len(inputs); n > MaxInputs {
		return fmt.Errorf("%w: %d inputs: a turn takes at most %d", ErrInvalid, n, MaxInputs)
	}
	for i, m := range inputs {
		switch n, err := messageBytes(m); {
		case err != nil:
			return fmt.Errorf("%w: input %d: %w", ErrInvalid, i+1, err)
		case len(m.Parts) == 0:
			return fmt.Errorf("%w: input %d has no parts", ErrInvalid, i+1)
		case n > MaxInputBytes:
			return fmt.Errorf("%w: input %d has %d bytes as JSON, at most %d are taken", ErrInvalid, i+1, n, MaxInputBytes)
		}
	}
	return nil
}

// begin stages the opening records of a new turn. They become durable with the
// turn's first commit.
func (x *execution) begin(ctx context.Context, r row, req ExecRequest) error {
	h := x.host
	model := firstOf(req.Model, r.meta.Model, h.cfg.DefaultModel)
	if err := h.knowsModel(model); err != nil {
		return err
	}
	config := req.Config
	if config == nil {
		config = r.meta.Config
	}
	id, err := h.newExecutionID()
	if err != nil {
		return err
	}
	seed := make([]byte, 32)
	if err := h.random(seed); err != nil {
		return err
	}
	if x.base, err = h.baseImage(ctx, x.module, r, r.sum.Root); err != nil {
		return err
	}
	// Records never go back in time, whatever the machine's clock does.
	now := later(x.now(), r.sum.Updated)
	limits, err := x.affordable(h.limits(r.meta))
	if err != nil {
		return err
	}
	grants, err := x.granted(ctx, req.again)
	if err != nil {
		return err
	}
	count := abi.Int64(len(req.Inputs))
	desc := x.module.desc
	start := &abi.Event{
		Kind: abi.EventExecutionStart, ExecutionID: id, Time: now,
		ExecutionStart: &abi.ExecutionStart{
			Config: config, InputCount: &count,
			Harness: r.meta.Harness, HarnessVersion: desc.Harness.Version,
		},
		Cell: &abi.Cell{
			Module: r.meta.Module, Rewriter: desc.Rewriter, BaseRoot: r.sum.Root,
			Seed: seed, Limits: &limits, Model: model, Cloned: r.sum.Forked != 0, Key: req.Key,
		},
	}
	if req.again != nil {
		start.Cell.Source, start.Cell.SourceSeq = req.again.Session, req.again.Seq
	}
	staged := make([]turn.Staged, len(req.Inputs), len(req.Inputs)+2)
	inputs := make([]*abi.Event, len(req.Inputs))
	for i, m := range req.Inputs {
		m.Role = firstOf(m.Role, abi.RoleUser)
		staged[i], err = turn.Stage(&abi.Event{Kind: abi.EventInput, ExecutionID: id, Time: now, Message: &m})
		if err == nil {
			// The harness is given the input as the record has it.
			inputs[i], err = staged[i].Decoded()
		}
		if err != nil {
			return fmt.Errorf("%w: input %d: %w", ErrInvalid, i+1, err)
		}
	}
	var granted []byte
	if len(grants) > 0 {
		if granted, err = abi.MarshalLossless(grantList{grants}); err != nil {
			return fmt.Errorf("granted tools: %w", err)
		}
		start.Cell.Tools = abi.DigestOf(granted)
		if grants, err = parseGrants(granted); err != nil {
			return err
		}
	}
	response, err := turn.StartResponse(start, inputs, definitions(grants))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	start.Cell.StartDigest = abi.DigestOf(response)

	x.startSeq = r.Head.Seq + 1
	opening := []*abi.Event{start}
	if r.Head.Seq == 0 {
		x.startSeq++
		opening = []*abi.Event{createEvent(r, desc), start}
	}
	for i, e := range opening {
		s, err := turn.Stage(e)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if e == start && granted != nil {
			s.Blobs = append(s.Blobs, granted)
		}
		staged = slices.Insert(staged, i, s)
	}
	x.opening(start, response, now, grants)
	if x.spec.Policy, err = h.policy(r, model); err != nil {
		return err
	}
	if err := x.lookElsewhere(ctx, r, start); err != nil {
		return err
	}
	x.sum.Open, x.sum.Execution, x.sum.Updated, x.sum.Suspended = x.startSeq, id, now, false
	x.key = req.Key
	x.machine = turn.New(x.spec, turn.Live, nil)
	x.stage(staged)
	return x.fault("opened")
}

// createEvent is the first record of a root session, derived from its metadata.
func createEvent(r row, d runtimes.Description) *abi.Event {
	return &abi.Event{
		Kind: abi.EventLifecycle, Time: abi.NewTime(r.Created),
		Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleCreate},
		Cell: &abi.Cell{
			UID: r.UID, Harness: r.meta.Harness, Module: r.meta.Module,
			GoldenRoot: r.meta.GoldenRoot, ABI: d.ABI, Rewriter: d.Rewriter,
		},
	}
}

// opening takes over what EXECUTION_START says of the turn.
func (x *execution) opening(start *abi.Event, response []byte, last abi.Time, grants []abi.ToolGrant) {
	x.seed, x.cloned = start.Cell.Seed, start.Cell.Cloned
	x.started = start.Time
	x.spec = turn.Opening{
		Execution: start.ExecutionID, Time: last, Seq: x.startSeq + abi.Seq(*start.ExecutionStart.InputCount), Start: response,
		Model: start.Cell.Model, Tools: byName(grants), Limits: *start.Cell.Limits, BaseRoot: start.Cell.BaseRoot,
		Turn: x.sum.Turns, ModelCalls: x.sum.ModelCalls,
	}
}

// reopen reads the open turn back from the record. Unless it is to be given up,
// its model must be at hand: a host that was opened without it must not record
// that as the turn's failure.
func (x *execution) reopen(ctx context.Context, r row, abandon bool) error {
	h := x.host
	t, err := h.readTurn(x.uid, x.sum.Open, x.head.Seq)
	if err != nil {
		return fmt.Errorf("open turn at seq %d: %w", x.sum.Open, asDivergence(err))
	}
	if !abandon {
		if err := h.knowsModel(t.start.Event.Cell.Model); err != nil {
			return fmt.Errorf("open turn at seq %d: %w: recover it where that model is, or abandon it", x.sum.Open, err)
		}
		if err := h.hasTools(ctx, t.grants); err != nil && !r.meta.Again.has(x.sum.Open, t.start.Event) {
			return fmt.Errorf("open turn at seq %d: %w: recover it where that tool is, or abandon it", x.sum.Open, err)
		}
	}
	if x.base, err = h.baseImage(ctx, x.module, r, t.start.Event.Cell.BaseRoot); err != nil {
		return err
	}
	x.startSeq, x.recovers = x.sum.Open, true
	x.opening(t.start.Event, t.response, t.opened, t.grants)
	if !abandon {
		if x.spec.Policy, err = h.policy(r, t.start.Event.Cell.Model); err != nil {
			return fmt.Errorf("open turn at seq %d: %w", x.sum.Open, err)
		}
	}
	if err := x.lookElsewhere(ctx, r, t.start.Event); err != nil && !abandon {
		return fmt.Errorf("open turn at seq %d: %w: abandon it, or bring that session here", x.sum.Open, err)
	}
	x.machine = turn.New(x.spec, turn.Live, t.rest)
	return nil
}

// run drives the turn to its end.
func (x *execution) run(ctx context.Context, req ExecRequest) (Execution, error) {
	defer x.seal()
	if req.Abandon && x.recovers {
		return x.abandon(ctx, req)
	}
	deadline := cmp.Or(req.Deadline, x.session.Deadline, x.host.cfg.Deadline)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(x.host.ctx, func() { cancel(ErrClosed) })()
	x.calls = cmp.Or(req.CallTimeout, x.session.CallTimeout, x.host.cfg.CallTimeout)
	wall, err := x.spend(deadline)
	if err != nil {
		return x.refused(err)
	}
	x.watch = newStopwatch(wall, func(had time.Duration) {
		if had < deadline {
			cancel(&overBudget{what: fmt.Sprintf("the turn took the %s that the budget left", wall)})
			return
		}
		cancel(errDeadline)
	})
	defer x.watch.pause()

	inc, err := x.incarnate(ctx)
	if err != nil && !x.recovers && ctx.Err() == nil {
		return Execution{}, err // nothing has run, and nothing is written
	}
	if err != nil {
		return x.interrupted(ctx, err, deadline)
	}
	warm := false
	defer func() {
		if !warm {
			x.host.warm.stop(inc)
		}
	}()
	t := runtimes.Turn{Execution: x.spec.Execution, Start: x.started.Time, Limits: x.spec.Limits, Cloned: x.cloned}
	copy(t.Seed[:], firstSeed(x.machine, x.seed))
	out, err := inc.Run(ctx, t, x)
	x.burnt = out.Fuel
	if errors.Is(err, errParked) && !x.failed() {
		x.host.log.Info("turn parked", "session", x.uid, "execution", x.spec.Execution)
		return Execution{ID: x.spec.Execution, Waiting: x.parkedFor()}, nil
	}
	if errors.Is(err, ErrBudget) && !x.failed() {
		return x.refused(err)
	}
	var unrecorded *unrecordedCall
	if errors.As(err, &unrecorded) && !x.failed() {
		return x.unrecorded(unrecorded)
	}
	if err != nil {
		return x.interrupted(ctx, err, deadline)
	}
	end := turn.End{Reason: out.Reason, Err: out.Err, Fuel: out.Fuel}
	var image *journal.Image
	if out.Reason == abi.ReasonCompleted {
		if end.Root, image, err = x.reached(ctx, inc); err != nil {
			return Execution{}, x.giveUp(asDamage(x.uid, x.spec.BaseRoot, err))
		}
	}
	ended, err := x.finish(end, image)
	if err == nil && image != nil {
		x.host.warm.put(warmKey{x.module.code.Digest, image.Root()}, inc, image.Size())
		warm = true
	}
	return ended, err
}

// maxShared is the largest memory of which forks clone what rests: all that differs
// from golden is copied for each, while the runtime keeps a larger image whole and
// maps it.
const maxShared = 16 << 20

// incarnate gives an incarnation in the state of the turn's base. The forks of a session
// begin from one, so that the first of them to run leaves it for the others.
func (x *execution) incarnate(ctx context.Context) (runtimes.Incarnation, error) {
	warm, base := x.host.warm, x.base
	if base == nil || base.Root() == x.module.golden.Root() {
		return x.module.incarnate(ctx, x.host, base)
	}
	key := warmKey{x.module.code.Digest, base.Root()}
	shares := x.cloned && base.Size() <= maxShared
	var kept runtimes.Incarnation
	switch {
	case shares:
		kept = warm.share(key)
	case !x.cloned:
		kept = warm.take(key)
	}
	if kept != nil {
		return kept, nil
	}
	inc, err := x.module.incarnate(ctx, x.host, base)
	if err == nil && shares {
		warm.leave(key, inc)
	}
	return inc, asDamage(x.uid, base.Root(), err)
}

// reached is the root of what a completed turn has led to, and its image if the
// next turn begins from there.
func (x *execution) reached(ctx context.Context, inc runtimes.Incarnation) (abi.Digest, *journal.Image, error) {
	if !x.module.desc.Harness.HoldsMemory() {
		root, changed, err := x.host.snapshotRoot(ctx, inc, x.base)
		x.pages = changed
		return root, nil, err
	}
	image, err := x.host.snapshot(ctx, inc, x.base)
	if image == nil || err != nil {
		return abi.Digest{}, nil, err
	}
	x.pages = image.Changed(x.base)
	return image.Root(), image, nil
}

// refused ends a turn for which the budget has nothing left. What it asked for, and
// was not done, is recorded before.
func (x *execution) refused(err error) (Execution, error) {
	var over *overBudget
	if !errors.As(err, &over) {
		return Execution{}, x.giveUp(err)
	}
	return x.finish(turn.End{
		Reason: abi.ReasonBudget, Err: &abi.Error{Code: abi.CodeResourceExhausted, Description: over.Error()},
	}, nil)
}

// firstSeed is what the run of a turn begins with: the seed of its start, or of
// a fork directly behind the opening.
func firstSeed(m *turn.Machine, start []byte) []byte {
	if seed := m.Seed(); seed != nil {
		return seed
	}
	return start
}

// interrupted ends a turn whose run was given up: as CANCELED or past its
// deadline if that is why, else it stays open with what it has done made
// durable.
func (x *execution) interrupted(ctx context.Context, err error, deadline time.Duration) (Execution, error) {
	var end turn.End
	cause := context.Cause(ctx)
	switch {
	case x.failed() || errors.Is(err, ErrDivergence) || cause == nil || errors.Is(cause, ErrClosed):
		return Execution{}, x.giveUp(err)
	case errors.Is(cause, ErrBudget):
		return x.refused(cause)
	case errors.Is(cause, errDeadline) || errors.Is(cause, context.DeadlineExceeded):
		end.Reason = abi.ReasonDeadline
		end.Err = &abi.Error{Code: abi.CodeDeadlineExceeded, Description: fmt.Sprintf("the turn passed its deadline of %s", deadline)}
	default:
		end.Reason = abi.ReasonCanceled
	}
	return x.finish(end, nil)
}

// abandon ends the open turn without running it, and then, if there is input,
// runs a new one.
func (x *execution) abandon(ctx context.Context, req ExecRequest) (Execution, error) {
	reason := abi.ReasonAbandoned
	if x.canceling {
		reason = abi.ReasonCanceled
	}
	end, err := x.finish(turn.End{Reason: reason}, nil)
	if err != nil || len(req.Inputs) == 0 {
		return end, err
	}
	r, err := x.host.row(x.uid)
	if err != nil {
		return Execution{}, err
	}
	next := &execution{
		host: x.host, uid: x.uid, module: x.module, stream: x.stream, cancel: x.cancel, done: x.done,
		head: r.Head, sum: r.sum, fence: x.fence, session: r.meta, purse: newPurse(r.sum),
	}
	if err := next.begin(ctx, r, req); err != nil {
		return Execution{}, err
	}
	return next.run(ctx, ExecRequest{Deadline: req.Deadline, CallTimeout: req.CallTimeout})
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func later(a, b abi.Time) abi.Time {
	if a.Before(b.Time) {
		return b
	}
	return a
}

func (h *Host) newExecutionID() (abi.ExecutionID, error) {
	var b [12]byte
	err := h.random(b[:])
	return abi.NewExecutionID(b), err
}

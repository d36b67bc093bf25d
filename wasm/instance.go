package wasm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Status is the state of an instance.
type Status int

// The states.
const (
	Ready   Status = iota // can run a turn or be snapshotted
	Running               // in a turn
	Stopped               // for good
)

// Instance is a cell in the hands of one session. Its calls must not overlap;
// only Stop and Status may be called at any time.
type Instance struct {
	mu       sync.Mutex
	status   Status
	cell     *cell   // nil when Stopped, and when rest is set
	rest     *rested // set while a Ready instance has no cell
	cancel   context.CancelCauseFunc
	stopping bool
	// turns counts the calls, so that a reader of pages can tell that its
	// snapshot is gone.
	turns uint64
}

// enter begins a call; leave must follow if there is no error.
func (in *Instance) enter(ctx context.Context, p phase, h Handler, t Turn) (*call, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.status != Ready {
		return nil, fmt.Errorf("instance: %w", ErrStopped)
	}
	engine := in.module().engine
	if err := engine.enter(); err != nil {
		return nil, err
	}
	if err := in.wake(); err != nil {
		engine.leave()
		return nil, err
	}
	in.turns++
	if err := in.cell.rebase(); err != nil {
		cell := in.cell
		in.status, in.cell = Stopped, nil
		cell.free()
		engine.leave()
		return nil, err
	}
	in.status = Running
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(engine.ctx, func() { cancel(context.Cause(engine.ctx)) })
	in.cancel = func(cause error) {
		detach()
		cancel(cause)
	}
	return in.cell.begin(ctx, p, h, t), nil
}

// leave ends a call. An instance whose guest has not simply returned is of no
// more use, and neither is its cell: its stack was not empty.
func (in *Instance) leave(returned bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	cell := in.cell
	in.cancel(nil)
	in.cancel = nil
	cell.end()
	if returned && !in.stopping {
		in.status = Ready
	} else {
		in.status, in.cell = Stopped, nil
		cell.free()
	}
	cell.module.engine.leave()
}

// Run drives one turn to its end. Requests of the guest go to h, in order, from
// this goroutine.
//
// A turn that ends by itself gives an Outcome and no error. An error, beside which
// Outcome has the fuel that was used and nothing else, means that the turn was given up: ctx ended (the error wraps its cause), h returned an
// error (which is wrapped), ErrShortage, ErrHost or ErrStopped. After an error,
// and after any Outcome but completed, the instance is Stopped.
func (in *Instance) Run(ctx context.Context, t Turn, h Handler) (Outcome, error) {
	call, err := in.enter(ctx, inTurn, h, t)
	if err != nil {
		return Outcome{}, fmt.Errorf("run: %w", err)
	}
	returned := false
	defer func() { in.leave(returned) }()
	out, err := call.turn(t.Cloned)
	if err != nil {
		return Outcome{Fuel: call.fuelUsed()}, fmt.Errorf("run: %w", err)
	}
	returned = out.Reason == abi.ReasonCompleted
	return out, nil
}

// turn runs agent_run, and before it agent_cloned in a cell that was cloned.
func (c *call) turn(cloned bool) (Outcome, error) {
	err := c.fits()
	if err == nil && cloned {
		err = c.cloned()
	}
	if err == nil {
		var result int32
		if result, err = c.invoke(c.cell.runner()); err == nil {
			c.cell.keepRunner()
			err = c.returned(exportRun, result)
		}
	}
	return c.outcome(err)
}

// fits tells whether the call may begin.
func (c *call) fits() error {
	if c.Err() != nil {
		return context.Cause(c)
	}
	if have, limit := c.cell.mem.size, c.limits.MemoryBytes; int64(have) > int64(limit) {
		return endedf(abi.ReasonLimit, abi.CodeResourceExhausted, "the image has %d bytes of memory; the limit is %d", have, limit)
	}
	return nil
}

// returned is the end of a function that has returned result: none if that is 0.
func (c *call) returned(name string, result int32) error {
	switch {
	case result == 0:
		return nil
	case c.failure != nil:
		return &ended{abi.ReasonError, *c.failure}
	}
	return endedf(abi.ReasonError, abi.CodeUnknown, "%s returned %d", name, result)
}

// outcome is how a call has ended: with nothing, an *ended, or another error if it
// was given up.
func (c *call) outcome(err error) (Outcome, error) {
	out := Outcome{Reason: abi.ReasonCompleted, Fuel: c.fuelUsed()}
	var end *ended
	switch {
	case errors.As(err, &end):
		out.Reason, out.Err = end.reason, &end.err
	case err != nil:
		return Outcome{}, err
	}
	return out, c.log.flush(c)
}

// cloned runs agent_cloned, if the module has it.
func (c *call) cloned() error {
	fn := c.cell.function(exportCloned)
	if fn == nil {
		return nil
	}
	c.phase = inCloned
	_, err := c.invoke(fn)
	c.phase = inTurn
	return err
}

// Snapshot gives the state of an instance that is Ready. Changed tells how it
// differs from the state at the beginning of the last turn; the pages can be
// read until the next Run, Rest or Stop.
func (in *Instance) Snapshot() (Image, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.status != Ready {
		return Image{}, fmt.Errorf("snapshot: instance: %w", ErrStopped)
	}
	engine := in.module().engine
	if err := engine.enter(); err != nil {
		return Image{}, fmt.Errorf("snapshot: %w", err)
	}
	defer engine.leave()
	if err := in.wake(); err != nil {
		return Image{}, fmt.Errorf("snapshot: %w", err)
	}
	return in.cell.image(in.cell.compare(), &snapshotPages{in, in.turns}), nil
}

// snapshotPages reads the pages of a snapshot as long as it is valid.
type snapshotPages struct {
	in   *Instance
	turn uint64
}

// ReadPage implements PageReader.
func (s *snapshotPages) ReadPage(index uint32, dst []byte) error {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.in.status != Ready || s.in.turns != s.turn || s.in.rest != nil {
		return fmt.Errorf("read page %d: the snapshot is gone: %w", index, ErrStopped)
	}
	return pagesOf(s.in.cell.mem.bytes()).ReadPage(index, dst)
}

// Status tells whether the instance can run another turn.
func (in *Instance) Status() Status {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.status == Ready && (in.module().engine.ctx.Err() != nil || in.rest != nil && in.rest.isGone()) {
		return Stopped // with its engine, or with what it rests on
	}
	return in.status
}

// Stop ends the instance. It may be called at any time, and again. A turn that
// is running is given up with ErrStopped; Stop does not wait for that.
func (in *Instance) Stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch in.status {
	case Running:
		in.stopping = true
		in.cancel(fmt.Errorf("instance: %w", ErrStopped))
	case Ready:
		cell, rest := in.cell, in.rest
		in.status, in.cell, in.rest = Stopped, nil, nil
		if rest != nil {
			rest.leave()
			return
		}
		engine := cell.module.engine
		if engine.enter() == nil { // else the engine has freed the cell
			defer engine.leave()
			cell.recycle()
		}
	}
}

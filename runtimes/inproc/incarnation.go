package inproc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// incarnation is one harness with what it remembers.
type incarnation struct {
	harness sdk.Harness
	forget  func()
	// ended is done once Stop was called.
	ended context.Context
	end   context.CancelCauseFunc

	mu     sync.Mutex
	status runtimes.Status
}

var _ runtimes.Mover = (*incarnation)(nil)

// Run drives one turn: the harness in a goroutine of its own, its calls in this
// one. It returns when that goroutine has ended, so it never leaks one.
func (i *incarnation) Run(ctx context.Context, t runtimes.Turn, port runtimes.Port) (runtimes.Outcome, error) {
	if err := i.begin(); err != nil {
		return runtimes.Outcome{}, fmt.Errorf("run: %w", err)
	}
	next := runtimes.Stopped
	defer func() { i.become(next) }()

	// One context gives the turn up, whoever's decision it is: the caller's,
	// Stop's, or the port's.
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer context.AfterFunc(i.ended, func() { giveUp(runtimes.ErrStopped) })()

	l := &link{ctx: ctx, calls: make(chan call), random: rand.NewChaCha8(t.Seed)}
	result := make(chan error, 1)
	go func() {
		err := errors.New("the harness ended its goroutine")
		defer func() { result <- err }()
		if c, ok := i.harness.(sdk.Cloner); ok && t.Cloned {
			c.Cloned()
		}
		err = sdk.RunTurn(ctx, i.harness, l)
	}()
	for {
		select {
		case c := <-l.calls:
			var response runtimes.Response
			// A port that gave the turn up is not called again.
			if ctx.Err() == nil {
				var err error
				if response, err = port.Call(ctx, c.op, c.request); err != nil {
					giveUp(err)
				}
			}
			c.answer <- response
		case err := <-result:
			if ctx.Err() != nil {
				return runtimes.Outcome{}, fmt.Errorf("run: %w", context.Cause(ctx))
			}
			if err != nil {
				return runtimes.Outcome{Reason: abi.ReasonError, Err: sdk.Failure(err)}, nil
			}
			next = runtimes.Ready
			return runtimes.Outcome{Reason: abi.ReasonCompleted}, nil
		}
	}
}

// Save implements runtimes.Mover.
func (i *incarnation) Save(ctx context.Context, _ runtimes.Turn) (state []byte, out runtimes.Outcome, err error) {
	out, err = i.carry(ctx, func() error {
		saved, err := sdk.SaveState(i.harness)
		if err == nil && len(saved) > abi.MaxStateBytes {
			err = &abi.Error{Code: abi.CodeResourceExhausted, Description: fmt.Sprintf("a state of %d bytes; the limit is %d", len(saved), abi.MaxStateBytes)}
		}
		if err == nil {
			state = append([]byte{}, saved...)
		}
		return err
	})
	return state, out, errors.Join(err, i.Stop(ctx))
}

// Load implements runtimes.Mover.
func (i *incarnation) Load(ctx context.Context, _ runtimes.Turn, state []byte) (runtimes.Outcome, error) {
	return i.carry(ctx, func() error { return sdk.LoadState(i.harness, slices.Clone(state)) })
}

// carry calls a harness that reaches nobody, and cannot be ended.
func (i *incarnation) carry(ctx context.Context, do func() error) (runtimes.Outcome, error) {
	if err := i.begin(); err != nil {
		return runtimes.Outcome{}, err
	}
	next := runtimes.Stopped
	defer func() { i.become(next) }()
	if ctx.Err() != nil {
		return runtimes.Outcome{}, context.Cause(ctx)
	}
	if err := do(); err != nil {
		return runtimes.Outcome{Reason: abi.ReasonError, Err: sdk.Failure(err)}, nil
	}
	next = runtimes.Ready
	return runtimes.Outcome{Reason: abi.ReasonCompleted}, nil
}

func (i *incarnation) begin() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch i.status {
	case runtimes.Stopped:
		return runtimes.ErrStopped
	case runtimes.Running:
		return errors.New("the incarnation is in a turn")
	}
	i.status = runtimes.Running
	return nil
}

// become sets the status that follows a turn, unless Stop was faster.
func (i *incarnation) become(next runtimes.Status) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.status == runtimes.Running {
		i.status = next
	}
}

// Status tells whether the incarnation can run another turn.
func (i *incarnation) Status() runtimes.Status {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.status
}

// Stop gives up the turn that runs, if any, and does not wait for it.
func (i *incarnation) Stop(context.Context) error {
	i.mu.Lock()
	i.status = runtimes.Stopped
	i.mu.Unlock()
	i.end(runtimes.ErrStopped)
	i.forget()
	return nil
}

// call is one request on its way from the harness to the port.
type call struct {
	op      abi.Op
	request []byte
	answer  chan<- runtimes.Response
}

// link is the transport of one turn. It hands each call to the goroutine of
// Run, because a port is called from one goroutine and in order.
type link struct {
	ctx    context.Context // of the turn: done when it was given up
	calls  chan call
	random *rand.ChaCha8
}

var _ sdk.Transport = (*link)(nil)

// Call waits for the answer even if ctx ends, as a call that has left its host
// is not called back.
func (l *link) Call(_ context.Context, op abi.Op, request []byte) (abi.Status, []byte, error) {
	answer := make(chan runtimes.Response, 1)
	select {
	case l.calls <- call{op, request, answer}:
	case <-l.ctx.Done():
		return 0, nil, context.Cause(l.ctx)
	}
	response := <-answer
	if response.Seed != nil {
		l.random = rand.NewChaCha8(*response.Seed)
	}
	if l.ctx.Err() != nil {
		return 0, nil, context.Cause(l.ctx)
	}
	return response.Status, response.Body, nil
}

// Random reads the stream that the turn's seed keys.
func (l *link) Random(p []byte) { _, _ = l.random.Read(p) }

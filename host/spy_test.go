package host_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// spy puts an ear between the rig's runtime and its host. It returns what tells
// the inputs that cells were started with, in order.
func spy(r *rig) (started func() []string) {
	s := &spyRuntime{Restorer: r.runtimes[0].(runtimes.Restorer)}
	r.runtimes = []runtimes.Runtime{s}
	return func() []string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Clone(s.inputs)
	}
}

type spyRuntime struct {
	runtimes.Restorer
	mu     sync.Mutex
	inputs []string
}

// Create implements runtimes.Runtime.
func (s *spyRuntime) Create(ctx context.Context, m runtimes.Module) (runtimes.Incarnation, error) {
	in, err := s.Restorer.Create(ctx, m)
	return s.wrap(in, err)
}

// Restore implements runtimes.Restorer.
func (s *spyRuntime) Restore(ctx context.Context, m runtimes.Module, img runtimes.Image) (runtimes.Incarnation, error) {
	in, err := s.Restorer.Restore(ctx, m, img)
	return s.wrap(in, err)
}

func (s *spyRuntime) wrap(in runtimes.Incarnation, err error) (runtimes.Incarnation, error) {
	if err != nil {
		return nil, err
	}
	return spyIncarnation{in.(runtimes.Snapshotter), s}, nil
}

type spyIncarnation struct {
	runtimes.Snapshotter
	spy *spyRuntime
}

// Run implements runtimes.Incarnation.
func (in spyIncarnation) Run(ctx context.Context, t runtimes.Turn, port runtimes.Port) (runtimes.Outcome, error) {
	return in.Snapshotter.Run(ctx, t, spyPort{port, in.spy})
}

type spyPort struct {
	runtimes.Port
	spy *spyRuntime
}

// Call implements runtimes.Port.
func (p spyPort) Call(ctx context.Context, op abi.Op, request []byte) (runtimes.Response, error) {
	resp, err := p.Port.Call(ctx, op, request)
	if op == abi.OpStart && err == nil {
		var start abi.Start
		if err := json.Unmarshal(resp.Body, &start); err != nil {
			return resp, err
		}
		p.spy.mu.Lock()
		defer p.spy.mu.Unlock()
		for _, in := range start.Inputs {
			p.spy.inputs = append(p.spy.inputs, in.Text())
		}
	}
	return resp, err
}

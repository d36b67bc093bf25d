// Package inproc owns a runtime without walls: it runs harnesses written with
// the Go SDK natively, each turn in a goroutine of this process.
//
// It is for tests, of hosts and of harnesses. Nothing is sealed, metered or saved: a
// harness sees the machine's clock, and one that neither calls out nor looks at
// its context cannot be ended.
//
// The package imports runtimes, sdk and sdk/abi, and never the engine, the
// journal or the host.
package inproc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Runtime is a runtimes.Runtime for native harnesses.
type Runtime struct {
	harnesses map[string]func() sdk.Harness

	mu     sync.Mutex
	alive  map[*incarnation]struct{}
	closed bool
}

var _ runtimes.Runtime = (*Runtime)(nil)

// New makes a runtime that knows harnesses by the Name of their runtimes.Module;
// its Digest and Code do not matter. Each incarnation gets a harness of its own, so
// that what one remembers no other sees (M3).
func New(harnesses map[string]func() sdk.Harness) *Runtime {
	return &Runtime{harnesses: maps.Clone(harnesses), alive: map[*incarnation]struct{}{}}
}

// Capabilities says that this runtime gives none of what a cell does.
func (r *Runtime) Capabilities() runtimes.Capabilities {
	return runtimes.Capabilities{Runtime: "inproc"}
}

// Describe asks a fresh harness what it is.
func (r *Runtime) Describe(_ context.Context, m runtimes.Module) (d runtimes.Description, err error) {
	h, err := r.harness(m)
	if err != nil {
		return runtimes.Description{}, fmt.Errorf("describe: %w", err)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("describe %q: %w: panic: %v", m.Name, runtimes.ErrModule, p)
		}
	}()
	return runtimes.Description{Harness: h.Describe(), ABI: abi.Version}, nil
}

// Create gives an incarnation with a fresh harness.
func (r *Runtime) Create(_ context.Context, m runtimes.Module) (runtimes.Incarnation, error) {
	h, err := r.harness(m)
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	ended, end := context.WithCancelCause(context.Background())
	i := &incarnation{harness: h, ended: ended, end: end}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		end(runtimes.ErrStopped)
		return nil, fmt.Errorf("create: the runtime is closed: %w", runtimes.ErrStopped)
	}
	i.forget = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.alive, i)
	}
	r.alive[i] = struct{}{}
	return i, nil
}

// Close stops every incarnation.
func (r *Runtime) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	alive := slices.Collect(maps.Keys(r.alive))
	r.mu.Unlock()
	for _, i := range alive {
		if err := i.Stop(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runtime) harness(m runtimes.Module) (sdk.Harness, error) {
	fresh, ok := r.harnesses[m.Name]
	if !ok {
		known := slices.Sorted(maps.Keys(r.harnesses))
		return nil, fmt.Errorf("%w: no native harness %q; there are: %s", runtimes.ErrModule, m.Name, strings.Join(known, ", "))
	}
	return fresh(), nil
}

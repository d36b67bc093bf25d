// Package wasm owns the runtime for harnesses that are WebAssembly modules: it
// adapts the engine of package wasm to the SPI, value by value, and decides
// nothing.
//
// It imports runtimes, the engine and sdk/abi, and never wazero, the journal or
// the host.
package wasm

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
	engine "github.com/agentcell/agentcell/wasm"
)

var (
	_ runtimes.Runtime     = (*Runtime)(nil)
	_ runtimes.Restorer    = (*Runtime)(nil)
	_ runtimes.Incarnation = (*incarnation)(nil)
	_ runtimes.Snapshotter = (*incarnation)(nil)
	_ runtimes.Rester      = (*incarnation)(nil)
	_ runtimes.Mover       = (*incarnation)(nil)
)

// Name is the name of this runtime.
const Name = "wasm"

// Runtime runs harnesses in an engine.
type Runtime struct{ engine *engine.Engine }

// New gives a runtime that owns e: its Close closes e.
func New(e *engine.Engine) *Runtime { return &Runtime{engine: e} }

// Capabilities implements runtimes.Runtime.
func (*Runtime) Capabilities() runtimes.Capabilities {
	return runtimes.Capabilities{Runtime: Name, MemorySnapshot: true, Reexecutable: true, Sealed: true}
}

// Describe implements runtimes.Runtime.
func (r *Runtime) Describe(ctx context.Context, m runtimes.Module) (runtimes.Description, error) {
	c, err := r.load(ctx, m)
	if err != nil {
		return runtimes.Description{}, err
	}
	harness, err := c.Describe(ctx)
	if err != nil {
		return runtimes.Description{}, fmt.Errorf("describe %q: %w", m.Name, spiError(err))
	}
	return runtimes.Description{
		Harness:  harness,
		ABI:      abi.Version,
		Rewriter: c.Rewriter(),
		Imports:  c.Imports(),
		Size:     c.Size(),
		Golden:   spiImage(c.Golden()),
	}, nil
}

// Create implements runtimes.Runtime.
func (r *Runtime) Create(ctx context.Context, m runtimes.Module) (runtimes.Incarnation, error) {
	c, err := r.load(ctx, m)
	if err != nil {
		return nil, err
	}
	in, err := c.Instantiate()
	if err != nil {
		return nil, fmt.Errorf("create %q: %w", m.Name, spiError(err))
	}
	return &incarnation{in}, nil
}

// Restore implements runtimes.Restorer.
func (r *Runtime) Restore(ctx context.Context, m runtimes.Module, img runtimes.Image) (runtimes.Incarnation, error) {
	c, err := r.load(ctx, m)
	if err != nil {
		return nil, err
	}
	in, err := c.Restore(engine.Image{
		Size: img.Size, Globals: img.Globals, Clock: img.Clock, Changed: img.Changed, Pages: img.Pages,
		Root: img.Root, Diff: img.Diff,
	})
	if err != nil {
		return nil, fmt.Errorf("restore %q: %w", m.Name, spiError(err))
	}
	return &incarnation{in}, nil
}

// Close implements runtimes.Runtime.
func (r *Runtime) Close(ctx context.Context) error { return r.engine.Close(ctx) }

// load gives the compiled module of m, and reads its code only if it must.
func (r *Runtime) load(ctx context.Context, m runtimes.Module) (*engine.Compiled, error) {
	if c, ok := r.engine.Loaded(m.Digest); ok {
		return c, nil
	}
	if m.Code == nil {
		return nil, fmt.Errorf("load %q: %w: it has no code", m.Name, runtimes.ErrModule)
	}
	c, err := r.engine.LoadDigest(ctx, m.Name, m.Digest, m.Code)
	return c, spiError(err)
}

// incarnation is an instance of the engine under the SPI's names.
type incarnation struct{ instance *engine.Instance }

// Run implements runtimes.Incarnation.
func (in *incarnation) Run(ctx context.Context, t runtimes.Turn, port runtimes.Port) (runtimes.Outcome, error) {
	out, err := in.instance.Run(ctx, engineTurn(t), handler{port})
	return runtimes.Outcome(out), spiError(err)
}

// Save implements runtimes.Mover.
func (in *incarnation) Save(ctx context.Context, t runtimes.Turn) ([]byte, runtimes.Outcome, error) {
	state, out, err := in.instance.Save(ctx, engineTurn(t))
	return state, runtimes.Outcome(out), spiError(err)
}

// Load implements runtimes.Mover.
func (in *incarnation) Load(ctx context.Context, t runtimes.Turn, state []byte) (runtimes.Outcome, error) {
	out, err := in.instance.Load(ctx, engineTurn(t), state)
	return runtimes.Outcome(out), spiError(err)
}

func engineTurn(t runtimes.Turn) engine.Turn {
	return engine.Turn{Seed: t.Seed, Start: t.Start, Limits: t.Limits, Cloned: t.Cloned}
}

// Snapshot implements runtimes.Snapshotter.
func (in *incarnation) Snapshot(context.Context) (runtimes.Image, error) {
	img, err := in.instance.Snapshot()
	return spiImage(img), spiError(err)
}

// Rest implements runtimes.Rester.
func (in *incarnation) Rest(context.Context) (uint64, error) {
	held, err := in.instance.Rest()
	return uint64(held), spiError(err)
}

// Wake implements runtimes.Rester.
func (in *incarnation) Wake(context.Context) error { return spiError(in.instance.Wake()) }

// Clone implements runtimes.Rester.
func (in *incarnation) Clone(context.Context) (runtimes.Rester, error) {
	clone, err := in.instance.Clone()
	if err != nil {
		return nil, spiError(err)
	}
	return &incarnation{clone}, nil
}

// Status implements runtimes.Incarnation.
func (in *incarnation) Status() runtimes.Status {
	switch in.instance.Status() {
	case engine.Ready:
		return runtimes.Ready
	case engine.Running:
		return runtimes.Running
	default:
		return runtimes.Stopped
	}
}

// Stop implements runtimes.Incarnation.
func (in *incarnation) Stop(context.Context) error {
	in.instance.Stop()
	return nil
}

// handler gives the engine's requests to a port.
type handler struct{ port runtimes.Port }

// Call implements the engine's Handler.
func (h handler) Call(ctx context.Context, op abi.Op, request []byte) (engine.Response, error) {
	resp, err := h.port.Call(ctx, op, request)
	return engine.Response(resp), err
}

func spiImage(img engine.Image) runtimes.Image {
	return runtimes.Image{
		Size: img.Size, Globals: img.Globals, Clock: img.Clock, Changed: img.Changed, Pages: img.Pages,
	}
}

// spiError adds the SPI's sentinel to an error of the engine.
func spiError(err error) error {
	for _, s := range []struct{ of, spi error }{
		{engine.ErrModule, runtimes.ErrModule},
		{engine.ErrShortage, runtimes.ErrShortage},
		{engine.ErrStopped, runtimes.ErrStopped},
	} {
		if errors.Is(err, s.of) && !errors.Is(err, s.spi) {
			return &spiErr{err, s.spi}
		}
	}
	return err
}

// spiErr is an error of the engine that is an error of the SPI as well. The two
// say the same, so its text is the first's.
type spiErr struct {
	error
	sentinel error
}

func (e *spiErr) Unwrap() []error { return []error{e.error, e.sentinel} }

package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/rewrite"
)

// goldenLimits bound the golden run and agent_describe. They are fixed, so that
// the golden image, and whether a module is taken, depend on no configuration.
func goldenLimits() abi.Limits {
	l := abi.DefaultLimits()
	l.Fuel = 10_000_000_000
	return l
}

// goldenSeed keys the randomness of the golden run and of agent_describe.
var goldenSeed = abi.DigestOf([]byte("agentcell golden 1"))

// Compiled is a module ready to run. It is safe for concurrent use, and lives
// as long as its engine.
type Compiled struct {
	engine  *Engine
	digest  abi.Digest
	size    int64
	imports []string
	types   []byte // of the mutable globals
	start   []string
	minimum uint64         // bytes of memory
	runtime wazero.Runtime // that has the code
	code    wazero.CompiledModule

	golden Image
	memory *goldenMemory

	pool  pool
	flats flats
	pages sync.Pool // of *page, for the bases of cells

	mu        sync.Mutex
	described *abi.HarnessDescriptor
}

// compile does what Load is for. What goes wrong in it is a fault of this code,
// and must not end the host.
func (e *Engine) compile(ctx context.Context, name string, digest abi.Digest, code func() ([]byte, error)) (_ *Compiled, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrHost, r, debug.Stack())
		}
	}()
	m, warm := e.cached(digest)
	if !warm {
		var original []byte
		if original, err = code(); err != nil {
			return nil, fmt.Errorf("read the code: %w", err)
		}
		if got := abi.DigestOf(original); got != digest {
			return nil, refusef("the code's digest is %s, not %s", got, digest)
		}
		finished := e.watch(name, len(original))
		defer func() { finished(err) }()
		if m, err = e.prepare(original); err != nil {
			return nil, err
		}
	}
	c := &Compiled{
		engine: e, digest: digest, size: m.Size,
		imports: m.Imports, types: m.Globals, start: m.Start, minimum: m.Memory,
		pool:  pool{engine: e},
		pages: sync.Pool{New: func() any { return new(page) }},
	}
	c.flats.module = c
	if c.runtime, c.code, err = e.translate(ctx, m.code); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, refusef("compile: %w", err)
	}
	if err := c.runGolden(ctx, m.data); err != nil {
		return nil, errors.Join(err, c.code.Close(e.ctx))
	}
	if !warm {
		e.keep(digest, m)
	}
	return c, nil
}

// runGolden makes the golden image, the state in which every cell begins, of a module
// whose memory has data at first.
func (c *Compiled) runGolden(ctx context.Context, data []rewrite.Segment) error {
	cell, err := c.newCell()
	if err != nil {
		return err
	}
	cell.clock = goldenClock
	for _, s := range data {
		copy(cell.mem.bytes()[s.Offset:], s.Content)
	}
	for _, name := range c.start {
		call := cell.begin(ctx, inGolden, nil, Turn{Seed: goldenSeed, Limits: c.engine.golden})
		if _, err := call.invoke(cell.function(name)); err != nil {
			cell.free()
			return initError(name, err)
		}
	}
	cell.end()
	c.memory = newGoldenMemory(c.engine.backend, slices.Clone(cell.mem.bytes()))
	c.golden = cell.image(nonZero(c.memory.content), goldenPages{c})
	if err := cell.makeGolden(); err != nil {
		cell.free()
		c.memory.close()
		return err
	}
	c.pool.put(cell)
	return nil
}

// goldenPages reads the golden image for as long as the engine is there.
type goldenPages struct{ module *Compiled }

// ReadPage implements PageReader.
func (g goldenPages) ReadPage(index uint32, dst []byte) error {
	engine := g.module.engine
	if err := engine.enter(); err != nil {
		return fmt.Errorf("read page %d of the golden image: %w", index, err)
	}
	defer engine.leave()
	return pagesOf(g.module.memory.content).ReadPage(index, dst)
}

// initError is the refusal of a module that fails before its first turn.
func initError(what string, err error) error {
	var e *ended
	if errors.As(err, &e) {
		return refusef("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Digest is the SHA-256 of the code.
func (c *Compiled) Digest() abi.Digest { return c.digest }

// Size is the size of the code in bytes.
func (c *Compiled) Size() int64 { return c.size }

// Imports are the module's imports as "module.name", sorted. The caller must
// not change them.
func (c *Compiled) Imports() []string { return c.imports }

// Rewriter is the version of the rewriting.
func (c *Compiled) Rewriter() int32 { return rewrite.Version }

// Golden is the state in which cells of this module begin. The caller must not
// change what it refers to.
func (c *Compiled) Golden() Image { return c.golden }

// Describe asks the harness what it is, once; ErrModule says that it fails to
// tell.
func (c *Compiled) Describe(ctx context.Context) (abi.HarnessDescriptor, error) {
	c.mu.Lock()
	known := c.described
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	d, err := c.describe(ctx)
	if err != nil {
		return d, initError("describe", err)
	}
	c.mu.Lock()
	c.described = &d
	c.mu.Unlock()
	return d, nil
}

// describe runs agent_describe.
func (c *Compiled) describe(ctx context.Context) (abi.HarnessDescriptor, error) {
	var d abi.HarnessDescriptor
	in, err := c.Instantiate()
	if err != nil {
		return d, err
	}
	call, err := in.enter(ctx, inDescribe, nil, Turn{Seed: goldenSeed, Limits: c.engine.golden})
	if err != nil {
		return d, err
	}
	result, err := call.invoke(in.cell.function(exportDescribe))
	defer func() {
		in.leave(err == nil && result == 0) // then others can use the cell
		in.Stop()
	}()
	switch {
	case err != nil:
		return d, err
	case result != 0 && call.failure != nil:
		return d, refusef("agent_describe failed: %s", call.failure.Description)
	case result != 0:
		return d, refusef("agent_describe returned %d", result)
	case call.reply == nil:
		return d, refusef("agent_describe did not reply")
	}
	if err := json.Unmarshal(call.reply, &d); err != nil {
		return d, refusef("the descriptor is not one: %w", err)
	}
	if err := checkDescriptor(d); err != nil {
		return d, refusef("the descriptor is not one: %w", err)
	}
	return d, nil
}

// Instantiate gives an instance in the golden state.
func (c *Compiled) Instantiate() (*Instance, error) {
	if err := c.engine.enter(); err != nil {
		return nil, err
	}
	defer c.engine.leave()
	cell, err := c.get(c.golden.Size)
	if err != nil {
		return nil, err
	}
	return &Instance{cell: cell}, nil
}

// Restore gives an instance in the state of img, whose Changed tells how it
// differs from the golden image. It keeps no part of img.
func (c *Compiled) Restore(img Image) (*Instance, error) {
	if err := img.check(&c.golden); err != nil {
		return nil, err
	}
	if err := c.engine.enter(); err != nil {
		return nil, err
	}
	defer c.engine.leave()
	cell, err := c.get(img.Size)
	if err != nil {
		return nil, err
	}
	if err := cell.load(img); err != nil {
		cell.free()
		return nil, err
	}
	return &Instance{cell: cell}, nil
}

// get takes an idle cell whose memory is no larger than size, or makes one.
func (c *Compiled) get(size uint64) (*cell, error) {
	if cell := c.pool.get(size); cell != nil {
		return cell, nil
	}
	cell, err := c.newCell()
	if err != nil {
		return nil, err
	}
	if err := cell.makeGolden(); err != nil {
		cell.free()
		return nil, err
	}
	return cell, nil
}

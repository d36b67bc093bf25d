package wasm

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/rewrite"
)

// cell is an instantiated module. It serves one Instance after another, and
// nothing of one is left for the next (M3): recycle brings all that a guest can
// change back to the golden state.
type cell struct {
	module *Compiled
	mod    api.Module
	mem    *memory

	fuel, depth, pages, refused api.MutableGlobal
	globals            []api.MutableGlobal // of the original module

	clock clock
	// base is the memory at the beginning of the turn. dirty: the guest has run
	// since memory and base were compared, else changed lists the pages in which
	// they differ.
	base    base
	dirty   bool
	changed []uint32
	// flat is the image that memory was mapped from, nil for the golden one.
	flat *flat
	// listed: mem.list is what may differ from golden.
	listed bool
	held   int // what holds gave, for the pool

	call call
}

// newCell instantiates the module and runs nothing.
func (c *Compiled) newCell() (*cell, error) {
	mem, err := newMemory(c.engine.backend, c.minimum)
	if err != nil {
		return nil, err
	}
	ctx := experimental.WithMemoryAllocator(c.engine.ctx, mem)
	mod, err := c.runtime.InstantiateModule(ctx, c.code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		mem.Free()
		return nil, refusef("instantiate: %w", err)
	}
	cell := &cell{module: c, mod: mod, mem: mem}
	find := func(name string) (g api.MutableGlobal) {
		g, ok := mod.ExportedGlobal(name).(api.MutableGlobal)
		if !ok && err == nil {
			err = fmt.Errorf("%w: the rewritten module does not export %q", ErrHost, name)
		}
		return g
	}
	cell.fuel = find(rewrite.ExportFuel)
	cell.depth = find(rewrite.ExportDepth)
	cell.pages = find(rewrite.ExportPages)
	cell.refused = find(rewrite.ExportRefused)
	for i := range c.types {
		cell.globals = append(cell.globals, find(rewrite.ExportGlobal(i)))
	}
	if err != nil {
		cell.free()
		return nil, err
	}
	return cell, nil
}

// free gives all the cell holds back to the host.
func (c *cell) free() {
	_ = c.mod.Close(context.Background())
	c.leaveFlat()
}

// leaveFlat lets go of the image that memory was mapped from.
func (c *cell) leaveFlat() {
	if c.flat != nil {
		c.base.reset()
		c.base.golden = nil
		c.module.flats.leave(c.flat)
		c.flat = nil
	}
}

// function is an export to call. It is made anew for each call: an engine leaves
// the stack that a guest has made grow, up to 100 MB, with its function.
func (c *cell) function(name string) api.Function { return c.mod.ExportedFunction(name) }

// begin prepares a call into the guest; end must follow.
func (c *cell) begin(ctx context.Context, p phase, h Handler, t Turn) *call {
	c.call = call{Context: ctx, cell: c, phase: p, handler: h, limits: withDefaults(t.Limits)}
	c.call.fuel.limit = uint64(c.call.limits.Fuel)
	c.call.random.reset(t.Seed)
	c.clock.advanceTo(t.Start)
	c.dirty, c.listed = true, false
	return &c.call
}

// end forgets the call: its answers, its seed, its handler.
func (c *cell) end() {
	c.call = call{}
	c.fuel.Set(0)
	c.depth.Set(0)
	c.pages.Set(0)
	c.refused.Set(0)
}

// compare lists the pages in which memory is not as it was at the beginning of
// the turn. The list is good until the next turn.
func (c *cell) compare() []uint32 {
	if c.dirty {
		c.dirty = false
		c.changed = c.base.compare(c.mem.bytes(), c.touched())
	}
	return c.changed
}

// touched lists the pages that may differ from the golden memory.
func (c *cell) touched() []uint32 {
	if !c.listed {
		c.mem.touched()
		c.listed = true
	}
	return c.mem.list
}

// rebase makes what memory is now the beginning of the next turn. After an error the
// cell can only be freed.
func (c *cell) rebase() error {
	changed := c.compare()
	if c.pilesUp() {
		if f, err := c.module.flats.own(c.mem.bytes()); err == nil {
			return c.remap(f)
		} // else it goes on as it is
	}
	c.base.take(c.mem.bytes(), changed)
	c.changed = nil
	return nil
}

// A page that was touched once is compared after each turn from then on, and is there
// twice if it differs. So a cell that has touched pileFrom pages, and one in pilePart of its
// memory, is mapped from its own memory: that copies at most pilePart times as much.
const (
	pileFrom = 1024
	pilePart = 4
)

// pilesUp tells whether the cell has touched so many pages that it should be mapped anew.
func (c *cell) pilesUp() bool {
	e := c.module.engine
	return e.cfg.MaxFlatBytes >= 0 && e.backend.facts().Dirty != DirtyCompare &&
		len(c.touched()) >= max(pileFrom, c.mem.size/abi.PageSize/pilePart)
}

// remap maps memory from f, which is equal to it. The cell is the user of f.
func (c *cell) remap(f *flat) error {
	c.base.reset()
	c.leaveFlat()
	c.flat, c.base.golden = f, f.memory.content
	c.listed, c.changed = false, nil
	return c.mem.become(f.memory)
}

// image is the cell's state.
func (c *cell) image(changed []uint32, pages PageReader) Image {
	img := Image{
		Size:    uint64(c.mem.size),
		Globals: make([]abi.Global, len(c.globals)),
		Clock:   int64(c.clock),
		Changed: changed,
		Pages:   pages,
	}
	for i, g := range c.globals {
		img.Globals[i] = abi.Global{Type: c.module.types[i]}
		le.PutUint64(img.Globals[i].Value[:], g.Get())
	}
	return img
}

// setState puts globals and clock to those of img.
func (c *cell) setState(img *Image) {
	for i, g := range c.globals {
		g.Set(le.Uint64(img.Globals[i].Value[:]))
	}
	c.clock = clock(img.Clock)
}

// grow makes memory size bytes long.
func (c *cell) grow(size uint64) (err error) {
	// The allocator panics if the host has no memory left; no guest runs here
	// whose call would turn that into an error.
	defer func() {
		if s, ok := recover().(shortage); ok {
			err = s.err
		}
	}()
	more := (size - uint64(c.mem.size)) / wasmPage
	if _, ok := c.mod.Memory().Grow(uint32(more)); !ok {
		return fmt.Errorf("image: the module's memory cannot have %d bytes", size)
	}
	return nil
}

// makeGolden brings a cell that is no larger to the golden state.
func (c *cell) makeGolden() error {
	if err := c.grow(c.module.golden.Size); err != nil {
		return err
	}
	return c.becomeGolden()
}

// becomeGolden brings a cell that is at least as large to the golden state.
func (c *cell) becomeGolden() error {
	if err := c.mem.become(c.module.memory); err != nil {
		return err
	}
	c.base = base{golden: c.module.memory.content, pages: &c.module.pages}
	c.dirty, c.listed = false, false
	c.setState(&c.module.golden)
	return nil
}

// load brings a golden cell to the state of img, which was checked.
func (c *cell) load(img Image) error {
	c.listed = false
	if err := c.grow(img.Size); err != nil {
		return err
	}
	f, differ, err := c.module.flats.of(&img)
	if err != nil {
		return err
	}
	if f != nil {
		c.flat = f
		if err := c.mem.become(f.memory); err != nil {
			return err
		}
		c.base.golden = f.memory.content
	}
	mem := c.mem.bytes()
	err = readPages(img.Pages, differ, c.module.engine.cfg.Workers, func(i uint32, content []byte) error {
		copy(mem[int(i)*abi.PageSize:][:abi.PageSize], content)
		return nil
	})
	if err != nil {
		return err
	}
	c.base.take(mem, differ)
	c.setState(&img)
	return nil
}

// recycle gives a cell whose guest has done nothing but return to the pool.
func (c *cell) recycle() {
	if err := c.reset(); err != nil {
		c.free()
		return
	}
	c.module.pool.put(c)
}

// reset brings memory, base, globals and clock back to the golden state. Memory
// beyond the golden image, which cannot shrink, is all zero then, as it is when
// it grows.
func (c *cell) reset() error {
	c.base.reset()
	c.dirty, c.changed = false, nil
	c.setState(&c.module.golden)
	if c.flat != nil {
		c.leaveFlat()
		return c.becomeGolden()
	}
	touched := c.touched()
	if len(touched) > maxTouched {
		c.listed = false
		return c.mem.become(c.module.memory)
	}
	mem := c.mem.bytes()
	for _, i := range touched {
		golden, now := c.base.goldenPage(int(i)), mem[int(i)*abi.PageSize:][:abi.PageSize]
		if !bytes.Equal(golden, now) {
			copy(now, golden)
		}
	}
	return nil
}

// maxTouched is how many pages an idle cell may hold that are golden again. What
// it holds, the next tenant writes to at no cost; what is beyond costs more
// comparisons than it saves.
const maxTouched = 512

// cellBytes is about what an idle cell holds beside its pages.
const cellBytes = 128 << 10

// holds is about how much memory of the host an idle cell takes.
func (c *cell) holds() int {
	return cellBytes + min(len(c.mem.list), maxTouched)*abi.PageSize + c.mem.size/abi.PageSize*pageCost
}

// pageCost is what the host keeps for each page of a memory, touched or not.
const pageCost = 16

package wasm

import (
	"bytes"
	"context"
	"fmt"
	"reflect"

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
	globals                     []api.MutableGlobal // of the original module

	clock clock
	// base is the memory at the beginning of the turn. dirty: the guest has run
	// since memory and base were compared, else changed lists the pages in which
	// they differ.
	base    base
	dirty   bool
	changed []uint32
	// flat is the image that memory was mapped from, nil for the golden one.
	flat *flat
	// vain counts the pages that were compared and did not differ, since memory was
	// mapped.
	vain int
	// listed: mem.list is what may differ from golden.
	listed bool
	held   int          // what holds gave, for the pool
	run    api.Function // that ran the last turn of this tenant; nil: to be made

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

// function is an export to call. An engine leaves with it the stack that a guest has
// made grow, up to 100 MB.
func (c *cell) function(name string) api.Function { return c.mod.ExportedFunction(name) }

// maxStack is how large the stack of a function may be that is kept for the next turn
// of the same tenant. A turn of a harness in Go takes 72 KiB, which are made in
// three steps.
const maxStack = 128 << 10

// runner is the function that runs a turn.
func (c *cell) runner() api.Function {
	if c.run == nil {
		c.run = c.function(exportRun)
	}
	return c.run
}

// keepRunner keeps the function for the next turn, if it is known to hold little.
func (c *cell) keepRunner() {
	if size, ok := stackSize(c.run); !ok || size > maxStack {
		c.run = nil
	}
}

// stackSize is the size of the stack that wazero's compiler has made for a function. It
// does not tell, so this looks; false is the answer where it cannot be seen.
func stackSize(fn api.Function) (int, bool) {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return 0, false
	}
	stack := v.Elem().FieldByName("stack")
	if stack.Kind() != reflect.Slice || stack.Type().Elem().Kind() != reflect.Uint8 {
		return 0, false
	}
	return stack.Cap(), true
}

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
		c.vain += len(c.touched()) - len(c.changed)
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
		if f, err := c.own(); err == nil {
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
//
// So is a small one that has compared so many pages in vain that this would have cost
// less: vainAll times those of its memory, or, where it has been mapped so before and only what
// it has touched since must be copied, vainTouched times these.
const (
	pileFrom    = 1024
	pilePart    = 4
	smallMemory = 16 << 20
	vainAll     = 4
	vainTouched = 16
)

// pilesUp tells whether the cell has touched so many pages, or so often compared them
// in vain, that it should be mapped anew.
func (c *cell) pilesUp() bool {
	e := c.module.engine
	if e.cfg.MaxFlatBytes < 0 || e.backend.facts().Dirty == DirtyCompare {
		return false
	}
	touched, pages := len(c.touched()), c.mem.size/abi.PageSize
	switch {
	case touched >= max(pileFrom, pages/pilePart):
		return true
	case c.mem.size > smallMemory:
		return false
	case c.owns():
		return c.vain > vainTouched*touched
	}
	return c.vain > vainAll*pages
}

// owns tells whether memory was mapped from an image of the cell's own.
func (c *cell) owns() bool { return c.flat != nil && c.flat.root.IsZero() }

// own gives an image of the cell's own that is equal to its memory: the one it has, if
// no clone of it rests on that.
func (c *cell) own() (*flat, error) {
	mem := c.mem.bytes()
	if c.owns() && c.flat.memory.size() == len(mem) && c.module.flats.alone(c.flat) {
		return c.flat, writePages(mem, c.touched(), c.flat.memory.write)
	}
	return c.module.flats.own(mem)
}

// remap maps memory from f, which is equal to it. The cell is the user of f.
func (c *cell) remap(f *flat) error {
	c.base.reset()
	if f != c.flat {
		c.leaveFlat()
	}
	c.flat, c.base.golden = f, f.memory.content
	c.listed, c.changed, c.vain = false, nil, 0
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
	c.dirty, c.changed, c.vain, c.run = false, nil, 0, nil
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

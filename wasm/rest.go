package wasm

import (
	"bytes"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/agentcell/agentcell/sdk/abi"
)

// rested is the state of an instance that has no cell: what its guest has made
// different from what fresh cells are mapped from. Of a page that is a small part as
// a rule, a counter here and a pointer there, so it is kept by the block.
type rested struct {
	module  *Compiled
	flat    *flat // what the blocks differ from, nil for the golden image
	size    int   // of memory
	globals []uint64
	clock   clock
	pages   []restedPage // ascending
	blocks  []byte       // of these, one after another
	// changed is what compare gave.
	changed []uint32
}

// restedPage says which blocks of a page differ.
type restedPage struct {
	index uint32
	mask  uint64 // bit i is block i
}

// restBlock is the length of a block. Shorter ones save little: 64 bytes are a tenth
// of the pages that a small turn of a Go harness leaves, 8 bytes a fifteenth.
const restBlock = abi.PageSize / 64

// Rest gives the cell of an instance that is Ready back to the pool and keeps
// globals, clock and what of memory differs from that of fresh cells. It tells how
// many bytes that are. The next Run or Snapshot takes a cell again, and nothing else
// can be told from that an instance has rested. To rest again changes nothing.
//
// An instance that rests on a large image is Stopped when that is dropped to make
// room: see Config.MaxFlatBytes. The error is ErrStopped.
func (in *Instance) Rest() (held int, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.status != Ready {
		return 0, fmt.Errorf("rest: instance: %w", ErrStopped)
	}
	if in.rest != nil {
		return in.rest.held(), nil
	}
	cell := in.cell
	engine := cell.module.engine
	if err := engine.enter(); err != nil {
		return 0, fmt.Errorf("rest: %w", err)
	}
	defer engine.leave()
	in.turns++ // a snapshot reads the cell
	in.cell, in.rest = nil, cell.rest()
	cell.recycle()
	return in.rest.held(), nil
}

// Wake takes a cell for an instance that rests, as the next Run would: for those who
// want to know before it that there is none. ErrShortage means that the instance is
// as it was, ErrStopped that it cannot run any more. An instance that does not rest
// is left alone.
func (in *Instance) Wake() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.status != Ready {
		return fmt.Errorf("wake: instance: %w", ErrStopped)
	}
	engine := in.module().engine
	if err := engine.enter(); err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	defer engine.leave()
	return in.wake()
}

// Clone gives another instance in the state of one that is Ready. It rests, and shares
// with one that does what that holds; to clone one that does not takes as long as to
// let it rest. The error is ErrStopped.
func (in *Instance) Clone() (*Instance, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.status != Ready {
		return nil, fmt.Errorf("clone: instance: %w", ErrStopped)
	}
	engine := in.module().engine
	if err := engine.enter(); err != nil {
		return nil, fmt.Errorf("clone: %w", err)
	}
	defer engine.leave()
	if in.rest == nil {
		return &Instance{rest: in.cell.rest()}, nil
	}
	r := *in.rest // nobody changes what it refers to
	if r.flat != nil {
		r.module.flats.rest(r.flat)
	}
	return &Instance{rest: &r}, nil
}

// wake is Wake for callers that have entered the engine and hold mu.
func (in *Instance) wake() error {
	if in.rest == nil {
		return nil
	}
	cell, err := in.rest.wake()
	if err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	in.rest.leave()
	in.cell, in.rest = cell, nil
	return nil
}

// module is what a Ready instance is one of. The caller holds mu.
func (in *Instance) module() *Compiled {
	if in.rest != nil {
		return in.rest.module
	}
	return in.cell.module
}

// held is the memory that r takes.
func (r *rested) held() int {
	return int(unsafe.Sizeof(*r)) + cap(r.blocks) + int(unsafe.Sizeof(restedPage{}))*cap(r.pages) + 4*cap(r.changed) + 8*cap(r.globals)
}

// rest takes the cell's state down.
func (c *cell) rest() *rested {
	r := &rested{
		module: c.module, flat: c.flat, size: c.mem.size, clock: c.clock,
		globals: make([]uint64, len(c.globals)), changed: slices.Clip(c.compare()),
	}
	for i, g := range c.globals {
		r.globals[i] = g.Get()
	}
	mem, n := c.mem.bytes(), 0
	from, touched := c.base, c.touched()
	if c.owns() && c.mem.size <= smallMemory {
		// A small image is not worth being kept for one that rests.
		r.flat, from, touched = nil, base{golden: c.module.memory.content}, allPages(nil, c.mem.size/abi.PageSize)
	}
	pages := make([]restedPage, 0, len(r.changed))
	for _, i := range touched {
		if mask := differ(mem[int(i)*abi.PageSize:][:abi.PageSize], from.goldenPage(int(i))); mask != 0 {
			pages = append(pages, restedPage{i, mask})
			n += bits.OnesCount64(mask)
		}
	}
	r.pages = slices.Clip(pages)
	r.blocks = make([]byte, 0, n*restBlock)
	for _, p := range r.pages {
		for at := range p.blocks() {
			r.blocks = append(r.blocks, mem[at:at+restBlock]...)
		}
	}
	if r.flat != nil {
		c.module.flats.rest(r.flat)
	}
	return r
}

// differ says in which blocks two pages differ.
func differ(a, b []byte) (mask uint64) {
	for at := 0; at < abi.PageSize; at += restBlock {
		if !bytes.Equal(a[at:at+restBlock], b[at:at+restBlock]) {
			mask |= 1 << (at / restBlock)
		}
	}
	return mask
}

// blocks tells where in memory the blocks begin.
func (p restedPage) blocks() iter.Seq[int] {
	return func(yield func(int) bool) {
		for mask := p.mask; mask != 0; mask &= mask - 1 {
			if !yield(int(p.index)*abi.PageSize + bits.TrailingZeros64(mask)*restBlock) {
				return
			}
		}
	}
}

// wake gives a cell in the state of r, which stays as it is.
func (r *rested) wake() (*cell, error) {
	c, err := r.module.get(uint64(r.size))
	if err != nil {
		return nil, err
	}
	if err := c.wake(r); err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

// wake brings a golden cell to the state of r. The pages of the last turn do not
// become part of the base before the next one begins, as in a cell that has not
// rested.
func (c *cell) wake(r *rested) error {
	c.listed = false
	if err := c.grow(uint64(r.size)); err != nil {
		return err
	}
	if r.flat != nil {
		if !c.module.flats.wake(r.flat) {
			return fmt.Errorf("the large image that the instance rested on was dropped: %w", ErrStopped)
		}
		c.flat = r.flat
		if err := c.mem.become(r.flat.memory); err != nil {
			return err
		}
		c.base.golden = r.flat.memory.content
	}
	mem, content, last := c.mem.bytes(), r.blocks, r.changed
	for _, p := range r.pages {
		for at := range p.blocks() {
			copy(mem[at:], content[:restBlock])
			content = content[restBlock:]
		}
		for len(last) > 0 && last[0] < p.index {
			last = last[1:]
		}
		if len(last) == 0 || last[0] != p.index {
			c.base.set(int(p.index), len(mem)/abi.PageSize, mem[int(p.index)*abi.PageSize:][:abi.PageSize])
		}
	}
	for i, g := range c.globals {
		g.Set(r.globals[i])
	}
	c.clock = r.clock
	c.dirty, c.changed = false, r.changed
	return nil
}

// leave lets go of what r rests on. It may be called after the engine was closed.
func (r *rested) leave() {
	if r.flat != nil {
		r.module.flats.unrest(r.flat)
	}
}

// isGone reports whether what r differs from was dropped.
func (r *rested) isGone() bool { return r.flat != nil && r.module.flats.isGone(r.flat) }

// rest counts one more instance that rests on f. Such a one keeps f as long as there
// is room for images that are not in use, and no longer: it is for the journal to
// keep ten thousand large ones.
func (s *flats) rest(f *flat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.rested++
}

// unrest counts one less.
func (s *flats) unrest(f *flat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.rested--
	if f.users == 0 && !f.gone {
		s.unused(f)
	}
}

// wake makes the caller a user of f, unless it is gone.
func (s *flats) wake(f *flat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.gone {
		return false
	}
	s.use(f)
	return true
}

func (s *flats) isGone(f *flat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.gone
}

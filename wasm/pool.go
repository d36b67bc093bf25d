package wasm

import (
	"sync"
	"time"
)

// pool keeps the idle cells of one module, all of them in the golden state (M3).
// Some have more memory than the golden image, because memory never shrinks:
// they are for tenants whose image is as large.
//
// An idle cell costs the pages it has touched and little else, so there may be
// as many as there were tenants at once. Those that nobody has needed for a
// while are freed, until a few are left.
type pool struct {
	engine *Engine

	mu    sync.Mutex
	idle  []*cell // that has waited longest first
	bytes int     // what they hold
	// fewest is how many have not been needed since the timer was set.
	fewest int
	timer  *time.Timer // set while there are more than keepIdle
}

const (
	// trimAfter is how long cells wait before half of those that were not
	// needed are freed, until keepIdle are left.
	trimAfter = 2 * time.Second
	keepIdle  = 2
)

// room is what a module may keep for those who need it next.
type room struct{ idle, idleBytes, flatBytes int }

// defaultRoom is that of a machine with so much memory, 0 if nobody knows, whose programs
// have addresses of so many bits. Idle cells take up addresses whatever they hold.
func defaultRoom(memory uint64, bits int) room {
	const mib = 1 << 20
	r := room{512, 256 * mib, 512 * mib}
	if bits == 32 {
		r = room{32, 64 * mib, 128 * mib}
	}
	if memory != 0 {
		r.idleBytes = min(r.idleBytes, max(int(memory/16), mib))
		r.flatBytes = min(r.flatBytes, max(int(memory/8), mib))
	}
	return r
}

// get takes the largest cell that is no larger than size, the one used last
// among equals, nil if there is none.
func (p *pool) get(size uint64) *cell {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := -1
	for i := len(p.idle) - 1; i >= 0; i-- {
		have := uint64(p.idle[i].mem.size)
		if have <= size && (best < 0 || have > uint64(p.idle[best].mem.size)) {
			best = i
		}
		if have == size {
			break
		}
	}
	if best < 0 {
		return nil
	}
	return p.remove(best)
}

// put keeps a cell that is in the golden state. If there are too many, those
// that have waited longest are freed.
func (p *pool) put(c *cell) {
	p.mu.Lock()
	c.held = c.holds()
	p.idle = append(p.idle, c)
	p.bytes += c.held
	var surplus []*cell
	for len(p.idle) > max(0, p.engine.cfg.MaxIdle) || p.bytes > p.engine.idleBytes && len(p.idle) > 1 {
		surplus = append(surplus, p.remove(0))
	}
	p.arm()
	p.mu.Unlock()
	freeCells(surplus)
}

// remove takes the cell at index i. The caller holds mu.
func (p *pool) remove(i int) *cell {
	c := p.idle[i]
	copy(p.idle[i:], p.idle[i+1:])
	p.idle[len(p.idle)-1] = nil
	p.idle = p.idle[:len(p.idle)-1]
	p.bytes -= c.held
	p.fewest = min(p.fewest, len(p.idle))
	return c
}

// arm sets the timer if it is not and there is something to trim. The caller
// holds mu.
func (p *pool) arm() {
	if p.timer == nil && len(p.idle) > keepIdle {
		p.fewest = len(p.idle)
		p.timer = time.AfterFunc(trimAfter, p.trim)
	}
}

// trim frees half of the cells that nobody has needed since the timer was set.
func (p *pool) trim() {
	if p.engine.enter() != nil {
		return // it frees them all
	}
	defer p.engine.leave()
	p.mu.Lock()
	var surplus []*cell
	for range min((p.fewest+1)/2, len(p.idle)-keepIdle) {
		surplus = append(surplus, p.remove(0))
	}
	p.timer = nil
	p.arm()
	p.mu.Unlock()
	freeCells(surplus)
}

// close ends the timer; the engine frees the cells.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
}

func freeCells(cells []*cell) {
	for _, c := range cells {
		c.free()
	}
}

package journal

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/agentcell/agentcell/sdk/abi"
)

// guard lets Collect work beside all others. Rows that are named by their content
// are written once: who finds one relies on it, and Collect must not take it away
// before the record that names it is there. So while it runs
//
//   - everybody touches what they find or put, under a read lock, in which they
//     look: Collect deletes under the write lock, and only what nobody has
//     touched since it began;
//   - it begins its walk when all that was under way before has ended (Hold).
type guard struct {
	// sweeping is held for writing while rows are deleted, for reading from
	// before a row is looked for until it is touched.
	sweeping sync.RWMutex
	// on: Collect runs. It changes under sweeping.
	on atomic.Bool

	mu      sync.Mutex
	touched []touched
	// holds counts the holds of each generation; a new one begins with Collect.
	generation uint64
	holds      map[uint64]int
	ended      chan struct{} // if not nil, closed with the last hold of a generation
}

// touched is what somebody relies on: a row that is named by its content, or the
// records of a session.
type touched struct {
	kind    byte
	digest  abi.Digest
	level   int    // of a node
	pages   uint32 // that a node covers
	records stretch
}

// touchRow touches a blob, an image or a page.
func (g *guard) touchRow(kind byte, d abi.Digest) { g.touch(touched{kind: kind, digest: d}) }

// touchRecords touches records that are, or may be, stored under one uid.
func (g *guard) touchRecords(s stretch) { g.touch(touched{kind: kindRecord, records: s}) }

// touch is called with sweeping held.
func (g *guard) touch(t touched) {
	if !g.on.Load() {
		return
	}
	g.mu.Lock()
	g.touched = append(g.touched, t)
	g.mu.Unlock()
}

// take gives what was touched since the last call.
func (g *guard) take() []touched {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.touched
	g.touched = nil
	return all
}

// Hold keeps what is in the journal now, and what is put into it from now on, from
// Collect, until release is called. It is for whoever puts something, a blob or an
// image, before the session or ref that will name it, or reads what a session
// names that may be deleted meanwhile. Collect waits for a hold that is older than
// itself; release it soon, and in any case.
func (j *Journal) Hold() (release func()) {
	g := &j.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	generation := g.generation
	g.holds[generation]++
	return sync.OnceFunc(func() { g.release(generation) })
}

func (g *guard) release(generation uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holds[generation]--; g.holds[generation] > 0 {
		return
	}
	delete(g.holds, generation)
	if g.ended != nil {
		close(g.ended)
		g.ended = nil
	}
}

// begin has everything touched from now on, and waits until what was under way
// has ended.
func (g *guard) begin(ctx context.Context) error {
	g.sweeping.Lock()
	g.on.Store(true)
	g.sweeping.Unlock()
	g.mu.Lock()
	g.generation++
	now := g.generation
	g.mu.Unlock()
	for {
		ended := g.older(now)
		if ended == nil {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// older is closed when a generation of holds before now has ended; nil if there is
// none.
func (g *guard) older(now uint64) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	for generation := range g.holds {
		if generation < now {
			if g.ended == nil {
				g.ended = make(chan struct{})
			}
			return g.ended
		}
	}
	return nil
}

func (g *guard) end() {
	g.sweeping.Lock()
	defer g.sweeping.Unlock()
	g.on.Store(false)
	g.take()
}

// handles are the images that somebody has in hand. What their trees know to be
// stored is not looked for again, so it must stay for as long.
type handles struct {
	mu  sync.Mutex
	all map[weak.Pointer[Image]]struct{}
}

func (h *handles) add(im *Image) *Image {
	p := weak.Make(im)
	h.mu.Lock()
	h.all[p] = struct{}{}
	h.mu.Unlock()
	runtime.AddCleanup(im, h.drop, p)
	return im
}

func (h *handles) drop(p weak.Pointer[Image]) {
	h.mu.Lock()
	delete(h.all, p)
	h.mu.Unlock()
}

// inUse lists the images that somebody still has. Garbage that only waits to be
// found does not count.
func (h *handles) inUse() []*Image {
	runtime.GC()
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*Image
	for p := range h.all {
		if im := p.Value(); im != nil {
			all = append(all, im)
		}
	}
	return all
}

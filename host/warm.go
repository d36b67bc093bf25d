package host

import (
	"container/list"
	"context"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// WarmLimits bound the incarnations that are kept for the next turn. One that has
// completed a turn is hot, ready for the next, for some seconds; then it rests, which
// takes a fraction of the memory and of the next turn some microseconds, and at last
// it is stopped, as is at once what cannot rest. The one that has waited longest goes
// first. A zero field means its default.
type WarmLimits struct {
	For   time.Duration // how long one is hot; 5 s
	Count int           // how many are; 64; a negative number: none
	Bytes uint64        // of their memories together; 1 GiB

	RestFor   time.Duration // how long one rests; 5 minutes
	RestCount int           // how many do; 10,000, or none if none is hot; a negative number: none
	// RestBytes is what they hold together; 256 MiB, or an eighth of the memory
	// limit of the Go runtime (GOMEMLIMIT) if that is less.
	RestBytes uint64
}

func (l WarmLimits) orDefault() WarmLimits {
	if l.For == 0 {
		l.For = 5 * time.Second
	}
	if l.Count == 0 {
		l.Count = 64
	}
	if l.Bytes == 0 {
		l.Bytes = 1 << 30
	}
	if l.RestFor == 0 {
		l.RestFor = 5 * time.Minute
	}
	if l.RestCount == 0 && l.Count > 0 {
		l.RestCount = 10_000
	}
	if l.RestBytes == 0 {
		l.RestBytes = min(256<<20, uint64(debug.SetMemoryLimit(math.MinInt64))/8)
	}
	return l
}

// warmCache keeps incarnations that have completed a turn. A turn that begins from
// the image which such a one is in the state of needs no restoring, whosever turn
// it is: there is nothing in an incarnation that its root does not cover (M1).
//
// What is beyond the limits is seen to by one goroutine, which is there as long as
// there is something: letting one rest takes too long for a turn to wait for.
type warmCache struct {
	log *slog.Logger

	mu      sync.Mutex
	kept    map[warmKey]*warm
	hot     tier
	rested  tier
	timer   *time.Timer // of due
	due     time.Time   // when tend is to look again, zero while nothing is kept
	tending bool        // tend is at it
	closed  bool
	tends   sync.WaitGroup
}

// warmKey names a state: that of an image of a module.
type warmKey struct{ module, root abi.Digest }

// warm is an incarnation that is kept.
type warm struct {
	key   warmKey
	inc   runtimes.Incarnation
	size  uint64
	until time.Time
	tier  *tier // that it is in, nil on its way from one to the other
	place *list.Element
}

// tier is a part of what is kept, in the order in which it is to go.
type tier struct {
	lasts time.Duration
	count int
	bytes uint64
	order list.List // of *warm
	size  uint64    // of them together
}

func newWarmCache(l WarmLimits, log *slog.Logger) *warmCache {
	l = l.orDefault()
	c := &warmCache{
		log: log, kept: map[warmKey]*warm{},
		hot:    tier{lasts: l.For, count: max(0, l.Count), bytes: l.Bytes},
		rested: tier{lasts: l.RestFor, count: max(0, l.RestCount), bytes: l.RestBytes},
	}
	c.timer = time.AfterFunc(math.MaxInt64, c.expire)
	c.timer.Stop()
	return c
}

func (t *tier) add(w *warm) {
	w.tier, w.place, w.until = t, t.order.PushBack(w), time.Now().Add(t.lasts)
	t.size += w.size
}

func (t *tier) remove(w *warm) {
	t.order.Remove(w.place)
	t.size -= w.size
	w.tier, w.place = nil, nil
}

// first is the one that is to go first, nil if there is none.
func (t *tier) first() *warm {
	if e := t.order.Front(); e != nil {
		return e.Value.(*warm)
	}
	return nil
}

func (t *tier) isFull() bool { return t.order.Len() > t.count || t.size > t.bytes }

// next takes one that must go now, nil if none must.
func (t *tier) next(now time.Time) *warm {
	w := t.first()
	if w == nil || !t.isFull() && now.Before(w.until) {
		return nil
	}
	t.remove(w)
	return w
}

// take gives an incarnation in that state that can run at once, nil if there is none.
// It is the caller's then.
func (c *warmCache) take(key warmKey) runtimes.Incarnation {
	w := c.forget(key)
	if w == nil {
		return nil
	}
	return c.woken(w.inc)
}

// woken is inc, ready to run; nil, and inc is stopped, if it cannot be.
func (c *warmCache) woken(inc runtimes.Incarnation) runtimes.Incarnation {
	if r, ok := inc.(runtimes.Rester); ok {
		if err := r.Wake(context.Background()); err != nil {
			c.log.Debug("wake incarnation", "error", err)
			c.stop(inc)
			return nil
		}
	}
	return inc
}

// share is take for a state that others are in as well, as the forks of a session are:
// one that is kept is kept on, at rest, and the caller gets a clone of it.
func (c *warmCache) share(key warmKey) runtimes.Incarnation {
	c.mu.Lock()
	w := c.kept[key]
	if w == nil || w.tier == nil {
		c.mu.Unlock()
		return nil
	}
	if _, ok := w.inc.(runtimes.Rester); !ok {
		c.mu.Unlock()
		return c.take(key)
	}
	if w.tier == &c.hot {
		// Of one that rests a clone is made at once, under mu.
		c.hot.remove(w)
		c.mu.Unlock()
		c.rest(w)
		c.mu.Lock()
	}
	var clone runtimes.Rester
	if w.tier == &c.rested {
		var err error
		if clone, err = w.inc.(runtimes.Rester).Clone(context.Background()); err != nil {
			c.log.Debug("clone incarnation", "error", err)
		}
	}
	c.mu.Unlock()
	if clone == nil {
		return nil
	}
	return c.woken(clone)
}

// leave keeps a clone of inc at rest, if there is none in its state.
func (c *warmCache) leave(key warmKey, inc runtimes.Incarnation) {
	r, ok := inc.(runtimes.Rester)
	if !ok || c.rested.count == 0 || c.has(key) {
		return
	}
	clone, err := r.Clone(context.Background())
	if err != nil {
		c.log.Debug("clone incarnation", "error", err)
		return
	}
	w := &warm{key: key, inc: clone}
	c.mu.Lock()
	if c.closed || c.kept[key] != nil {
		c.mu.Unlock()
		c.stop(clone)
		return
	}
	c.kept[key] = w // and on its way to rest, where it is
	c.mu.Unlock()
	c.rest(w)
}

// forget takes what is kept of that state out, nil if there is none, or if it is on
// its way to rest.
func (c *warmCache) forget(key warmKey) *warm {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.kept[key]
	if w == nil || w.tier == nil {
		return nil
	}
	w.tier.remove(w)
	delete(c.kept, key)
	return w
}

// has reports whether there is an incarnation in that state.
func (c *warmCache) has(key warmKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept[key] != nil
}

// put takes over an incarnation in that state, whose memory has size bytes.
func (c *warmCache) put(key warmKey, inc runtimes.Incarnation, size uint64) {
	w := &warm{key: key, inc: inc, size: size}
	if !c.keep(w) {
		c.stop(w.inc)
		return
	}
	// Turns may end faster than one goroutine can let them rest.
	for {
		c.mu.Lock()
		var surplus *warm
		if c.hot.order.Len() > 2*c.hot.count {
			surplus = c.hot.next(time.Now())
		}
		c.mu.Unlock()
		if surplus == nil {
			return
		}
		c.rest(surplus)
	}
}

// keep makes w a hot one, unless there is one in its state.
func (c *warmCache) keep(w *warm) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.kept[w.key] != nil {
		return false
	}
	c.kept[w.key] = w
	c.hot.add(w)
	c.arm()
	return true
}

// drop stops the incarnation in that state, if there is one.
func (c *warmCache) drop(key warmKey) {
	if w := c.forget(key); w != nil {
		c.stop(w.inc)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, key) // it is stopped when it has come to rest
}

// arm sees to it that tend runs as soon as something must go. The caller holds mu.
func (c *warmCache) arm() {
	if c.tending {
		return
	}
	var due time.Time
	for _, t := range []*tier{&c.hot, &c.rested} {
		if w := t.first(); w != nil {
			if t.isFull() {
				c.tending = true
				c.tends.Go(c.tend)
				return
			}
			if due.IsZero() || w.until.Before(due) {
				due = w.until
			}
		}
	}
	if !due.IsZero() && (c.due.IsZero() || due.Before(c.due)) {
		c.due = due
		c.timer.Reset(time.Until(due))
	}
}

// expire is what the timer does.
func (c *warmCache) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = time.Time{}
	if !c.closed && !c.tending {
		c.tending = true
		c.tends.Go(c.tend)
	}
}

// tend lets rest and stops what must go, and returns when nothing must for now.
func (c *warmCache) tend() {
	for {
		c.mu.Lock()
		now := time.Now()
		hot, old := c.hot.next(now), c.rested.next(now)
		if old != nil {
			delete(c.kept, old.key)
		}
		if hot == nil && old == nil {
			c.tending = false
			c.arm()
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if hot != nil {
			c.rest(hot)
		}
		if old != nil {
			c.stop(old.inc)
		}
	}
}

// rest moves one that next has taken from the hot ones to those that rest. What
// cannot rest is stopped, and so is what was dropped meanwhile.
func (c *warmCache) rest(w *warm) {
	rests := false
	if r, ok := w.inc.(runtimes.Rester); ok && c.rested.count > 0 {
		held, err := r.Rest(context.Background())
		if err != nil {
			c.log.Debug("let incarnation rest", "error", err)
		}
		w.size, rests = held, err == nil
	}
	c.mu.Lock()
	wanted := c.kept[w.key] == w // never once the cache is closed
	if wanted && rests {
		c.rested.add(w)
		c.arm()
		c.mu.Unlock()
		return
	}
	if wanted {
		delete(c.kept, w.key)
	}
	c.mu.Unlock()
	c.stop(w.inc)
}

// close stops all incarnations, and those that are put from now on.
func (c *warmCache) close() {
	c.mu.Lock()
	c.closed = true
	c.timer.Stop()
	var all []runtimes.Incarnation
	for _, t := range []*tier{&c.hot, &c.rested} {
		for w := t.first(); w != nil; w = t.first() {
			t.remove(w)
			all = append(all, w.inc)
		}
	}
	clear(c.kept)
	c.mu.Unlock()
	c.stop(all...)
	c.tends.Wait()
}

func (c *warmCache) stop(list ...runtimes.Incarnation) {
	for _, inc := range list {
		if err := inc.Stop(context.Background()); err != nil {
			c.log.Warn("stop incarnation", "error", err)
		}
	}
}

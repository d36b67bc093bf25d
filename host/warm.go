package host

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// WarmLimits bound the incarnations that are kept for the next turn. The one that
// has waited longest goes first. A zero field means its default; a negative Count
// that none are kept.
type WarmLimits struct {
	For   time.Duration // how long one is kept; 5 s
	Count int           // how many are kept; 64
	Bytes uint64        // of their memories together; 1 GiB
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
	return l
}

// warmCache keeps incarnations that have completed a turn. A turn that begins from
// the image which such a one is in the state of needs no restoring, whosever turn
// it is: there is nothing in an incarnation that its root does not cover (M1).
type warmCache struct {
	limits WarmLimits
	log    *slog.Logger

	mu     sync.Mutex
	kept   map[warmKey]*warm
	order  []*warm // oldest first
	bytes  uint64
	closed bool
}

// warmKey names a state: that of an image of a module.
type warmKey struct{ module, root abi.Digest }

type warm struct {
	key   warmKey
	inc   runtimes.Incarnation
	size  uint64 // of its memory
	timer *time.Timer
}

func newWarmCache(l WarmLimits, log *slog.Logger) *warmCache {
	return &warmCache{limits: l.orDefault(), log: log, kept: map[warmKey]*warm{}}
}

// take gives an incarnation in that state, nil if there is none. It is the
// caller's then.
func (c *warmCache) take(key warmKey) runtimes.Incarnation {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.kept[key]
	if w == nil {
		return nil
	}
	c.remove(w)
	return w.inc
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
	var surplus []runtimes.Incarnation
	c.mu.Lock()
	if c.closed || c.kept[w.key] != nil {
		surplus = append(surplus, inc)
	} else {
		c.kept[w.key] = w
		c.order = append(c.order, w)
		c.bytes += size
		w.timer = time.AfterFunc(c.limits.For, func() { c.expire(w) })
	}
	for len(c.order) > 0 && (len(c.order) > c.limits.Count || c.bytes > c.limits.Bytes) {
		surplus = append(surplus, c.order[0].inc)
		c.remove(c.order[0])
	}
	c.mu.Unlock()
	c.stop(surplus...)
}

// remove forgets w. The caller holds mu.
func (c *warmCache) remove(w *warm) {
	w.timer.Stop()
	delete(c.kept, w.key)
	i := slices.Index(c.order, w)
	c.order = slices.Delete(c.order, i, i+1)
	c.bytes -= w.size
}

// drop stops the incarnation in that state, if there is one.
func (c *warmCache) drop(key warmKey) {
	if inc := c.take(key); inc != nil {
		c.stop(inc)
	}
}

// expire stops w unless it was taken.
func (c *warmCache) expire(w *warm) {
	c.mu.Lock()
	there := c.kept[w.key] == w
	if there {
		c.remove(w)
	}
	c.mu.Unlock()
	if there {
		c.stop(w.inc)
	}
}

// close stops all incarnations, and those that are put from now on.
func (c *warmCache) close() {
	c.mu.Lock()
	c.closed = true
	var all []runtimes.Incarnation
	for len(c.order) > 0 {
		all = append(all, c.order[0].inc)
		c.remove(c.order[0])
	}
	c.mu.Unlock()
	c.stop(all...)
}

func (c *warmCache) stop(list ...runtimes.Incarnation) {
	for _, inc := range list {
		if err := inc.Stop(context.Background()); err != nil {
			c.log.Warn("stop incarnation", "error", err)
		}
	}
}

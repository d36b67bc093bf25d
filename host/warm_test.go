package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// idle is an incarnation that only counts how often it was stopped.
type idle struct {
	runtimes.Incarnation
	stops atomic.Int32
}

func (i *idle) Stop(context.Context) error {
	i.stops.Add(1)
	return nil
}

// sleeper is one that can rest, unless it is sick.
type sleeper struct {
	idle
	rests   atomic.Bool
	sick    atomic.Bool
	resting func()   // if set, while it goes to rest
	of      *sleeper // of which it is a clone
}

var errSick = errors.New("no room")

// sleeperBytes is what one holds that rests.
const sleeperBytes = 10

func (s *sleeper) Rest(context.Context) (uint64, error) {
	if s.resting != nil {
		s.resting()
	}
	if s.sick.Load() {
		return 0, errSick
	}
	s.rests.Store(true)
	return sleeperBytes, nil
}

func (s *sleeper) Wake(context.Context) error {
	if s.sick.Load() {
		return errSick
	}
	s.rests.Store(false)
	return nil
}

func (s *sleeper) Clone(context.Context) (runtimes.Rester, error) {
	if s.sick.Load() {
		return nil, errSick
	}
	clone := &sleeper{of: s}
	clone.rests.Store(true)
	return clone, nil
}

func warmTestKey(i int) warmKey { return warmKey{root: abi.DigestOf(fmt.Append(nil, i))} }

func testWarmCache(t *testing.T, l WarmLimits) *warmCache {
	c := newWarmCache(l, slog.New(slog.DiscardHandler))
	t.Cleanup(c.close)
	return c
}

// What cannot rest is kept for as long as it is hot.
func TestWarmCache(t *testing.T) {
	key := warmTestKey
	synctest.Test(t, func(t *testing.T) {
		c := testWarmCache(t, WarmLimits{})
		var all []*idle
		put := func(i int, size uint64) *idle {
			in := new(idle)
			c.put(key(i), in, size)
			all = append(all, in)
			synctest.Wait()
			return in
		}
		first := put(1, 10)
		if twin := put(1, 10); twin.stops.Load() != 1 || first.stops.Load() != 0 {
			t.Error("of two in one state the later one is not needed")
		}
		if c.take(key(2)) != nil || c.take(key(1)) != first || c.take(key(1)) != nil {
			t.Error("what is taken is not what was put, or was taken twice")
		}
		time.Sleep(2 * c.hot.lasts)
		if first.stops.Load() != 0 {
			t.Error("stopped after it was taken")
		}
		late := put(3, 10)
		time.Sleep(2 * c.hot.lasts)
		synctest.Wait()
		if late.stops.Load() != 1 || c.has(key(3)) || c.take(key(3)) != nil {
			t.Error("not stopped after its time")
		}
		big := put(4, c.hot.bytes-5)
		if put(5, 10); big.stops.Load() != 1 || c.hot.size != 10 {
			t.Errorf("%d bytes are kept", c.hot.size)
		}
		for i := range 2 * c.hot.count {
			put(10+i, 10)
		}
		if n := c.hot.order.Len(); n != c.hot.count || len(c.kept) != n || c.take(key(10+2*c.hot.count-1)) == nil {
			t.Errorf("%d are kept", n)
		}
		c.close()
		put(9, 10)
		stopped := 0
		for _, in := range all {
			stopped += int(in.stops.Load())
		}
		if taken := 2; stopped != len(all)-taken || c.hot.size != 0 || len(c.kept) != 0 {
			t.Errorf("%d of %d were stopped, %d bytes are left", stopped, len(all), c.hot.size)
		}
	})
}

// What is hot no more rests, by its time or for want of room, and is stopped when it
// must not rest any more, the one that has rested longest first.
func TestWarmCache_Tiers(t *testing.T) {
	key := warmTestKey
	synctest.Test(t, func(t *testing.T) {
		c := testWarmCache(t, WarmLimits{Count: 2, RestCount: 4, RestBytes: 3 * sleeperBytes})
		put := func(i int) *sleeper {
			in := new(sleeper)
			c.put(key(i), in, 1000)
			synctest.Wait()
			return in
		}
		a, b := put(1), put(2)
		if a.rests.Load() || b.rests.Load() {
			t.Error("they rest although there is room for them")
		}
		if put(3); !a.rests.Load() || b.rests.Load() || !c.has(key(1)) {
			t.Error("of three, two of which can be hot, the first does not rest")
		}
		if got := c.take(key(1)); got != a || a.rests.Load() || a.stops.Load() != 0 {
			t.Error("what is taken does not wake")
		}
		c.put(key(1), a, 1000)
		synctest.Wait()
		if !b.rests.Load() || a.rests.Load() {
			t.Error("the one that was hot longest does not rest")
		}
		time.Sleep(c.hot.lasts)
		synctest.Wait()
		if !a.rests.Load() || c.hot.order.Len() != 0 || c.rested.size != 3*sleeperBytes {
			t.Errorf("after its time; %d are hot, %d bytes rest", c.hot.order.Len(), c.rested.size)
		}
		put(4)
		time.Sleep(c.hot.lasts)
		synctest.Wait()
		if b.stops.Load() != 1 || c.has(key(2)) || c.rested.size != 3*sleeperBytes {
			t.Errorf("%d bytes rest", c.rested.size)
		}
		c.drop(key(1))
		if a.stops.Load() != 1 || c.has(key(1)) {
			t.Error("dropped, and still there")
		}
		time.Sleep(c.rested.lasts)
		synctest.Wait()
		if len(c.kept) != 0 || c.rested.order.Len() != 0 || c.rested.size != 0 {
			t.Errorf("%d are kept after their time", len(c.kept))
		}
		sick := put(5)
		sick.sick.Store(true)
		time.Sleep(c.hot.lasts)
		synctest.Wait()
		if sick.stops.Load() != 1 || c.has(key(5)) {
			t.Error("what cannot rest is not stopped")
		}
		sick = put(6)
		sick.sick.Store(true)
		if c.take(key(6)) != nil || sick.stops.Load() != 1 {
			t.Error("what cannot wake is given, or not stopped")
		}
		if len(c.kept) != 0 {
			t.Errorf("%d are kept", len(c.kept))
		}
	})
}

// On its way to rest an incarnation is nobody's, and what was dropped is not kept.
func TestWarmCache_OnTheWay(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(c *warmCache)
		kept bool
	}{
		{"taken", func(c *warmCache) { c.take(warmTestKey(1)) }, true},
		{"dropped", func(c *warmCache) { c.drop(warmTestKey(1)) }, false},
		{"closed", func(c *warmCache) { go c.close() }, false},
		{"put again", func(c *warmCache) { c.put(warmTestKey(1), new(idle), 1) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testWarmCache(t, WarmLimits{Count: 1})
				begun, goOn := make(chan struct{}), make(chan struct{})
				in := &sleeper{resting: func() { close(begun); <-goOn }}
				c.put(warmTestKey(1), in, 1)
				c.put(warmTestKey(2), new(idle), 1)
				<-begun
				test.do(c)
				synctest.Wait()
				close(goOn)
				synctest.Wait()
				if kept := c.has(warmTestKey(1)); kept != test.kept || kept == (in.stops.Load() != 0) {
					t.Errorf("kept %t, stopped %d times", kept, in.stops.Load())
				}
			})
		})
	}
}

// A state that others begin from is left for them, at rest.
func TestWarmCache_Shared(t *testing.T) {
	key := warmTestKey(1)
	synctest.Test(t, func(t *testing.T) {
		c := testWarmCache(t, WarmLimits{})
		if c.share(key) != nil {
			t.Error("something of nothing")
		}
		restored := new(sleeper)
		for range 2 {
			c.leave(key, restored)
		}
		left := c.rested.first()
		if left == nil || left.inc.(*sleeper).of != restored || restored.rests.Load() || c.rested.order.Len() != 1 {
			t.Fatal("what was restored has left no clone at rest")
		}
		for range 3 {
			got, ok := c.share(key).(*sleeper)
			if !ok || got.of != left.inc || got.rests.Load() || !left.inc.(*sleeper).rests.Load() || !c.has(key) {
				t.Error("no clone that is awake, of one that rests on")
			}
		}
		left.inc.(*sleeper).sick.Store(true)
		if c.share(key) != nil {
			t.Error("a clone of what cannot be cloned")
		}
		c.drop(key)

		hot := new(sleeper)
		c.put(key, hot, 1)
		if got, ok := c.share(key).(*sleeper); !ok || got.of != hot || !hot.rests.Load() || c.hot.order.Len() != 0 {
			t.Error("no clone of one that was hot")
		}
		if c.take(key) != hot || hot.rests.Load() {
			t.Error("the original is not given, awake")
		}
		other := new(idle) // has no clones
		c.leave(key, other)
		c.put(key, other, 1)
		if c.share(key) != other || c.has(key) {
			t.Error("what has no clones is not given itself")
		}
	})
}

// None is hot, and so none rests, where that is asked for.
func TestWarmCache_None(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			limits WarmLimits
			rests  bool
		}{{WarmLimits{Count: -1}, false}, {WarmLimits{Count: -1, RestCount: 1}, true}, {WarmLimits{Count: 1, RestCount: -1}, false}} {
			c := testWarmCache(t, test.limits)
			in := new(sleeper)
			c.put(warmTestKey(1), in, 1)
			time.Sleep(time.Minute)
			synctest.Wait()
			if in.rests.Load() != test.rests || in.rests.Load() == (in.stops.Load() != 0) {
				t.Errorf("%+v: it rests %t, stopped %d times", test.limits, in.rests.Load(), in.stops.Load())
			}
		}
	})
}

// Nothing is lost or kept twice, whoever puts, takes and drops at once.
func TestWarmCache_Concurrent(t *testing.T) {
	c := newWarmCache(WarmLimits{Count: 4, RestCount: 8, For: time.Millisecond, RestFor: 2 * time.Millisecond}, slog.New(slog.DiscardHandler))
	all := make(chan *sleeper, 4*500)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				key := warmTestKey((i*7 + g) % 20)
				if i%5 == 0 {
					if inc := c.share(key); inc != nil {
						all <- inc.(*sleeper)
						c.stop(inc)
					}
					continue
				}
				if inc := c.take(key); inc != nil {
					if inc.(*sleeper).rests.Load() {
						t.Error("what is taken rests")
					}
					c.put(key, inc, 1)
					continue
				}
				in := new(sleeper)
				all <- in
				c.put(key, in, 1)
				if i%11 == 0 {
					c.drop(key)
				}
			}
		})
	}
	wg.Wait()
	c.close()
	close(all)
	for in := range all {
		if n := in.stops.Load(); n != 1 {
			t.Fatalf("one was stopped %d times", n)
		}
	}
	if len(c.kept) != 0 || c.hot.order.Len()+c.rested.order.Len() != 0 {
		t.Errorf("%d are left", len(c.kept))
	}
}

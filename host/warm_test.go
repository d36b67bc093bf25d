package host

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// idle is an incarnation that only counts how often it was stopped.
type idle struct {
	runtimes.Incarnation
	stops int
}

func (i *idle) Stop(context.Context) error {
	i.stops++
	return nil
}

func TestWarmCache(t *testing.T) {
	key := func(i int) warmKey { return warmKey{root: abi.DigestOf([]byte{byte(i)})} }
	synctest.Test(t, func(t *testing.T) {
		c := newWarmCache(WarmLimits{}, slog.New(slog.DiscardHandler))
		var all []*idle
		put := func(i int, size uint64) *idle {
			in := new(idle)
			c.put(key(i), in, size)
			all = append(all, in)
			return in
		}
		first := put(1, 10)
		if twin := put(1, 10); twin.stops != 1 || first.stops != 0 {
			t.Error("of two in one state the later one is not needed")
		}
		if c.take(key(2)) != nil || c.take(key(1)) != first || c.take(key(1)) != nil {
			t.Error("what is taken is not what was put, or was taken twice")
		}
		time.Sleep(2 * c.limits.For)
		if first.stops != 0 {
			t.Error("stopped after it was taken")
		}
		late := put(3, 10)
		time.Sleep(2 * c.limits.For)
		synctest.Wait()
		if late.stops != 1 || c.take(key(3)) != nil {
			t.Error("not stopped after its time")
		}
		big := put(4, c.limits.Bytes-5)
		if put(5, 10); big.stops != 1 || c.bytes != 10 {
			t.Errorf("%d bytes are kept", c.bytes)
		}
		for i := range 2 * c.limits.Count {
			put(10+i, 10)
		}
		if len(c.order) != c.limits.Count || len(c.kept) != c.limits.Count || c.take(key(10+2*c.limits.Count-1)) == nil {
			t.Errorf("%d are kept", len(c.order))
		}
		c.close()
		put(9, 10)
		stopped := 0
		for _, in := range all {
			stopped += in.stops
		}
		if taken := 2; stopped != len(all)-taken || c.bytes != 0 {
			t.Errorf("%d of %d were stopped, %d bytes are left", stopped, len(all), c.bytes)
		}
	})
}

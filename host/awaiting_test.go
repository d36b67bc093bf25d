package host_test

import (
	"context"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/runtimes"
)

// census counts the incarnations of a runtime: all, and those not stopped yet.
type census struct {
	runtimes.Restorer
	made, live atomic.Int64
}

// Create implements runtimes.Runtime.
func (c *census) Create(ctx context.Context, m runtimes.Module) (runtimes.Incarnation, error) {
	return c.count(c.Restorer.Create(ctx, m))
}

// Restore implements runtimes.Restorer.
func (c *census) Restore(ctx context.Context, m runtimes.Module, img runtimes.Image) (runtimes.Incarnation, error) {
	return c.count(c.Restorer.Restore(ctx, m, img))
}

func (c *census) count(in runtimes.Incarnation, err error) (runtimes.Incarnation, error) {
	if err != nil {
		return nil, err
	}
	c.made.Add(1)
	c.live.Add(1)
	return censused{in.(runtimes.Snapshotter), c}, nil
}

type censused struct {
	runtimes.Snapshotter
	of *census
}

// Stop implements runtimes.Incarnation.
func (c censused) Stop(ctx context.Context) error {
	c.of.live.Add(-1)
	return c.Snapshotter.Stop(ctx)
}

// A parked turn holds neither a cell nor a goroutine, whether its harness keeps its
// memory or not and whatever it waits for; and nothing is run for it until that is
// there.
func TestParkedTurnHoldsNothing(t *testing.T) {
	r, _ := toolRig(t)
	cells := &census{Restorer: r.runtimes[0].(runtimes.Restorer)}
	r.runtimes = []runtimes.Runtime{cells}
	r.open()
	stateless := cell{stateless: true, texts: []string{`{"signal":"go"}`}, run: "$json 0 call $wait drop i32.const 0"}
	for name, tt := range map[string]struct {
		session host.Session
		input   string
	}{
		"approval":           {r.create("steps"), "model x; tools a:read d:drop"},
		"signal":             {r.create("steps"), "model x; wait go"},
		"time":               {r.create("steps"), "sleep 1h"},
		"without any memory": {r.createFrom(stateless.harness("waits")), "x"},
	} {
		t.Run(name, func(t *testing.T) {
			made, before := cells.made.Load(), goleak.IgnoreCurrent()
			r.park(tt.session.UID, tt.input)
			e, err := r.Resume(t.Context(), tt.session.UID, nil)
			if err != nil || len(e.Waiting) == 0 {
				t.Errorf("resumed before anything is there: %+v, %v", e, err)
			}
			if n := cells.made.Load() - made; n != 1 {
				t.Errorf("%d cells were made, want 1", n)
			}
			if n := cells.live.Load(); n != 0 {
				t.Errorf("%d cells are held", n)
			}
			eventually(t, "no goroutine is left", func() bool { return goleak.Find(before) == nil })
		})
	}
}

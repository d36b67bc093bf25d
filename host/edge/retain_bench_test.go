package edge_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// BenchmarkRebuild is a fork at the turn that costs most with the default retention:
// its image is gone, and the 15 turns from the one before it are run again. "kept" is
// the same fork with its image there.
func BenchmarkRebuild(b *testing.B) {
	h := benchOpen(b, -1)
	ctx := context.Background()
	s, err := h.Create(ctx, host.CreateRequest{Harness: bundled(b, "counter")})
	if err != nil {
		b.Fatal(err)
	}
	var end abi.Seq
	for turn := range 40 {
		if e := benchTurn(b, h, s.UID); turn == 30 {
			end = e.Session.Head.Seq
		}
	}
	run := func(b *testing.B, gone bool) {
		var took []time.Duration
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			if gone {
				if _, err := h.Collect(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.StartTimer()
			start := time.Now()
			children, err := h.Fork(ctx, host.ForkRequest{Session: s.UID, At: end})
			took = append(took, time.Since(start))
			b.StopTimer()
			if err == nil && gone {
				_, err = h.Delete(ctx, children[0].UID, true)
			}
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	}
	b.Run("gone", func(b *testing.B) { run(b, true) })
	b.Run("kept", func(b *testing.B) { run(b, false) })
}

package edge_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

// BenchmarkRecover is what a host that starts spends on finding the turns to take up,
// in the background, when there are none.
func BenchmarkRecover(b *testing.B) {
	for _, sessions := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			h, err := edge.Open(b.TempDir(), edge.Options{CacheDir: testCache(b), Paused: true})
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := h.Close(); err != nil {
					b.Error(err)
				}
			}()
			ctx := context.Background()
			parent := benchSession(b, h, "echo")
			for made := 1; made < sessions; made += host.MaxForkCount {
				n := min(host.MaxForkCount, sessions-made)
				if _, err := h.Fork(ctx, host.ForkRequest{Session: parent, Count: n}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := h.Recover(ctx, host.RecoverRequest{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(sessions), "ns/session")
		})
	}
}

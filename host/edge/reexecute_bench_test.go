package edge_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/agentcell/agentcell/host"
)

// BenchmarkReexecute is F10: how many small turns a second are run again from the
// record and compared with it, root and all, on one processor. The counter runs on in
// one instance, as it holds memory; each turn of echo begins from the golden image.
func BenchmarkReexecute(b *testing.B) {
	const turns = 500
	for _, harness := range []string{"counter", "echo"} {
		b.Run(harness, func(b *testing.B) {
			h := benchOpen(b, 0)
			uid := benchSession(b, h, harness)
			for range turns - 1 {
				benchTurn(b, h, uid)
			}
			if _, err := h.Collect(context.Background()); err != nil { // as time goes on, few images are left to look at
				b.Fatal(err)
			}
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			b.ReportAllocs()
			for b.Loop() {
				v, err := h.Verify(context.Background(), host.VerifyRequest{Session: uid, Reexecute: true})
				if err != nil || v.Reexecuted != turns {
					b.Fatalf("%+v: %v", v, err)
				}
			}
			b.ReportMetric(turns*float64(b.N)/b.Elapsed().Seconds(), "turns/s")
		})
	}
}

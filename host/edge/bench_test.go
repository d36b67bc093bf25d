package edge_test

import (
	"context"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

func BenchmarkTurn(b *testing.B) {
	ctx := context.Background()
	for _, name := range []string{"echo", "counter"} {
		b.Run(name, func(b *testing.B) {
			h, err := edge.OpenMemory(edge.Options{CacheDir: testCache(b)})
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			s, err := h.Create(ctx, host.CreateRequest{Harness: bundled(b, name)})
			if err != nil {
				b.Fatal(err)
			}
			in := []abi.Message{abi.Text(abi.RoleUser, "12")}
			var last host.Execution
			b.ReportAllocs()
			for b.Loop() {
				last, err = h.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: in})
				if err != nil || last.State != abi.StateCompleted {
					b.Fatal(err, last)
				}
			}
			b.ReportMetric(float64(last.Fuel), "fuel")
		})
	}
}

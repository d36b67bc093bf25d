package edge_test

import (
	"fmt"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

// BenchmarkListFiltered lists few of many sessions, which takes a look at each of
// them: it reports the time of one.
func BenchmarkListFiltered(b *testing.B) {
	const forks = 100
	h, err := edge.Open(b.TempDir(), edge.Options{CacheDir: testCache(b), Paused: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			b.Error(err)
		}
	}()
	parent := benchSession(b, h, "echo")
	benchTurn(b, h, parent)
	for i := range forks {
		req := host.ForkRequest{Session: parent, Count: host.MaxForkCount, Labels: map[string]string{"team": "search", "batch": fmt.Sprint(i)}}
		if _, err := h.Fork(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
	for name, filter := range map[string]host.Filter{
		"label":   {Labels: map[string]string{"batch": "none"}},
		"state":   {States: []host.ExecState{host.ExecFailed}},
		"harness": {Harnesses: []string{"chat"}},
		"parent":  {Parent: "sess-0"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				page, err := h.List(b.Context(), host.ListRequest{Filter: filter})
				if err != nil || len(page.Sessions) != 0 {
					b.Fatal(page.Sessions, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(forks*host.MaxForkCount), "ns/session")
		})
	}
}

package edge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/policy"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// BenchmarkPolicy is what a policy adds to calls of a tool that does nothing, in turns on
// disk: twenty rules are evaluated, of which the last one allows the call, and that is
// recorded. "plain" is the same without a policy, in turns between those.
func BenchmarkPolicy(b *testing.B) {
	const n, rules = 16, 20
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range rules {
		fmt.Fprintf(&text, "- {name: r%d, then: allow, when: 'args.amount > %d && tool == \"nothing\" && labels.team == \"ops\"'}\n", i, rules-i)
	}
	p, err := policy.Parse("policy.yaml", []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	ruled := func(s turn.Subject) (turn.Policy, error) { return p.For(s), nil }
	t := nothing(b)
	open := func(p func(turn.Subject) (turn.Policy, error)) (run func(), took *[]time.Duration, commits func() int) {
		took = new([]time.Duration)
		c := caller{n, t.Definition.Name, abi.Struct(`{"amount":2}`), took}
		h, j := mediator(b, c, map[string]tool.Tool{t.Definition.Name: t}, p)
		s, err := h.Create(b.Context(), host.CreateRequest{Harness: host.Harness{Name: "caller"}, Labels: map[string]string{"team": "ops"}})
		if err != nil {
			b.Fatal(err)
		}
		return func() {
			if e, err := h.Exec(b.Context(), host.ExecRequest{Session: s.UID, Inputs: hello}); err != nil || e.State != abi.StateCompleted {
				b.Fatalf("%+v: %v", e, err)
			}
		}, took, func() int { return int(j.Commits()) }
	}
	plain, plainTook, _ := open(nil)
	under, underTook, commits := open(ruled)
	plain()
	under() // what is done once is done
	*plainTook, *underTook = nil, nil
	before, turns := commits(), 0
	for b.Loop() {
		plain()
		under()
		turns++
	}
	b.ReportMetric(p50(*plainTook), "plain-µs")
	b.ReportMetric(p50(*underTook), "policy-µs")
	b.ReportMetric(p50(*underTook)-p50(*plainTook), "adds-µs")
	b.ReportMetric(float64(commits()-before-turns)/float64(turns*n), "commits/call")
}

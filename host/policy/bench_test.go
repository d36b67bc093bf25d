package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// BenchmarkDecide is what one decision takes: by the rules of a policy of which the last
// one holds, and by the same rules in Go.
func BenchmarkDecide(b *testing.B) {
	subject := turn.Subject{Labels: map[string]string{"team": "ops"}}
	for _, size := range []struct {
		name         string
		rules, bytes int
	}{{"rules=1", 1, 0}, {"rules=20", 20, 0}, {"rules=20/args=64KiB", 20, 64 << 10}} {
		args := fmt.Appendf(nil, `{"amount":70,"note":%q}`, strings.Repeat("a", size.bytes))
		call := abi.ToolCall{Tool: "pay.out", Args: args}
		var text strings.Builder
		text.WriteString("rules:\n")
		for i := range size.rules {
			fmt.Fprintf(&text, "- {name: r%d, then: allow, when: 'tool.startsWith(\"pay.\") && args.amount > %d && labels.team == \"ops\"'}\n", i, 69+size.rules-1-i)
		}
		rules := parse(b, text.String()).For(subject)
		byHand := func(call abi.ToolCall, _ abi.ToolGrant) turn.Verdict {
			var args struct{ Amount int64 }
			if err := json.Unmarshal(call.Args, &args); err != nil {
				return turn.Verdict{Action: turn.Deny}
			}
			for i := range size.rules {
				if strings.HasPrefix(call.Tool, "pay.") && args.Amount > int64(69+size.rules-1-i) && subject.Labels["team"] == "ops" {
					return turn.Verdict{Action: turn.Allow}
				}
			}
			return turn.Verdict{}
		}
		for _, way := range []struct {
			name   string
			decide turn.Policy
		}{{"policy", rules}, {"go", byHand}} {
			b.Run(size.name+"/"+way.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if v := way.decide(call, abi.ToolGrant{}); v.Action != turn.Allow {
						b.Fatalf("%+v", v)
					}
				}
			})
		}
	}
}

// BenchmarkHostile is what a decision takes on arguments of 4 MB that are made to take
// long, with a rule that looks at all of them.
func BenchmarkHostile(b *testing.B) {
	for name, args := range map[string]string{
		"numbers": `{"list":[` + strings.Repeat("1,", 2_000_000) + `1]}`,
		"objects": `{"list":[` + strings.Repeat("{},", 1_300_000) + `1]}`,
		"text":    `{"list":["` + strings.Repeat("a", 4_000_000) + `"]}`,
	} {
		decide := one(b, `args.list.exists(x, x == 2)`).For(turn.Subject{})
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				decide(abi.ToolCall{Args: abi.Struct(args)}, abi.ToolGrant{})
			}
		})
	}
}

// BenchmarkParse is what the first turn of a host waits for.
func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		parse(b, whole)
	}
}

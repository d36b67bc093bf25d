package main

import "strings"

// goal is what a figure is measured against.
type goal struct {
	id, what, goal, elsewhere string

	// bench is the benchmark that measures it, by its name's beginning, and unit
	// the metric.
	bench, unit string
	// reference, if set, is the metric of the same benchmark that the figure is
	// compared with.
	reference string
	// A figure meets the goal if it is at least, or at most, as asked: of the
	// reference if there is one, with slack added.
	atLeast, atMost, slack float64
}

// verdict is a goal and what was measured, in words.
type verdict struct{ measured, reference, met string }

// judge looks for the goal's figure in results. The first benchmark that has it
// counts.
func (g goal) judge(results []*result) verdict {
	for _, r := range results {
		if r.name != g.bench && !strings.HasPrefix(r.name, g.bench+"_") && !strings.HasPrefix(r.name, g.bench+"/") {
			continue
		}
		v, ok := r.median(g.unit)
		if !ok {
			continue
		}
		verdict := verdict{measured: format(v, g.unit), met: "yes"}
		of := 1.0
		if g.reference != "" {
			if of, ok = r.median(g.reference); !ok {
				continue
			}
			verdict.reference = format(of, g.reference)
		}
		if g.atMost != 0 && v > g.atMost*of+g.slack || v < g.atLeast*of {
			verdict.met = "no"
		}
		return verdict
	}
	return verdict{measured: "not measured", met: "–"}
}

// goals are those of the sealed turn, in order.
var goals = []goal{
	{
		id: "F1", what: "synced commits that a turn with k = 1 external effects waits for",
		goal: "k + 1", elsewhere: "agentsessions: 6 for its smallest turn",
		bench: "F1", unit: "commits/turn", atMost: 2,
	},
	{
		id: "F2", what: "smallest durable turn, one session, warm",
		goal: "≤ 2 synced commits of the same run + 0.35 ms", elsewhere: "Golem: 0.44 ms per committed operation; DBOS: 22 ms per step",
		bench: "F2", unit: "ns/op", reference: "commit-ns", atMost: 2, slack: 350e3,
	},
	{
		id: "F3", what: "durable records, 256 sessions",
		goal: "≥ 0.5 × one goroutine that groups plain sets", elsewhere: "Golem: 27 k operations/s on 32 processors",
		bench: "F3", unit: "records/s", reference: "plain-sets/s", atLeast: 0.5,
	},
	{
		id: "F9", what: "verify a chain, one core, from an export (256 B records)",
		goal: "≥ 1 M records/s", elsewhere: "raw SHA-256 chain: 1.5–4.7 M/s",
		bench: "F9_Export", unit: "records/s", atLeast: 1e6,
	},
	{
		id: "F9", what: "verify a chain, one core, from the store",
		goal: "≥ 0.5 M records/s", elsewhere: "agentsessions: 40 k/s",
		bench: "F9_Store", unit: "records/s", atLeast: 0.5e6,
	},
	{
		id: "F13", what: "`agentctl exec` as a process, warm caches",
		goal: "≤ 100 ms", elsewhere: "agentsessions: 18–25 ms",
		bench: "F13/exec", unit: "ns/op", atMost: 100e6,
	},
	{
		id: "F13", what: "`agentctl get`, `list`, `replay` as processes",
		goal: "≤ 30 ms", elsewhere: "agentsessions: 9 ms",
		bench: "F13/get", unit: "ns/op", atMost: 30e6,
	},
	{
		id: "F14", what: "a turn after 100,000 records, against one after 10",
		goal: "flat (≤ 1.2 ×)", elsewhere: "agentsessions: 8.7 ms after 100 turns, 178 ms after 5,000",
		bench: "F14", unit: "ns/op", reference: "short-ns", atMost: 1.2,
	},
}

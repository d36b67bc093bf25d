package main

// goal is what a figure is measured against.
type goal struct {
	id, what, goal, elsewhere string

	figure metric
	// reference, if set, is what the figure is compared with. beside, if set, only
	// stands beside it in the table, as what said says.
	reference metric
	beside    metric
	said      string
	// A figure meets the goal if it is at least, or at most, as asked: of the
	// reference if there is one, with slack added.
	atLeast, atMost, slack float64
}

// metric is one thing that a benchmark measures.
type metric struct{ bench, unit string }

// of looks for the metric in results.
func (m metric) of(results []*result) (float64, bool) {
	for _, r := range results {
		if r.name == m.bench {
			return r.median(m.unit)
		}
	}
	return 0, false
}

// verdict is a goal and what was measured, in words.
type verdict struct{ measured, reference, met string }

// judge holds what was measured against the goal.
func (g goal) judge(results []*result) verdict {
	v, ok := g.figure.of(results)
	if !ok {
		return verdict{measured: "not measured", met: "–"}
	}
	said := verdict{measured: format(v, g.figure.unit), met: "yes"}
	of := 1.0
	if g.reference != (metric{}) {
		if of, ok = g.reference.of(results); !ok {
			return verdict{measured: said.measured, reference: "not measured", met: "–"}
		}
		said.reference = format(of, g.reference.unit)
	}
	if beside, ok := g.beside.of(results); ok {
		said.reference = g.said + ": " + format(beside, g.beside.unit)
	}
	if g.atMost != 0 && v > g.atMost*of+g.slack || v < g.atLeast*of {
		said.met = "no"
	}
	return said
}

// goals are all that there are, in order.
var goals = []goal{
	{
		id: "F1", what: "synced commits that a turn with one external effect waits for",
		goal: "2", elsewhere: "agentsessions: 6 for its smallest turn",
		figure: metric{"host/edge.Turn/durable", "commits/turn"}, atMost: 2,
	},
	{
		id: "F2", what: "the smallest durable turn, one session, warm",
		goal: "≤ 2 synced commits of the same run + 0.35 ms", elsewhere: "Golem: 0.44 ms per committed operation; DBOS: 22 ms per step",
		figure: metric{"host/edge.Turn/durable", "p50-µs"}, reference: metric{"journal.AppendOne/journal", "p50-µs"}, atMost: 2, slack: 350,
	},
	{
		id: "F2", what: "durable turns, 256 sessions",
		goal: "≥ 5,000/s", elsewhere: "DBOS on PostgreSQL: 1,109/s; go-workflows on SQLite: 113/s",
		figure: metric{"host/edge.Turns/sessions=256", "turns/s"}, atLeast: 5000,
	},
	{
		id: "F3", what: "durable records, 256 sessions",
		goal: "≥ 0.5 × one goroutine that groups plain sets", elsewhere: "Golem: 27 k operations/s on 32 processors",
		figure: metric{"journal.Append256Sessions/journal", "records/s"}, reference: metric{"journal.Append256Sessions/reference", "records/s"}, atLeast: 0.5,
	},
	{
		id: "F4", what: "a fork, recorded and durable, of 128 at once, after 100,000 records",
		goal: "≤ 30 µs", elsewhere: "zeroboot: 790 µs; forkd: 1 ms; agentsessions: 1.7 s",
		figure: metric{"journal.Fork/history=100000", "µs/child"}, atMost: 30,
		beside: metric{"journal.AppendOne/reference", "p50-µs"}, said: "one synced commit of a plain set",
	},
	{
		id: "F4", what: "the same of an agent that holds 100 MB",
		goal: "≤ 30 µs", elsewhere: "–",
		figure: metric{"host/edge.FanOut/MB=100", "fork-µs/child"}, atMost: 30,
		beside: metric{"journal.AppendOne/reference", "p50-µs"}, said: "one synced commit of a plain set",
	},
	{
		id: "F5", what: "a live clone of a 100 MB image, ready to run",
		goal: "≤ 5 µs", elsewhere: "Hyperlight: 62–89 µs",
		figure: metric{"wasm.Restore/pages=25600/flat=true", "ns/op"}, atMost: 5000,
		beside: metric{"wasm.Restore/pages=25600/flat=false", "ns/op"}, said: "copied",
	},
	{
		id: "F5", what: "a live clone of an image that differs from golden in 24 pages",
		goal: "≤ 10 µs + 1.5 µs a page", elsewhere: "–",
		figure: metric{"wasm.Restore/pages=24/flat=false", "ns/op"}, atMost: 10_000 + 24*1500,
		beside: metric{"wasm.Instantiate/new", "ns/op"}, said: "instantiate",
	},
	{
		id: "F5", what: "the same of one that differs in 256 pages",
		goal: "≤ 10 µs + 1.5 µs a page", elsewhere: "–",
		figure: metric{"wasm.Restore/pages=256/flat=false", "ns/op"}, atMost: 10_000 + 256*1500,
		beside: metric{"wasm.Instantiate/new", "ns/op"}, said: "instantiate",
	},
	{
		id: "F6", what: "from the disk to answering, beyond a warm turn: 3 MB, of which some 50 pages differ",
		goal: "≤ 1 ms", elsewhere: "Vercel, restoring a heap: 3.2 ms; Mitos: 27 ms",
		figure: metric{"host/edge.Resume/MB=3", "resume-µs"}, atMost: 1000,
		beside: metric{"wasm.Instantiate/new", "ns/op"}, said: "instantiate",
	},
	{
		id: "F6", what: "the same of 100 MB, all of which differ",
		goal: "≥ 1 GB/s", elsewhere: "–",
		figure: metric{"host/edge.Resume/MB=100", "GB/s"}, atLeast: 1,
		beside: metric{"host/edge.Resume/reference/SHA-256/MB=100", "MB/s"}, said: "SHA-256 of the same, one core",
	},
	{
		id: "F7", what: "the snapshot at a turn's end: 3 MB, 20 pages written",
		goal: "≤ 0.3 ms + 6 µs per MB + 5 µs per page: 0.42 ms", elsewhere: "substrate: 212 ms; forkd: 56 ms",
		figure: metric{"host/edge.Snapshot/MB=3/dirty=20", "p50-µs"}, atMost: 418,
		beside: metric{"host/edge.Snapshot/reference/SHA-256/pages=20", "ns/op"}, said: "SHA-256 of the pages, one core",
	},
	{
		id: "F7", what: "the same of 100 MB, 20 pages written",
		goal: "1 ms", elsewhere: "–",
		figure: metric{"host/edge.Snapshot/MB=100/dirty=20", "p50-µs"}, atMost: 1000,
		beside: metric{"host/edge.Snapshot/reference/SHA-256/pages=20", "ns/op"}, said: "SHA-256 of the pages, one core",
	},
	{
		id: "F7", what: "the same, 2,000 pages written",
		goal: "10.9 ms", elsewhere: "–",
		figure: metric{"host/edge.Snapshot/MB=100/dirty=2000", "p50-µs"}, atMost: 10900,
		beside: metric{"host/edge.Snapshot/reference/SHA-256/pages=2000", "ns/op"}, said: "SHA-256 of the pages, one core",
	},
	{
		id: "F8", what: "interruption alone by a flag, which is not what we ship, on the tightest loop",
		goal: "≤ 15 %", elsewhere: "wazero, closed on its context: 100–3,000 %",
		figure: metric{"wasm/rewrite.Ways/loop=count", "flag-%"}, atMost: 15,
		beside: metric{"wasm/rewrite.Ways/loop=count", "wazero-%"}, said: "wazero, closed on its context",
	},
	{
		id: "F8", what: "with fuel counted, on the tightest loop",
		goal: "≤ 40 %", elsewhere: "–",
		figure: metric{"wasm/rewrite.Ways/loop=count", "fuel-%"}, atMost: 40,
		beside: metric{"wasm/rewrite.Ways/loop=count", "wazero-%"}, said: "wazero, closed on its context",
	},
	{
		id: "F8", what: "with fuel counted, a turn of a Go harness",
		goal: "≤ 20 %", elsewhere: "–",
		figure: metric{"wasm/rewrite.Ways/turn=counter", "fuel-%"}, atMost: 20,
		beside: metric{"wasm/rewrite.Ways/turn=counter", "wazero-%"}, said: "wazero, closed on its context",
	},
	{
		id: "F8", what: "a guest that fills 256 MiB with one instruction ends after",
		goal: "≤ 50 ms", elsewhere: "wazero: when it is filled",
		figure: metric{"wasm/rewrite.Interrupt", "fuel-ms"}, atMost: 50,
		beside: metric{"wasm/rewrite.Interrupt", "wazero-ms"}, said: "wazero, closed on its context",
	},
	{
		id: "F9", what: "verify an exported chain, one core, 256 B records",
		goal: "≥ 1 M records/s", elsewhere: "raw SHA-256 chain: 1.5–4.7 M/s",
		figure: metric{"journal.Verify/export", "records/s"}, atLeast: 1e6,
		beside: metric{"journal.Verify/reference", "records/s"}, said: "SHA-256 of the chain alone",
	},
	{
		id: "F9", what: "verify a chain in the store, one core",
		goal: "≥ 0.5 M records/s", elsewhere: "agentsessions: 40 k/s",
		figure: metric{"journal.Verify/store", "records/s"}, atLeast: 0.5e6,
		beside: metric{"journal.Verify/reference", "records/s"}, said: "SHA-256 of the chain alone",
	},
	{
		id: "F10", what: "run small turns of a harness with memory again, one core",
		goal: "≥ 5,000 turns/s", elsewhere: "agentsessions, native and unsandboxed: 28 k turns/s",
		figure: metric{"host/edge.Reexecute/counter", "turns/s"}, atLeast: 5000,
		beside: metric{"host/edge.Turn/memory", "p50-µs"}, said: "a live turn",
	},
	{
		id: "F10", what: "the same of a harness without",
		goal: "≥ 5,000 turns/s", elsewhere: "–",
		figure: metric{"host/edge.Reexecute/echo", "turns/s"}, atLeast: 5000,
		beside: metric{"host/edge.Turn/durable", "p50-µs"}, said: "a live turn",
	},
	{
		id: "F11", what: "a suspended session of 10,000, forked and run once, beyond its records and pages (`make scale`: of 100,000)",
		goal: "≤ 8 KiB", elsewhere: "–",
		figure: metric{"cmd/agentbench.Suspended/sessions=10000", "beyond-KiB/session"}, atMost: 8,
	},
	{
		id: "F11", what: "a page of 50 listed among them",
		goal: "≤ 5 ms", elsewhere: "–",
		figure: metric{"cmd/agentbench.Suspended/sessions=10000", "list-ns"}, atMost: 5e6,
	},
	{
		id: "F11", what: "a turn of one of them",
		goal: "≤ 5 ms", elsewhere: "–",
		figure: metric{"cmd/agentbench.Suspended/sessions=10000", "resume-ns"}, atMost: 5e6,
	},
	{
		id: "F12", what: "private memory of a warm session of 2,000, Go harness, after a turn",
		goal: "≤ 160 KB", elsewhere: "Faasm: 90 KB",
		figure: metric{"cmd/agentbench.Warm/sessions=2000", "private-KB/session"}, atMost: 160,
	},
	{
		id: "F13", what: "`agentctl exec` as a process, warm caches",
		goal: "≤ 100 ms", elsewhere: "agentsessions: 18–25 ms",
		figure: metric{"cmd/agentctl.Process/exec", "p50-ns"}, atMost: 100e6,
	},
	{
		id: "F13", what: "`agentctl get` as a process",
		goal: "≤ 30 ms", elsewhere: "agentsessions: 9 ms",
		figure: metric{"cmd/agentctl.Process/get", "p50-ns"}, atMost: 30e6,
	},
	{
		id: "F13", what: "`agentctl list` as a process",
		goal: "≤ 30 ms", elsewhere: "agentsessions: 9 ms",
		figure: metric{"cmd/agentctl.Process/list", "p50-ns"}, atMost: 30e6,
	},
	{
		id: "F13", what: "`agentctl replay` as a process",
		goal: "≤ 30 ms", elsewhere: "agentsessions: 9 ms",
		figure: metric{"cmd/agentctl.Process/replay", "p50-ns"}, atMost: 30e6,
	},
	{
		id: "S2", what: "a turn that loops is CANCELED after",
		goal: "≤ 50 ms", elsewhere: "wazero, closed on its context: the same, but for turns 2–3.5 × slower",
		figure: metric{"host.Cancel/loop", "ns/op"}, atMost: 50e6,
	},
	{
		id: "S2", what: "a turn whose model hangs is CANCELED after",
		goal: "≤ 50 ms", elsewhere: "–",
		figure: metric{"host.Cancel/model", "ns/op"}, atMost: 50e6,
	},
	{
		id: "I3", what: "synced commits that a call of a tool waits for",
		goal: "1: its intent", elsewhere: "–",
		figure: metric{"host/edge.Mediation/nothing", "commits/call"}, atMost: 1,
	},
	{
		id: "I3", what: "what the host adds to a call of a tool that does nothing, recorded before and after",
		goal: "≤ 1 synced commit of the same run + 0.3 ms", elsewhere: "–",
		figure: metric{"host/edge.Mediation/nothing", "adds-µs"}, reference: metric{"journal.AppendOne/journal", "p50-µs"}, atMost: 1, slack: 300,
		beside: metric{"host/edge.Mediation/nothing", "direct-µs"}, said: "the call without a host",
	},
	{
		id: "I3", what: "to a call of a plug-in of 1.5 KB, in a sandbox of its own",
		goal: "≤ 1 synced commit of the same run + 0.3 ms", elsewhere: "–",
		figure: metric{"host/edge.Mediation/plugin=1.5KB", "adds-µs"}, reference: metric{"journal.AppendOne/journal", "p50-µs"}, atMost: 1, slack: 300,
		beside: metric{"host/edge.Mediation/plugin=1.5KB", "direct-µs"}, said: "the call without a host",
	},
	{
		id: "I3", what: "to one of 1.8 MB",
		goal: "≤ 1 synced commit of the same run + 0.3 ms", elsewhere: "–",
		figure: metric{"host/edge.Mediation/plugin=1.8MB", "adds-µs"}, reference: metric{"journal.AppendOne/journal", "p50-µs"}, atMost: 1, slack: 300,
		beside: metric{"host/edge.Mediation/plugin=1.8MB", "direct-µs"}, said: "the call without a host",
	},
	{
		id: "I3", what: "to a call of an MCP server over stdio",
		goal: "≤ 1 synced commit of the same run + 0.3 ms", elsewhere: "–",
		figure: metric{"host/edge.Mediation/mcp=stdio", "adds-µs"}, reference: metric{"journal.AppendOne/journal", "p50-µs"}, atMost: 1, slack: 300,
		beside: metric{"host/edge.Mediation/mcp=stdio", "direct-µs"}, said: "the call without a host",
	},
	{
		id: "I3", what: "to one over HTTP",
		goal: "≤ 1 synced commit of the same run + 0.3 ms", elsewhere: "–",
		figure: metric{"host/edge.Mediation/mcp=http", "adds-µs"}, reference: metric{"journal.AppendOne/journal", "p50-µs"}, atMost: 1, slack: 300,
		beside: metric{"host/edge.Mediation/mcp=http", "direct-µs"}, said: "the call without a host",
	},
	{
		id: "I3", what: "a turn with one call that a person decides on, at once",
		goal: "≤ 4 synced commits of the same run + 1 ms", elsewhere: "–",
		figure: metric{"host/edge.Gated/gated", "p50-µs"}, reference: metric{"journal.AppendOne/journal", "p50-µs"}, atMost: 4, slack: 1000,
		beside: metric{"host/edge.Gated/ungated", "p50-µs"}, said: "when nobody is asked",
	},
	{
		id: "F14", what: "a turn after 100,000 records, against one after 10",
		goal: "flat: ≤ 1.25 ×", elsewhere: "agentsessions: 8.7 ms after 100 turns, 178 ms after 5,000",
		figure: metric{"host/edge.History/records=100000", "ns/op"}, reference: metric{"host/edge.History/records=10", "ns/op"}, atMost: 1.25,
	},
	{
		id: "F15", what: "memory of an idle host with 129 sessions",
		goal: "≤ 60 MB", elsewhere: "–",
		figure: metric{"cmd/agentctl.Idle", "RSS-MB"}, atMost: 60,
	},
	{
		id: "F15", what: "what it takes of a processor",
		goal: "nothing: ≤ 1 ms in a second", elsewhere: "–",
		figure: metric{"cmd/agentctl.Idle", "CPU-ms/s"}, atMost: 1,
	},
	{
		id: "F15", what: "the static program with everything but the harnesses",
		goal: "≤ 60 MB", elsewhere: "–",
		figure: metric{"cmd/agentctl.Idle", "program-MB"}, atMost: 60,
	},
}

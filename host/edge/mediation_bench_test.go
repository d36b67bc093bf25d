package edge_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/echo"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/extism"
	"github.com/agentcell/agentcell/host/tool/mcp"
	"github.com/agentcell/agentcell/host/tool/script"
	"github.com/agentcell/agentcell/host/tool/tooltest"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/runtimes/inproc"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// caller is a harness that calls a tool so many times, one call after the other, and notes
// how long each took. It is no program in a cell, which would add its own time.
type caller struct {
	n    int
	tool string
	args abi.Struct
	took *[]time.Duration
}

func (caller) Describe() abi.HarnessDescriptor { return abi.HarnessDescriptor{ID: "caller"} }

func (c caller) Run(ctx context.Context, t *sdk.Turn) error {
	for range c.n {
		start := time.Now()
		r, err := t.CallTool(ctx, c.tool, c.args)
		if err != nil {
			return err
		}
		if r.IsError {
			return &abi.Error{Description: r.Error}
		}
		*c.took = append(*c.took, time.Since(start))
	}
	return nil
}

// mediator is a host on disk that runs a caller and has the tools and the policy given.
func mediator(b *testing.B, c caller, tools map[string]tool.Tool, p func(turn.Subject) (turn.Policy, error)) (*host.Host, *journal.Journal) {
	b.Helper()
	j, err := journal.Open(b.TempDir(), journal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	h, err := host.New(host.Config{
		Journal: j, Runtimes: []runtimes.Runtime{inproc.New(map[string]func() sdk.Harness{"caller": func() sdk.Harness { return c }})},
		Models: map[string]model.Provider{"echo": echo.Provider{}}, DefaultModel: "echo", Tools: tools, Policy: p,
		FlushDelay: -1, // the commits counted are those that a call waits for
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := h.Close(); err != nil {
			b.Error(err)
		}
		if err := j.Close(); err != nil {
			b.Error(err)
		}
	})
	return h, j
}

// BenchmarkMediation is what it costs that calls of tools are made by the host, recorded
// before and after: for each kind of tool, calls of a turn on disk ("mediated"), and as many
// of the same executor without a host ("direct").
func BenchmarkMediation(b *testing.B) {
	for _, kind := range []struct {
		name string
		open func(b *testing.B) tool.Tool
		args abi.Struct
	}{
		{"nothing", nothing, abi.Struct(`{}`)},
		{"plugin=1.5KB", plugged("hello.wasm", extism.Manifest{Export: "run_test"}), abi.Struct(`{}`)},
		{"plugin=1.8MB", plugged("count_vowels.wasm", extism.Manifest{Export: "count_vowels", Input: "text"}), abi.Struct(`{"text":"hello world"}`)},
		{"mcp=stdio", served(false), abi.Struct(`{"n":1}`)},
		{"mcp=http", served(true), abi.Struct(`{"n":1}`)},
	} {
		b.Run(kind.name, func(b *testing.B) { mediation(b, kind.open(b), kind.args) })
	}
}

func mediation(b *testing.B, t tool.Tool, args abi.Struct) {
	const n = 16 // calls of a turn
	name := t.Definition.Name
	var mediated, direct []time.Duration
	h, j := mediator(b, caller{n, name, args, &mediated}, map[string]tool.Tool{name: t}, nil)
	s, err := h.Create(b.Context(), host.CreateRequest{Harness: host.Harness{Name: "caller"}})
	if err != nil {
		b.Fatal(err)
	}
	call := tool.Call{ToolCall: abi.ToolCall{ID: "1", Tool: name, Args: args}}
	turn := func() {
		if e, err := h.Exec(b.Context(), host.ExecRequest{Session: s.UID, Inputs: hello}); err != nil || e.State != abi.StateCompleted {
			b.Fatalf("%+v: %v", e, err)
		}
	}
	turn() // what is done once is done
	mediated = nil
	before, turns := j.Commits(), 0
	b.ReportAllocs()
	for b.Loop() {
		turn()
		turns++
		b.StopTimer()
		for range n {
			start := time.Now()
			if _, err := t.Executor.Call(b.Context(), call); err != nil {
				b.Fatal(err)
			}
			direct = append(direct, time.Since(start))
		}
		b.StartTimer()
	}
	b.ReportMetric(p50(mediated), "mediated-µs")
	b.ReportMetric(p50(direct), "direct-µs")
	b.ReportMetric(p50(mediated)-p50(direct), "adds-µs")
	b.ReportMetric(float64(int(j.Commits()-before)-turns)/float64(turns*n), "commits/call") // and one of the turn
}

func p50(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / 1e3
}

// BenchmarkGated is a turn with one call that a person decides on, from the input to the
// end, the decision being made at once; and the same turn when nobody is asked.
func BenchmarkGated(b *testing.B) {
	for _, gated := range []bool{false, true} {
		name := "ungated"
		if gated {
			name = "gated"
		}
		b.Run(name, func(b *testing.B) {
			t := nothing(b)
			if gated {
				t.Mediation = abi.MediationRequiresApproval
			}
			var calls, took []time.Duration
			h, j := mediator(b, caller{1, t.Definition.Name, abi.Struct(`{}`), &calls}, map[string]tool.Tool{t.Definition.Name: t}, nil)
			s, err := h.Create(b.Context(), host.CreateRequest{Harness: host.Harness{Name: "caller"}})
			if err != nil {
				b.Fatal(err)
			}
			before := j.Commits()
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				e, err := h.Exec(b.Context(), host.ExecRequest{Session: s.UID, Inputs: hello})
				if err == nil && gated {
					if _, err = h.Decide(b.Context(), host.DecideRequest{Session: s.UID, Approved: true}); err == nil {
						e, err = h.Resume(b.Context(), s.UID, nil)
					}
				}
				if err != nil || e.State != abi.StateCompleted {
					b.Fatalf("%+v: %v", e, err)
				}
				took = append(took, time.Since(start))
			}
			commits := float64(j.Commits()-before) / float64(len(took))
			b.ReportMetric(p50(took), "p50-µs")
			b.ReportMetric(commits, "commits/turn")
		})
	}
}

// nothing is a tool that does nothing.
func nothing(b *testing.B) tool.Tool {
	s, err := script.New(strings.NewReader(`{"name":"nothing","output":{"ok":true}}`))
	if err != nil {
		b.Fatal(err)
	}
	return s.Tools()["nothing"]
}

// plugged is a plug-in that others have built, compiled before; each call has a sandbox
// of its own.
func plugged(file string, m extism.Manifest) func(b *testing.B) tool.Tool {
	return func(b *testing.B) tool.Tool {
		p := extism.New(extism.Options{CacheDir: testCache(b)})
		b.Cleanup(func() {
			if err := p.Close(); err != nil {
				b.Error(err)
			}
		})
		code := plugin(b, file)
		module := extism.Module{Digest: abi.DigestOf(code), Code: func() ([]byte, error) { return code, nil }}
		return tool.Tool{Definition: abi.ToolDefinition{Name: "plugin"}, Executor: p.Executor(module, m)}
	}
}

// served is a tool of an MCP server of its own process that gives its arguments back.
func served(web bool) func(b *testing.B) tool.Tool {
	return func(b *testing.B) tool.Tool {
		dir := b.TempDir()
		program, err := tooltest.MCPServer(dir)
		if err != nil {
			b.Fatal(err)
		}
		c := config.MCP{Command: program}
		if web {
			c = config.MCP{URL: tooltest.ServeMCP(b, program, filepath.Join(dir, "log"))}
		}
		s := mcp.New(map[string]config.MCP{"s": c}, mcp.Options{})
		b.Cleanup(func() {
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		})
		t, ok, err := s.Tool(b.Context(), "s.echo")
		if err != nil || !ok {
			b.Fatal(ok, err)
		}
		return t
	}
}

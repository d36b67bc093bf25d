package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

// caller is a model that calls the tools that it is told to: each word of a user's
// message is TOOL or TOOL=ARGS, and those of one line are called side by side. Its
// answer is what came of them.
type caller struct {
	also string // lines in front of each message
	args string // in place of the arguments
}

func (c caller) Complete(_ context.Context, req model.Request, _ func(model.Delta)) (model.Result, error) {
	var asked []string
	answered := 0
	var results []string
	for _, m := range req.Call.Messages {
		switch m.Role {
		case abi.RoleUser:
			asked, answered, results = strings.Split(c.also+m.Text(), "\n"), 0, nil
		case abi.RoleTool:
			answered++
			for _, p := range m.Parts {
				results = append(results, fmt.Sprintf("%s%s", p.ToolResult.Output, p.ToolResult.Error))
			}
		}
	}
	out := abi.Message{Role: abi.RoleAssistant}
	if answered == len(asked) {
		out = abi.Text(abi.RoleAssistant, strings.Join(results, " "))
	} else {
		for i, word := range strings.Fields(asked[answered]) {
			name, args, _ := strings.Cut(word, "=")
			if args == "" || c.args != "" {
				args = c.args
			}
			call := &abi.ToolCall{ID: fmt.Sprintf("%d-%d", answered, i), Tool: name}
			if args != "" {
				call.Args = abi.Struct(args)
			}
			out.Parts = append(out.Parts, abi.Part{ToolCall: call})
		}
	}
	return model.Result{Message: out, Usage: &abi.Usage{InputTokens: 10, OutputTokens: 1}}, nil
}

// numbered are tools whose results say how often any of them was called.
type numbered struct {
	mu    sync.Mutex
	calls int
}

func (c *numbered) Call(_ context.Context, call tool.Call) (abi.ToolResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if call.Tool == "fails" {
		return abi.ToolResult{}, fmt.Errorf("failure %d", c.calls)
	}
	return abi.ToolResult{Output: abi.Struct(fmt.Sprintf(`{"n":%d}`, c.calls))}, nil
}

func (c *numbered) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// againRig has a model for each way to call, and tools that count.
func againRig(t testing.TB) (*rig, *numbered) {
	r, c := newRig(t), new(numbered)
	r.models["plain"], r.models["more"], r.models["other"] = caller{}, caller{also: "next\nnext\n"}, caller{args: `{"a":2}`}
	r.def = "plain"
	r.tools = map[string]tool.Tool{}
	for _, name := range []string{"next", "fails", "gated"} {
		tt := tool.Tool{Definition: abi.ToolDefinition{Name: name}, Executor: c}
		if name == "gated" {
			tt.Mediation = abi.MediationRequiresApproval
		}
		r.tools[name] = tt
	}
	return r.open(), c
}

// begin makes a rerun.
func (r *rig) begin(req host.RerunRequest) host.Session {
	r.t.Helper()
	s, err := r.BeginRerun(context.Background(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// again runs what is left of a rerun, as far as turns complete, and returns their
// outputs and the last turn.
func (r *rig) again(uid abi.SessionID) (out []string, end host.Execution) {
	r.t.Helper()
	for {
		e, err := r.RunAgain(context.Background(), host.RunAgainRequest{Session: uid, Observe: func(u host.Update) {
			if u.Record != nil && u.Record.Event.Kind == abi.EventOutput && u.Record.Event.Message.Text() != "" {
				out = append(out, u.Record.Event.Message.Text())
			}
		}})
		if errors.Is(err, host.ErrNothingOpen) {
			return out, end
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if end = e; e.State != abi.StateCompleted {
			return out, end
		}
	}
}

// from is where the results of a session's own calls are from, 0 for those of calls
// that were made.
func (r *rig) from(s host.Session) (seqs []abi.Seq) {
	r.t.Helper()
	for rec, err := range r.Replay(context.Background(), s.UID, s.ForkSeq+1, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		e := rec.Event
		switch {
		case e.Kind != abi.EventToolResult:
		case e.Cell == nil:
			seqs = append(seqs, 0)
		case e.Cell.Source != s.Parent:
			r.t.Errorf("seq %d has a result of session %q", rec.Seq, e.Cell.Source)
		default:
			seqs = append(seqs, e.Cell.SourceSeq)
		}
	}
	return seqs
}

// A rerun is given the recorded result of each equal call: of the k-th the k-th.
// Others are made, those beyond the last recorded one too, and the record says which
// is which. It is proven like any session, without a call (I1).
func TestI1_Rerun(t *testing.T) {
	r, c := againRig(t)
	s := r.create("agent")
	r.exec(s.UID, "next={\"a\":1}\nnext={\"a\":1}")
	r.exec(s.UID, "next={\"a\":1}\nnext={\"b\":9007199254740993,\"a\":1}")
	r.exec(s.UID, `fails={"a":1}`)
	if c.made() != 5 {
		t.Fatalf("%d calls", c.made())
	}
	for _, tt := range []struct {
		name, model string
		out         []string
		live        int
	}{
		{"as it was", "", []string{`{"n":1} {"n":2}`, `{"n":3} {"n":4}`, "failure 5"}, 0},
		// Its own call of next stands in front, without arguments.
		{"more calls", "more", []string{
			`{"n":6} {"n":7} {"n":1} {"n":2}`, `{"n":8} {"n":9} {"n":3} {"n":4}`, `{"n":10} {"n":11} failure 5`,
		}, 6},
		{"other arguments", "other", []string{`{"n":12} {"n":13}`, `{"n":14} {"n":15}`, "failure 16"}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := c.made()
			b := r.begin(host.RerunRequest{Session: s.UID, From: 1, Model: tt.model})
			out, end := r.again(b.UID)
			if diff := cmp.Diff(tt.out, out); diff != "" || end.State != abi.StateCompleted {
				t.Errorf("it ended %s and put out: %s", end.State, diff)
			}
			if got := c.made() - before; got != tt.live {
				t.Errorf("%d calls were made, want %d", got, tt.live)
			}
			for _, from := range r.from(b) {
				if from == 0 {
					tt.live--
				}
			}
			if tt.live != 0 {
				t.Errorf("the record has %d calls less that were made", tt.live)
			}
			made := c.made()
			r.verify(b.UID)
			if c.made() != made {
				t.Errorf("I1: proving it made %d calls", c.made()-made)
			}
		})
	}
}

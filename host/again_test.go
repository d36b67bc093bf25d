package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	cut   context.CancelFunc // if set, a call ends its turn
}

func (c *numbered) Call(ctx context.Context, call tool.Call) (abi.ToolResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.cut != nil {
		c.cut()
		<-ctx.Done()
		return abi.ToolResult{}, ctx.Err()
	}
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
	r.models["plain"], r.models["more"] = caller{}, caller{also: "next\nnext\n"}
	r.models["other"], r.models["ask"] = caller{args: `{"a":2}`}, caller{also: "gated\n"}
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

// A process that dies at any point of a rerun leaves one that goes on by the same rule:
// the same results are served, and no call that has one is made.
func TestI3_RerunThatDies(t *testing.T) {
	r, c := againRig(t)
	next := r.tools["next"]
	next.OnCrash = abi.OnCrashRetry
	r.tools["next"] = next
	r.open()
	s := r.create("agent")
	r.exec(s.UID, "next={\"a\":1} next={\"a\":1}\nnext={\"a\":1}")
	r.exec(s.UID, "next\nnext={\"a\":1}")
	whole := r.begin(host.RerunRequest{Session: s.UID, From: 1, Model: "more"})
	r.again(whole.UID)
	want := r.from(whole)
	if served := len(want) - slices.Index(want, 0); served < 4 || !slices.Contains(want, 0) {
		t.Fatalf("results are from %v: the test shows nothing", want)
	}
	died := 0
	for n := 1; ; n++ {
		b := r.begin(host.RerunRequest{Session: s.UID, From: 1, Model: "more"})
		made, points := c.made(), 0
		r.SetFault(func(string) error {
			if points++; points >= n {
				return errDropped
			}
			return nil
		})
		var err error
		for err == nil {
			_, err = r.RunAgain(t.Context(), host.RunAgainRequest{Session: b.UID})
		}
		r.open()
		if errors.Is(err, host.ErrNothingOpen) {
			break
		}
		died++
		r.again(b.UID)
		if end := mustGet(t, r, b.UID); end.State != host.ExecCompleted {
			t.Errorf("died at point %d: it is %s: %s", n, end.State, end.Reason)
		}
		if diff := cmp.Diff(want, r.from(b)); diff != "" {
			t.Errorf("died at point %d: results are from %s", n, diff)
		}
		// Of what was made twice each at most was under way.
		live := 0
		for _, from := range want {
			if from == 0 {
				live++
			}
		}
		if got := c.made() - made; got < live || got > live+2 {
			t.Errorf("died at point %d: %d calls were made, want %d and those under way", n, got, live)
		}
		if state, err := r.Rerun(t.Context(), b.UID); err != nil || state.Turns != 2 || state.Begun != 2 || state.Open {
			t.Errorf("died at point %d: %+v, %v", n, state, err)
		}
	}
	if died < 10 {
		t.Errorf("it died at %d points: the test shows nothing", died)
	}
}

// A turn that may call nothing ends where it asks for what no record has, gated or not, and
// a rerun on a host without the tool ends there too. Both are proven as far as they went.
// What is left runs all the same, and a turn of one's own is no part of the rerun.
func TestRerunWithoutLiveTools(t *testing.T) {
	for _, tt := range []struct {
		name, model string
		here        bool
		want        string
	}{
		{"not to be called", "more", true, `tool "next" with arguments {}: no recorded result is left for it, and this rerun calls no tool`},
		{"gated", "ask", true, `tool "gated" with arguments {}: no recorded result is left for it, and this rerun calls no tool`},
		{"not here", "more", false, `tool "next" with arguments {}: no recorded result is left for it, and that tool is not on this host`},
		{"gated, not here", "ask", false, `tool "gated" with arguments {}: no recorded result is left for it, and that tool is not on this host`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, c := againRig(t)
			s := r.create("agent")
			r.exec(s.UID, `next={"a":1}`)
			r.exec(s.UID, `next={"a":1}`)
			tools := r.tools
			if !tt.here {
				r.tools = nil
				r.open()
			}
			made := c.made()
			b := r.begin(host.RerunRequest{Session: s.UID, From: 1, Model: tt.model, NoLiveTools: tt.here})
			for range 2 {
				e, err := r.RunAgain(t.Context(), host.RunAgainRequest{Session: b.UID})
				if err != nil {
					t.Fatal(err)
				}
				if e.State != abi.StateFailed || e.Reason != abi.ReasonUnrecorded || e.Err.Description != tt.want {
					t.Errorf("it ended %s, %s: %v", e.State, e.Reason, e.Err)
				}
			}
			if _, err := r.RunAgain(t.Context(), host.RunAgainRequest{Session: b.UID}); !errors.Is(err, host.ErrNothingOpen) {
				t.Errorf("there is more to run: %v", err)
			}
			if c.made() != made {
				t.Errorf("%d calls were made", c.made()-made)
			}
			if v := r.verify(b.UID); v.Prefix != 2 {
				t.Errorf("verified %+v", v)
			}
			r.tools = tools
			r.open()
			r.def = "plain"
			if _, err := r.Exec(t.Context(), host.ExecRequest{Session: b.UID, Inputs: say("next"), Model: "plain"}); err != nil {
				t.Fatal(err)
			}
			if c.made() != made+1 {
				t.Errorf("a turn of its own made %d calls", c.made()-made)
			}
		})
	}
}

// What a person decided then is served like other results, with the arguments that they
// gave: nobody is asked, and the harness reads what it read. A gated call that has no
// result is asked about.
func TestRerunOfGatedCalls(t *testing.T) {
	r, c := againRig(t)
	s := r.create("agent")
	r.park(s.UID, "gated={\"a\":1}\ngated={\"a\":1}\nnext")
	if _, err := r.Decide(t.Context(), host.DecideRequest{Session: s.UID, Approved: true, Args: abi.Struct(`{"a":9007199254740993}`)}); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Resume(t.Context(), s.UID, nil); err != nil || e.State != "" {
		t.Fatalf("%+v, %v", e, err)
	}
	parked := mustGet(t, r, s.UID)
	if _, err := r.Decide(t.Context(), host.DecideRequest{Session: s.UID, Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	want := r.resume(s.UID)
	prompts := r.prompts(s.UID)
	if !strings.Contains(fmt.Sprint(prompts), "9007199254740993") {
		t.Fatalf("the harness was not told of the edit: %q", prompts)
	}
	made := c.made()
	for _, from := range []abi.Seq{1, parked.Head.Seq, parked.Head.Seq - 1} {
		b := r.begin(host.RerunRequest{Session: s.UID, From: from, NoLiveTools: true})
		if b.State == host.ExecAwaiting {
			t.Errorf("from %d: it waits for what was decided", from)
		}
		out, end := r.again(b.UID)
		if diff := cmp.Diff(want[len(want)-1:], out[len(out)-1:]); diff != "" || end.State != abi.StateCompleted {
			t.Errorf("from %d: it ended %s and put out: %s", from, end.State, diff)
		}
		if diff := cmp.Diff(prompts, r.prompts(b.UID)); diff != "" {
			t.Errorf("from %d: the model was asked: %s", from, diff)
		}
		r.verify(b.UID)
		// A rerun of the rerun is told the same.
		again := r.begin(host.RerunRequest{Session: b.UID, From: 1, NoLiveTools: true})
		r.again(again.UID)
		if diff := cmp.Diff(prompts, r.prompts(again.UID)); diff != "" {
			t.Errorf("from %d, again: the model was asked: %s", from, diff)
		}
	}
	if c.made() != made {
		t.Errorf("%d calls were made", c.made()-made)
	}
	b := r.begin(host.RerunRequest{Session: s.UID, From: 1, Model: "other"})
	if _, end := r.again(b.UID); end.State != "" || len(end.Waiting) != 1 {
		t.Errorf("a call that has no result: %+v", end)
	}
}

// prompts are what a session asked its models, ids of calls and records aside.
func (r *rig) prompts(uid abi.SessionID) (prompts []string) {
	r.t.Helper()
	for rec, err := range r.Replay(context.Background(), uid, 0, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		if rec.Event.Kind == abi.EventModelCall {
			call, err := r.Prompt(context.Background(), uid, rec.Seq)
			if err != nil {
				r.t.Fatal(err)
			}
			b, err := json.Marshal(call.Messages)
			if err != nil {
				r.t.Fatal(err)
			}
			prompts = append(prompts, string(b))
		}
	}
	return prompts
}

// A point inside a turn leaves that turn open: what of it has a result behind the point is
// served, also a call whose intent stands before it. It keeps its model and its config.
func TestRerunFromInsideATurn(t *testing.T) {
	r, c := againRig(t)
	s := r.create("agent")
	r.exec(s.UID, "next={\"a\":1}\nnext={\"a\":1} next={\"a\":1}\nnext={\"a\":1}")
	r.exec(s.UID, "next={\"a\":1}")
	want, made, prompts := mustGet(t, r, s.UID), c.made(), r.prompts(s.UID)
	points := 0
	for from := abi.Seq(3); from < want.Head.Seq; from++ {
		b, err := r.BeginRerun(t.Context(), host.RerunRequest{Session: s.UID, From: from, NoLiveTools: true})
		if errors.Is(err, host.ErrMidTurn) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		points++
		if b.State == host.ExecInterrupted {
			system := "x"
			for _, req := range []host.RerunRequest{{Model: "other"}, {System: &system}} {
				req.Session, req.From = s.UID, from
				if _, err := r.BeginRerun(t.Context(), req); !errors.Is(err, host.ErrMidTurn) || !strings.Contains(err.Error(), "the last closed point before it") {
					t.Errorf("from %d with another model or config: %v", from, err)
				}
			}
		}
		state, err := r.Rerun(t.Context(), b.UID)
		if err != nil || state.Of != s.UID || state.At != from || state.Until != want.Head.Seq || state.Turns == 0 || state.Open != (state.Begun == 1) {
			t.Errorf("from %d: %+v, %v", from, state, err)
		}
		if _, end := r.again(b.UID); end.State != abi.StateCompleted {
			t.Errorf("from %d: it ended %s: %v", from, end.State, end.Err)
		}
		if diff := cmp.Diff(prompts, r.prompts(b.UID)); diff != "" {
			t.Errorf("from %d: the model was asked: %s", from, diff)
		}
		r.verify(b.UID)
	}
	if c.made() != made || points < 15 {
		t.Errorf("%d points, %d calls were made", points, c.made()-made)
	}
}

// The model and the system prompt of a branch are those of all its turns, the turns of the
// session itself had others; other fields of a config stay as they are.
func TestRerunWithAnotherPrompt(t *testing.T) {
	r, _ := againRig(t)
	s, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "agent"), Config: []byte(`{"system":"one","params":{"seed":9007199254740993}}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []host.ExecRequest{{}, {Model: "other", Config: []byte(`{"max_steps":9}`)}} {
		req.Session, req.Inputs = s.UID, say("next")
		if e, err := r.Exec(t.Context(), req); err != nil || e.State != abi.StateCompleted {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	starts := func(uid abi.SessionID) (out []string) {
		for rec, err := range r.Replay(t.Context(), uid, 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if start := rec.Event.ExecutionStart; start != nil {
				out = append(out, rec.Event.Cell.Model+" "+string(start.Config))
			}
		}
		return out
	}
	as, two := r.begin(host.RerunRequest{Session: s.UID, From: 1}), "two"
	r.again(as.UID)
	if diff := cmp.Diff(starts(s.UID), starts(as.UID)); diff != "" {
		t.Errorf("as it was: %s", diff)
	}
	b := r.begin(host.RerunRequest{Session: s.UID, From: 1, Model: "more", System: &two})
	r.again(b.UID)
	r.exec(b.UID, "next")
	want := []string{
		`more {"params":{"seed":9007199254740993},"system":"two"}`, `more {"max_steps":9,"system":"two"}`,
		`more {"params":{"seed":9007199254740993},"system":"two"}`, // that of its own
	}
	if diff := cmp.Diff(want, starts(b.UID)); diff != "" {
		t.Errorf("with another prompt: %s", diff)
	}
	text, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "steps"), Config: []byte(`null`)})
	if err != nil {
		t.Fatal(err)
	}
	r.exec(text.UID, "output x")
	for name, req := range map[string]host.RerunRequest{
		"a config that is no object": {Session: text.UID, From: 1, System: &two},
		"no turn":                    {Session: s.UID, From: mustGet(t, r, s.UID).Head.Seq},
		"no point":                   {Session: s.UID},
	} {
		if _, err := r.BeginRerun(t.Context(), req); !errors.Is(err, host.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.BeginRerun(t.Context(), host.RerunRequest{Session: s.UID, From: 1, Model: "gone"}); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("a model that is not here: %v", err)
	}
	if _, err := r.Rerun(t.Context(), s.UID); !errors.Is(err, host.ErrConflict) {
		t.Errorf("what is no rerun: %v", err)
	}
	if _, err := r.RunAgain(t.Context(), host.RunAgainRequest{Session: s.UID}); !errors.Is(err, host.ErrConflict) {
		t.Errorf("a turn of what is no rerun: %v", err)
	}
}

// Forks of a branch go on by its rule, those of what it shares with the other session do
// not; where that session is not, nothing that it would be asked for is called.
func TestRerunForkedAndMoved(t *testing.T) {
	r, c := againRig(t)
	s := r.create("agent")
	r.exec(s.UID, "next\nnext")
	r.exec(s.UID, "next")
	b := r.begin(host.RerunRequest{Session: s.UID, From: 1})
	if _, err := r.RunAgain(t.Context(), host.RunAgainRequest{Session: b.UID}); err != nil {
		t.Fatal(err)
	}
	made, half := c.made(), mustGet(t, r, b.UID)
	inside := half.Head.Seq - 3 // behind the second call's result
	for name, tt := range map[string]struct {
		at    abi.Seq
		turns int
	}{"at an end": {half.Head.Seq, 1}, "inside a turn": {inside, 2}} {
		child := fork(t, r, host.ForkRequest{Session: b.UID, At: tt.at})[0]
		turns := 0
		for {
			if _, err := r.RunAgain(t.Context(), host.RunAgainRequest{Session: child.UID}); err != nil {
				break
			}
			turns++
		}
		if turns != tt.turns || c.made() != made {
			t.Errorf("%s: %d turns, %d calls were made", name, turns, c.made()-made)
		}
		r.verify(child.UID)
	}
	before := fork(t, r, host.ForkRequest{Session: b.UID, At: 1})[0]
	if _, err := r.Rerun(t.Context(), before.UID); !errors.Is(err, host.ErrConflict) {
		t.Errorf("a fork of what came before: %v", err)
	}

	// In another store, with a turn open.
	open := fork(t, r, host.ForkRequest{Session: b.UID, At: inside - 1})[0]
	var file bytes.Buffer
	if _, err := r.Export(t.Context(), open.UID, &file); err != nil {
		t.Fatal(err)
	}
	other, calls := againRig(t)
	if _, err := other.Import(t.Context(), &file, host.ImportRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Resume(t.Context(), open.UID, nil); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("without the session that it is a rerun of: %v", err)
	}
	file.Reset()
	if _, err := r.Export(t.Context(), s.UID, &file); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Import(t.Context(), &file, host.ImportRequest{}); err != nil {
		t.Fatal(err)
	}
	other.again(open.UID)
	if calls.made() != 0 {
		t.Errorf("with it %d calls were made", calls.made())
	}
	other.verify(open.UID)
	if _, err := r.Delete(t.Context(), s.UID, false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.RunAgain(t.Context(), host.RunAgainRequest{Session: b.UID}); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("when it was deleted: %v", err)
	}
	r.exec(b.UID, "next") // it is a session like others
}

// Served results cost no budget; what is called does.
func TestRerunBudget(t *testing.T) {
	r, _ := againRig(t)
	s, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "agent"), Budget: host.Amounts{ToolCalls: 3}})
	if err != nil {
		t.Fatal(err)
	}
	r.exec(s.UID, "next\nnext")
	b := r.begin(host.RerunRequest{Session: s.UID, From: 1})
	r.again(b.UID)
	if got := r.spending(b.UID); got.Used.ToolCalls != 0 || got.Inherited.ToolCalls != 2 || got.Used.ModelCalls != 3 {
		t.Errorf("served: %+v", got)
	}
	b = r.begin(host.RerunRequest{Session: s.UID, From: 1, Model: "more"})
	_, end := r.again(b.UID)
	if got := r.spending(b.UID); got.Used.ToolCalls != 1 || end.Reason != abi.ReasonBudget {
		t.Errorf("called: %+v, ended %s", got, end.Reason)
	}
}

// What only the end of a turn wrote of a call, no harness has read: it is not served, and
// the call is one without a recorded result. A failure that was read is one.
func TestRerunOfCallsCutShort(t *testing.T) {
	t.Run("canceled", func(t *testing.T) {
		r, c := againRig(t)
		s := r.create("agent")
		r.exec(s.UID, "fails\nnext")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.cut = cancel
		e, err := r.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: say("next")})
		if err != nil || e.Reason != abi.ReasonCanceled || c.made() != 3 {
			t.Fatalf("%+v, %v after %d calls", e, err, c.made())
		}
		c.cut = nil
		b := r.begin(host.RerunRequest{Session: s.UID, From: 1})
		out, _ := r.again(b.UID)
		if diff := cmp.Diff([]string{`failure 1 {"n":2}`, `{"n":4}`}, out); diff != "" {
			t.Error(diff)
		}
		if from := r.from(b); len(from) != 3 || from[0] == 0 || from[1] == 0 || from[2] != 0 {
			t.Errorf("results are of %v", from)
		}
		r.verify(b.UID)
	})
	t.Run("budget", func(t *testing.T) {
		r, c := againRig(t)
		s, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "agent"), Budget: host.Amounts{ToolCalls: 1}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("next next")})
		if err != nil || e.Reason != abi.ReasonBudget || c.made() != 0 {
			t.Fatalf("%+v, %v after %d calls", e, err, c.made())
		}
		for noLive, want := range map[bool]abi.EndReason{true: abi.ReasonUnrecorded, false: abi.ReasonBudget} {
			b := r.begin(host.RerunRequest{Session: s.UID, From: 1, NoLiveTools: noLive})
			if out, end := r.again(b.UID); end.Reason != want || out != nil {
				t.Errorf("it ended %s, want %s, and put out %q", end.Reason, want, out)
			}
			r.verify(b.UID)
		}
	})
}

package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

type executorFunc func(context.Context, tool.Call) (abi.ToolResult, error)

func (f executorFunc) Call(ctx context.Context, c tool.Call) (abi.ToolResult, error) {
	return f(ctx, c)
}

// toolbox is a set of tools that counts its calls.
type toolbox struct {
	mu    sync.Mutex
	calls map[string]int // by call id
}

func (b *toolbox) count(c tool.Call) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == nil {
		b.calls = map[string]int{}
	}
	b.calls[c.ID]++
	return b.calls[c.ID]
}

func (b *toolbox) called(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[id]
}

func (b *toolbox) tools() map[string]tool.Tool {
	tools := map[string]tool.Tool{}
	add := func(name string, mediation abi.Mediation, onCrash abi.OnCrash, f executorFunc) {
		tools[name] = tool.Tool{
			Definition: abi.ToolDefinition{Name: name}, Mediation: mediation, OnCrash: onCrash,
			Executor: executorFunc(func(ctx context.Context, c tool.Call) (abi.ToolResult, error) {
				b.count(c)
				return f(ctx, c)
			}),
		}
	}
	args := func(_ context.Context, c tool.Call) (abi.ToolResult, error) {
		return abi.ToolResult{Output: c.Args}, nil
	}
	add("read", "", abi.OnCrashRetry, args)
	add("write", "", "", args)
	add("pay", "", abi.OnCrashAsk, args)
	add("drop", abi.MediationRequiresApproval, abi.OnCrashRetry, args)
	add("drop-once", abi.MediationRequiresApproval, "", args)
	add("breaks", "", "", func(context.Context, tool.Call) (abi.ToolResult, error) {
		return abi.ToolResult{}, errors.New("broken")
	})
	add("panics", "", "", func(context.Context, tool.Call) (abi.ToolResult, error) { panic("oops") })
	add("floods", "", "", func(context.Context, tool.Call) (abi.ToolResult, error) {
		return abi.ToolResult{Output: abi.Struct(`{"x":"` + strings.Repeat("x", 9<<20) + `"}`)}, nil
	})
	add("lies", "", "", func(context.Context, tool.Call) (abi.ToolResult, error) {
		return abi.ToolResult{Output: abi.Struct(`{"x":`)}, nil
	})
	add("hangs", "", "", func(ctx context.Context, _ tool.Call) (abi.ToolResult, error) {
		<-ctx.Done()
		return abi.ToolResult{}, ctx.Err()
	})
	return tools
}

func toolRig(t *testing.T) (*rig, *toolbox) {
	r, b := newRig(t), new(toolbox)
	r.tools = b.tools()
	return r.open(), b
}

// park runs a turn that must park, and returns what it waits for.
func (r *rig) park(uid abi.SessionID, input string) []host.Waiting {
	r.t.Helper()
	e, err := r.Exec(context.Background(), host.ExecRequest{Session: uid, Inputs: say(input)})
	if err != nil {
		r.t.Fatal(err)
	}
	if e.State != "" || len(e.Waiting) == 0 || e.Session.State != host.ExecAwaiting {
		r.t.Fatalf("%q did not park: %+v", input, e)
	}
	return e.Waiting
}

func (r *rig) decide(uid abi.SessionID, id string, approved bool) {
	r.t.Helper()
	if _, err := r.Decide(context.Background(), host.DecideRequest{Session: uid, CallID: id, Approved: approved}); err != nil {
		r.t.Fatal(err)
	}
}

const big = `{"n":9007199254740993}`

// Tool calls run side by side, their results come in the order of the calls, and
// whatever a tool does wrong is a result.
func TestToolCalls(t *testing.T) {
	r, b := toolRig(t)
	// Two calls that only end when both are there.
	var both sync.WaitGroup
	both.Add(2)
	meet := r.tools["read"]
	meet.Definition.Name = "meet"
	meet.Executor = executorFunc(func(_ context.Context, c tool.Call) (abi.ToolResult, error) {
		both.Done()
		both.Wait()
		return abi.ToolResult{Output: abi.Struct(`{"met":true}`)}, nil
	})
	r.tools["meet"] = meet
	r.open()
	s := r.create("steps")
	if got := r.exec(s.UID, "tools a:meet b:meet c:read"); got[0] != `a={"met":true} b={"met":true} c=`+big {
		t.Errorf("put out %q", got)
	}
	for name, want := range map[string]string{
		"breaks": "a=broken", "panics": "panicked: oops", "floods": "at most", "lies": "no valid result",
	} {
		got := r.exec(s.UID, fmt.Sprintf("tools a:%s b:read", name))
		if !strings.Contains(got[0], want) || !strings.HasSuffix(got[0], "b="+big) || len(got[0]) > 8<<10 {
			t.Errorf("%s: put out %.200q", name, got)
		}
	}
	before, calls := r.store.Commits(), b.called("c")
	r.exec(s.UID, "tools a:read b:read c:read")
	if got := r.store.Commits() - before; got != 2 {
		t.Errorf("F1: a turn with one batch took %d commits", got)
	}
	r.verify(s.UID)
	if got := b.called("c") - calls; got != 1 {
		t.Errorf("I1: the tool was called %d times", got)
	}
	// What is not granted is refused, not recorded.
	e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("tools a:nothing")})
	if err != nil || e.State != abi.StateFailed || !strings.Contains(e.Err.Description, "not granted") {
		t.Errorf("%+v: %v", e, err)
	}
}

func TestApproval(t *testing.T) {
	r, b := toolRig(t)
	s := r.create("steps")
	r.exec(s.UID, "output before")
	want := []host.Waiting{{CallID: "d", Tool: "drop-once"}}
	if diff := cmp.Diff(want, r.park(s.UID, "model x; tools a:read d:drop-once; count")); diff != "" {
		t.Error(diff)
	}
	head := mustGet(t, r, s.UID).Head
	pending, err := r.Approvals(t.Context(), s.UID)
	if err != nil || len(pending) != 1 || string(pending[0].Call.Args) != big || pending[0].Seq != head.Seq {
		t.Errorf("approvals %+v: %v", pending, err)
	}
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("x")}); !errors.Is(err, host.ErrOpenTurn) {
		t.Errorf("input while parked: %v", err)
	}
	// A new process sees the same, and running it writes nothing.
	r.open()
	e, err := r.Resume(t.Context(), s.UID, nil)
	if err != nil || len(e.Waiting) != 1 || mustGet(t, r, s.UID).Head != head {
		t.Errorf("resumed while nothing is decided: %+v, %v", e, err)
	}
	for _, tt := range []struct {
		req  host.DecideRequest
		want error
	}{
		{host.DecideRequest{Session: s.UID, CallID: "a", Approved: true}, host.ErrNotFound},
		{host.DecideRequest{Session: "sess-none", Approved: true}, host.ErrNotFound},
		{host.DecideRequest{Session: s.UID, Approved: true}, nil},
		{host.DecideRequest{Session: s.UID, CallID: "d", Approved: true}, nil}, // the same again
		{host.DecideRequest{Session: s.UID, CallID: "d", Approved: false}, host.ErrConflict},
		{host.DecideRequest{Session: s.UID, Approved: true}, host.ErrConflict}, // nothing waits
	} {
		if _, err := r.Decide(t.Context(), tt.req); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.req, err, tt.want)
		}
	}
	if got := mustGet(t, r, s.UID); got.State != host.ExecInterrupted || got.Head.Seq != head.Seq+1 {
		t.Errorf("decided: %+v", got)
	}
	if got := r.resume(s.UID); !cmp.Equal(got, []string{"a=" + big + " d=" + big, "3"}) {
		t.Errorf("put out %q", got)
	}
	if b.called("d") != 1 || b.called("a") != 1 {
		t.Errorf("called %v", b.calls)
	}
	r.verify(s.UID)

	// Denied, with a reason.
	r.park(s.UID, "tools d:drop")
	if _, err := r.Decide(t.Context(), host.DecideRequest{
		Session: s.UID, Reason: "too dangerous", Actor: &abi.IdentityRef{Principal: "human"},
	}); err != nil {
		t.Fatal(err)
	}
	if got := r.resume(s.UID); !cmp.Equal(got, []string{"d=denied: too dangerous"}) {
		t.Errorf("put out %q", got)
	}
	if b.called("d") != 1 {
		t.Errorf("a denied call was made")
	}
	// Abandoned while parked.
	r.park(s.UID, "tools d:drop")
	if e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Abandon: true, Inputs: say("count")}); err != nil || e.State != abi.StateCompleted {
		t.Errorf("%+v: %v", e, err)
	}
	r.verify(s.UID)
}

// Each child of a parked turn decides its own gate.
func TestForkOfParkedTurn(t *testing.T) {
	r, b := toolRig(t)
	s := r.create("steps")
	waits := r.park(s.UID, "model x; tools d:drop e:drop; count")
	head := mustGet(t, r, s.UID).Head.Seq
	children := fork(t, r, host.ForkRequest{Session: s.UID, At: head, Count: 2})
	for i, c := range children {
		if c.State != host.ExecAwaiting || !cmp.Equal(c.Waiting, waits) {
			t.Errorf("child %+v", c)
		}
		r.decide(c.UID, "d", i == 0)
		r.decide(c.UID, "e", i == 1)
	}
	// A child of a child with its decisions taken.
	decided := fork(t, r, host.ForkRequest{Session: children[0].UID, At: mustGet(t, r, children[0].UID).Head.Seq})[0]
	for i, uid := range []abi.SessionID{children[0].UID, children[1].UID, decided.UID} {
		want := []string{"d=" + big + " e=denied", "2"}
		if i == 1 {
			want[0] = "d=denied e=" + big
		}
		if got := r.resume(uid); !cmp.Equal(got, want) {
			t.Errorf("child %d put out %q", i, got)
		}
		r.verify(uid)
	}
	if got := mustGet(t, r, s.UID); got.State != host.ExecAwaiting || got.Head.Seq != head {
		t.Errorf("the parent changed: %+v", got)
	}
	if b.called("d") != 2 || b.called("e") != 1 {
		t.Errorf("called %v", b.calls)
	}
}

func TestWait(t *testing.T) {
	r := newRig(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r.now = func() time.Time { return now }
	r.open()
	s := r.create("steps")
	want := []host.Waiting{{CallID: "call-1", Signal: "go"}}
	if diff := cmp.Diff(want, r.park(s.UID, "wait go; sleep 1h; output done")); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct {
		name, payload string
		want          error
	}{
		{"stop", "", host.ErrConflict},
		{"", "", host.ErrInvalid},
		{"go", "{", host.ErrInvalid},
		{"go", strings.Repeat(" ", 3) + `[1,` + strings.Repeat("1", 2<<20) + `]`, host.ErrInvalid},
		{"go", big, nil},
		{"go", " " + big, nil}, // its sender did not hear that it was taken
		{"go", "1", host.ErrConflict},
		{"go", "", host.ErrConflict},
	} {
		if _, err := r.Signal(t.Context(), s.UID, tt.name, []byte(tt.payload)); !errors.Is(err, tt.want) {
			t.Errorf("%q %.20q: %v, want %v", tt.name, tt.payload, err, tt.want)
		}
	}
	e, err := r.Resume(t.Context(), s.UID, nil)
	if err != nil || len(e.Waiting) != 1 || !e.Waiting[0].Until.After(now.Add(time.Hour-time.Second)) {
		t.Fatalf("%+v: %v", e, err)
	}
	now = now.Add(59 * time.Minute)
	if e, err := r.Resume(t.Context(), s.UID, nil); err != nil || len(e.Waiting) != 1 {
		t.Errorf("an hour is not over: %+v, %v", e, err)
	}
	now = now.Add(2 * time.Minute)
	if got := mustGet(t, r, s.UID).State; got != host.ExecInterrupted {
		t.Errorf("due, it is %s", got)
	}
	if got := r.resume(s.UID); !cmp.Equal(got, []string{"done"}) {
		t.Errorf("put out %q", got)
	}
	if got := kinds(t, r, s.UID); got != "LIFECYCLE EXECUTION_START INPUT WAIT SIGNAL OUTPUT WAIT SIGNAL OUTPUT END" {
		t.Error(got)
	}
	r.verify(s.UID)
}

// What was under way when the host died follows its tool's rule (I3).
func TestI3_OnCrash(t *testing.T) {
	for _, tt := range []struct {
		tool  string
		want  string // output after recovery
		calls int
		asks  bool
	}{
		{tool: "read", want: "a=" + big, calls: 2},
		{tool: "write", want: "a=outcome unknown: the host stopped while the call was under way", calls: 1},
		{tool: "pay", want: "a=" + big, calls: 2, asks: true},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			r, b := toolRig(t)
			s := r.create("steps")
			r.SetFault(func(point string) error {
				if point == "answered" {
					return errDropped
				}
				return nil
			})
			if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("tools a:" + tt.tool)}); !errors.Is(err, errDropped) {
				t.Fatal(err)
			}
			r.open()
			if tt.asks {
				e, err := r.Resume(t.Context(), s.UID, nil)
				if err != nil || len(e.Waiting) != 1 || e.Waiting[0].Reason == "" {
					t.Fatalf("%+v: %v", e, err)
				}
				r.decide(s.UID, "a", true)
			}
			if got := r.resume(s.UID); !cmp.Equal(got, []string{tt.want}) {
				t.Errorf("put out %q", got)
			}
			if got := b.called("a"); got != tt.calls {
				t.Errorf("called %d times", got)
			}
			r.verify(s.UID)
		})
	}
}

// A turn whose tools are not here is left alone; one that hangs can be canceled.
func TestToolsElsewhereAndHanging(t *testing.T) {
	r, b := toolRig(t)
	s := r.create("steps")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for b.called("a") == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	e, err := r.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: say("tools a:hangs b:write")})
	if err != nil || e.Reason != abi.ReasonCanceled {
		t.Errorf("%+v: %v", e, err)
	}
	// Nobody knows what became of the one that hung, and perhaps of the other.
	if got := kinds(t, r, s.UID); !strings.HasSuffix(got, "TOOL_CALL TOOL_CALL TOOL_RESULT TOOL_RESULT END") {
		t.Error(got)
	}
	r.park(s.UID, "tools d:drop")
	r.decide(s.UID, "", true)
	here := r.tools
	r.tools = nil
	r.open()
	if _, err := r.Resume(t.Context(), s.UID, nil); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("without the tool: %v", err)
	}
	r.tools = here
	r.open()
	if got := r.resume(s.UID); !cmp.Equal(got, []string{"d=" + big}) {
		t.Errorf("put out %q", got)
	}
	if v := r.verify(s.UID); v.Prefix != 1 || v.Reexecuted != 1 {
		t.Errorf("verified %+v", v)
	}
}

// source offers tools, or fails.
type source struct {
	mu    sync.Mutex
	tools []tool.Tool
	err   error
}

func (s *source) Tools(context.Context) ([]tool.Tool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools, s.err
}

func (s *source) set(tools []tool.Tool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools, s.err = tools, err
}

// TestToolSources: what a source has when a turn opens is what the turn has, and a
// session is granted some of it.
func TestToolSources(t *testing.T) {
	r, b := newRig(t), new(toolbox)
	box := b.tools()
	named := func(name string) tool.Tool {
		x := box["read"]
		x.Definition.Name = name
		return x
	}
	s := &source{tools: []tool.Tool{named("files.read"), named("files.write"), named("web.get"), named("write")}}
	r.tools, r.sources = map[string]tool.Tool{"write": box["write"]}, []tool.Source{s}
	r.open()
	create := func(grants ...string) abi.SessionID {
		t.Helper()
		made, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "steps"), Grants: grants})
		if err != nil {
			t.Fatal(err)
		}
		return made.UID
	}
	all, files := create(), create("files.*", "none.such")
	if got := r.exec(all, "tools a:files.read b:web.get c:write"); got[0] != "a="+big+" b="+big+" c="+big {
		t.Errorf("put out %q", got)
	}
	r.exec(files, "tools a:files.read b:files.write")
	e, err := r.Exec(t.Context(), host.ExecRequest{Session: files, Inputs: say("tools a:web.get")})
	if err != nil || e.State != abi.StateFailed || !strings.Contains(e.Err.Description, "not granted") {
		t.Errorf("what is not granted: %+v, %v", e, err)
	}
	// A tool that goes away while it is granted fails its call, and no proof needs it.
	r.tools["write"] = tool.Tool{
		Definition: abi.ToolDefinition{Name: "write"},
		Executor: executorFunc(func(context.Context, tool.Call) (abi.ToolResult, error) {
			s.set(nil, nil)
			return abi.ToolResult{}, nil
		}),
	}
	r.open()
	if got := r.exec(all, "tools a:write; tools b:web.get"); !strings.Contains(got[1], `tool "web.get": not found on this host`) {
		t.Errorf("put out %q", got)
	}
	s.set(nil, errors.New("the server is gone"))
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: all, Inputs: say("count")}); err == nil || !strings.Contains(err.Error(), "the server is gone") {
		t.Errorf("a source that fails: %v", err)
	}
	r.verify(all)
	r.verify(files)
	s.set([]tool.Tool{{Definition: abi.ToolDefinition{Name: "a b"}}}, nil)
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: all, Inputs: say("count")}); !errors.Is(err, tool.ErrTool) {
		t.Errorf("a source that offers what is none: %v", err)
	}
	for _, bad := range []string{"", "[", strings.Repeat("x", 300)} {
		if _, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "steps"), Grants: []string{bad}}); !errors.Is(err, host.ErrInvalid) {
			t.Errorf("grant %.10q: %v", bad, err)
		}
	}
}

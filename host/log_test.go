package host_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

// logged is what a host has logged, at every level.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// S4: whatever is said to a harness, a model or a tool, and whatever they answer,
// the log tells that it happened and not what it was.
func TestS4_LogHoldsNoPayload(t *testing.T) {
	const secret = "zebra"
	const asJSON = `{"x":"` + secret + `"}`
	log := new(logged)
	r := newRig(t)
	r.log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	answers := 0
	r.models["echo"] = providerFunc(func(_ context.Context, _ model.Request, deltas func(model.Delta)) (model.Result, error) {
		switch answers++; answers % 3 {
		case 1:
			return model.Result{}, errors.New(secret)
		case 2:
			panic(secret)
		}
		deltas(model.Delta{Text: secret})
		return model.Result{Message: abi.Text("", secret)}, nil
	})
	add := func(name string, mediation abi.Mediation, f executorFunc) {
		r.tools[name] = tool.Tool{Definition: abi.ToolDefinition{Name: name}, Mediation: mediation, Executor: f}
	}
	r.tools = map[string]tool.Tool{}
	result := func(context.Context, tool.Call) (abi.ToolResult, error) {
		return abi.ToolResult{Output: abi.Struct(asJSON)}, nil
	}
	add("read", "", result)
	add("pay", abi.MediationRequiresApproval, result)
	add("breaks", "", func(context.Context, tool.Call) (abi.ToolResult, error) { return abi.ToolResult{}, errors.New(secret) })
	add("panics", "", func(context.Context, tool.Call) (abi.ToolResult, error) { panic(secret) })
	add("lies", "", func(context.Context, tool.Call) (abi.ToolResult, error) {
		return abi.ToolResult{Output: abi.Struct(asJSON[:6])}, nil
	})
	r.open()
	ctx := t.Context()

	s, err := r.Create(ctx, host.CreateRequest{Harness: harness(t, "steps"), Config: []byte(asJSON)})
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range []string{
		"model zebra; model zebra; model zebra; output zebra; report zebra; history",
		"tools a:read b:breaks c:panics d:lies", "fail zebra", "panic zebra", "zebra",
	} {
		if _, err := r.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: say(input), Config: []byte(asJSON)}); err != nil {
			t.Fatalf("%q: %v", input, err)
		}
	}
	r.park(s.UID, "tools a:pay")
	if _, err := r.Decide(ctx, host.DecideRequest{Session: s.UID, Reason: secret}); err != nil {
		t.Fatal(err)
	}
	r.resume(s.UID)
	r.park(s.UID, "wait go")
	if _, err := r.Signal(ctx, s.UID, "go", []byte(asJSON)); err != nil {
		t.Fatal(err)
	}
	r.resume(s.UID)
	r.verify(s.UID)

	// Requests that are refused, and a harness that writes to its log.
	bad := r.createFrom(cell{
		texts: []string{
			`{"` + secret + `":1}`, `"` + secret + `"`, `{"messages":[{"role":"user","parts":"` + secret + `"}]}`,
			`{"messages":"` + secret, secret, `{"id":"` + secret + `"}`, `{"calls":[{"id":"a","tool":"` + secret + `"}]}`,
			`{"` + secret + `":1,"` + secret + `":2}`, `{"signal":"` + secret + `","until":"` + secret + `"}`,
		},
		run: everywhere(9) + "i32.const 0",
	}.harness("bad"))
	if e, err := r.Exec(ctx, host.ExecRequest{Session: bad.UID, Inputs: say(secret)}); err != nil {
		t.Fatalf("%+v: %v", e, err)
	}

	// A record that does not lead where it says.
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.tools = nil
	r.open()
	r.SetFault(func(point string) error {
		if point == "answered" {
			return errDropped
		}
		return nil
	})
	open := r.create("steps")
	if _, err := r.Exec(ctx, host.ExecRequest{Session: open.UID, Inputs: say("output zebra; model zebra")}); !errors.Is(err, errDropped) {
		t.Fatal(err)
	}
	forged := r.forge(mustGet(t, r, open.UID), open.UID, func(e *abi.Event) {
		if e.Kind == abi.EventOutput {
			e.Message.Parts[0].Text.Text = secret + "!"
		}
	}, func(map[string]any) {})
	t.Cleanup(func() {
		if err := forged.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	whole := r.store
	r.store = forged
	r.open()
	if _, err := r.Resume(ctx, open.UID, nil); !errors.Is(err, host.ErrDivergence) || !strings.Contains(err.Error(), secret) {
		t.Errorf("whoever resumes is told what differs: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.store = whole
	r.open()

	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, secret) {
			t.Errorf("logged: %s", line)
		}
	}
	for _, event := range []string{"session created", "turn ended", "turn parked", "request refused", "harness log", "turn interrupted"} {
		if !strings.Contains(log.String(), event) {
			t.Errorf("nothing is said of %q", event)
		}
	}
}

// everywhere is code that hands each of the first n texts of its cell to every
// import that takes a request.
func everywhere(n int) string {
	var b strings.Builder
	for i := range n {
		for _, call := range []string{"model", "output", "usage", "history", "log", "tool_call", "report", "wait"} {
			b.WriteString("$json " + string(rune('0'+i)) + " call $" + call + " drop ")
		}
	}
	return b.String()
}

// What a harness logs reaches the operator once at the level info, and again, where
// a turn runs again, at debug; never by a proof.
func TestHarnessLog(t *testing.T) {
	text := new(logged)
	r := newRig(t)
	r.harnessLog = slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, at slog.Attr) slog.Attr {
		if at.Key == slog.TimeKey || at.Key == "session" || at.Key == "execution" {
			return slog.Attr{}
		}
		return at
	}}))
	r.open()
	s := r.createFrom(cell{
		texts: []string{"before", `{"signal":"go"}`, "behind", `{"role":"assistant","parts":[{"text":{"text":"hi"}}]}`},
		run:   "$json 0 call $log drop $json 1 call $wait drop $json 2 call $log drop $json 3 call $output drop i32.const 0",
	}.harness("logs"))
	r.park(s.UID, "x")
	if _, err := r.Signal(t.Context(), s.UID, "go", nil); err != nil {
		t.Fatal(err)
	}
	r.resume(s.UID)
	r.verify(s.UID)
	want := "level=INFO msg=harness text=before\nlevel=DEBUG msg=harness text=before\nlevel=INFO msg=harness text=behind\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
}

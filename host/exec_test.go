package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/echo"
	"github.com/agentcell/agentcell/host/model/script"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/runtimes/inproc"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

func scripted(t *testing.T, lines ...string) model.Provider {
	t.Helper()
	p, err := script.New(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func kinds(t *testing.T, r *rig, uid abi.SessionID) string {
	t.Helper()
	var out []string
	for rec, err := range r.Replay(context.Background(), uid, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimPrefix(string(rec.Event.Kind), "EVENT_"))
	}
	return strings.Join(out, " ")
}

// F1: a turn with k external effects waits for k+1 synced commits, the smallest
// one for two.
func TestF1_CommitsPerTurn(t *testing.T) {
	r := newRig(t).open()
	for _, tt := range []struct {
		harness, input string
		want           uint64
	}{
		{"echo", "hi", 2},
		{"counter", "5", 1},
		{"steps", "output a; output b", 1},
		{"steps", "model a; output b; model c; model d", 4},
	} {
		s := r.create(tt.harness)
		r.exec(s.UID, tt.input) // the first turn also saves the golden image
		before := r.store.Commits()
		r.exec(s.UID, tt.input)
		if got := r.store.Commits() - before; got != tt.want {
			t.Errorf("%s %q: %d commits, want %d", tt.harness, tt.input, got, tt.want)
		}
	}
}

// I3, I6: when a call reaches the provider, its intent is durable; what an
// observer is shown is durable.
func TestI3_I6_DurableBeforeEffectAndShow(t *testing.T) {
	r := newRig(t)
	var uid abi.SessionID
	seen := abi.Seq(0)
	r.models["echo"] = providerFunc(func(ctx context.Context, req model.Request, deltas func(model.Delta)) (model.Result, error) {
		got := kinds(t, r, uid)
		if !strings.HasSuffix(got, "MODEL_CALL") {
			t.Errorf("when the call leaves, the record is %s", got)
		}
		return model.Result{Message: abi.Text(abi.RoleAssistant, "ok")}, nil
	})
	r.open()
	uid = r.create("steps").UID
	_, err := r.Exec(t.Context(), host.ExecRequest{
		Session: uid, Inputs: say("model one; output two; model three; output four"),
		Observe: func(u host.Update) {
			if u.Record == nil {
				return
			}
			seen++
			if u.Record.Seq != seen {
				t.Errorf("shown seq %d, want %d", u.Record.Seq, seen)
			}
			s, err := r.store.Session(uid)
			if err != nil || s.Head.Seq < u.Record.Seq {
				t.Errorf("seq %d is shown, the head is %d: %v", u.Record.Seq, s.Head.Seq, err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := r.Get(t.Context(), uid); seen != s.Head.Seq {
		t.Errorf("%d records shown, the head is %d", seen, s.Head.Seq)
	}
}

type providerFunc func(context.Context, model.Request, func(model.Delta)) (model.Result, error)

func (f providerFunc) Complete(ctx context.Context, req model.Request, deltas func(model.Delta)) (model.Result, error) {
	return f(ctx, req, deltas)
}

// What providers do wrong is recorded and told to the harness; it never hangs or
// kills the host.
func TestProviderFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		provider model.Provider
		want     string
	}{
		"error": {providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
			return model.Result{}, errors.New("away")
		}), "away"},
		"panic": {providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) { panic("oops") }), "panicked: oops"},
		"flood": {providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
			return model.Result{Message: abi.Text("", strings.Repeat("x", 20<<20))}, nil
		}), "at most"},
		"number": {providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
			return model.Result{Message: abi.Message{Parts: []abi.Part{{Data: &abi.DataPart{Data: abi.Struct(`{"n":1e999}`)}}}}}, nil
		}), "outside the range"},
		"broken": {providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
			return model.Result{Message: abi.Message{Parts: []abi.Part{{Data: &abi.DataPart{Data: abi.Struct(`{`)}}}}}, nil
		}), ""},
		"long error": {providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
			return model.Result{}, errors.New(strings.Repeat("bad ", 1<<20))
		}), "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.models["echo"] = tt.provider
			r.open()
			s := r.create("steps")
			out := r.exec(s.UID, "model hi")
			if len(out) != 1 || !strings.HasPrefix(out[0], "the model failed") || !strings.Contains(out[0], tt.want) || len(out[0]) > 8<<10 {
				t.Errorf("the harness put out %.300q", out)
			}
			r.verify(s.UID)
		})
	}
}

func TestCancelAndDeadline(t *testing.T) {
	stubborn := providerFunc(func(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Result, error) {
		// It ignores its context for longer than a turn would wait.
		time.Sleep(200 * time.Millisecond)
		return model.Result{Message: abi.Text("", "too late")}, nil
	})
	for name, tt := range map[string]struct {
		input    string
		provider model.Provider
		deadline time.Duration
		cancel   bool
		want     abi.EndReason
		prefix   int64
	}{
		"loop past its deadline":  {input: "output one; loop", deadline: 50 * time.Millisecond, want: abi.ReasonDeadline, prefix: 1},
		"loop canceled":           {input: "model hi; loop", provider: echo.Provider{}, cancel: true, want: abi.ReasonCanceled, prefix: 1},
		"hanging model canceled":  {input: "model hi", provider: scripted(t, `{"hang":true}`), cancel: true, want: abi.ReasonCanceled, prefix: 1},
		"stubborn model canceled": {input: "model hi", provider: stubborn, cancel: true, want: abi.ReasonCanceled, prefix: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := newRig(t)
			if tt.provider != nil {
				// Only a turn that has begun can be canceled: what it asks shows that.
				r.models["echo"] = providerFunc(func(c context.Context, req model.Request, deltas func(model.Delta)) (model.Result, error) {
					if tt.cancel {
						time.AfterFunc(50*time.Millisecond, cancel)
					}
					return tt.provider.Complete(c, req, deltas)
				})
			}
			r.open()
			s := r.create("steps")
			r.exec(s.UID, "output before")
			before, err := r.Get(t.Context(), s.UID)
			if err != nil {
				t.Fatal(err)
			}
			e, err := r.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: say(tt.input), Deadline: tt.deadline})
			if err != nil {
				t.Fatal(err)
			}
			if e.Reason != tt.want || e.Root != before.Root {
				t.Errorf("ended %s with root %s, want %s with %s", e.Reason, e.Root, tt.want, before.Root)
			}
			// The memory is as before the turn, and the session goes on.
			if out := r.exec(s.UID, "count"); !cmp.Equal(out, []string{"1"}) {
				t.Errorf("after it, count is %q", out)
			}
			if v := r.verify(s.UID); v.Prefix != tt.prefix || v.Reexecuted != 2 {
				t.Errorf("verified %+v", v)
			}
			if tt.provider != nil {
				time.Sleep(250 * time.Millisecond) // let the stubborn one go
			}
		})
	}
}

func TestFailedTurns(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "output one")
	root := mustGet(t, r, s.UID).Root
	for _, tt := range []struct{ input, want string }{
		{"output two; fail for a reason", "for a reason"},
		{"panic", "as asked"},
		{"no such step", "unknown step"},
	} {
		e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say(tt.input)})
		if err != nil {
			t.Fatal(err)
		}
		if e.State != abi.StateFailed || e.Reason != abi.ReasonError || e.Root != root || !strings.Contains(e.Err.Description, tt.want) {
			t.Errorf("%q: %+v, %v", tt.input, e, e.Err)
		}
	}
	if out := r.exec(s.UID, "count"); !cmp.Equal(out, []string{"1"}) {
		t.Errorf("count is %q: a failed turn left its memory", out)
	}
	if v := r.verify(s.UID); v.Reexecuted != 5 {
		t.Errorf("verified %+v", v)
	}
}

func mustGet(t *testing.T, r *rig, uid abi.SessionID) host.Session {
	t.Helper()
	s, err := r.Get(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stored leaves out of a session what of it is in memory.
func stored(s host.Session) host.Session {
	s.Compute = ""
	return s
}

func TestExecRefusals(t *testing.T) {
	r := newRig(t).open()
	s := r.create("echo")
	seven := abi.Seq(7)
	for name, tt := range map[string]struct {
		req  host.ExecRequest
		want error
	}{
		"unknown session":    {host.ExecRequest{Session: "sess-none", Inputs: say("x")}, host.ErrNotFound},
		"nothing open":       {host.ExecRequest{Session: s.UID}, host.ErrNothingOpen},
		"nothing to give up": {host.ExecRequest{Session: s.UID, Abandon: true}, host.ErrNothingOpen},
		"empty message":      {host.ExecRequest{Session: s.UID, Inputs: []abi.Message{{Role: "user"}}}, host.ErrInvalid},
		"huge message":       {host.ExecRequest{Session: s.UID, Inputs: say(strings.Repeat("x", 5<<20))}, host.ErrInvalid},
		"bad number":         {host.ExecRequest{Session: s.UID, Inputs: []abi.Message{{Parts: []abi.Part{{Data: &abi.DataPart{Data: abi.Struct(`{"n":1e999}`)}}}}}}, host.ErrInvalid},
		"other seq":          {host.ExecRequest{Session: s.UID, Inputs: say("x"), Expect: &seven}, host.ErrConflict},
		"unknown model":      {host.ExecRequest{Session: s.UID, Inputs: say("x"), Model: "gpt"}, host.ErrNotFound},
		"deadline":           {host.ExecRequest{Session: s.UID, Inputs: say("x"), Deadline: -1}, host.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Exec(t.Context(), tt.req)
			if !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
	if got := mustGet(t, r, s.UID); got.Head.Seq != 0 || got.State != host.ExecPending {
		t.Errorf("a refused turn left %+v", got)
	}
}

// A session runs one turn at a time, and a host that runs it is not disturbed by
// another one on the same store: the later writer fences the earlier off (I7).
func TestI7_OneWriter(t *testing.T) {
	r := newRig(t)
	calls, release := make(chan struct{}, 4), make(chan struct{})
	r.models["echo"] = providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
		calls <- struct{}{}
		<-release
		return model.Result{Message: abi.Text("", "ok")}, nil
	})
	r.open()
	s := r.create("echo")
	first := make(chan error, 1)
	go func() {
		_, err := r.Exec(context.Background(), host.ExecRequest{Session: s.UID, Inputs: say("one")})
		first <- err
	}()
	<-calls
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("two")}); !errors.Is(err, host.ErrBusy) {
		t.Errorf("a second turn at once: %v", err)
	}
	if got := mustGet(t, r, s.UID).State; got != host.ExecRunning {
		t.Errorf("state %s while it runs", got)
	}
	other, err := host.New(host.Config{Journal: r.store, Runtimes: r.runtimes, Models: r.models, DefaultModel: "echo", FlushDelay: -1, Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	second := make(chan error, 1)
	go func() {
		_, err := other.Resume(context.Background(), s.UID, nil)
		second <- err
	}()
	<-calls
	close(release)
	errs := []error{<-first, <-second}
	// Both hold the same answer; whoever appends first wins, the other is refused.
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
			if !errors.Is(err, host.ErrConflict) {
				t.Errorf("the loser got %v", err)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d of two writers were refused: %v", failed, errs)
	}
	r.verify(s.UID)
}

func TestAbandon(t *testing.T) {
	r := newRig(t)
	r.models["echo"] = scripted(t, `{"text":"one"}`, `{"text":"two"}`)
	r.open()
	s := r.create("steps")
	n := 0
	r.SetFault(func(point string) error {
		if n++; point == "committed" {
			return errDropped
		}
		return nil
	})
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("model a")}); !errors.Is(err, errDropped) {
		t.Fatal(err)
	}
	// A host without the turn's model leaves it alone.
	there := r.models
	r.models, r.def = map[string]model.Provider{"other": there["echo"]}, "other"
	r.open()
	if _, err := r.Resume(t.Context(), s.UID, nil); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("resume without the model: %v", err)
	}
	r.models, r.def = there, "echo"
	r.open()
	if got := mustGet(t, r, s.UID); got.State != host.ExecInterrupted {
		t.Fatalf("state %s", got.State)
	}
	e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Abandon: true})
	if err != nil || e.State != abi.StateCanceled || e.Reason != abi.ReasonAbandoned {
		t.Fatalf("%+v, %v", e, err)
	}
	// The abandoned call was announced, so the next one is the script's second.
	if got := r.exec(s.UID, "model b"); !cmp.Equal(got, []string{"two"}) {
		t.Errorf("put out %q", got)
	}
	if v := r.verify(s.UID); v.Prefix != 1 || v.Reexecuted != 1 {
		t.Errorf("verified %+v", v)
	}
}

// A slow observer delays the return of Exec, never the turn, and misses no
// record.
func TestSlowObserver(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	ended := make(chan struct{})
	var got []abi.Seq
	done := make(chan error, 1)
	go func() {
		_, err := r.Exec(context.Background(), host.ExecRequest{
			Session: s.UID, Inputs: say(strings.Repeat("model x; ", 300) + "output end"),
			Observe: func(u host.Update) {
				<-ended // it takes nothing before the turn is over
				if u.Record != nil {
					got = append(got, u.Record.Seq)
				}
			},
		})
		done <- err
	}()
	for mustGet(t, r, s.UID).State != host.ExecCompleted {
		time.Sleep(time.Millisecond)
	}
	close(ended)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	head := mustGet(t, r, s.UID).Head.Seq
	if len(got) != int(head) {
		t.Fatalf("%d records seen, the head is %d", len(got), head)
	}
	for i, seq := range got {
		if seq != abi.Seq(i+1) {
			t.Fatalf("record %d has seq %d", i, seq)
		}
	}
}

// What is staged becomes durable although nothing waits for it.
func TestBackgroundFlush(t *testing.T) {
	r := newRig(t)
	r.flush = 5 * time.Millisecond
	r.open()
	s := r.create("steps")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := r.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: say("model a; output paid for; loop")})
		done <- err
	}()
	for {
		if got := mustGet(t, r, s.UID).Head.Seq; got == 6 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := kinds(t, r, s.UID); got != "LIFECYCLE EXECUTION_START INPUT MODEL_CALL OUTPUT OUTPUT" {
		t.Error(got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// P1: what no runtime can honour is refused before any record, naming both
// sides.
func TestP1_Placement(t *testing.T) {
	r := newRig(t)
	r.runtimes = []runtimes.Runtime{inproc.New(map[string]func() sdk.Harness{
		"needs-memory": func() sdk.Harness { return needsMemory{} },
		"needs-gpu":    func() sdk.Harness { return needsGPU{} },
		"native":       func() sdk.Harness { return native{} },
	})}
	r.open()
	_, err := r.Create(t.Context(), host.CreateRequest{Name: "ghost", Harness: host.Harness{Name: "needs-memory", Code: []byte("m")}})
	if !errors.Is(err, host.ErrPlacement) || !strings.Contains(err.Error(), "memory snapshots") || !strings.Contains(err.Error(), `"inproc"`) {
		t.Errorf("got %v", err)
	}
	_, err = r.Create(t.Context(), host.CreateRequest{Harness: host.Harness{Name: "needs-gpu", Code: []byte("g")}})
	if !errors.Is(err, host.ErrPlacement) || !strings.Contains(err.Error(), "GPU") || !strings.Contains(err.Error(), `"inproc"`) {
		t.Errorf("got %v", err)
	}
	page, err := r.List(t.Context(), host.ListRequest{})
	if err != nil || len(page.Sessions) != 0 {
		t.Errorf("a refused session is there: %v, %v", page, err)
	}
	// P2: the same harness natively gives turns too, verified by chain only.
	s, err := r.Create(t.Context(), host.CreateRequest{Harness: host.Harness{Name: "native", Code: []byte("n")}})
	if err != nil {
		t.Fatal(err)
	}
	if out := r.exec(s.UID, "hi"); !cmp.Equal(out, []string{"echo:hi"}) {
		t.Errorf("put out %q", out)
	}
	if v := r.verify(s.UID); v.ChainOnly != 1 {
		t.Errorf("verified %+v", v)
	}
}

type needsMemory struct{ native }

func (needsMemory) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{ID: "needs-memory", Capabilities: &abi.Capabilities{Resumability: abi.RequiresMemorySnapshot}}
}

type needsGPU struct{ native }

func (needsGPU) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{ID: "needs-gpu", Capabilities: &abi.Capabilities{RequiresGPU: true}}
}

type native struct{}

func (native) Describe() abi.HarnessDescriptor { return abi.HarnessDescriptor{ID: "native"} }

func (native) Run(ctx context.Context, t *sdk.Turn) error {
	_, err := t.Model(ctx, abi.ModelCall{Messages: t.Inputs()})
	return err
}

func TestModuleRefused(t *testing.T) {
	r := newRig(t).open()
	_, err := r.Create(t.Context(), host.CreateRequest{Harness: host.Harness{Name: "text", Code: []byte("#!/bin/sh\n")}})
	if !errors.Is(err, runtimes.ErrModule) {
		t.Errorf("got %v", err)
	}
}

// An edited record is found by verify, and by nobody else's verify.
func TestI8_ForeignRecord(t *testing.T) {
	r := newRig(t).open()
	a, b := r.create("echo"), r.create("echo")
	r.exec(a.UID, "one")
	r.exec(b.UID, "two")
	_, err := r.Verify(t.Context(), host.VerifyRequest{Session: a.UID, Head: mustGet(t, r, b.UID).Head.Hash})
	var broken *journal.Broken
	if !errors.As(err, &broken) {
		t.Errorf("another session's head: %v", err)
	}
	if _, err := r.Verify(t.Context(), host.VerifyRequest{Session: a.UID, Head: mustGet(t, r, a.UID).Head.Hash}); err != nil {
		t.Error(err)
	}
}

func TestResolveAndList(t *testing.T) {
	r := newRig(t).open()
	var uids []abi.SessionID
	for i := range 5 {
		s, err := r.Create(t.Context(), host.CreateRequest{Name: fmt.Sprintf("name-%d", i), Harness: harness(t, "echo")})
		if err != nil {
			t.Fatal(err)
		}
		uids = append(uids, s.UID)
	}
	if _, err := r.Create(t.Context(), host.CreateRequest{Name: "name-1", Harness: harness(t, "echo")}); !errors.Is(err, host.ErrExists) {
		t.Errorf("a name twice: %v", err)
	}
	if _, err := r.Create(t.Context(), host.CreateRequest{Name: "../etc", Harness: harness(t, "echo")}); !errors.Is(err, host.ErrInvalid) {
		t.Errorf("a path for a name: %v", err)
	}
	for ref, want := range map[string]abi.SessionID{
		string(uids[2]): uids[2], string(uids[2][:20]): uids[2], string(uids[2][5:22]): uids[2], "name-3": uids[3],
	} {
		if got, err := r.Resolve(t.Context(), "", ref); err != nil || got != want {
			t.Errorf("%q: %s, %v", ref, got, err)
		}
	}
	if _, err := r.Resolve(t.Context(), "", "nane-3"); !errors.Is(err, host.ErrNotFound) || !strings.Contains(err.Error(), `"name-3"`) {
		t.Errorf("got %v", err)
	}
	if _, err := r.Resolve(t.Context(), "", "sess-"); !errors.Is(err, host.ErrAmbiguous) {
		t.Errorf("got %v", err)
	}
	var listed []abi.SessionID
	for token := ""; ; {
		page, err := r.List(t.Context(), host.ListRequest{Limit: 2, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sessions {
			listed = append(listed, s.UID)
		}
		if token = page.Next; token == "" {
			break
		}
	}
	if len(listed) != 5 || listed[0] != uids[4] {
		t.Errorf("listed %v", listed)
	}
	if _, err := r.List(t.Context(), host.ListRequest{Token: "nonsense"}); !errors.Is(err, host.ErrInvalid) {
		t.Errorf("a bad token: %v", err)
	}
}

// More output than one append takes is no reason for a turn to fail.
func TestManyLargeOutputs(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	out := r.exec(s.UID, strings.Repeat("big 60000; ", 100)+"count")
	if len(out) != 101 {
		t.Fatalf("%d outputs", len(out))
	}
	inputs := make([]abi.Message, host.MaxInputs)
	for i := range inputs {
		inputs[i] = abi.Text(abi.RoleUser, "output "+strings.Repeat("x", 60_000))
	}
	e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: inputs})
	if err != nil || e.State != abi.StateCompleted {
		t.Fatalf("%+v: %v", e, err)
	}
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: append(inputs, inputs...)}); !errors.Is(err, host.ErrInvalid) {
		t.Errorf("too many inputs: %v", err)
	}
	r.verify(s.UID)
}

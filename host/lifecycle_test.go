package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// gate is a provider whose calls wait until they are let through, one a token.
type gate struct {
	entered chan string // the prompt of each call
	open    chan struct{}
}

func newGate() *gate {
	const most = 100
	return &gate{make(chan string, most), make(chan struct{}, most)}
}

func (g *gate) Complete(ctx context.Context, req model.Request, _ func(model.Delta)) (model.Result, error) {
	g.entered <- req.Call.Messages[len(req.Call.Messages)-1].Text()
	select {
	case <-g.open:
		return model.Result{Message: abi.Text("", "through")}, nil
	case <-ctx.Done():
		return model.Result{}, ctx.Err()
	}
}

type execResult struct {
	host.Execution
	err error
}

// start runs a turn beside the test.
func (r *rig) start(req host.ExecRequest) <-chan execResult {
	done := make(chan execResult, 1)
	go func() {
		e, err := r.Exec(context.Background(), req)
		done <- execResult{e, err}
	}()
	return done
}

// eventually waits for a condition that something else brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestCancel(t *testing.T) {
	g := newGate()
	r := newRig(t)
	r.models["echo"] = g
	r.open()
	s := r.create("steps")
	if _, err := r.Cancel(t.Context(), s.UID); !errors.Is(err, host.ErrNothingOpen) {
		t.Errorf("a session that never ran: %v", err)
	}
	r.exec(s.UID, "output before")
	root := mustGet(t, r, s.UID).Root
	if _, err := r.Cancel(t.Context(), s.UID); !errors.Is(err, host.ErrNothingOpen) {
		t.Errorf("a session at rest: %v", err)
	}
	canceled := func(what string, e host.Execution, err error) {
		t.Helper()
		if err != nil || e.State != abi.StateCanceled || e.Reason != abi.ReasonCanceled || e.Session.State != host.ExecCanceled || e.Session.Root != root {
			t.Errorf("%s: %+v, %v", what, e, err)
		}
	}

	// A turn that runs, in a call or in a loop. It has begun when it calls.
	for _, input := range []string{"model x", "model x; loop"} {
		ran := r.start(host.ExecRequest{Session: s.UID, Inputs: say(input)})
		<-g.entered
		if input != "model x" {
			g.open <- struct{}{}
			eventually(t, "the call is over", func() bool { return len(g.open) == 0 })
		}
		if got := mustGet(t, r, s.UID); got.State != host.ExecRunning || got.Compute != host.ComputeLive {
			t.Errorf("while it runs it is %s and %s", got.State, got.Compute)
		}
		e, err := r.Cancel(t.Context(), s.UID)
		canceled(input, e, err)
		end := <-ran
		canceled(input+", as its caller sees it", end.Execution, end.err)
	}

	// A turn of a dead process.
	died := errors.New("died")
	r.SetFault(func(point string) error {
		if point == "committed" {
			return died
		}
		return nil
	})
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("model y")}); !errors.Is(err, died) {
		t.Fatal(err)
	}
	r.SetFault(nil)
	e, err := r.Cancel(t.Context(), s.UID)
	canceled("interrupted", e, err)

	// A parked one.
	if e, err = r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("wait go")}); err != nil || len(e.Waiting) == 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	e, err = r.Cancel(t.Context(), s.UID)
	canceled("parked", e, err)

	// One that waits for its turn: the one in front is canceled, and it runs.
	first := r.start(host.ExecRequest{Session: s.UID, Inputs: say("model z")})
	for p := range g.entered {
		if strings.Contains(p, "z") {
			break
		}
	}
	second := r.start(host.ExecRequest{Session: s.UID, Inputs: say("count"), Wait: true})
	eventually(t, "the second waits", func() bool { return r.Queued(s.UID) == 1 })
	e, err = r.Cancel(t.Context(), s.UID)
	if err != nil || e.State != abi.StateCanceled {
		t.Errorf("%+v, %v", e, err)
	}
	if end := <-first; end.State != abi.StateCanceled {
		t.Errorf("the first: %+v", end)
	}
	if end := <-second; end.err != nil || end.State != abi.StateCompleted {
		t.Errorf("the second: %+v", end)
	}
	r.verify(s.UID)
}

// A deadline counts what the guest takes, not what the world does.
func TestDeadlineCountsNoCalls(t *testing.T) {
	const deadline = 1500 * time.Millisecond // much for a guest that does nothing, on any machine
	slow := providerFunc(func(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Result, error) {
		time.Sleep(deadline + 100*time.Millisecond)
		return model.Result{Message: abi.Text("", "late")}, nil
	})
	r := newRig(t)
	r.models["echo"] = slow
	r.open()
	s := r.create("steps")
	e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("model a"), Deadline: deadline})
	if err != nil || e.State != abi.StateCompleted {
		t.Errorf("a call longer than the deadline: %+v, %v", e, err)
	}
	e, err = r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("model a; loop"), Deadline: deadline})
	if err != nil || e.Reason != abi.ReasonDeadline {
		t.Errorf("a loop behind one: %+v, %v", e, err)
	}
}

// What a session was made with bounds its turns, unless a request says otherwise;
// its forks have it too.
func TestSessionTimes(t *testing.T) {
	r := newRig(t)
	r.models["echo"] = newGate()
	r.open()
	s, err := r.Create(t.Context(), host.CreateRequest{
		Harness: harness(t, "steps"), Deadline: 20 * time.Millisecond, CallTimeout: 10 * time.Millisecond,
	})
	if err != nil || s.Deadline != 20*time.Millisecond || s.CallTimeout != 10*time.Millisecond {
		t.Fatalf("%+v, %v", s, err)
	}
	passed := func(uid abi.SessionID, deadline time.Duration, want string) {
		t.Helper()
		e, err := r.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say("loop"), Deadline: deadline})
		if err != nil || e.Reason != abi.ReasonDeadline || !strings.Contains(e.Err.Description, want) {
			t.Errorf("%+v, %v", e, err)
		}
	}
	passed(s.UID, 0, "20ms")
	passed(s.UID, 30*time.Millisecond, "30ms")
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	passed(child.UID, 0, "20ms")
	slow := host.ExecRequest{Session: s.UID, Inputs: say("model a"), Deadline: time.Minute}
	if _, err := r.Exec(t.Context(), slow); err != nil {
		t.Error(err)
	}
	if failed := r.callFailure(s.UID); failed == nil || !strings.Contains(failed.Description, "10ms") {
		t.Errorf("recorded %+v", failed)
	}
	for _, bad := range []host.CreateRequest{{Deadline: -1}, {CallTimeout: -1}} {
		bad.Harness = harness(t, "steps")
		if _, err := r.Create(t.Context(), bad); !errors.Is(err, host.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// A call that takes too long fails, is recorded so, and the turn goes on.
func TestCallTimeout(t *testing.T) {
	r := newRig(t)
	r.models["echo"] = newGate()
	r.open()
	s := r.create("steps")
	out := []string{}
	e, err := r.Exec(t.Context(), host.ExecRequest{
		Session: s.UID, Inputs: say("model a; output on"), CallTimeout: 10 * time.Millisecond,
		Observe: func(u host.Update) {
			if u.Record != nil && u.Record.Event.Message != nil && u.Record.Event.Kind == abi.EventOutput {
				out = append(out, u.Record.Event.Message.Text())
			}
		},
	})
	if err != nil || e.State == "" {
		t.Fatalf("%+v, %v", e, err)
	}
	failed := r.callFailure(s.UID)
	if failed == nil || failed.Code != abi.CodeDeadlineExceeded || !strings.Contains(failed.Description, "10ms") {
		t.Errorf("recorded %+v; put out %q", failed, out)
	}
	r.verify(s.UID)
}

// callFailure is the newest recorded failure of a call.
func (r *rig) callFailure(uid abi.SessionID) (failed *abi.Error) {
	for _, rec := range r.records(uid) {
		if rec.Event.Error != nil {
			failed = rec.Event.Error
		}
	}
	return failed
}

func (r *rig) records(uid abi.SessionID) []host.Record {
	r.t.Helper()
	var all []host.Record
	for rec, err := range r.Replay(r.t.Context(), uid, 0, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, rec)
	}
	return all
}

func TestSuspend(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	if _, err := r.Suspend(t.Context(), s.UID); !errors.Is(err, host.ErrConflict) {
		t.Errorf("a session that never ran: %v", err)
	}
	if got := mustGet(t, r, s.UID); got.Compute != host.ComputeNone {
		t.Errorf("compute %s before the first turn", got.Compute)
	}
	r.exec(s.UID, "output one")
	if got := mustGet(t, r, s.UID); got.Compute != host.ComputeWarm {
		t.Errorf("compute %s after a turn", got.Compute)
	}
	for range 2 { // the second changes nothing
		got, err := r.Suspend(t.Context(), s.UID)
		if err != nil || !got.Suspended || got.Compute != host.ComputeCold || got.State != host.ExecCompleted || got.Closed != got.Head.Seq {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	if child.Suspended || child.ForkSeq != mustGet(t, r, s.UID).Head.Seq {
		t.Errorf("a fork of the head: %+v", child)
	}
	for range 2 {
		if got, err := r.Wake(t.Context(), s.UID); err != nil || got.Suspended {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, err := r.Suspend(t.Context(), s.UID); err != nil {
		t.Fatal(err)
	}
	// Another process: a turn goes on from there, and from a fork at any of it.
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.open()
	if got := mustGet(t, r, s.UID); !got.Suspended || got.Compute != host.ComputeCold {
		t.Errorf("after a restart: %+v", got)
	}
	r.verify(s.UID)
	head := mustGet(t, r, s.UID).Head.Seq
	for at := head - 3; at <= head; at++ { // END, SUSPEND, RESUME, SUSPEND
		c := fork(t, r, host.ForkRequest{Session: s.UID, At: at})[0]
		if c.Suspended || c.Turns != 1 || c.State != host.ExecCompleted {
			t.Errorf("forked at %d: %+v", at, c)
		}
		if got := r.exec(c.UID, "count"); !cmp.Equal(got, []string{"1"}) {
			t.Errorf("forked at %d it counts %q", at, got)
		}
		r.verify(c.UID)
	}
	if got := r.exec(s.UID, "count"); !cmp.Equal(got, []string{"1"}) {
		t.Errorf("it counts %q", got)
	}
	if got := mustGet(t, r, s.UID); got.Suspended {
		t.Error("suspended after a turn")
	}
	var kinds []string
	for _, rec := range r.records(s.UID) {
		if l := rec.Event.Lifecycle; l != nil {
			kinds = append(kinds, string(l.Kind))
		}
	}
	want := []string{"LIFECYCLE_CREATE", "LIFECYCLE_SUSPEND", "LIFECYCLE_RESUME", "LIFECYCLE_SUSPEND"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	r.verify(s.UID)
	carry(t, r, child.UID)
	if _, err := r.Suspend(t.Context(), s.UID); err != nil {
		t.Fatal(err)
	}
	carry(t, r, s.UID)

	if e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("wait go")}); err != nil || len(e.Waiting) == 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	if _, err := r.Suspend(t.Context(), s.UID); !errors.Is(err, host.ErrOpenTurn) {
		t.Errorf("with a parked turn: %v", err)
	}
	if _, err := r.Wake(t.Context(), "sess-none"); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("no session: %v", err)
	}
}

// Turns that wait for a session run in the order they came; only so many wait.
func TestQueue(t *testing.T) {
	g := newGate()
	r := newRig(t)
	r.models["echo"] = g
	r.queue = 5
	r.open()
	s := r.create("steps")
	first := r.start(host.ExecRequest{Session: s.UID, Inputs: say("model first")})
	<-g.entered
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("x")}); !errors.Is(err, host.ErrBusy) {
		t.Errorf("without waiting: %v", err)
	}
	var done []<-chan execResult
	for i := range r.queue {
		done = append(done, r.start(host.ExecRequest{Session: s.UID, Inputs: say(fmt.Sprintf("model %d", i)), Wait: true}))
		eventually(t, "it waits", func() bool { return r.Queued(s.UID) == i+1 })
	}
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("x"), Wait: true}); !errors.Is(err, host.ErrBusy) {
		t.Errorf("beyond the bound: %v", err)
	}

	// One gives up, and leaves no gap.
	ctx, cancel := context.WithCancel(t.Context())
	if r.queue--; r.queue > 0 {
		g.open <- struct{}{}
		if end := <-first; end.err != nil {
			t.Fatal(end.err)
		}
	}
	<-g.entered // 0 runs, four wait
	impatient := make(chan error, 1)
	go func() {
		_, err := r.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: say("model none"), Wait: true})
		impatient <- err
	}()
	eventually(t, "five wait", func() bool { return r.Queued(s.UID) == 5 })
	cancel()
	if err := <-impatient; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
	var order []string
	for i := range done {
		g.open <- struct{}{}
		if end := <-done[i]; end.err != nil || end.State != abi.StateCompleted {
			t.Errorf("%d: %+v", i, end)
		}
		if i+1 < len(done) {
			order = append(order, <-g.entered)
		}
	}
	for i, prompt := range order {
		if !strings.Contains(prompt, fmt.Sprint(i+1)) {
			t.Errorf("as number %d came %q", i+1, prompt)
		}
	}
	if r.Queued(s.UID) != 0 {
		t.Error("somebody still waits")
	}
	r.verify(s.UID)
}

// Close lets nobody wait.
func TestQueue_Close(t *testing.T) {
	g := newGate()
	r := newRig(t)
	r.models["echo"] = g
	r.open()
	s := r.create("steps")
	first := r.start(host.ExecRequest{Session: s.UID, Inputs: say("model first")})
	<-g.entered
	second := r.start(host.ExecRequest{Session: s.UID, Inputs: say("model second"), Wait: true})
	eventually(t, "it waits", func() bool { return r.Queued(s.UID) == 1 })
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, done := range []<-chan execResult{first, second} {
		if end := <-done; !errors.Is(end.err, host.ErrClosed) {
			t.Errorf("%+v", end)
		}
	}
}

// No more turns run at once than the host has room for; the others wait, and give
// up when they are told to.
func TestMaxTurns(t *testing.T) {
	const most, all = 2, 6
	var running, peak atomic.Int64
	r := newRig(t)
	r.turns = most
	hold := make(chan struct{})
	r.models["echo"] = providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
		}
		<-hold
		return model.Result{Message: abi.Text("", "ok")}, nil
	})
	r.open()
	var wg sync.WaitGroup
	for range all {
		s := r.create("steps")
		wg.Go(func() {
			if e, err := r.Exec(context.Background(), host.ExecRequest{Session: s.UID, Inputs: say("model x")}); err != nil || e.State != abi.StateCompleted {
				t.Errorf("%+v, %v", e, err)
			}
		})
	}
	eventually(t, "there is no room left", func() bool { return running.Load() == most })
	s := r.create("steps")
	ctx, cancel := context.WithCancel(t.Context())
	for who, giveUp := range map[string]func(){
		"who gave up": cancel,
		"who was canceled": func() {
			if _, err := r.Cancel(t.Context(), s.UID); !errors.Is(err, host.ErrNothingOpen) {
				t.Errorf("there was nothing to cancel: %v", err)
			}
		},
	} {
		own := t.Context()
		if who == "who gave up" {
			own = ctx
		}
		refused := make(chan error, 1)
		go func() {
			_, err := r.Exec(own, host.ExecRequest{Session: s.UID, Inputs: say("x")})
			refused <- err
		}()
		eventually(t, "it waits for room", func() bool { return mustGet(t, r, s.UID).State == host.ExecRunning })
		giveUp()
		if err := <-refused; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", who, err)
		}
		if got := mustGet(t, r, s.UID); got.Head.Seq != 0 {
			t.Errorf("%s left %+v", who, got)
		}
	}
	close(hold)
	wg.Wait()
	if peak.Load() != most {
		t.Errorf("%d ran at once, want %d", peak.Load(), most)
	}
}

// The same request retried runs once.
func TestIdempotencyKey(t *testing.T) {
	g := newGate()
	r := newRig(t)
	r.models["echo"] = g
	r.open()
	s := r.create("steps")
	req := host.ExecRequest{Session: s.UID, Inputs: say("model x; output done"), Key: "k1"}

	// While the first runs the second waits for it, and gets what came of it.
	first := r.start(req)
	<-g.entered
	if _, err := r.Exec(t.Context(), req); !errors.Is(err, host.ErrBusy) {
		t.Errorf("while it runs: %v", err)
	}
	again := req
	again.Wait = true
	var seen []string
	again.Observe = func(u host.Update) { seen = append(seen, string(u.Record.Line)) }
	second := r.start(again)
	eventually(t, "the second waits", func() bool { return r.Queued(s.UID) == 1 })
	g.open <- struct{}{}
	one, two := <-first, <-second
	if one.err != nil || two.err != nil || one.Repeated || !two.Repeated {
		t.Fatalf("%+v, %+v", one, two)
	}
	if one.State != two.State || one.Reason != two.Reason || one.ID != two.ID || one.Root != two.Root || one.Fuel != two.Fuel {
		t.Errorf("first %+v, second %+v", one, two)
	}
	lines := r.transcript(s.UID)
	if diff := cmp.Diff(lines[1:], seen); diff != "" { // all but CREATE
		t.Errorf("the second saw %s", diff)
	}
	if len(g.entered) != 0 {
		t.Error("the model was called again")
	}

	// A fork has not had it, another request must not have it.
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	if e, err := r.Exec(t.Context(), host.ExecRequest{Session: child.UID, Inputs: say("count"), Key: "k1"}); err != nil || e.Repeated {
		t.Errorf("a child: %+v, %v", e, err)
	}
	for _, inputs := range [][]abi.Message{say("other"), append(say("model x; output done"), say("more")...)} {
		other := req
		other.Inputs = inputs
		if _, err := r.Exec(t.Context(), other); !errors.Is(err, host.ErrConflict) {
			t.Errorf("another request: %v", err)
		}
	}
	for _, bad := range []host.ExecRequest{
		{Session: s.UID, Key: "k"},
		{Session: s.UID, Inputs: say("x"), Key: strings.Repeat("k", host.MaxKeyBytes+1)},
		{Session: s.UID, Inputs: say("x"), Key: "\xff"},
	} {
		if _, err := r.Exec(t.Context(), bad); !errors.Is(err, host.ErrInvalid) {
			t.Errorf("%.20q: %v", bad.Key, err)
		}
	}
	if e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("count"), Key: "k2"}); err != nil || e.Repeated {
		t.Errorf("another key: %+v, %v", e, err)
	}
	// Older ones are still known.
	if e, err := r.Exec(t.Context(), req); err != nil || !e.Repeated || e.ID != one.ID {
		t.Errorf("an older one: %+v, %v", e, err)
	}
	r.verify(s.UID)
	carry(t, r, s.UID)
}

// A retry after a crash takes up the turn that the request began, wherever it
// stands, and makes no call twice whose answer is recorded.
func TestIdempotencyKey_Crash(t *testing.T) {
	died := errors.New("died")
	for _, point := range []string{"opened", "staged", "committed", "answered", "ending", "ended"} {
		t.Run(point, func(t *testing.T) {
			r := newRig(t).open()
			s := r.create("steps")
			r.exec(s.UID, "output before")
			// It also asks for what only held before it ran.
			head := mustGet(t, r, s.UID).Head.Seq
			req := host.ExecRequest{Session: s.UID, Inputs: say("model x; output done"), Key: "k", Expect: &head}
			r.SetFault(func(p string) error {
				if p == point {
					return died
				}
				return nil
			})
			if _, err := r.Exec(t.Context(), req); !errors.Is(err, died) {
				t.Fatal(err)
			}
			r.SetFault(nil)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			r.open()
			for range 2 {
				if e, err := r.Exec(t.Context(), req); err != nil || e.State != abi.StateCompleted {
					t.Fatalf("%+v, %v", e, err)
				}
			}
			turns := slices.Collect(func(yield func(abi.Seq) bool) {
				for _, rec := range r.records(s.UID) {
					if rec.Event.Kind == abi.EventEnd && !yield(rec.Seq) {
						return
					}
				}
			})
			if len(turns) != 2 {
				t.Errorf("%d turns ended, want 2", len(turns))
			}
			r.verify(s.UID)
		})
	}
	// A request that gave up another turn takes its own one up, and does not give
	// it up too.
	r := newRig(t).open()
	s := r.create("steps")
	if e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("wait never")}); err != nil || len(e.Waiting) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	over := host.ExecRequest{Session: s.UID, Inputs: say("model x; output done"), Key: "k", Abandon: true}
	r.SetFault(func(p string) error {
		if p == "answered" {
			return died
		}
		return nil
	})
	if _, err := r.Exec(t.Context(), over); !errors.Is(err, died) {
		t.Fatal(err)
	}
	r.SetFault(nil)
	if e, err := r.Exec(t.Context(), over); err != nil || e.State != abi.StateCompleted {
		t.Errorf("%+v, %v", e, err)
	}
	// A parked one is shown as it waits.
	s = r.create("steps")
	req := host.ExecRequest{Session: s.UID, Inputs: say("wait go"), Key: "k"}
	for range 2 {
		if e, err := r.Exec(t.Context(), req); err != nil || len(e.Waiting) != 1 {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	if _, err := r.Signal(t.Context(), s.UID, "go", nil); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Exec(t.Context(), req); err != nil || e.State != abi.StateCompleted || e.Repeated {
		t.Fatalf("%+v, %v", e, err)
	}
}

// BenchmarkCancel is how long it takes until a turn that loops, or hangs in a
// call, has ended CANCELED.
func BenchmarkCancel(b *testing.B) {
	for _, input := range []string{"loop", "model x"} {
		b.Run(strings.Fields(input)[0], func(b *testing.B) {
			g := newGate()
			r := newRig(b)
			r.models["echo"] = g
			r.open()
			s := r.create("steps")
			for b.Loop() {
				b.StopTimer()
				done := r.start(host.ExecRequest{Session: s.UID, Inputs: say("model y; " + input)})
				<-g.entered
				g.open <- struct{}{}
				if input != "loop" {
					<-g.entered
				}
				b.StartTimer()
				if e, err := r.Cancel(context.Background(), s.UID); err != nil || e.State != abi.StateCanceled {
					b.Fatalf("%+v, %v", e, err)
				}
				b.StopTimer()
				<-done
				b.StartTimer()
			}
		})
	}
}

// An error names its session, and does so once.
func TestErrorsNameTheSessionOnce(t *testing.T) {
	r := newRig(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	r.models["echo"] = providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
		close(entered)
		<-leave
		return model.Result{Message: abi.Text("", "hi")}, nil
	})
	r.open()
	ctx := t.Context()
	busy := r.create("echo").UID
	var wg sync.WaitGroup
	wg.Go(func() { r.exec(busy, "x") })
	<-entered
	defer wg.Wait()
	defer close(leave)
	for _, uid := range []abi.SessionID{busy, "sess-nobody"} {
		for name, call := range map[string]func() error{
			"exec":    func() error { _, err := r.Exec(ctx, host.ExecRequest{Session: uid, Inputs: say("x")}); return err },
			"suspend": func() error { _, err := r.Suspend(ctx, uid); return err },
			"wake":    func() error { _, err := r.Wake(ctx, uid); return err },
			"signal":  func() error { _, err := r.Signal(ctx, uid, "go", nil); return err },
			"decide":  func() error { _, err := r.Decide(ctx, host.DecideRequest{Session: uid, Approved: true}); return err },
			"delete":  func() error { _, err := r.Delete(ctx, uid, false); return err },
			"upgrade": func() error {
				_, err := r.Upgrade(ctx, host.UpgradeRequest{Session: uid, Harness: harness(t, "echo")})
				return err
			},
			"budget": func() error { _, err := r.SetBudget(ctx, uid, &host.Amounts{}, nil); return err },
		} {
			if err := call(); err == nil || strings.Count(err.Error(), string(uid)) != 1 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

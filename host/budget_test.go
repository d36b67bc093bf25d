package host_test

import (
	"context"
	"errors"
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

// metered is a provider that reports usage, and keeps what it was told.
type metered struct {
	input, output int64
	calls         atomic.Int64
	most          atomic.Int64 // MaxOutputTokens of the last call
	block         chan struct{}
}

func (p *metered) Complete(ctx context.Context, req model.Request, _ func(model.Delta)) (model.Result, error) {
	p.calls.Add(1)
	p.most.Store(req.MaxOutputTokens)
	if p.block != nil {
		select {
		case <-p.block:
		case <-ctx.Done():
			return model.Result{}, ctx.Err()
		}
	}
	r := model.Result{Message: abi.Text(abi.RoleAssistant, "answer")}
	if p.input >= 0 {
		r.Usage = &abi.Usage{InputTokens: abi.Int64(p.input), OutputTokens: abi.Int64(p.output)}
	}
	return r, nil
}

func budgetRig(t *testing.T, p *metered) (*rig, *toolbox) {
	r, b := newRig(t), new(toolbox)
	r.tools, r.models["metered"], r.def = b.tools(), p, "metered"
	r.prices = func(model string) (host.Price, bool) {
		return host.Price{Input: 3_000_000, Output: 15_000_000}, model == "metered"
	}
	return r.open(), b
}

func (r *rig) createWith(budget, tree host.Amounts) abi.SessionID {
	r.t.Helper()
	s, err := r.Create(context.Background(), host.CreateRequest{Harness: harness(r.t, "steps"), Budget: budget, TreeBudget: tree})
	if err != nil {
		r.t.Fatal(err)
	}
	return s.UID
}

func (r *rig) spending(uid abi.SessionID) host.Spending {
	r.t.Helper()
	s, err := r.Spending(context.Background(), uid)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// countable is what of amounts does not depend on the machine.
func countable(a host.Amounts) host.Amounts {
	a.Wall, a.Fuel = 0, 0
	return a
}

func TestSpending_CountsWithoutABudget(t *testing.T) {
	r, _ := budgetRig(t, &metered{input: 1000, output: 200})
	uid := r.createWith(host.Amounts{}, host.Amounts{})
	r.exec(uid, "model a; tools x:read y:breaks; model b")
	s := r.spending(uid)
	want := host.Amounts{Tokens: 2400, Cost: 2 * (3000 + 3000), ModelCalls: 2, ToolCalls: 2, Turns: 1}
	if diff := cmp.Diff(want, countable(s.Used)); diff != "" {
		t.Errorf("used (-want +got):\n%s", diff)
	}
	if s.Used.Fuel <= 0 || s.Used.Wall <= 0 || s.Held != (host.Amounts{}) {
		t.Errorf("used %v, held %v", s.Used, s.Held)
	}
	commits := r.store.Commits()
	r.exec(uid, "model a")
	if got := r.store.Commits() - commits; got != 2 {
		t.Errorf("F1: %d commits for a turn with one effect", got)
	}
}

// TestBudget_EndsTheTurn: over each of its amounts a turn ends FAILED with the
// figure, and nothing is called.
func TestBudget_EndsTheTurn(t *testing.T) {
	for _, tt := range []struct {
		name          string
		budget        host.Amounts
		before, turn  string
		model         string
		want          string // in the error
		calls, toolIt int64  // that are made in all
	}{
		{"model calls", host.Amounts{ModelCalls: 2}, "model a", "model b; model c", "", "model_calls of the session: the limit is 2, used are 2, set aside 0, and this may take 1", 2, 0},
		{"tool calls", host.Amounts{ToolCalls: 2}, "tools a:read", "tools a:read b:read", "", "tool_calls of the session: the limit is 2, used are 1, set aside 0, and this may take 2", 0, 1},
		{"tokens", host.Amounts{Tokens: 1300}, "model a", "model b", "", "tokens of the session: the limit is 1300, used are 1200,", 1, 0},
		{"cost", host.Amounts{Cost: 6100}, "model a", "model b", "", "cost of the session: the limit is 0.0061, used are 0.006,", 1, 0},
		{"a model without a price", host.Amounts{Cost: 1e6}, "output x", "model b", "echo", `model "echo" has no price here`, 0, 0},
		{"turns", host.Amounts{Turns: 1}, "model a", "model b", "", "turns of the session: the limit is 1, used are 1, set aside 0, and this may take 1", 1, 0},
		{"fuel", host.Amounts{Fuel: 1}, "", "model b", "", "fuel", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &metered{input: 1000, output: 200}
			r, b := budgetRig(t, p)
			uid := r.createWith(tt.budget, host.Amounts{})
			if tt.before != "" {
				r.exec(uid, tt.before)
			}
			e, err := r.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say(tt.turn), Model: tt.model})
			if err != nil {
				t.Fatal(err)
			}
			wantReason := abi.ReasonBudget
			if tt.name == "fuel" {
				wantReason = abi.ReasonFuel // the turn is given what there is
			}
			if e.State != abi.StateFailed || e.Reason != wantReason || !strings.Contains(e.Err.Description, tt.want) {
				t.Errorf("it ended %s (%s): %v; want %q", e.State, e.Reason, e.Err, tt.want)
			}
			if got := p.calls.Load(); got != tt.calls {
				t.Errorf("%d model calls, want %d", got, tt.calls)
			}
			if got := int64(b.called("a")); got != tt.toolIt {
				t.Errorf("%d tool calls, want %d", got, tt.toolIt)
			}
			if s := r.spending(uid); s.Held != (host.Amounts{}) {
				t.Errorf("still set aside: %v", s.Held)
			}
			r.verify(uid)
		})
	}
}

// TestBudget_BoundsTheAnswer: what is left bounds the answer that a provider is asked
// for.
func TestBudget_BoundsTheAnswer(t *testing.T) {
	p := &metered{input: 10, output: 20}
	r, _ := budgetRig(t, p)
	uid := r.createWith(host.Amounts{Tokens: 1000}, host.Amounts{})
	r.exec(uid, "model a")
	if got := p.most.Load(); got <= 0 || got >= 1000 {
		t.Errorf("an answer of %d tokens may take more than 1000", got)
	}
	free := r.createWith(host.Amounts{Turns: 5}, host.Amounts{})
	r.exec(free, "model a")
	if got := p.most.Load(); got != 0 {
		t.Errorf("a budget of turns bounds answers to %d tokens", got)
	}
	// Nobody knows what it took: all that was set aside.
	p.input = -1
	before := r.spending(uid).Used.Tokens
	r.exec(uid, "model a")
	if s := r.spending(uid); s.Used.Tokens != 1000 || before != 30 {
		t.Errorf("used %d, then %d tokens of 1000", before, s.Used.Tokens)
	}
}

// TestBudget_SharedByForks: children that run at once never use more than their tree
// has.
func TestBudget_SharedByForks(t *testing.T) {
	const limit = 10
	p := &metered{input: 1, output: 1}
	r, _ := budgetRig(t, p)
	parent := r.createWith(host.Amounts{}, host.Amounts{ModelCalls: limit})
	r.exec(parent, "model a")
	children, err := r.Fork(t.Context(), host.ForkRequest{Session: parent, Count: 8})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var failed atomic.Int64
	for _, c := range children {
		wg.Go(func() {
			e, err := r.Exec(context.Background(), host.ExecRequest{Session: c.UID, Inputs: say("model a; model b; model c")})
			if err != nil {
				t.Error(err)
			} else if e.Reason == abi.ReasonBudget {
				failed.Add(1)
				if !strings.Contains(e.Err.Description, "model_calls of the session and its forks: the limit is 10, used are ") {
					t.Errorf("it failed by %v", e.Err)
				}
			}
		})
	}
	wg.Wait()
	if got := p.calls.Load(); got != limit {
		t.Errorf("%d calls were made of %d", got, limit)
	}
	if failed.Load() == 0 {
		t.Error("no child failed")
	}
	s := r.spending(children[0].UID)
	if s.TreeUsed.ModelCalls != limit || s.TreeHeld != (host.Amounts{}) || s.Inherited.ModelCalls != 1 {
		t.Errorf("spending %+v", s)
	}
	all, err := r.TreeSpending(t.Context(), children[3].UID)
	if err != nil || len(all) != 9 {
		t.Fatalf("%d sessions: %v", len(all), err)
	}
	sum := int64(0)
	for _, s := range all {
		sum += s.Used.ModelCalls
	}
	if sum != limit {
		t.Errorf("the sessions of the tree used %d calls", sum)
	}
	// More is more.
	if _, err := r.SetBudget(t.Context(), children[0].UID, nil, &host.Amounts{ModelCalls: limit + 1}); err != nil {
		t.Fatal(err)
	}
	r.exec(parent, "model a")
	if e, err := r.Exec(t.Context(), host.ExecRequest{Session: parent, Inputs: say("model a")}); err != nil || e.Reason != abi.ReasonBudget {
		t.Errorf("%+v: %v", e, err)
	}
}

// TestBudget_OutlivesCrashes: a host that dies, wherever, neither gives what was set
// aside for a call that may have been made to another one, nor keeps it for ever.
func TestBudget_OutlivesCrashes(t *testing.T) {
	const turnText = "model a; tools x:read; model b"
	for n := 1; ; n++ {
		p := &metered{input: 100, output: 20}
		r, b := budgetRig(t, p)
		uid := r.createWith(host.Amounts{Tokens: 100_000}, host.Amounts{ModelCalls: 20, ToolCalls: 20, Turns: 3, Tokens: 100_000})
		r.exec(uid, "output x")
		fault, passed := dropAt(n)
		r.SetFault(fault)
		_, err := r.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say(turnText)})
		if err == nil {
			if n < 10 {
				t.Fatalf("a turn has %d points", passed())
			}
			break
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		r.open()
		row := r.spending(uid)
		if row.Held != row.TreeHeld && row.TreeHeld.Turns != 0 {
			t.Errorf("point %d: the session holds %v, its tree %v", n, row.Held, row.TreeHeld)
		}
		if s, err := r.Get(t.Context(), uid); err != nil {
			t.Fatal(err)
		} else if s.State == host.ExecInterrupted {
			r.resume(uid)
		}
		s := r.spending(uid)
		if s.Held != (host.Amounts{}) || s.TreeHeld != (host.Amounts{}) {
			t.Errorf("point %d: still set aside: %v, of the tree %v", n, s.Held, s.TreeHeld)
		}
		if s.Used != s.TreeUsed {
			t.Errorf("point %d: used %v, the tree %v", n, s.Used, s.TreeUsed)
		}
		if s.Used.ModelCalls < p.calls.Load() || s.Used.ToolCalls < int64(b.called("x")) {
			t.Errorf("point %d: %d model and %d tool calls were made, counted are %v", n, p.calls.Load(), b.called("x"), s.Used)
		}
		if s.Used.Turns > 2 {
			t.Errorf("point %d: %d turns", n, s.Used.Turns)
		}
		r.verify(uid)
	}
}

// TestBudget_Parked: a turn that waits holds nothing.
func TestBudget_Parked(t *testing.T) {
	r, b := budgetRig(t, &metered{input: 100, output: 20})
	uid := r.createWith(host.Amounts{ToolCalls: 1}, host.Amounts{Turns: 2, Fuel: 1 << 40})
	r.park(uid, "model a; tools d:drop")
	if s := r.spending(uid); s.Held != (host.Amounts{}) || s.TreeHeld != (host.Amounts{}) || s.Used.ModelCalls != 1 || s.Used.Turns != 0 {
		t.Errorf("parked: %+v", s)
	}
	r.decide(uid, "d", true)
	r.resume(uid)
	if s := r.spending(uid); s.Used.ToolCalls != 1 || s.TreeUsed.Turns != 1 || s.TreeUsed.Fuel == 0 || s.TreeHeld != (host.Amounts{}) {
		t.Errorf("ended: %+v", s)
	}
	r.park(uid, "tools d:drop")
	r.decide(uid, "d", true)
	e, err := r.Resume(t.Context(), uid, nil)
	if err != nil || e.Reason != abi.ReasonBudget || b.called("d") != 1 {
		t.Errorf("an approved call beyond the budget: %+v, %v, made %d times", e, err, b.called("d"))
	}
	var last string
	for _, rec := range r.records(uid) {
		if rec.Event.Result != nil {
			last = rec.Event.Result.Error
		}
	}
	if want := "not made: the budget has nothing left for it"; last != want {
		t.Errorf("of that call the record says %q, want %q", last, want)
	}
	r.verify(uid)
}

// TestBudget_Wall: calls get the time that is left, and a turn that takes more ends.
func TestBudget_Wall(t *testing.T) {
	r, _ := budgetRig(t, &metered{block: make(chan struct{})})
	uid := r.createWith(host.Amounts{Wall: 500 * time.Millisecond}, host.Amounts{})
	e, err := r.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say("model a; model b; model c")})
	if err != nil || e.Reason != abi.ReasonBudget {
		t.Errorf("hanging models: %+v: %v", e, err)
	}
	uid = r.createWith(host.Amounts{Wall: 20 * time.Millisecond}, host.Amounts{})
	e, err = r.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say("loop")})
	if err != nil || e.Reason != abi.ReasonBudget || !strings.Contains(e.Err.Description, "that the budget left") {
		t.Errorf("a loop: %+v: %v", e, err)
	}
}

// TestBudget_Canceled: of a model call that was cut off nobody knows what it took.
func TestBudget_Canceled(t *testing.T) {
	p := &metered{block: make(chan struct{})}
	r, _ := budgetRig(t, p)
	uid := r.createWith(host.Amounts{Tokens: 50_000}, host.Amounts{})
	ctx, cancel := context.WithCancel(t.Context())
	r.models["metered"] = providerFunc(func(ctx context.Context, req model.Request, d func(model.Delta)) (model.Result, error) {
		time.Sleep(10 * time.Millisecond)
		cancel()
		return p.Complete(ctx, req, d)
	})
	r.open()
	e, err := r.Exec(ctx, host.ExecRequest{Session: uid, Inputs: say("model a")})
	if err != nil || e.Reason != abi.ReasonCanceled {
		t.Fatalf("%+v: %v", e, err)
	}
	if s := r.spending(uid); s.Used.Tokens < host.DefaultMaxOutputTokens || s.Used.Wall < 10*time.Millisecond || s.Held != (host.Amounts{}) {
		t.Errorf("%+v", s)
	}
}

// TestBudget_Failed: a model call that fails counts as all that was set aside for it,
// unless its provider knows that it cost nothing.
func TestBudget_Failed(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		paid bool
	}{
		"free":              {&model.Error{Code: abi.CodeUnavailable, Message: "busy", Free: true}, false},
		"of unknown cost":   {&model.Error{Code: abi.CodeUnavailable, Message: "cut off"}, true},
		"of unknown nature": {errors.New("oh"), true},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := budgetRig(t, &metered{})
			r.models["metered"] = providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
				return model.Result{}, tt.err
			})
			r.open()
			uid := r.createWith(host.Amounts{Tokens: 50_000}, host.Amounts{})
			if e, err := r.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say("model a")}); err != nil || e.State != abi.StateCompleted {
				t.Fatalf("%+v: %v", e, err)
			}
			s := r.spending(uid)
			if paid := s.Used.Tokens > host.DefaultMaxOutputTokens; paid != tt.paid || s.Used.ModelCalls != 1 || s.Held != (host.Amounts{}) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestBudget_Attempts: each attempt of a call that may have been paid for counts, and is
// made only if the budget has as much once more. Of a tree as of a session.
func TestBudget_Attempts(t *testing.T) {
	const limit = 30_000 // three answers
	budget := host.Amounts{Tokens: limit}
	for name, tt := range map[string]struct{ own, tree host.Amounts }{
		"session": {own: budget}, "tree": {tree: budget},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := budgetRig(t, &metered{})
			attempts := int64(0)
			r.models["metered"] = providerFunc(func(_ context.Context, req model.Request, _ func(model.Delta)) (model.Result, error) {
				for {
					attempts++
					if err := req.Again(); err != nil {
						return model.Result{}, err
					}
				}
			})
			r.open()
			uid := r.createWith(tt.own, tt.tree)
			e, err := r.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say("model a")})
			if err != nil || e.Reason != abi.ReasonBudget || !strings.Contains(e.Err.Description, "the limit is 30000, used are ") {
				t.Errorf("%+v: %v", e, err)
			}
			s := r.spending(uid)
			if attempts != 3 || s.Used.Tokens < 3*host.DefaultMaxOutputTokens || s.Used.Tokens > limit || s.Used.ModelCalls != 1 || s.Held != (host.Amounts{}) {
				t.Errorf("%d attempts, %+v", attempts, s)
			}
			if name == "tree" && (s.TreeUsed != s.Used || s.TreeHeld != (host.Amounts{})) {
				t.Errorf("the tree: %+v", s)
			}
			r.verify(uid)
		})
	}
}

// TestBudget_AttemptsOutliveCrashes: a host that dies between two attempts has not
// forgotten the first.
func TestBudget_AttemptsOutliveCrashes(t *testing.T) {
	r, _ := budgetRig(t, &metered{})
	r.models["metered"] = providerFunc(func(_ context.Context, req model.Request, _ func(model.Delta)) (model.Result, error) {
		if err := req.Again(); err != nil {
			return model.Result{}, err
		}
		r.SetFault(func(string) error { return errDropped })
		return model.Result{Message: abi.Text(abi.RoleAssistant, "lost")}, nil
	})
	r.open()
	uid := r.createWith(host.Amounts{Tokens: 50_000}, host.Amounts{})
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say("model a")}); err == nil {
		t.Fatal("the host did not die")
	}
	r.models["metered"] = &metered{input: 1, output: 1}
	r.open()
	r.resume(uid)
	if s := r.spending(uid); s.Used.Tokens < 2*host.DefaultMaxOutputTokens || s.Held != (host.Amounts{}) {
		t.Errorf("%+v", s)
	}
}

// TestBudget_WallOfAShortTime: a budget of less time than a turn may take is one that a
// turn can use: its calls get some of what it has set aside, and what they do not take
// goes back.
func TestBudget_WallOfAShortTime(t *testing.T) {
	const wall = time.Minute // where a turn, and each call, may take ten
	for name, tt := range map[string]struct{ own, tree host.Amounts }{
		"session": {own: host.Amounts{Wall: wall}}, "tree": {tree: host.Amounts{Wall: wall}},
	} {
		t.Run(name, func(t *testing.T) {
			var left []time.Duration
			r, b := budgetRig(t, &metered{})
			r.models["metered"] = providerFunc(func(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Result, error) {
				end, _ := ctx.Deadline()
				left = append(left, time.Until(end))
				return model.Result{Message: abi.Text(abi.RoleAssistant, "answer")}, nil
			})
			r.open()
			uid := r.createWith(tt.own, tt.tree)
			r.exec(uid, "model a; tools x:read y:read; model b; tools z:read; model c")
			if len(left) != 3 || b.called("z") != 1 {
				t.Fatalf("%d model calls, %d of z", len(left), b.called("z"))
			}
			for _, d := range left {
				if d <= 0 || d > wall/2 {
					t.Errorf("a call has %s of %s", d, wall)
				}
			}
			s := r.spending(uid)
			if s.Used.Wall <= 0 || s.Used.Wall >= wall || s.Held != (host.Amounts{}) || s.TreeHeld != (host.Amounts{}) {
				t.Errorf("%+v", s)
			}
			if tt.tree != (host.Amounts{}) && s.TreeUsed != s.Used {
				t.Errorf("used %v, the tree %v", s.Used, s.TreeUsed)
			}
			r.verify(uid)
		})
	}
}

// TestBudget_Unwritten: what a request does not say in so many bytes is set aside too.
func TestBudget_Unwritten(t *testing.T) {
	p := &metered{input: -1}
	r, _ := budgetRig(t, p)
	taken := func(input abi.Message) int64 {
		s, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "chat"), Budget: host.Amounts{Tokens: 100_000}})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: []abi.Message{input}}); err != nil || e.State != abi.StateCompleted {
			t.Fatalf("%+v: %v", e, err)
		}
		return r.spending(s.UID).Used.Tokens
	}
	plain := taken(abi.Text(abi.RoleUser, "what is this?"))
	image := abi.Part{File: &abi.FilePart{MIME: "image/png", URI: "https://site.example/a.png"}}
	if more := taken(abi.Message{Role: abi.RoleUser, Parts: []abi.Part{image, image}}) - plain; more < 4000 {
		t.Errorf("two pictures take %d tokens more than a text", more)
	}
}

// TestBudget_CheckReadsNoHistory: what is read for a turn with budgets does not grow with
// the record, nor with the forks that share the account.
func TestBudget_CheckReadsNoHistory(t *testing.T) {
	r, _ := budgetRig(t, &metered{input: 1, output: 1})
	f := r.spoil()
	r.open()
	const plenty = 1 << 40
	uid := r.createWith(host.Amounts{Tokens: plenty, Turns: plenty}, host.Amounts{ModelCalls: plenty, Cost: plenty})
	var reads atomic.Int64
	count := func(_, value []byte) []byte {
		reads.Add(1)
		return value
	}
	turn := func() int64 {
		reads.Store(0)
		f.rot.Store(&count)
		r.exec(uid, "model a; tools x:read; model b")
		f.rot.Store(nil)
		return reads.Load()
	}
	turn()
	first := turn()
	fork(t, r, host.ForkRequest{Session: uid, Count: 64})
	for range 30 { // of ten records each
		r.exec(uid, "model a; tools x:read; model b")
	}
	const chance = 30 // flushes come when they will
	if last := turn(); first == 0 || last > first+chance {
		t.Errorf("%d rows were read for a turn, and %d for one after 300 records and 64 forks", first, last)
	}
}

func TestBudget_Bad(t *testing.T) {
	r, _ := budgetRig(t, &metered{})
	for _, b := range []host.Amounts{{Tokens: -1}, {Wall: -1}} {
		if _, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "steps"), Budget: b}); !errors.Is(err, host.ErrInvalid) {
			t.Errorf("%v: %v", b, err)
		}
		uid := r.createWith(host.Amounts{}, host.Amounts{})
		if _, err := r.SetBudget(t.Context(), uid, &b, nil); !errors.Is(err, host.ErrInvalid) {
			t.Errorf("%v: %v", b, err)
		}
	}
	if _, err := r.Spending(t.Context(), "sess-none"); !errors.Is(err, host.ErrNotFound) {
		t.Error(err)
	}
}

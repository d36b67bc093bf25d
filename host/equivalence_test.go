package host_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/script"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// conversation is one session's inputs and the model's answers.
type conversation struct {
	name    string
	harness string
	inputs  []string
	script  string // empty: the echo model
	// keep, if it is set, is which images are kept, and after each turn what is
	// not needed is collected.
	keep host.Retention
}

// conversations are those of the bundled harnesses and 20 scripted ones, made
// once from a fixed seed.
func conversations() []conversation {
	all := []conversation{
		{name: "echo", harness: "echo", inputs: []string{"hello", "wörld\n\u2028\x00", "again"}},
		{name: "counter", harness: "counter", inputs: []string{"3", "4", "total", "nonsense", "-10", "total"}},
		{name: "chat", harness: "chat", inputs: []string{"one", "two", "three"}},
	}
	rng, id := rand.New(rand.NewPCG(1, 2)), 0
	steps := []func() string{
		func() string { return fmt.Sprintf("model ask %d", rng.IntN(100)) },
		func() string { return fmt.Sprintf("model ask %d", rng.IntN(100)) },
		func() string { return "output said " + strings.Repeat("x", rng.IntN(40)) },
		func() string { return "big 70000" },
		func() string { return "data" },
		func() string { return fmt.Sprintf("usage %d", rng.IntN(1000)) },
		func() string { return "count" },
		func() string { return "rand" },
		func() string { return "clock" },
		func() string { return "history" },
		func() string { id++; return fmt.Sprintf("tools a%d:read b%d:read", id, id) },
		func() string { id++; return fmt.Sprintf("tools a%d:drop b%d:read c%d:drop", id, id, id) },
		func() string { return "wait go" },
	}
	for i := range 20 {
		c := conversation{name: fmt.Sprintf("scripted-%02d", i), harness: "steps"}
		for range 1 + rng.IntN(3) {
			var turn []string
			for range 1 + rng.IntN(4) {
				turn = append(turn, steps[rng.IntN(len(steps))]())
			}
			if rng.IntN(6) == 0 {
				turn = append(turn, []string{"fail as told", "panic", "nonsense"}[rng.IntN(3)])
			}
			c.inputs = append(c.inputs, strings.Join(turn, "; "))
		}
		var lines []string
		for n := range 12 {
			switch rng.IntN(5) {
			case 0:
				lines = append(lines, fmt.Sprintf(`{"error":"no answer %d"}`, n))
			case 1:
				lines = append(lines, fmt.Sprintf(`{"text":"answer %d","usage":{"input_tokens":%d,"output_tokens":7}}`, n, n))
			case 2:
				lines = append(lines, fmt.Sprintf(`{"text":"%s","chunks":3}`, strings.Repeat("long ", 1+rng.IntN(20000))))
			default:
				lines = append(lines, fmt.Sprintf(`{"text":"answer %d"}`, n))
			}
		}
		c.script = strings.Join(lines, "\n")
		all = append(all, c)
	}
	return all
}

// counted counts the calls that reach a provider.
type counted struct {
	model.Provider
	calls atomic.Int64
}

func (c *counted) Complete(ctx context.Context, req model.Request, deltas func(model.Delta)) (model.Result, error) {
	c.calls.Add(1)
	return c.Provider.Complete(ctx, req, deltas)
}

var errDropped = errors.New("the host is gone")

// dropAt drops the host at its n-th point, from 1; 0 never. It returns how many
// points were passed.
func dropAt(n int) (fault func(string) error, passed func() int) {
	count, gone := 0, false
	return func(string) error {
		count++
		if count == n {
			gone = true
		}
		if gone {
			return errDropped
		}
		return nil
	}, func() int { return count }
}

// result is what a run of a conversation comes to.
type result struct {
	transcript []string
	calls      int64 // that reached the provider
	lost       int64 // of them, those whose answers died with the host
	points     int
}

// converse runs a conversation and drops the host once, at point drop. It
// recovers as a user would: whatever is open is resumed, an input that left no
// trace is given again.
func converse(t *testing.T, c conversation, store *journal.Journal, rt runtimes.Runtime, drop int) result {
	t.Helper()
	r := newRig(t)
	if store != nil {
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
		r.store = store
	}
	r.runtimes, r.still, r.retention = []runtimes.Runtime{rt}, true, c.keep
	r.tools = new(toolbox).tools()
	provider := &counted{Provider: r.models["echo"]}
	if c.script != "" {
		p, err := script.New(strings.NewReader(c.script))
		if err != nil {
			t.Fatal(err)
		}
		provider.Provider = p
	}
	r.models["echo"] = provider
	r.open()
	s := r.create(c.harness)
	fault, passed := dropAt(drop)
	r.SetFault(fault)
	var lost int64
	for _, input := range c.inputs {
		lost += r.give(provider, s.UID, input)
		if c.keep != (host.Retention{}) {
			r.collect()
		}
	}
	r.verify(s.UID)
	return result{r.transcript(s.UID), provider.calls.Load(), lost, passed()}
}

// give gives a session an input, and goes on with what is open if the host is
// dropped meanwhile. It returns how many answers were lost with it.
func (r *rig) give(provider *counted, uid abi.SessionID, input string) (lost int64) {
	r.t.Helper()
	ctx := context.Background()
	calls := provider.calls.Load() - r.answers(uid)
	before, err := r.Get(ctx, uid)
	if err != nil {
		r.t.Fatal(err)
	}
	req := host.ExecRequest{Session: uid}
	if input != "" {
		req.Inputs = say(input)
	}
	if err = r.converse(req); err == nil {
		return 0
	}
	if !errors.Is(err, errDropped) {
		r.t.Fatalf("%q: %v", input, err)
	}
	if err := r.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.open()
	lost = provider.calls.Load() - r.answers(uid) - calls
	after, err := r.Get(ctx, uid)
	switch {
	case err != nil:
		r.t.Fatal(err)
	case after.State == host.ExecInterrupted:
		if _, err := r.Exec(ctx, host.ExecRequest{Session: uid, Inputs: say("more")}); !errors.Is(err, host.ErrOpenTurn) {
			r.t.Fatalf("exec with input on an open turn: %v", err)
		}
		err = r.converse(host.ExecRequest{Session: uid})
	case after.State == host.ExecAwaiting:
		err = r.converse(host.ExecRequest{Session: uid})
	case after.Head == before.Head:
		err = r.converse(req)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return lost
}

// converse runs a turn to its end, settling what it parks for: calls whose ids
// begin with a are approved.
func (r *rig) converse(req host.ExecRequest) error {
	ctx := context.Background()
	e, err := r.Exec(ctx, req)
	for err == nil && len(e.Waiting) > 0 {
		for _, w := range e.Waiting {
			switch {
			case w.Settled:
			case w.Signal != "":
				_, err = r.Signal(ctx, req.Session, w.Signal, []byte(`{"because":"told"}`))
			default:
				_, err = r.Decide(ctx, host.DecideRequest{Session: req.Session, CallID: w.CallID, Approved: w.CallID[0] == 'a'})
			}
			if err != nil {
				return err
			}
		}
		e, err = r.Exec(ctx, host.ExecRequest{Session: req.Session})
	}
	return err
}

// answers counts the recorded answers of model calls.
func (r *rig) answers(uid abi.SessionID) int64 {
	r.t.Helper()
	n := int64(0)
	for rec, err := range r.Replay(context.Background(), uid, 0, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		e := rec.Event
		if e.Cell != nil && e.Cell.CallID != "" && (e.Kind == abi.EventOutput || e.Kind == abi.EventError) {
			n++
		}
	}
	return n
}

// A session that is interrupted anywhere and recovered is the same session:
// same outputs, same roots, and no provider call beyond those whose answer was
// not recorded (I1, I3, M2).
func TestEquivalence_InterruptedAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles big modules")
	}
	for _, c := range conversations() {
		t.Run(c.name, func(t *testing.T) {
			interruptEverywhere(t, c, engine(t, false), func() *journal.Journal { return nil })
		})
	}
}

// The same on badger and with both engines.
func TestSoak_EquivalenceOnBadgerAndBothEngines(t *testing.T) {
	if os.Getenv("AGENTCELL_SOAK") == "" {
		t.Skip("a long test: make soak")
	}
	for _, interpreter := range []bool{false, true} {
		for _, c := range conversations() {
			t.Run(fmt.Sprintf("%s/interpreter=%t", c.name, interpreter), func(t *testing.T) {
				interruptEverywhere(t, c, engine(t, interpreter), func() *journal.Journal {
					store, err := journal.Open(t.TempDir(), journal.Options{})
					if err != nil {
						t.Fatal(err)
					}
					return store
				})
			})
		}
	}
}

func interruptEverywhere(t *testing.T, c conversation, rt runtimes.Runtime, store func() *journal.Journal) {
	want := converse(t, c, store(), rt, 0)
	if want.points < 3*len(c.inputs) {
		t.Fatalf("only %d points in %d turns", want.points, len(c.inputs))
	}
	for point := 1; point <= want.points; point++ {
		t.Run(fmt.Sprintf("point-%02d", point), func(t *testing.T) {
			got := converse(t, c, store(), rt, point)
			if diff := cmp.Diff(want.transcript, got.transcript); diff != "" {
				t.Errorf("(-uninterrupted +interrupted)\n%s", diff)
			}
			if got.calls != want.calls+got.lost {
				t.Errorf("%d provider calls, want %d and %d whose answer was lost", got.calls, want.calls, got.lost)
			}
		})
	}
}

package inproc_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/runtimes/inproc"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run makes a harness of a function.
type run func(ctx context.Context, t *sdk.Turn) error

func (run) Describe() abi.HarnessDescriptor              { return abi.HarnessDescriptor{ID: "test"} }
func (r run) Run(ctx context.Context, t *sdk.Turn) error { return r(ctx, t) }

// port answers start, and everything else with answer. It notes the ops.
type port struct {
	answer func(ctx context.Context, op abi.Op) (runtimes.Response, error)
	ops    []abi.Op
}

func (p *port) Call(ctx context.Context, op abi.Op, request []byte) (runtimes.Response, error) {
	p.ops = append(p.ops, op)
	if op == abi.OpStart {
		return runtimes.Response{Body: []byte(`{"inputs":[{"role":"user","parts":[{"text":{"text":"hi"}}]}]}`)}, nil
	}
	return p.answer(ctx, op)
}

func ok(context.Context, abi.Op) (runtimes.Response, error) {
	return runtimes.Response{Body: []byte(`{}`)}, nil
}

func create(t *testing.T, h sdk.Harness) runtimes.Incarnation {
	t.Helper()
	rt := inproc.New(map[string]func() sdk.Harness{"test": func() sdk.Harness { return h }})
	i, err := rt.Create(t.Context(), runtimes.Module{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if i.Status() != runtimes.Stopped {
			t.Error("an incarnation outlived its runtime")
		}
	})
	return i
}

func TestRun(t *testing.T) {
	turns := 0
	i := create(t, run(func(ctx context.Context, turn *sdk.Turn) error {
		turns++
		if got := turn.Inputs()[0].Text(); got != "hi" {
			t.Errorf("input %q", got)
		}
		turn.Logf("a line")
		_, err := turn.Model(ctx, abi.ModelCall{})
		return err
	}))
	p := &port{answer: ok}
	for range 2 {
		outcome, err := i.Run(t.Context(), runtimes.Turn{}, p)
		if err != nil || outcome.Reason != abi.ReasonCompleted || outcome.Err != nil {
			t.Fatalf("got %+v, %v", outcome, err)
		}
		if i.Status() != runtimes.Ready {
			t.Fatalf("status %d after a completed turn", i.Status())
		}
	}
	want := []abi.Op{abi.OpStart, abi.OpLog, abi.OpModel, abi.OpStart, abi.OpLog, abi.OpModel}
	if diff := cmp.Diff(want, p.ops); diff != "" || turns != 2 {
		t.Error(turns, diff)
	}
}

func TestRunFails(t *testing.T) {
	refused, err := json.Marshal(abi.Error{Code: abi.CodeUnavailable, Description: "down"})
	if err != nil {
		t.Fatal(err)
	}
	failed := func(context.Context, abi.Op) (runtimes.Response, error) {
		return runtimes.Response{Status: abi.StatusFailed, Body: refused}, nil
	}
	tests := []struct {
		name    string
		harness run
		want    abi.Error
	}{
		{
			"error",
			func(context.Context, *sdk.Turn) error { return errors.New("no") },
			abi.Error{Code: abi.CodeUnknown, Description: "no"},
		},
		{
			"the model's error",
			func(ctx context.Context, turn *sdk.Turn) error {
				_, err := turn.Model(ctx, abi.ModelCall{})
				return err
			},
			abi.Error{Code: abi.CodeUnavailable, Description: "model: failed: down"},
		},
		{
			"panic",
			func(context.Context, *sdk.Turn) error { panic("oh") },
			abi.Error{Code: abi.CodeUnknown, Description: "panic: oh"},
		},
		{
			"goexit",
			func(context.Context, *sdk.Turn) error { runtime.Goexit(); return nil },
			abi.Error{Code: abi.CodeUnknown, Description: "the harness ended its goroutine"},
		},
	}
	for _, test := range tests {
		i := create(t, test.harness)
		outcome, err := i.Run(t.Context(), runtimes.Turn{}, &port{answer: failed})
		want := runtimes.Outcome{Reason: abi.ReasonError, Err: &test.want}
		if diff := cmp.Diff(want, outcome); err != nil || diff != "" {
			t.Errorf("%s: %v %s", test.name, err, diff)
		}
		if _, err := i.Run(t.Context(), runtimes.Turn{}, &port{answer: ok}); !errors.Is(err, runtimes.ErrStopped) {
			t.Errorf("%s: a failed incarnation ran on: %v", test.name, err)
		}
	}
}

// Whoever gives a turn up, Run must return that reason and no outcome, whatever
// the harness makes of it.
func TestRunGivenUp(t *testing.T) {
	cause := errors.New("given up")
	harnesses := map[string]run{
		"returns the error": func(ctx context.Context, turn *sdk.Turn) error {
			_, err := turn.Model(ctx, abi.ModelCall{})
			return err
		},
		"ignores it": func(ctx context.Context, turn *sdk.Turn) error {
			for ctx.Err() == nil {
				_, _ = turn.Model(context.Background(), abi.ModelCall{})
			}
			return nil
		},
		"calls again": func(ctx context.Context, turn *sdk.Turn) error {
			for range 3 {
				_, _ = turn.Model(context.Background(), abi.ModelCall{})
			}
			return nil
		},
		"panics": func(ctx context.Context, turn *sdk.Turn) error {
			if _, err := turn.Model(ctx, abi.ModelCall{}); err != nil {
				panic(err)
			}
			return nil
		},
		"has goroutines of its own": func(ctx context.Context, turn *sdk.Turn) error {
			var wait sync.WaitGroup
			wait.Go(func() { _, _ = turn.Model(ctx, abi.ModelCall{}) })
			wait.Go(func() { <-ctx.Done() })
			wait.Wait()
			return nil
		},
	}
	for name, harness := range harnesses {
		i := create(t, harness)
		p := &port{answer: func(context.Context, abi.Op) (runtimes.Response, error) {
			return runtimes.Response{}, cause
		}}
		if outcome, err := i.Run(t.Context(), runtimes.Turn{}, p); !errors.Is(err, cause) || outcome != (runtimes.Outcome{}) {
			t.Errorf("%s: port error: got %+v, %v", name, outcome, err)
		}
		if n := len(slices.DeleteFunc(p.ops, func(op abi.Op) bool { return op != abi.OpModel })); n != 1 {
			t.Errorf("%s: %d calls reached a port that had given up", name, n)
		}

		i = create(t, harness)
		ctx, cancel := context.WithCancelCause(t.Context())
		hang := &port{answer: func(ctx context.Context, _ abi.Op) (runtimes.Response, error) {
			cancel(cause)
			<-ctx.Done()
			return runtimes.Response{}, ctx.Err()
		}}
		if outcome, err := i.Run(ctx, runtimes.Turn{}, hang); !errors.Is(err, cause) || outcome != (runtimes.Outcome{}) {
			t.Errorf("%s: cancel: got %+v, %v", name, outcome, err)
		}

		i = create(t, harness)
		stopping := &port{answer: func(ctx context.Context, _ abi.Op) (runtimes.Response, error) {
			if err := i.Stop(ctx); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return runtimes.Response{}, ctx.Err()
		}}
		if outcome, err := i.Run(t.Context(), runtimes.Turn{}, stopping); !errors.Is(err, runtimes.ErrStopped) || outcome != (runtimes.Outcome{}) {
			t.Errorf("%s: stop: got %+v, %v", name, outcome, err)
		}
	}
}

// A turn cannot be started in one that runs.
func TestRunOverlap(t *testing.T) {
	i := create(t, run(func(ctx context.Context, turn *sdk.Turn) error {
		_, err := turn.Model(ctx, abi.ModelCall{})
		return err
	}))
	p := &port{answer: func(ctx context.Context, op abi.Op) (runtimes.Response, error) {
		if i.Status() != runtimes.Running {
			t.Errorf("status %d in a turn", i.Status())
		}
		if _, err := i.Run(ctx, runtimes.Turn{}, nil); err == nil {
			t.Error("a turn ran within a turn")
		}
		return ok(ctx, op)
	}}
	if outcome, err := i.Run(t.Context(), runtimes.Turn{}, p); err != nil || outcome.Reason != abi.ReasonCompleted {
		t.Errorf("got %+v, %v", outcome, err)
	}
}

// TestM3_IncarnationsAreIsolated: what one incarnation remembers no other sees.
func TestM3_IncarnationsAreIsolated(t *testing.T) {
	var got []int
	rt := inproc.New(map[string]func() sdk.Harness{"test": func() sdk.Harness {
		turns := 0
		return run(func(context.Context, *sdk.Turn) error {
			turns++
			got = append(got, turns)
			return nil
		})
	}})
	defer rt.Close(t.Context())
	for range 2 {
		i, err := rt.Create(t.Context(), runtimes.Module{Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := i.Run(t.Context(), runtimes.Turn{}, &port{answer: ok}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]int{1, 2, 1, 2}, got); diff != "" {
		t.Error(diff)
	}
}

// TestM6_SeedKeysRandomness: one seed, one stream; two seeds, two streams.
func TestM6_SeedKeysRandomness(t *testing.T) {
	var got []uint64
	i := create(t, run(func(_ context.Context, turn *sdk.Turn) error {
		got = append(got, turn.Rand().Uint64())
		return nil
	}))
	for _, seed := range []byte{1, 2, 1} {
		if _, err := i.Run(t.Context(), runtimes.Turn{Seed: [32]byte{seed}}, &port{answer: ok}); err != nil {
			t.Fatal(err)
		}
	}
	if got[0] != got[2] || got[0] == got[1] {
		t.Errorf("seeds 1, 2, 1 gave %d", got)
	}
}

// broken is a harness that cannot say what it is.
type broken struct{ run }

func (broken) Describe() abi.HarnessDescriptor { panic("who am I") }

func TestDescribe(t *testing.T) {
	rt := inproc.New(map[string]func() sdk.Harness{
		"good":   func() sdk.Harness { return run(nil) },
		"broken": func() sdk.Harness { return broken{} },
	})
	defer rt.Close(t.Context())
	d, err := rt.Describe(t.Context(), runtimes.Module{Name: "good"})
	if err != nil || d.Harness.ID != "test" || d.ABI != abi.Version {
		t.Errorf("got %+v, %v", d, err)
	}
	if _, err := rt.Describe(t.Context(), runtimes.Module{Name: "broken"}); !errors.Is(err, runtimes.ErrModule) || !strings.Contains(err.Error(), "who am I") {
		t.Errorf("broken: got %v", err)
	}
	_, err = rt.Describe(t.Context(), runtimes.Module{Name: "bad"})
	if !errors.Is(err, runtimes.ErrModule) || !strings.Contains(err.Error(), "broken, good") {
		t.Errorf("unknown: got %v", err)
	}
	if _, err := rt.Create(t.Context(), runtimes.Module{Name: "bad"}); !errors.Is(err, runtimes.ErrModule) {
		t.Errorf("create: got %v", err)
	}
}

func TestClosed(t *testing.T) {
	rt := inproc.New(map[string]func() sdk.Harness{"test": func() sdk.Harness { return run(nil) }})
	for range 2 {
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rt.Create(t.Context(), runtimes.Module{Name: "test"}); !errors.Is(err, runtimes.ErrStopped) {
		t.Errorf("got %v", err)
	}
}

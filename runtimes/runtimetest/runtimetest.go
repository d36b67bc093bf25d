// Package runtimetest owns the suite that every runtime passes: it holds
// implementations of the SPI to its contracts, by driving the harnesses echo and
// counter, which every runtime can hold in one form or another (P2).
//
//	func TestConformance(t *testing.T) {
//		runtimetest.Run(t, func(t testing.TB) runtimetest.Fixture { … })
//	}
//
// What a runtime does not claim in its Capabilities is not asked of it, but must
// not be there either. It imports runtimes and sdk/abi, and never an
// implementation, the journal or the host.
package runtimetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Fixture is a runtime and what it runs. The suite closes the runtime.
type Fixture struct {
	Runtime runtimes.Runtime
	// Echo sends its last input to the model and holds no memory.
	Echo runtimes.Module
	// Counter adds up the numbers it is given, answers "added N, total M", holds
	// memory, and can save and load it in a form that has an end; Echo cannot.
	Counter runtimes.Module
	// Bad is what the runtime must refuse with ErrModule.
	Bad runtimes.Module
}

// Open makes a fixture whose runtime nobody else uses.
type Open func(t testing.TB) Fixture

// Run runs the suite. It takes a fresh fixture for each test.
func Run(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"capabilities", testCapabilities},
		{"describe", testDescribe},
		{"refuses a bad module", testBadModule},
		{"completes a turn", testCompletes},
		{"the harness's error ends the turn", testHarnessError},
		{"a failed call is an answer", testFailedCall},
		{"an error of the port gives the turn up", testPortError},
		{"a cancel gives the turn up", testCancel},
		{"a stop gives the turn up", testStopInTurn},
		{"a turn that was canceled before is not completed by calls", testCanceledBefore},
		{"stop is for good and can be repeated", testStop},
		{"status", testStatus},
		{"an incarnation remembers", testRemembers},
		{"M3 incarnations share nothing", testIsolation},
		{"M3 many side by side", testParallel},
		{"M2 the same again", testReexecution},
		{"a snapshot is the whole state", testSnapshot},
		{"a snapshot tells what changed", testChanged},
		{"M3 clones of an image share nothing", testClones},
		{"rest changes nothing", testRest},
		{"M2 what is saved is loaded", testMove},
		{"what cannot be saved or loaded is told", testMoveFails},
		{"close ends everything", testClose},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fixture{Fixture: open(t)}
			t.Cleanup(func() {
				if err := f.Runtime.Close(context.Background()); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			test.run(t, f)
		})
	}
}

type fixture struct{ Fixture }

func (f *fixture) create(t testing.TB, m runtimes.Module) runtimes.Incarnation {
	t.Helper()
	in, err := f.Runtime.Create(t.Context(), m)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() { _ = in.Stop(context.Background()) })
	return in
}

// snapshots gives the optional abilities, or skips the test.
func (f *fixture) snapshots(t *testing.T) runtimes.Restorer {
	t.Helper()
	if !f.Runtime.Capabilities().MemorySnapshot {
		t.Skip("the runtime does not claim MemorySnapshot")
	}
	return f.Runtime.(runtimes.Restorer)
}

func testCapabilities(t *testing.T, f *fixture) {
	c := f.Runtime.Capabilities()
	if c.Runtime == "" {
		t.Error("the runtime has no name")
	}
	if c != f.Runtime.Capabilities() {
		t.Error("capabilities change")
	}
	if _, ok := f.Runtime.(runtimes.Restorer); ok != c.MemorySnapshot {
		t.Errorf("MemorySnapshot is %v, the runtime is a Restorer: %v", c.MemorySnapshot, ok)
	}
	if _, ok := f.create(t, f.Counter).(runtimes.Snapshotter); ok != c.MemorySnapshot {
		t.Errorf("MemorySnapshot is %v, incarnations are Snapshotters: %v", c.MemorySnapshot, ok)
	}
}

func testDescribe(t *testing.T, f *fixture) {
	c := f.Runtime.Capabilities()
	for _, want := range []struct {
		module      runtimes.Module
		id          string
		holdsMemory bool
	}{{f.Echo, "echo", false}, {f.Counter, "counter", true}} {
		d, err := f.Runtime.Describe(t.Context(), want.module)
		if err != nil {
			t.Fatal(err)
		}
		if d.Harness.ID != want.id || d.Harness.HoldsMemory() != want.holdsMemory {
			t.Errorf("id %q, holds memory %v; want %q, %v", d.Harness.ID, d.Harness.HoldsMemory(), want.id, want.holdsMemory)
		}
		if d.ABI != abi.Version {
			t.Errorf("ABI %d", d.ABI)
		}
		if c.MemorySnapshot || c.Reexecutable {
			newState().apply(t, d.Golden)
		}
		want.module.Code = func() ([]byte, error) {
			return nil, errors.New("the code of a loaded module was read again")
		}
		again, err := f.Runtime.Describe(t.Context(), want.module)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d.Harness, again.Harness); diff != "" {
			t.Errorf("described again (-first +second):\n%s", diff)
		}
	}
}

func testBadModule(t *testing.T, f *fixture) {
	ctx := t.Context()
	if _, err := f.Runtime.Describe(ctx, f.Bad); !errors.Is(err, runtimes.ErrModule) {
		t.Errorf("describe: %v", err)
	}
	if _, err := f.Runtime.Create(ctx, f.Bad); !errors.Is(err, runtimes.ErrModule) {
		t.Errorf("create: %v", err)
	}
	if r, ok := f.Runtime.(runtimes.Restorer); ok {
		if _, err := r.Restore(ctx, f.Bad, runtimes.Image{}); !errors.Is(err, runtimes.ErrModule) {
			t.Errorf("restore: %v", err)
		}
	}
}

func testCompletes(t *testing.T, f *fixture) {
	in := f.create(t, f.Echo)
	p := newPort("first", "hi")
	completed(t, in, 1, p)
	if diff := cmp.Diff([]string{"start", `model user: hi`}, p.transcript()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if in.Status() != runtimes.Ready {
		t.Errorf("status %d", in.Status())
	}
}

func testHarnessError(t *testing.T, f *fixture) {
	in := f.create(t, f.Echo)
	p := newPort() // echo fails without input
	out, err := in.Run(t.Context(), turn(1), p)
	if err != nil {
		t.Fatal(err)
	}
	if out.Reason != abi.ReasonError || out.Err == nil || out.Err.Description == "" {
		t.Errorf("outcome %v, %v", out.Reason, out.Err)
	}
	if out.Err != nil && out.Err.Code != abi.CodeInvalidArgument {
		t.Errorf("code %d", out.Err.Code)
	}
	ended(t, in)
}

func testFailedCall(t *testing.T, f *fixture) {
	in := f.create(t, f.Echo)
	p := newPort("hi")
	p.model = func(context.Context) (runtimes.Response, error) {
		return runtimes.Response{Status: abi.StatusFailed, Body: []byte(`{"code":14,"description":"the model is away"}`)}, nil
	}
	out, err := in.Run(t.Context(), turn(1), p)
	if err != nil {
		t.Fatal(err)
	}
	// The harness may say more, but not less.
	if out.Reason != abi.ReasonError || out.Err == nil || out.Err.Code != abi.CodeUnavailable ||
		!strings.Contains(out.Err.Description, "the model is away") {
		t.Errorf("reason %q, error %+v", out.Reason, out.Err)
	}
	ended(t, in)
}

func testPortError(t *testing.T, f *fixture) {
	in := f.create(t, f.Echo)
	p := newPort("hi")
	broken := errors.New("the journal is gone")
	p.model = func(context.Context) (runtimes.Response, error) { return runtimes.Response{}, broken }
	out, err := in.Run(t.Context(), turn(1), p)
	if !errors.Is(err, broken) || out != (runtimes.Outcome{Fuel: out.Fuel}) {
		t.Errorf("outcome %v, error %v", out, err)
	}
	if n := len(p.transcript()); n != 2 {
		t.Errorf("%d calls; a port that gave the turn up was called again", n)
	}
	ended(t, in)
}

func testCancel(t *testing.T, f *fixture) {
	in := f.create(t, f.Echo)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	p := newPort("hi")
	p.model = func(ctx context.Context) (runtimes.Response, error) {
		cancel(enough)
		<-ctx.Done()
		return runtimes.Response{}, context.Cause(ctx)
	}
	if _, err := in.Run(ctx, turn(1), p); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	ended(t, in)
}

func testCanceledBefore(t *testing.T, f *fixture) {
	in := f.create(t, f.Echo)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	p := newPort("hi")
	if _, err := in.Run(ctx, turn(1), p); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	if calls := p.transcript(); len(calls) != 0 {
		t.Errorf("calls: %q", calls)
	}
	ended(t, in)
}

func testStopInTurn(t *testing.T, f *fixture) {
	in := f.create(t, f.Echo)
	p := newPort("hi")
	p.model = func(ctx context.Context) (runtimes.Response, error) {
		if err := in.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		<-ctx.Done()
		return runtimes.Response{}, context.Cause(ctx)
	}
	if _, err := in.Run(t.Context(), turn(1), p); !errors.Is(err, runtimes.ErrStopped) {
		t.Errorf("error %v", err)
	}
	ended(t, in)
}

func testStop(t *testing.T, f *fixture) {
	in := f.create(t, f.Counter)
	completed(t, in, 1, newPort("1"))
	for range 3 {
		if err := in.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended(t, in)
	}
	// The one that stopped must not reach the one that came after it.
	next := f.create(t, f.Counter)
	_ = in.Stop(t.Context())
	p := newPort("5")
	completed(t, next, 1, p)
	if diff := cmp.Diff([]string{"start", "output assistant: added 5, total 5"}, p.transcript()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func testStatus(t *testing.T, f *fixture) {
	in := f.create(t, f.Echo)
	if in.Status() != runtimes.Ready {
		t.Errorf("status %d when created", in.Status())
	}
	p := newPort("hi")
	p.model = func(context.Context) (runtimes.Response, error) {
		if in.Status() != runtimes.Running {
			t.Errorf("status %d in a turn", in.Status())
		}
		return modelAnswer("hi"), nil
	}
	completed(t, in, 1, p)
}

func testRemembers(t *testing.T, f *fixture) {
	in := f.create(t, f.Counter)
	for i, want := range []string{"added 2, total 2", "added 3, total 5", "added -1, total 4"} {
		p := newPort([]string{"2", "3", "-1"}[i])
		completed(t, in, byte(i), p)
		if diff := cmp.Diff([]string{"start", "output assistant: " + want}, p.transcript()); diff != "" {
			t.Errorf("turn %d (-want +got):\n%s", i, diff)
		}
	}
}

func testIsolation(t *testing.T, f *fixture) {
	a, b := f.create(t, f.Counter), f.create(t, f.Counter)
	completed(t, a, 1, newPort("100"))
	p := newPort("1")
	completed(t, b, 1, p)
	if diff := cmp.Diff([]string{"start", "output assistant: added 1, total 1"}, p.transcript()); diff != "" {
		t.Errorf("b saw a (-want +got):\n%s", diff)
	}
}

func testParallel(t *testing.T, f *fixture) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 4 {
				in, err := f.Runtime.Create(t.Context(), f.Counter)
				if err != nil {
					t.Error(err)
					return
				}
				p := newPort("7")
				out, err := in.Run(t.Context(), turn(1), p)
				if err != nil || out.Reason != abi.ReasonCompleted {
					t.Errorf("run: %v, %v", out, err)
				}
				if diff := cmp.Diff([]string{"start", "output assistant: added 7, total 7"}, p.transcript()); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				if err := in.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func testReexecution(t *testing.T, f *fixture) {
	if !f.Runtime.Capabilities().Reexecutable {
		t.Skip("the runtime does not claim Reexecutable")
	}
	once := func(m runtimes.Module) (runtimes.Outcome, []call, *state) {
		in := f.create(t, m)
		p := newPort("42")
		out := completed(t, in, 9, p)
		return out, p.calls, f.snapshot(t, in, m)
	}
	for _, m := range []runtimes.Module{f.Echo, f.Counter} {
		out, calls, end := once(m)
		// Another turn between, and an incarnation that was used before.
		other := f.create(t, m)
		completed(t, other, 3, newPort("1"))
		_ = other.Stop(t.Context())
		outAgain, callsAgain, endAgain := once(m)
		diff := cmp.Diff(out, outAgain) + cmp.Diff(calls, callsAgain, cmp.AllowUnexported(call{})) + end.diff(endAgain)
		if diff != "" {
			t.Errorf("%s again (-first +second):\n%s", m.Name, diff)
		}
	}
}

func testClose(t *testing.T, f *fixture) {
	in := f.create(t, f.Echo)
	if err := f.Runtime.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended(t, in)
	if _, err := f.Runtime.Create(t.Context(), f.Echo); !errors.Is(err, runtimes.ErrStopped) {
		t.Errorf("create after close: %v", err)
	}
}

package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// mover creates an incarnation that can move, or skips the test.
func (f *fixture) mover(t *testing.T, m runtimes.Module) runtimes.Mover {
	t.Helper()
	in, ok := f.create(t, m).(runtimes.Mover)
	if !ok {
		t.Skip("incarnations are no Movers")
	}
	return in
}

// saved gives the portable state of a Counter that has counted to 5.
func (f *fixture) saved(t *testing.T) []byte {
	t.Helper()
	in := f.mover(t, f.Counter)
	completed(t, in, 1, newPort("2"))
	completed(t, in, 2, newPort("3"))
	state, out, err := in.Save(t.Context(), turn(3))
	if err != nil || out.Reason != abi.ReasonCompleted || out.Err != nil {
		t.Fatalf("save: %+v, %v", out, err)
	}
	ended(t, in)
	return state
}

func testMove(t *testing.T, f *fixture) {
	carried := f.saved(t)
	if again := f.saved(t); !bytes.Equal(carried, again) {
		t.Errorf("saved again: %q and %q", carried, again)
	}
	load := func() (runtimes.Mover, *state) {
		in := f.mover(t, f.Counter)
		given := bytes.Clone(carried)
		out, err := in.Load(t.Context(), turn(4), given)
		if err != nil || out.Reason != abi.ReasonCompleted || out.Err != nil {
			t.Fatalf("load: %+v, %v", out, err)
		}
		clear(given)
		if in.Status() != runtimes.Ready {
			t.Errorf("status %d after load", in.Status())
		}
		return in, f.snapshot(t, in, f.Counter)
	}
	in, first := load()
	_, second := load()
	if first != nil {
		if diff := first.diff(second); diff != "" {
			t.Errorf("loaded again (-first +second):\n%s", diff)
		}
	}
	p := newPort("1")
	completed(t, in, 5, p)
	if diff := cmp.Diff([]string{"start", "output assistant: added 1, total 6"}, p.transcript()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func testMoveFails(t *testing.T, f *fixture) {
	told := func(what string, in runtimes.Incarnation, out runtimes.Outcome, err error, code abi.ErrorCode) {
		t.Helper()
		if err != nil || out.Reason != abi.ReasonError || out.Err == nil || code != 0 && out.Err.Code != code {
			t.Errorf("%s: %+v, %v", what, out, err)
		}
		ended(t, in)
	}
	in := f.mover(t, f.Echo)
	state, out, err := in.Save(t.Context(), turn(1))
	told("save", in, out, err, abi.CodeUnimplemented)
	if state != nil {
		t.Errorf("a state of a harness that has none: %q", state)
	}
	in = f.mover(t, f.Echo)
	out, err = in.Load(t.Context(), turn(1), []byte("{}"))
	told("load", in, out, err, abi.CodeUnimplemented)

	whole := f.saved(t)
	in = f.mover(t, f.Counter)
	out, err = in.Load(t.Context(), turn(1), whole[:len(whole)-1])
	told("load half a state", in, out, err, 0)

	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	in = f.mover(t, f.Counter)
	if _, _, err := in.Save(ctx, turn(1)); !errors.Is(err, enough) {
		t.Errorf("save on an ended context: %v", err)
	}
	ended(t, in)
	in = f.mover(t, f.Counter)
	if _, err := in.Load(ctx, turn(1), whole); !errors.Is(err, enough) {
		t.Errorf("load on an ended context: %v", err)
	}
	ended(t, in)
}

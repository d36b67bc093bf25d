package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// drop runs a turn, lets the host die at the first point of that name, and opens
// the next one.
func (r *rig) drop(uid abi.SessionID, input, at string) {
	r.t.Helper()
	r.SetFault(func(point string) error {
		if point == at {
			return errDropped
		}
		return nil
	})
	if _, err := r.Exec(context.Background(), host.ExecRequest{Session: uid, Inputs: say(input)}); !errors.Is(err, errDropped) {
		r.t.Fatalf("the host was not dropped at %q: %v", at, err)
	}
	if err := r.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.open()
}

// curious is a harness that keeps in memory all that it can learn: what it was
// started with, its history, randomness, the time, and how far its limits go.
func curious() host.Harness {
	return cell{
		locals: "i32",
		texts:  []string{`{}`, `{"messages":[{"role":"user","parts":[{"text":{"text":"x"}}]}]}`, `{"parts":[{"text":{"text":"y"}}]}`},
		run: `
			i32.const 1024 i32.const 8192 call $read drop
			$json 1 call $model drop
			$json 0 call $history drop
			i32.const 9216 i32.const 16384 call $read drop
			i32.const 0 i32.const 16 call $random_get drop
			i32.const 0 i64.const 1 i32.const 16 call $clock_time_get drop
			loop i32.const 1 memory.grow i32.const -1 i32.ne br_if 0 end
			$json 2 call $output drop
			$json 2 call $output i64.const 0 i64.ne local.set 0
			i32.const 24 local.get 0 i32.store
			i32.const 0`,
	}.harness("curious")
}

// M2: a turn that is run again is given what it was given first, though the host
// that does it has another clock, other randomness and other limits. What it saw
// is in its root, which re-execution from the record must reach.
func TestM2_RecoveryGivesWhatWasGiven(t *testing.T) {
	for _, point := range []string{"committed", "answered", "ending"} {
		t.Run(point, func(t *testing.T) {
			r := newRig(t)
			r.still = true
			r.limits = abi.DefaultLimits()
			r.limits.MemoryBytes, r.limits.Effects = 192<<10, 2
			r.open()
			s := r.createFrom(curious())
			r.exec(s.UID, "one") // so that there is a history
			r.drop(s.UID, "two", point)
			r.still, r.limits = false, abi.Limits{}
			r.open()
			if _, err := r.Resume(t.Context(), s.UID, nil); err != nil {
				t.Fatal(err)
			}
			if v := r.verify(s.UID); v.Reexecuted != 2 {
				t.Errorf("verified %+v", v)
			}
			im, err := r.store.LoadImage(mustGet(t, r, s.UID).Root)
			if err != nil || im.Size() != 192<<10 {
				t.Errorf("the cell grew to %d bytes: %v", im.Size(), err)
			}
		})
	}
}

// M2: the same turns come to the same bytes under both engines and whatever runs
// beside them.
func TestM2_SameRecordEverywhere(t *testing.T) {
	run := func(interpreter bool, procs int) []string {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		r := newRig(t)
		r.still, r.runtimes = true, []runtimes.Runtime{engine(t, interpreter)}
		r.open()
		s := r.createFrom(curious())
		for _, input := range []string{"one", "two", "three"} {
			r.exec(s.UID, input)
		}
		r.verify(s.UID)
		return r.transcript(s.UID)
	}
	want := run(false, 1)
	for _, other := range [][]string{run(false, 4), run(true, 1)} {
		if diff := cmp.Diff(want, other); diff != "" {
			t.Errorf("(-compiler, one processor +other)\n%s", diff)
		}
	}
}

// M2: an open turn whose opening is not what its START says is not run.
func TestM2_ForgedInputIsNotRun(t *testing.T) {
	r := newRig(t)
	f := r.spoil()
	r.open()
	s := r.createFrom(tally())
	r.drop(s.UID, "an input", "committed")
	before := mustGet(t, r, s.UID)
	forge := func(_, value []byte) []byte {
		return bytes.ReplaceAll(value, []byte("an input"), []byte("no input"))
	}
	f.rot.Store(&forge)
	if _, err := r.Resume(t.Context(), s.UID, nil); !errors.Is(err, host.ErrDivergence) {
		t.Errorf("got %v", err)
	}
	f.rot.Store(nil)
	if diff := cmp.Diff(before, mustGet(t, r, s.UID)); diff != "" {
		t.Errorf("a refused turn changed the session: %s", diff)
	}
	if _, err := r.Resume(t.Context(), s.UID, nil); err != nil {
		t.Error(err)
	}
}

// I7: every run of a turn, a recovery too, writes under a fence above the last
// one, so that a run that was taken over can be told from the one that did.
func TestI7_EachRunHasItsFence(t *testing.T) {
	r := newRig(t).open()
	s := r.createFrom(tally())
	r.exec(s.UID, "one")
	r.drop(s.UID, "two", "answered")
	if _, err := r.Resume(t.Context(), s.UID, nil); err != nil {
		t.Fatal(err)
	}
	var fences []abi.Fence
	for rec, err := range r.Replay(t.Context(), s.UID, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		fences = append(fences, rec.Fence)
	}
	// CREATE, START, INPUT, CALL, OUTPUT, OUTPUT, END; START, INPUT, CALL | OUTPUT, OUTPUT, END
	if want := []abi.Fence{1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3}; !slices.Equal(fences, want) {
		t.Errorf("fences %v, want %v", fences, want)
	}
}

// I3: a call whose intent is recorded and whose answer is not is made once more,
// and says so; one whose answer is recorded is not made.
func TestI3_OnlyAMissingAnswerIsAskedFor(t *testing.T) {
	twice := cell{
		texts: []string{`{"messages":[{"role":"user","parts":[{"text":{"text":"x"}}]}]}`},
		run:   "$json 0 call $model drop $json 0 call $model drop i32.const 0",
	}.harness("twice")
	for _, tt := range []struct {
		drop string // the point, and which of that name
		nth  int
		want []int // the attempts of all calls that reach the model
	}{
		{"committed", 1, []int{1, 0}},   // it dies before the first call
		{"answered", 1, []int{0, 1, 0}}, // with the first answer
		{"committed", 2, []int{0, 1}},   // the first answer is recorded
		{"answered", 2, []int{0, 0, 1}},
	} {
		t.Run(fmt.Sprint(tt.drop, tt.nth), func(t *testing.T) {
			r := newRig(t)
			var attempts []int
			r.models["echo"] = providerFunc(func(_ context.Context, req model.Request, _ func(model.Delta)) (model.Result, error) {
				attempts = append(attempts, req.Attempt)
				return model.Result{Message: abi.Text(abi.RoleAssistant, "ok")}, nil
			})
			r.open()
			s := r.createFrom(twice)
			left := tt.nth
			r.SetFault(func(point string) error {
				if point == tt.drop {
					left--
				}
				if left == 0 {
					return errDropped
				}
				return nil
			})
			if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("go")}); !errors.Is(err, errDropped) {
				t.Fatal(err)
			}
			r.open()
			if _, err := r.Resume(t.Context(), s.UID, nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, attempts); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			r.verify(s.UID)
		})
	}
}

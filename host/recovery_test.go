package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/journal"
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

// M2: history ends before the turn that reads it, also when the turn is run
// again with more of itself on record, and tells nothing that is not in the chain.
func TestM2_HistoryEndsBeforeTheTurn(t *testing.T) {
	const told = 9216 // where curious puts its history
	for _, point := range []string{"", "committed", "answered", "ending"} {
		t.Run(point, func(t *testing.T) {
			r := newRig(t).open()
			s := r.createFrom(curious())
			var before []host.Record
			for range 2 {
				before = before[:0]
				for rec, err := range r.Replay(t.Context(), s.UID, 0, 0) {
					if err != nil {
						t.Fatal(err)
					}
					rec.Fence = 0
					before = append(before, rec)
				}
				if point == "" {
					r.exec(s.UID, "x")
				} else {
					r.drop(s.UID, "x", point)
					if _, err := r.Resume(t.Context(), s.UID, nil); err != nil {
						t.Fatal(err)
					}
				}
				im, err := r.store.LoadImage(mustGet(t, r, s.UID).Root)
				if err != nil {
					t.Fatal(err)
				}
				want := []byte("[]")
				if len(before) > 0 {
					records := make([]abi.LogRecord, len(before))
					for i, rec := range before {
						records[i] = rec.LogRecord
					}
					if want, err = json.Marshal(records); err != nil {
						t.Fatal(err)
					}
				}
				got := append(r.memory(im, told/abi.PageSize), r.memory(im, told/abi.PageSize+1)...)[told%abi.PageSize:][:len(want)]
				if diff := cmp.Diff(string(want), string(got)); diff != "" {
					t.Errorf("history (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// memory is a page of an image.
func (r *rig) memory(im *journal.Image, page uint32) []byte {
	r.t.Helper()
	b := make([]byte, abi.PageSize)
	if err := r.store.ReadPage(im, page, b); err != nil {
		r.t.Fatal(err)
	}
	return b
}

// M2: what the host lacks is not a turn's outcome: the turn stays open, and ends
// as it would have when it is run where nothing is lacking.
func TestM2_ShortageIsNoOutcome(t *testing.T) {
	r := newRig(t)
	short := &shortRuntime{Restorer: engine(t, false)}
	r.runtimes = []runtimes.Runtime{short}
	r.open()
	s := r.createFrom(tally())
	r.exec(s.UID, "one")
	before := mustGet(t, r, s.UID)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.open() // a host that has to restore the cell

	// No room for the cell: nothing has run, nothing is written.
	short.restore = runtimes.ErrShortage
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("two")}); !errors.Is(err, runtimes.ErrShortage) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(stored(before), stored(mustGet(t, r, s.UID))); diff != "" {
		t.Errorf("a turn that could not begin changed the session: %s", diff)
	}
	// None in mid-turn: it stays open.
	short.restore, short.run = nil, runtimes.ErrShortage
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("two")}); !errors.Is(err, runtimes.ErrShortage) {
		t.Errorf("got %v", err)
	}
	if got := mustGet(t, r, s.UID); got.State != host.ExecInterrupted || got.Turns != 1 {
		t.Errorf("state %s after %d turns", got.State, got.Turns)
	}
	short.run = nil
	if _, err := r.Resume(t.Context(), s.UID, nil); err != nil {
		t.Fatal(err)
	}
	if v := r.verify(s.UID); v.Reexecuted != 2 {
		t.Errorf("verified %+v", v)
	}
}

// shortRuntime fails as it is told.
type shortRuntime struct {
	runtimes.Restorer
	restore, run error
}

// Restore implements runtimes.Restorer.
func (s *shortRuntime) Restore(ctx context.Context, m runtimes.Module, img runtimes.Image) (runtimes.Incarnation, error) {
	if s.restore != nil {
		return nil, s.restore
	}
	in, err := s.Restorer.Restore(ctx, m, img)
	if err != nil {
		return nil, err
	}
	return shortIncarnation{in.(runtimes.Snapshotter), s}, nil
}

type shortIncarnation struct {
	runtimes.Snapshotter
	runtime *shortRuntime
}

// Run implements runtimes.Incarnation.
func (in shortIncarnation) Run(ctx context.Context, t runtimes.Turn, port runtimes.Port) (runtimes.Outcome, error) {
	if in.runtime.run != nil {
		return runtimes.Outcome{}, in.runtime.run
	}
	return in.Snapshotter.Run(ctx, t, port)
}

// S2: what the host bounds beside the engine has a default that holds, and its
// limit is told to the guest as one.
func TestS2_HostBounds(t *testing.T) {
	status := func(request string) string {
		return "local.get 0 " + request + " i64.const 32 i64.shr_u i32.wrap_i64 i32.add local.set 0 "
	}
	for _, tt := range []struct {
		name  string
		limit func(*abi.Limits)
		run   string // returns the sum of the statuses
		want  string
	}{
		{"effects", func(l *abi.Limits) { l.Effects = 1 }, status("$json 0 call $output") + status("$json 0 call $output"), "returned 5"},
		{"output", func(l *abi.Limits) { l.OutputBytes = 40 }, status("$json 0 call $output") + status("$json 0 call $output"), "returned 5"},
		{"request", func(l *abi.Limits) { l.RequestBytes = 20 }, status("$json 0 call $output"), "returned 5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.limits = abi.DefaultLimits()
			tt.limit(&r.limits)
			r.open()
			s := r.createFrom(cell{
				locals: "i32", texts: []string{`{"parts":[{"text":{"text":"x"}}]}`}, run: tt.run + "local.get 0",
			}.harness("bounded"))
			e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("x")})
			if err != nil || e.Err == nil || !strings.Contains(e.Err.Description, tt.want) {
				t.Errorf("%+v, %v, %v", e, e.Err, err)
			}
			r.verify(s.UID)
		})
	}
	for name, n := range map[string]int64{
		"effects": int64(abi.DefaultLimits().Effects), "output": int64(abi.DefaultLimits().OutputBytes),
		"request": int64(abi.DefaultLimits().RequestBytes), "deadline": int64(host.DefaultDeadline),
	} {
		if n <= 0 {
			t.Errorf("no default bound for %s", name)
		}
	}
}

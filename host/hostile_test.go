package host_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// always is a body that does something for ever.
func always(body string) string { return "loop " + body + " br 0 end i32.const 0" }

// S2, S3: whatever a guest does, its turn ends for the right reason within the
// host's bounds, and an honest session beside it goes on as if it were alone.
func TestS3_HostileGuests(t *testing.T) {
	ops := func(text string) (body string) {
		for _, op := range []string{"model", "output", "usage", "history"} {
			body += text + "call $" + op + " i64.const 32 i64.shr_u i64.const 1 i64.ne if unreachable end "
		}
		return body
	}
	for _, tt := range []struct {
		name     string
		cell     cell
		fuel     abi.Int64
		deadline time.Duration
		reason   abi.EndReason
	}{
		{"loop without end", cell{run: always("")}, 40_000_000, 0, abi.ReasonFuel},
		{"loop past its deadline", cell{run: always("")}, 50_000_000_000, 50 * time.Millisecond, abi.ReasonDeadline},
		{"recursion", cell{run: "call $agent_run"}, 40_000_000, 0, abi.ReasonDepth},
		{"memory bomb", cell{run: always("i32.const 16 memory.grow i32.const -1 i32.eq if unreachable end")}, 40_000_000, 0, abi.ReasonTrap},
		{"trap", cell{run: "unreachable"}, 40_000_000, 0, abi.ReasonTrap},
		{"exit", cell{run: "i32.const 0 call $proc_exit i32.const 0"}, 40_000_000, 0, abi.ReasonExit},
		{"error", cell{run: "i32.const 3"}, 40_000_000, 0, abi.ReasonError},
		// Every answer but "limit" is fine until the limit comes.
		{"huge outputs", cell{
			locals: "i32", texts: []string{`{"parts":[{"text":{"text":"` + strings.Repeat("x", 30<<10) + `"}}]}`},
			run: always("$json 0 call $output i64.const 0 i64.ne if unreachable end"),
		}, 40_000_000, 0, abi.ReasonTrap},
		{"flood of calls", cell{
			locals: "i32", texts: []string{`{"messages":[{"parts":[{"text":{"text":"x"}}]}]}`},
			run: always("$json 0 call $model i64.const 0 i64.lt_s if unreachable end"),
		}, 2_000_000, 0, abi.ReasonFuel},
		{"a request of all memory", cell{run: "i32.const 0 i32.const 65536 call $output i64.const 32 i64.shr_u i64.const 1 i64.ne if unreachable end i32.const 0"}, 40_000_000, 0, abi.ReasonCompleted},
		{"malformed JSON", cell{texts: []string{`{"messages":[`}, run: ops("$json 0 ") + "i32.const 0"}, 40_000_000, 0, abi.ReasonCompleted},
		{"deep JSON", cell{
			texts: []string{`{"parts":[{"data":{"data":` + strings.Repeat(`{"a":`, 5000) + `1` + strings.Repeat("}", 5000) + `}}]}`},
			run:   "$json 0 call $output drop i32.const 0",
		}, 40_000_000, 0, abi.ReasonCompleted},
		{"no JSON", cell{texts: []string{"\xff\xfe"}, run: ops("$json 0 ") + "i32.const 0"}, 40_000_000, 0, abi.ReasonCompleted},
		{"history without end", cell{texts: []string{`{"kinds":["EVENT_NONE"]}`}, run: always("$json 0 call $history drop")}, 2_000_000, 0, abi.ReasonFuel},
		{"flood of logs", cell{run: always("i32.const 32768 i32.const 64 call $log drop")}, 40_000_000, 0, abi.ReasonFuel},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.limits = abi.DefaultLimits()
			r.limits.Fuel, r.limits.MemoryBytes, r.limits.OutputBytes = tt.fuel, 16<<20, 1<<20
			r.open()
			bad, good := r.createFrom(tt.cell.harness("hostile")), r.createFrom(tally())
			ended := make(chan error, 1)
			var before, peak runtime.MemStats
			runtime.ReadMemStats(&before)
			var end host.Execution
			go func() {
				var err error
				end, err = r.Exec(context.Background(), host.ExecRequest{Session: bad.UID, Inputs: say("go"), Deadline: tt.deadline})
				ended <- err
			}()
			for i := range 5 {
				if got, want := r.exec(good.UID, "x"), []string{"echo:how much is it?", fmt.Sprintf("%04d", i+1)}; !cmp.Equal(got, want) {
					t.Errorf("the honest session puts out %q", got)
				}
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&peak)
			if grown := int64(peak.Sys) - int64(before.Sys); grown > 256<<20 {
				t.Errorf("the host grew by %d MB", grown>>20)
			}
			if end.Reason != tt.reason {
				t.Errorf("ended for reason %q: %v; want %q", end.Reason, end.Err, tt.reason)
			}
			v := r.verify(bad.UID)
			if again := v.Reexecuted == 1; again != (tt.reason.Class() == abi.ClassDeterministic) {
				t.Errorf("verified %+v", v)
			}
			r.verify(good.UID)
			// The one that was hostile is no worse off than before.
			if _, err := r.Exec(t.Context(), host.ExecRequest{Session: bad.UID, Inputs: say("go"), Deadline: tt.deadline}); err != nil {
				t.Error(err)
			}
		})
	}
}

// S3: a turn that is canceled while the host reads history for it ends then, and
// not when all of the record has been searched.
func TestS3_SearchOfHistoryEndsWithTheTurn(t *testing.T) {
	r := newRig(t)
	f := r.spoil()
	r.open()
	searches := cell{texts: []string{`{"kinds":["EVENT_NONE"]}`}, run: "$json 0 call $history drop i32.const 0"}.harness("searches")
	s := r.createFrom(searches)
	for range 10 {
		r.exec(s.UID, "x")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read := 0
	watch := func(key, value []byte) []byte {
		if key[0] == 'r' {
			if read++; read == 2 {
				cancel()
			}
		}
		return value
	}
	f.rot.Store(&watch)
	e, err := r.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: say("x")})
	f.rot.Store(nil)
	if err != nil || e.Reason != abi.ReasonCanceled {
		t.Errorf("%+v, %v", e, err)
	}
	if read > 3 {
		t.Errorf("%d records were read of a canceled turn's history", read)
	}
}

// S3: a model that neither answers nor looks at its context holds neither the
// turn, nor another session, nor Close.
func TestS3_ModelThatHangs(t *testing.T) {
	release := make(chan struct{})
	gone := make(chan struct{}, 2)
	r := newRig(t)
	r.models["stuck"] = providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
		<-release
		gone <- struct{}{}
		return model.Result{}, errors.New("too late")
	})
	r.open()
	s, other, closed := r.createFrom(tally()), r.createFrom(tally()), r.createFrom(tally())
	e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("x"), Model: "stuck", CallTimeout: 20 * time.Millisecond})
	if err != nil || e.State == "" {
		t.Errorf("%+v, %v", e, err)
	}
	called := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := r.Exec(context.Background(), host.ExecRequest{
			Session: closed.UID, Inputs: say("x"), Model: "stuck",
			Observe: func(u host.Update) {
				if u.Record != nil && u.Record.Event.Kind == abi.EventModelCall {
					close(called)
				}
			},
		})
		done <- err
	}()
	<-called
	r.exec(other.UID, "x")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, host.ErrClosed) {
		t.Errorf("the turn that ran: %v", err)
	}
	r.open()
	if got := mustGet(t, r, closed.UID).State; got != host.ExecInterrupted {
		t.Errorf("state %s after Close", got)
	}
	close(release)
	<-gone
	<-gone
}

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
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// always is a body that does something for ever.
func always(body string) string { return "loop " + body + " br 0 end i32.const 0" }

// hostile is a guest that means no good, and how its turn ends.
type hostile struct {
	name     string
	cell     cell
	fuel     abi.Int64 // 0: 4,000,000
	deadline time.Duration
	limits   func(*abi.Limits)
	reason   abi.EndReason
	outputs  func(n int) bool // whether so many may be recorded; nil: any number
}

// status is code that traps unless a request has ended with the status.
func status(s abi.Status) string {
	return fmt.Sprintf("i64.const 32 i64.shr_u i64.const %d i64.ne if unreachable end ", s)
}

// all is code that calls each of the requests and checks its status.
func all(args string, s abi.Status, ops ...string) (body string) {
	for _, op := range ops {
		body += args + "call $" + op + " " + status(s)
	}
	return body
}

func times(n int, body string) string {
	return fmt.Sprintf("i32.const %d local.set 0 loop %s local.get 0 i32.const 1 i32.sub local.tee 0 br_if 0 end ", n, body)
}

// hostiles are the guests of TestS3_HostileGuests; docs/sandbox.md lists them.
func hostiles() []hostile {
	text := func(n int) string { return `{"parts":[{"text":{"text":"` + strings.Repeat("x", n) + `"}}]}` }
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	many := []string{"model", "output", "usage", "history", "tool_call", "report", "wait"}
	none := func(n int) bool { return n == 0 }
	const done, exact = "i32.const 0", "12345678901234567890"
	return []hostile{
		// Time.
		{name: "loop without end", cell: cell{run: always("")}, reason: abi.ReasonFuel},
		{name: "loop past its deadline", cell: cell{run: always("")}, fuel: 50_000_000_000, deadline: 50 * time.Millisecond, reason: abi.ReasonDeadline},
		{name: "flood of calls", cell: cell{
			locals: "i32", texts: []string{`{"messages":[{"parts":[{"text":{"text":"x"}}]}]}`},
			run: always("$json 0 call $model i64.const 0 i64.lt_s if unreachable end"),
		}, fuel: 2_000_000, reason: abi.ReasonFuel},
		{name: "flood of empty requests", cell: cell{run: always(all("i32.const 0 i32.const 0 ", abi.StatusInvalid, many...) +
			"i32.const 0 i32.const 0 call $start drop i32.const 0 i32.const 0 call $log drop")}, reason: abi.ReasonFuel, outputs: none},
		{name: "search of history without end", cell: cell{texts: []string{`{"kinds":["EVENT_NONE"]}`}, run: always("$json 0 call $history drop")}, fuel: 2_000_000, reason: abi.ReasonFuel},
		{name: "a million effects", cell: cell{
			locals: "i32", texts: []string{text(1)},
			run: times(1000, "$json 0 call $output "+status(abi.StatusOK)) + times(999_000, "$json 0 call $output "+status(abi.StatusLimit)) + done,
		}, fuel: 2_000_000_000, reason: abi.ReasonCompleted, outputs: func(n int) bool { return n == 1000 }},

		// Stack and memory.
		{name: "recursion", cell: cell{run: "call $agent_run"}, limits: func(l *abi.Limits) { l.Depth = 1000 }, reason: abi.ReasonDepth},
		{name: "memory bomb", cell: cell{run: always("i32.const 16 memory.grow i32.const -1 i32.eq if unreachable end")}, reason: abi.ReasonLimit},

		// Ends.
		{name: "trap", cell: cell{run: "unreachable"}, reason: abi.ReasonTrap},
		{name: "exit", cell: cell{run: "i32.const 0 call $proc_exit i32.const 0"}, reason: abi.ReasonExit},
		{name: "exit in the middle of a turn", cell: cell{
			texts: []string{text(1), `{"messages":[{}]}`}, run: "$json 0 call $output drop $json 1 call $model drop i32.const 0 call $proc_exit unreachable",
		}, reason: abi.ReasonExit, outputs: func(n int) bool { return n == 2 }},
		{name: "error", cell: cell{run: "i32.const 3"}, reason: abi.ReasonError},
		{name: "effects after fail", cell: cell{
			texts: []string{`{"description":"no"}`, text(1)}, run: "$json 0 call $fail drop $json 1 call $output " + status(abi.StatusOK) + "i32.const 1",
		}, reason: abi.ReasonError, outputs: func(n int) bool { return n == 1 }},
		{name: "effects before start", cell: cell{
			early: true, texts: []string{text(1)}, run: all("$json 0 ", abi.StatusRefused, many...) + done,
		}, reason: abi.ReasonCompleted, outputs: none},

		// Sizes. Every answer but the limit's is fine until the limit comes.
		{name: "outputs until none is left", cell: cell{
			locals: "i32", texts: []string{text(30 << 10)}, run: always("$json 0 call $output i64.const 0 i64.ne if unreachable end"),
		}, reason: abi.ReasonTrap},
		{name: "1 GiB in one output", cell: cell{
			run: "i32.const 20000 memory.grow i32.const -1 i32.eq if unreachable end i32.const 0 i32.const 0x40000000 call $output " + status(abi.StatusLimit) + done,
		}, fuel: 100_000_000, limits: func(l *abi.Limits) { l.MemoryBytes = 2 << 30 }, reason: abi.ReasonCompleted, outputs: none},
		{
			name: "1 GiB in many outputs", cell: cell{
				locals: "i32", texts: []string{text(1<<20 - 100)},
				run: times(15, "$json 0 call $output "+status(abi.StatusOK)) + times(1009, "$json 0 call $output drop ") + "$json 0 call $output " + status(abi.StatusLimit) + done,
			}, fuel: 3_000_000_000, limits: func(l *abi.Limits) { l.OutputBytes = 16 << 20 }, reason: abi.ReasonCompleted,
			outputs: func(n int) bool { return n == 16 },
		},
		{name: "a request of all memory", cell: cell{run: all("i32.const 0 i32.const 65536 ", abi.StatusInvalid, many...) + done}, reason: abi.ReasonCompleted},
		{name: "requests beyond memory", cell: cell{run: all("i32.const -1 i32.const 2 ", abi.StatusInvalid, many...) + done}, reason: abi.ReasonCompleted},
		{name: "wrong read caps", cell: cell{run: `
			i32.const 16 i32.const 4 call $read i32.const 4 i32.ne if unreachable end
			i32.const -1 i32.const 0 call $read if unreachable end
			i32.const 16 i32.const -1 call $read i32.eqz if unreachable end
			i32.const -1 i32.const -1 call $read if unreachable end
			i32.const 0 i32.const 0 call $start drop i32.const 65530 i32.const 100 call $read`}, reason: abi.ReasonTrap},
		{name: "flood of logs", cell: cell{run: always("i32.const 32768 i32.const 64 call $log drop")}, reason: abi.ReasonFuel},
		{name: "flood of long logs", cell: cell{run: always("i32.const 0 i32.const 65536 call $log drop")}, fuel: 40_000_000, reason: abi.ReasonFuel},

		// What JSON can be.
		{name: "malformed JSON", cell: cell{texts: []string{`{"messages":[`}, run: all("$json 0 ", abi.StatusInvalid, many...) + done}, reason: abi.ReasonCompleted},
		{name: "no JSON", cell: cell{texts: []string{"\xff\xfe"}, run: all("$json 0 ", abi.StatusInvalid, many...) + done}, reason: abi.ReasonCompleted},
		{name: "deep JSON", cell: cell{texts: []string{
			`{"parts":[{"data":{"data":` + deep(5000) + `}}]}`, `{"messages":[{"parts":[{"data":{"data":` + deep(5000) + `}}]}]}`,
			`{"id":"x","output":` + deep(5000) + `}`, strings.Repeat("[", 20_000), deep(5000),
		}, run: all("$json 0 ", abi.StatusInvalid, "output") + all("$json 1 ", abi.StatusInvalid, "model") + all("$json 2 ", abi.StatusInvalid, "report") +
			all("$json 3 ", abi.StatusInvalid, many...) + all("$json 4 ", abi.StatusInvalid, many...) + done}, reason: abi.ReasonCompleted, outputs: none},
		{
			name: "numbers under long names", cell: cell{texts: []string{
				`{"parts":[{"data":{"data":{"` + strings.Repeat("n", 1<<20) + `":[` + strings.Repeat(exact+",", 20_000) + `1]}}}]}`,
				`{"messages":[{"parts":[{"data":{"data":{"` + strings.Repeat("n", 1<<20) + `":[` + strings.Repeat(exact+",", 20_000) + `1]}}}]}]}`,
			}, run: all("$json 0 ", abi.StatusInvalid, "output") + all("$json 1 ", abi.StatusInvalid, "model") + done}, fuel: 40_000_000,
			limits: func(l *abi.Limits) { l.OutputBytes = 16 << 20 }, reason: abi.ReasonCompleted, outputs: none,
		},
		{name: "more messages than there may be", cell: cell{
			texts: []string{`{"messages":[{}` + strings.Repeat(",{}", abi.MaxMessages) + `]}`}, run: all("$json 0 ", abi.StatusInvalid, "model") + done,
		}, reason: abi.ReasonCompleted},
		{name: "long names", cell: cell{texts: []string{
			`{"signal":"` + strings.Repeat("s", 1<<19) + `"}`, `{"` + strings.Repeat("u", 1<<19) + `":1}`,
		}, run: all("$json 0 ", abi.StatusInvalid, "wait") + all("$json 1 ", abi.StatusInvalid, many...) + done}, fuel: 40_000_000, reason: abi.ReasonCompleted},
	}
}

// S2, S3: whatever a guest does, its turn ends for the right reason within the
// host's bounds, and an honest session beside it goes on as if it were alone.
func TestS3_HostileGuests(t *testing.T) {
	for _, h := range hostiles() {
		for _, interpreter := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/interpreter=%t", h.name, interpreter), func(t *testing.T) {
				if testing.Short() && (interpreter || h.fuel > 1_000_000_000) {
					t.Skip("takes long under the race detector")
				}
				h.fight(t, interpreter)
			})
		}
	}
}

func (h hostile) fight(t *testing.T, interpreter bool) {
	r := newRig(t)
	r.runtimes = []runtimes.Runtime{engine(t, interpreter)}
	r.limits = abi.DefaultLimits()
	r.limits.Fuel, r.limits.MemoryBytes, r.limits.OutputBytes = 4_000_000, 16<<20, 1<<20
	if h.fuel != 0 {
		r.limits.Fuel = h.fuel
	}
	if h.limits != nil {
		h.limits(&r.limits)
	}
	r.open()
	bad, good := r.createFrom(h.cell.harness("hostile")), r.createFrom(tally())
	ended := make(chan error, 1)
	var before, peak runtime.MemStats
	runtime.ReadMemStats(&before)
	var end host.Execution
	go func() {
		var err error
		end, err = r.Exec(context.Background(), host.ExecRequest{Session: bad.UID, Inputs: say("go"), Deadline: h.deadline})
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
	if end.Reason != h.reason {
		t.Errorf("ended for reason %q: %v; want %q", end.Reason, end.Err, h.reason)
	}
	if n := outputs(r, bad.UID); h.outputs != nil && !h.outputs(n) {
		t.Errorf("it has put out %d times", n)
	}
	v := r.verify(bad.UID)
	if again := v.Reexecuted == 1; again != (h.reason.Class() == abi.ClassDeterministic) {
		t.Errorf("verified %+v", v)
	}
	r.verify(good.UID)
	if h.fuel > 1_000_000_000 {
		return // once is enough
	}
	// The one that was hostile is no worse off than before.
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: bad.UID, Inputs: say("go"), Deadline: h.deadline}); err != nil {
		t.Error(err)
	}
}

// outputs counts the OUTPUT records of a session.
func outputs(r *rig, uid abi.SessionID) (n int) {
	r.t.Helper()
	for rec, err := range r.Replay(context.Background(), uid, 0, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		if rec.Event.Kind == abi.EventOutput {
			n++
		}
	}
	return n
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

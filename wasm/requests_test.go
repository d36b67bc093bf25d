package wasm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// wantStatus is code that traps unless the result of a request on the stack has
// the status.
func wantStatus(status abi.Status) string {
	return " i64.const 32 i64.shr_u i32.wrap_i64 i32.const " + itoa(int(status)) + " i32.ne if unreachable end "
}

// wantI32 is code that traps unless n is on the stack.
func wantI32(n int) string { return " i32.const " + itoa(n) + " i32.ne if unreachable end " }

const started = " i32.const 0 i32.const 0 call $start drop "

func allOps() (names []string) {
	names = append(names, "agent.read")
	for _, op := range abi.Ops() {
		names = append(names, "agent."+string(op))
	}
	return names
}

func TestRequests(t *testing.T) {
	answers := map[abi.Op]Response{
		abi.OpStart:  {Body: []byte("the start")},
		abi.OpModel:  {Body: []byte("0123456789")},
		abi.OpOutput: {Status: abi.StatusLimit, Body: []byte("too much")},
	}
	for _, test := range []struct {
		name string
		run  string
		want []string // what the handler is asked
	}{
		{
			"before start everything is refused",
			"i32.const 0 i32.const 2 call $model" + wantStatus(abi.StatusRefused) +
				"i32.const 0 i32.const 2 call $tool_call" + wantStatus(abi.StatusRefused) +
				"i32.const 0 i32.const 2 call $history" + wantStatus(abi.StatusRefused) +
				"i32.const 0 i32.const 2 call $log" + wantStatus(abi.StatusOK),
			[]string{"log hi"},
		},
		{"a turn does not reply", started + "i32.const 0 i32.const 2 call $reply" + wantStatus(abi.StatusRefused), []string{"start "}},
		{
			"a request and its answer",
			started + "i32.const 0 i32.const 2 call $model i64.const 10 i64.ne if unreachable end" +
				" i32.const 100 i32.const 4 call $read" + wantI32(4) +
				" i32.const 104 i32.const 100 call $read" + wantI32(6) +
				" i32.const 104 i32.const 100 call $read" + wantI32(0) +
				" i32.const 106 i64.load8_u i64.const 54 i64.ne if unreachable end",
			[]string{"start ", "model hi"},
		},
		{
			"a room of nothing reads nothing, wherever it is",
			started + "i32.const -1 i32.const 0 call $read" + wantI32(0) + "i32.const 8 i32.const -1 call $read" + wantI32(9) +
				"i32.const -1 i32.const -1 call $read" + wantI32(0),
			[]string{"start "},
		},
		{
			"a request drops the last answer",
			started + "i32.const 0 i32.const 2 call $log drop i32.const 100 i32.const 100 call $read" + wantI32(0),
			[]string{"start ", "log hi"},
		},
		{"the handler's status", started + "i32.const 0 i32.const 2 call $output" + wantStatus(abi.StatusLimit) +
			"i32.const 100 i32.const 100 call $read" + wantI32(8), []string{"start ", "output hi"}},
		{"not UTF-8", started + "i32.const 8 i32.const 2 call $model" + wantStatus(abi.StatusInvalid), []string{"start "}},
		{"a log that is not UTF-8", "i32.const 8 i32.const 2 call $log" + wantStatus(abi.StatusOK), []string{"log \uFFFDx"}},
		{"outside the memory", started + "i32.const 65535 i32.const 2 call $model" + wantStatus(abi.StatusInvalid) +
			"i32.const -1 i32.const 2 call $model" + wantStatus(abi.StatusInvalid), []string{"start "}},
		{"above the limit", started + "i32.const 0 i32.const 1001 call $model" + wantStatus(abi.StatusLimit) +
			"i32.const -1 i32.const -1 call $model" + wantStatus(abi.StatusLimit), []string{"start "}},
		{
			"every other request", started + "i32.const 0 i32.const 2 call $tool_call drop i32.const 0 i32.const 2 call $report drop " +
				"i32.const 0 i32.const 2 call $usage drop i32.const 0 i32.const 2 call $wait drop i32.const 0 i32.const 2 call $history drop",
			[]string{"start ", "tool_call hi", "report hi", "usage hi", "wait hi", "history hi"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, e *Engine) {
				w := &world{answers: answers}
				g := guest{run: test.run + " i32.const 0", imports: allOps(), module: wasmtest.Module{
					Datas: []wasmtest.Data{{Bytes: []byte("hi")}, {Offset: 8, Bytes: []byte("\xffx")}},
				}}
				out, err := runOnce(t, e, g, Turn{Limits: abi.Limits{RequestBytes: 1000}}, w)
				if err != nil || out.Reason != abi.ReasonCompleted {
					t.Errorf("outcome %v %v, %v", out.Reason, out.Err, err)
				}
				if diff := cmp.Diff(test.want, w.asked); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestReadOutsideMemoryTraps(t *testing.T) {
	onEngines(t, func(t *testing.T, e *Engine) {
		w := &world{answers: map[abi.Op]Response{abi.OpStart: {Body: []byte("the start")}}}
		out, err := runOnce(t, e, guest{run: started + "i32.const 65530 i32.const 7 call $read", imports: allOps()}, Turn{}, w)
		if err != nil || out.Reason != abi.ReasonTrap || !strings.Contains(out.Err.Description, "read into [65530, +7)") {
			t.Errorf("outcome %v %v, %v", out.Reason, out.Err, err)
		}
	})
}

func TestS1_NoEffectsInTheGoldenRun(t *testing.T) {
	body := ""
	for _, op := range abi.Ops() {
		want := abi.StatusRefused
		if op == abi.OpLog {
			want = abi.StatusOK
		}
		body += "i32.const 0 i32.const 0 call $" + string(op) + wantStatus(want)
	}
	onEngines(t, func(t *testing.T, e *Engine) {
		g := guest{run: "i32.const 0", imports: allOps()}
		g.module.Funcs = []wasmtest.Func{{Export: exportInitialize, Body: body}}
		if out, err := runOnce(t, e, g, Turn{}, nil); err != nil || out.Reason != abi.ReasonCompleted {
			t.Errorf("outcome %v, %v", out, err)
		}
	})
}

func TestFail(t *testing.T) {
	long := strings.Repeat("é", maxDescription)
	for _, test := range []struct {
		payload string
		want    abi.Error
	}{
		{`{"code":8,"description":"enough"}`, abi.Error{Code: abi.CodeResourceExhausted, Description: "enough"}},
		{`{"description":"enough"}`, abi.Error{Code: abi.CodeUnknown, Description: "enough"}},
		{`{"description":"` + long + `"}`, abi.Error{Code: abi.CodeUnknown, Description: long[:maxDescription]}},
		{`{}`, abi.Error{Code: abi.CodeUnknown, Description: "the harness failed without saying why"}},
		{`enough`, abi.Error{Code: abi.CodeUnknown, Description: "the harness failed, and told why in a way that is not an Error in JSON"}},
		{`[1]`, abi.Error{Code: abi.CodeUnknown, Description: "the harness failed, and told why in a way that is not an Error in JSON"}},
	} {
		onEngines(t, func(t *testing.T, e *Engine) {
			g := guest{
				run: "i32.const 16 i32.const " + itoa(len(test.payload)) + " call $fail drop i32.const 1", imports: allOps(),
				module: wasmtest.Module{Datas: []wasmtest.Data{{Offset: 16, Bytes: []byte(test.payload)}}},
			}
			out, err := runOnce(t, e, g, Turn{}, nil)
			if err != nil || out.Reason != abi.ReasonError {
				t.Fatal(out, err)
			}
			if diff := cmp.Diff(&test.want, out.Err); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// A guest that fails and then returns 0 has changed its mind.
func TestFailAndComplete(t *testing.T) {
	e := newEngine(t, Config{})
	out, err := runOnce(t, e, guest{run: "i32.const 0 i32.const 0 call $fail drop i32.const 0", imports: allOps()}, Turn{}, nil)
	if err != nil || out.Reason != abi.ReasonCompleted || out.Err != nil {
		t.Errorf("outcome %v, %v", out, err)
	}
}

func TestResponseMovesTheClock(t *testing.T) {
	g := guest{run: started + "i32.const 0", imports: allOps()}
	begin := time.Unix(1_700_000_000, 5)
	for _, test := range []struct {
		name       string
		start, now time.Time
		want       int64
	}{
		{"forward", begin, begin.Add(time.Second), begin.UnixNano() + 1e9},
		{"never back", begin, begin.Add(-time.Second), begin.UnixNano()},
		{"not at all", begin, time.Time{}, begin.UnixNano()},
		{"from before the image", time.Unix(0, 0), time.Time{}, int64(goldenClock)},
		{"from before what it holds", time.Unix(-1<<40, 0), time.Time{}, int64(goldenClock)},
		{"beyond what it holds", begin, time.Unix(1<<40, 0), 1<<63 - 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEngine(t, Config{})
			in := instantiate(t, loaded(t, e, g.bytes()))
			if _, err := in.Run(t.Context(), Turn{Start: test.start}, &world{answers: map[abi.Op]Response{abi.OpStart: {Now: test.now}}}); err != nil {
				t.Fatal(err)
			}
			if img, err := in.Snapshot(); err != nil || img.Clock != test.want {
				t.Errorf("clock %d, want %d (%v)", img.Clock, test.want, err)
			}
		})
	}
}

func TestFuelOfRequests(t *testing.T) {
	e := newEngine(t, Config{})
	// fuel is what a call costs beside the guest's own few instructions.
	fuel := func(name string, size int) uint64 {
		t.Helper()
		used := func(run string) uint64 {
			out, err := runOnce(t, e, guest{run: run + " i32.const 0", imports: append(allOps(), moduleWASI+".random_get")}, Turn{}, nil)
			if err != nil || out.Reason != abi.ReasonCompleted {
				t.Fatal(out, err)
			}
			return out.Fuel
		}
		args := "i32.const 0 i32.const " + itoa(size)
		return used(args+" call $"+name+" drop") - used(args+" drop drop")
	}
	for _, test := range []struct {
		name string
		size int
		want uint64
	}{
		{"log", 0, fuelPerCall},
		{"log", 8000, fuelPerCall + 8000*fuelPerByte},
		{"read", 8000, fuelPerCall},  // nothing is there to read
		{"model", 8000, fuelPerCall}, // refused before it is looked at
		{"random_get", 8000, fuelPerCall + 8000*fuelPerRandomByte},
	} {
		if got := fuel(test.name, test.size); got != test.want {
			t.Errorf("%s of %d bytes: %d units, want %d", test.name, test.size, got, test.want)
		}
	}
}

func TestCallsAreInOrderAndLinesComeWhole(t *testing.T) {
	print := func(fd, at, n int) string {
		return strings.NewReplacer("FD", itoa(fd), "AT", itoa(at), "LEN", itoa(n)).Replace(
			" i32.const 64 i32.const AT i32.store i32.const 68 i32.const LEN i32.store i32.const FD i32.const 64 i32.const 1 i32.const 72 call $fd_write if unreachable end ")
	}
	g := guest{
		imports: append(allOps(), "wasi_snapshot_preview1.fd_write"),
		run: print(1, 0, 3) + print(2, 3, 4) + started + print(1, 7, 6) + "i32.const 0 i32.const 3 call $model drop " +
			print(1, 13, 4) + "i32.const 9",
		module: wasmtest.Module{Datas: []wasmtest.Data{{Bytes: []byte("oneERR\ntwo\n\n\nlast")}}},
	}
	want := []string{"log ERR", "start ", "log onetwo", "model one", "log last"}
	onEngines(t, func(t *testing.T, e *Engine) {
		w := &world{}
		out, err := runOnce(t, e, g, Turn{}, w)
		if err != nil || out.Reason != abi.ReasonError {
			t.Fatal(out, err)
		}
		if diff := cmp.Diff(want, w.asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		broken := errors.New("broken")
		w = &world{err: map[abi.Op]error{abi.OpLog: broken}}
		if _, err := runOnce(t, e, g, Turn{}, w); !errors.Is(err, broken) || len(w.asked) != 1 {
			t.Errorf("error %v after %q", err, w.asked)
		}
	})
}

package wasm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

func itoa(n int) string { return strconv.Itoa(n) }

const forever = "loop br 0 end i32.const 0"

func TestS2_GuestsEndForTheRightReason(t *testing.T) {
	calls := func(body string) wasmtest.Module {
		return wasmtest.Module{Funcs: []wasmtest.Func{{Name: "f", Type: "-> i32", Body: body}}, Names: true}
	}
	for _, test := range []struct {
		name   string
		guest  guest
		limits abi.Limits
		reason abi.EndReason
		text   string
	}{
		{"loop", guest{run: forever}, abi.Limits{Fuel: 1_000_000}, abi.ReasonFuel, "1000000 units"},
		{"loop over many slices", guest{run: forever}, abi.Limits{Fuel: 5*sliceFuel + 17}, abi.ReasonFuel, "units of fuel"},
		{"flood of host calls", guest{run: "loop i32.const 0 i32.const 0 call $log drop br 0 end i32.const 0", imports: []string{"agent.log"}}, abi.Limits{Fuel: 10_000_000}, abi.ReasonFuel, "units"},
		{"recursion", guest{run: "call $f", module: calls("call $f")}, abi.Limits{Depth: 1000}, abi.ReasonDepth, "more than 1000 nested calls"},
		{"mutual recursion", guest{run: "call $agent_run"}, abi.Limits{Depth: 10}, abi.ReasonDepth, "more than 10"},
		{"unreachable", guest{run: "call $f", module: calls("unreachable")}, abi.Limits{}, abi.ReasonTrap, "trap: unreachable in f < agent_run"},
		{"division by zero", guest{run: "i32.const 1 i32.const 0 i32.div_s"}, abi.Limits{}, abi.ReasonTrap, "divide by zero"},
		{"integer overflow", guest{run: "f64.const inf i32.trunc_f64_s"}, abi.Limits{}, abi.ReasonTrap, "overflow"},
		{"load beyond memory", guest{run: "i32.const -1 i32.load"}, abi.Limits{}, abi.ReasonTrap, "out of bounds memory access"},
		{"fill beyond memory", guest{run: "i32.const 1 i32.const 0 i32.const 65536 memory.fill i32.const 0"}, abi.Limits{}, abi.ReasonTrap, "out of bounds memory access"},
		{"call through an empty entry", guest{run: "i32.const 0 call_indirect 0", module: wasmtest.Module{Types: []wasmtest.Type{"-> i32"}, Tables: []wasmtest.Table{{Min: 1}}}}, abi.Limits{}, abi.ReasonTrap, "invalid table access"},
		{"abort", guest{run: "i32.const 0 i32.const 0 i32.const 12 i32.const 5 call $abort i32.const 0", imports: []string{"env.abort"}}, abi.Limits{}, abi.ReasonTrap, "abort at line 12, column 5"},
		{"exit 0", guest{run: "i32.const 0 call $proc_exit i32.const 0", imports: []string{"wasi_snapshot_preview1.proc_exit"}}, abi.Limits{}, abi.ReasonExit, "proc_exit(0)"},
		{"exit 7", guest{run: "i32.const 7 call $proc_exit i32.const 0", imports: []string{"wasi_snapshot_preview1.proc_exit"}}, abi.Limits{}, abi.ReasonExit, "proc_exit(7)"},
		{"returns an error", guest{run: "i32.const -5"}, abi.Limits{}, abi.ReasonError, "agent_run returned -5"},
		{"memory above the limit", guest{run: "i32.const 0", module: wasmtest.Module{Memories: []wasmtest.Memory{{Min: 4, Export: "memory"}}}}, abi.Limits{MemoryBytes: 2 * wasmPage}, abi.ReasonLimit, "262144 bytes of memory; the limit is 131072"},
		// It grows until it may not, and then all of it is there.
		{"memory bomb", guest{run: "loop i32.const 1 memory.grow i32.const -1 i32.ne br_if 0 end memory.size i32.const 10 i32.ne"}, abi.Limits{MemoryBytes: 10*wasmPage + 1}, abi.ReasonCompleted, ""},
		{"memory bomb at once", guest{run: "i32.const 65535 memory.grow i32.const -1 i32.ne"}, abi.Limits{}, abi.ReasonCompleted, ""},
		// It gives up when it may not: the end says what for, but not if it got less, nor
		// if it is the module that wants no more.
		{"trap for want of memory", guest{run: "i32.const 16 memory.grow drop i32.const -1 i32.load"}, abi.Limits{MemoryBytes: 10*wasmPage + 1}, abi.ReasonLimit, "the limit of 655361 bytes of memory was reached: trap: out of bounds memory access"},
		{"exit for want of memory", guest{run: "i32.const 16 memory.grow drop i32.const 2 call $proc_exit i32.const 0", imports: []string{"wasi_snapshot_preview1.proc_exit"}}, abi.Limits{MemoryBytes: 10 * wasmPage}, abi.ReasonLimit, "655360 bytes of memory was reached: the harness called proc_exit(2)"},
		{"abort for want of memory", guest{run: "i32.const 16 memory.grow drop i32.const 0 i32.const 0 i32.const 12 i32.const 5 call $abort i32.const 0", imports: []string{"env.abort"}}, abi.Limits{MemoryBytes: 10 * wasmPage}, abi.ReasonLimit, "was reached: trap: abort at line 12"},
		{"trap after it got less memory", guest{run: "i32.const 16 memory.grow drop i32.const 1 memory.grow drop unreachable"}, abi.Limits{MemoryBytes: 10 * wasmPage}, abi.ReasonTrap, "trap: unreachable"},
		{"trap at the module's own maximum", guest{run: "i32.const 16 memory.grow i32.const -1 i32.eq if unreachable end i32.const 0", module: wasmtest.Module{Memories: []wasmtest.Memory{{Min: 1, Max: new(uint32(8)), Export: "memory"}}}}, abi.Limits{MemoryBytes: 64 * wasmPage}, abi.ReasonTrap, "trap: unreachable"},
		{"fuel after it got no memory", guest{run: "i32.const 16 memory.grow drop " + forever}, abi.Limits{MemoryBytes: 10 * wasmPage, Fuel: 100_000}, abi.ReasonFuel, "units of fuel"},
	} {
		t.Run(test.name, func(t *testing.T) {
			outs := map[string]Outcome{}
			onEngines(t, func(t *testing.T, e *Engine) {
				out, err := runOnce(t, e, test.guest, Turn{Limits: test.limits}, nil)
				if err != nil {
					t.Fatal(err)
				}
				text := ""
				if out.Err != nil {
					text = out.Err.Description
				}
				if out.Reason != test.reason || !strings.Contains(text, test.text) {
					t.Errorf("reason %q, text %q; want %q, %q", out.Reason, text, test.reason, test.text)
				}
				outs[t.Name()[strings.LastIndex(t.Name(), "/")+1:]] = out
			})
			if diff := cmp.Diff(outs["compiler"], outs["interpreter"]); diff != "" {
				t.Errorf("M2: the engines differ (-compiler +interpreter):\n%s", diff)
			}
		})
	}
}

// The engine's own bounds come late, and are told from the guest's.
func TestEngineStackIsExternal(t *testing.T) {
	e := newEngine(t, Config{Interpreter: true})
	out, err := runOnce(t, e, guest{run: "call $agent_run"}, Turn{}, nil)
	if err != nil || out.Reason != abi.ReasonEngine || out.Reason.Class() != abi.ClassExternal {
		t.Errorf("outcome %+v, %v", out, err)
	}
	e = newEngine(t, Config{})
	if out, err = runOnce(t, e, guest{run: "call $agent_run"}, Turn{}, nil); err != nil || out.Reason != abi.ReasonDepth {
		t.Errorf("outcome %+v, %v", out, err)
	}
	out, err = runOnce(t, e, guest{run: "call $agent_run"}, Turn{Limits: abi.Limits{Depth: 1 << 30}}, nil)
	if err != nil || out.Reason != abi.ReasonEngine {
		t.Errorf("outcome %+v, %v", out, err)
	}
}

func TestS2_DeadlineEndsAGuestThatNeverCallsOut(t *testing.T) {
	onEngines(t, func(t *testing.T, e *Engine) {
		in := instantiate(t, loaded(t, e, guest{run: forever}.bytes()))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := in.Run(ctx, Turn{}, &world{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if in.Status() != Stopped {
			t.Errorf("status %d", in.Status())
		}
	})
}

func TestRunOnAnEndedContext(t *testing.T) {
	e := newEngine(t, Config{})
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	in := instantiate(t, loaded(t, e, guest{run: "i32.const 0"}.bytes()))
	if _, err := in.Run(ctx, Turn{}, &world{}); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
}

func TestStopEndsAGuestThatNeverCallsOut(t *testing.T) {
	onEngines(t, func(t *testing.T, e *Engine) {
		in := instantiate(t, loaded(t, e, guest{run: forever}.bytes()))
		time.AfterFunc(5*time.Millisecond, in.Stop)
		if _, err := in.Run(t.Context(), Turn{}, &world{}); !errors.Is(err, ErrStopped) {
			t.Errorf("error %v", err)
		}
	})
}

// countdown is a context that ends when it was looked at a number of times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// One memory.fill of 256 MiB is looked at often enough: what it does between two
// looks is a small part of it.
func TestS2_BulkMemoryIsInterrupted(t *testing.T) {
	fill := guest{run: `i32.const 4095 memory.grow drop
		i32.const 0 i32.const 1 i32.const 268435456 memory.fill i32.const 0`}
	onEngines(t, func(t *testing.T, e *Engine) {
		c := loaded(t, e, fill.bytes())
		in := instantiate(t, c)
		out, err := in.Run(t.Context(), Turn{}, &world{})
		if err != nil || out.Reason != abi.ReasonCompleted {
			t.Fatal(out, err)
		}
		const looks = 10
		cell := instantiate(t, c).cell
		call := cell.begin(&countdown{t.Context(), looks}, inTurn, &world{}, Turn{})
		if _, err := call.invoke(cell.function(exportRun)); !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v", err)
		}
		if used := call.fuelUsed(); used > out.Fuel-out.Fuel/4 {
			t.Errorf("used %d of %d units", used, out.Fuel)
		}
		cell.end()
	})
}

// hostileArgs are values that go wrong as pointers, lengths or descriptors.
var hostileArgs = []uint64{0, 1, 65535, 65536, 1 << 31, 1<<32 - 1, 1<<64 - 1}

// argCases gives tuples of n hostile values: all of them if they are few, else
// each value everywhere and each value in each place.
func argCases(n int) (list [][]uint64) {
	if n == 0 {
		return [][]uint64{nil}
	}
	if n <= 3 {
		for _, rest := range argCases(n - 1) {
			for _, v := range hostileArgs {
				list = append(list, append(slices.Clone(rest), v))
			}
		}
		return list
	}
	for _, everywhere := range hostileArgs {
		for place := range n {
			for _, v := range hostileArgs {
				args := slices.Repeat([]uint64{everywhere}, n)
				args[place] = v
				list = append(list, args)
			}
		}
	}
	return list
}

// TestS3_HostileArguments calls every import with arguments that are out of
// range in every way. The guest finds them in its globals.
func TestS3_HostileArguments(t *testing.T) {
	for _, interpreter := range []bool{false, true} {
		e := newEngine(t, Config{Interpreter: interpreter})
		for _, f := range hostFuncs() {
			if f.free {
				continue
			}
			g := guest{imports: []string{f.module + "." + f.name}}
			if f.name != string(abi.OpStart) {
				g.imports = append(g.imports, "agent.start")
			}
			g.run = "i32.const 0 i32.const 0 call $start drop "
			for i, p := range f.params {
				typ := map[byte]string{0x7f: "i32", 0x7e: "i64"}[p]
				g.module.Globals = append(g.module.Globals, wasmtest.Global{Type: typ, Mutable: true, Init: typ + ".const 0"})
				g.run += fmt.Sprintf("global.get %d ", i)
			}
			g.run += "call $" + f.name + strings.Repeat(" drop", len(f.results)) + " i32.const 0"
			c := loaded(t, e, g.bytes())
			for _, args := range argCases(len(f.params)) {
				img := c.Golden()
				img.Changed = nil
				img.Globals = slices.Clone(img.Globals)
				for i := range img.Globals {
					if img.Globals[i].Type == 0x7f {
						le.PutUint32(img.Globals[i].Value[:], uint32(args[i]))
					} else {
						le.PutUint64(img.Globals[i].Value[:], args[i])
					}
				}
				in, err := c.Restore(img)
				if err != nil {
					t.Fatal(err)
				}
				w := &world{answers: map[abi.Op]Response{abi.OpStart: {Body: []byte("a response")}}}
				out, err := in.Run(t.Context(), Turn{}, w)
				if err != nil {
					t.Errorf("%s%x: %v", f.name, args, err)
				}
				switch out.Reason {
				case abi.ReasonCompleted, abi.ReasonTrap, abi.ReasonExit:
				default:
					t.Errorf("%s%x: %v %v", f.name, args, out.Reason, out.Err)
				}
				in.Stop()
			}
		}
	}
}

func TestS3_HandlerFaultsStayOnTheHostsSide(t *testing.T) {
	asks := guest{imports: []string{"agent.start"}, run: "i32.const 0 i32.const 0 call $start drop i32.const 0"}
	broken := errors.New("broken")
	onEngines(t, func(t *testing.T, e *Engine) {
		for _, test := range []struct {
			name    string
			handler *world
			want    error
		}{
			{"panic", &world{before: func(abi.Op) { panic("oops") }}, ErrHost},
			{"nil pointer", &world{before: func(abi.Op) { _ = *(*int)(nil) }}, ErrHost},
			{"error", &world{err: map[abi.Op]error{abi.OpStart: broken}}, broken},
		} {
			if out, err := runOnce(t, e, asks, Turn{}, test.handler); !errors.Is(err, test.want) || out != (Outcome{Fuel: out.Fuel}) {
				t.Errorf("%s: %v, %v", test.name, out, err)
			}
		}
	})
}

func TestS2_LogIsBounded(t *testing.T) {
	line := strings.Repeat("x", 1000) + "\n"
	onEngines(t, func(t *testing.T, e *Engine) {
		for _, body := range []string{
			"i32.const 16 i32.const 1001 call $log i64.const 0 i64.ne if unreachable end",
			"i32.const 1 i32.const 0 i32.const 1 i32.const 8 call $fd_write if unreachable end",
		} {
			g := guest{
				imports: []string{"agent.log", "wasi_snapshot_preview1.fd_write"}, locals: "i32",
				run: "loop " + body + " local.get 0 i32.const 1 i32.add local.tee 0 i32.const 10000 i32.ne br_if 0 end i32.const 0",
				module: wasmtest.Module{Datas: []wasmtest.Data{
					{Offset: 0, Bytes: []byte("\x10\x00\x00\x00\xe9\x03\x00\x00")},
					{Offset: 16, Bytes: []byte(line)},
				}},
			}
			w := &world{}
			out, err := runOnce(t, e, g, Turn{}, w)
			if err != nil || out.Reason != abi.ReasonCompleted {
				t.Fatal(out, err)
			}
			size := 0
			for _, call := range w.asked {
				size += len(call) - len("log ")
			}
			if size < maxLog-1000 || size > maxLog {
				t.Errorf("%d bytes were logged in %d calls", size, len(w.asked))
			}
		}
	})
}

// A turn that needs all of its fuel completes; with one unit less it does not.
func TestFuelIsExact(t *testing.T) {
	g := guest{locals: "i32", run: "loop local.get 0 i32.const 1 i32.add local.tee 0 i32.const 500000 i32.ne br_if 0 end i32.const 0"}
	onEngines(t, func(t *testing.T, e *Engine) {
		out, err := runOnce(t, e, g, Turn{}, nil)
		if err != nil || out.Fuel < 2*sliceFuel {
			t.Fatal(out, err)
		}
		for less, want := range []abi.EndReason{abi.ReasonCompleted, abi.ReasonFuel} {
			limit := abi.Int64(out.Fuel) - abi.Int64(less)
			got, err := runOnce(t, e, g, Turn{Limits: abi.Limits{Fuel: limit}}, nil)
			if err != nil || got.Reason != want || got.Fuel != out.Fuel {
				t.Errorf("limit %d: %v with %d units, %v", limit, got.Reason, got.Fuel, err)
			}
		}
	})
}

func TestMeter(t *testing.T) {
	m := meter{limit: sliceFuel + 10}
	for i, step := range []struct {
		left, slice int64
		ok          bool
		total       uint64 // with all of the slice left
	}{
		{0, sliceFuel, true, 0},
		{-10, 0, true, sliceFuel + 10}, // overdrawn, but all of it is within the budget
		{-1, 0, false, sliceFuel + 11},
	} {
		slice, ok := m.next(step.left)
		if slice != step.slice || ok != step.ok || m.total(slice) != step.total {
			t.Errorf("step %d: slice %d, %v, total %d; want %+v", i, slice, ok, m.total(slice), step)
		}
	}
}

// A turn that is over calls out no more, however busy it was.
func TestEndedTurnDoesNotCallOut(t *testing.T) {
	e := newEngine(t, Config{})
	cell := instantiate(t, loaded(t, e, guest{run: started + "i32.const 0", imports: allOps()}.bytes())).cell
	w := &world{}
	call := cell.begin(&countdown{t.Context(), 0}, inTurn, w, Turn{})
	if _, err := call.invoke(cell.function(exportRun)); !errors.Is(err, context.Canceled) || len(w.asked) != 0 {
		t.Errorf("error %v, asked %q", err, w.asked)
	}
	cell.end()
}

package wasm

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// tricks are bodies that never return by themselves, and what ends them.
var tricks = map[string]struct {
	body, text string
	reason     abi.EndReason
}{
	"loops":     {forever, "units of fuel", abi.ReasonFuel},
	"recurses":  {"call $again", "nested calls", abi.ReasonDepth},
	"traps":     {"unreachable", "unreachable", abi.ReasonTrap},
	"exits":     {"i32.const 0 call $proc_exit i32.const 0", "proc_exit(0)", abi.ReasonExit},
	"bombs":     {"loop i32.const 16 memory.grow i32.const -1 i32.ne br_if 0 end unreachable", "bytes of memory was reached: trap: unreachable", abi.ReasonLimit},
	"fills":     {"loop i32.const 0 i32.const 1 i32.const 65536 memory.fill br 0 end i32.const 0", "units of fuel", abi.ReasonFuel},
	"requests":  {"loop i32.const 0 i32.const 0 call $output drop br 0 end i32.const 0", "units of fuel", abi.ReasonFuel},
	"logs":      {"loop i32.const 0 i32.const 60000 call $log drop br 0 end i32.const 0", "units of fuel", abi.ReasonFuel},
	"randomize": {"loop i32.const 0 i32.const 65536 call $random_get drop br 0 end i32.const 0", "units of fuel", abi.ReasonFuel},
}

// trickster has a trick in one of its exports.
func trickster(export, body string) guest {
	g := guest{run: "i32.const 0", imports: []string{"agent.output", "agent.log", moduleWASI + ".proc_exit", moduleWASI + ".random_get"}}
	if export == exportRun {
		g.run = body
	} else {
		typ := wasmtest.Type("-> i32")
		if export == exportInitialize || export == exportCloned || export == "start" {
			typ, body = "", body+" drop"
		}
		f := wasmtest.Func{Export: export, Type: typ, Body: body}
		if export == "start" {
			g.module.Start, f.Export, f.Name = "boot", "", "boot"
		}
		g.module.Funcs = append(g.module.Funcs, f)
	}
	g.module.Funcs = append(g.module.Funcs, wasmtest.Func{Name: "again", Type: "-> i32", Body: "call $again"})
	return g
}

// S2, S3: whatever never returns by itself, in whichever export, is ended: before
// the first turn the module is refused, in a turn the turn fails.
func TestS2_EveryExportIsBounded(t *testing.T) {
	onEngines(t, func(t *testing.T, e *Engine) {
		e.golden.Fuel, e.golden.Depth, e.golden.MemoryBytes = 200_000, 100, 1<<20
		for name, trick := range tricks {
			for _, export := range []string{"start", exportInitialize, exportDescribe, exportRun, exportCloned, exportSave, exportLoad} {
				c, err := e.Load(t.Context(), name, trickster(export, trick.body).bytes())
				if export == exportDescribe && err == nil {
					_, err = c.Describe(t.Context())
				}
				if export == "start" || export == exportInitialize || export == exportDescribe {
					if !errors.Is(err, ErrModule) || !strings.Contains(err.Error(), trick.text) {
						t.Errorf("%s in %s: error %v, want %q", name, export, err, trick.text)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				var out Outcome
				in, turn := instantiate(t, c), Turn{Limits: e.golden, Cloned: true}
				switch export {
				case exportSave:
					_, out, err = in.Save(t.Context(), turn)
				case exportLoad:
					out, err = in.Load(t.Context(), turn, []byte("a state"))
				default:
					out, err = in.Run(t.Context(), turn, &world{})
				}
				if err != nil || out.Reason != trick.reason || !strings.Contains(out.Err.Description, trick.text) {
					t.Errorf("%s in %s: %+v, %v; want %s", name, export, out, err, trick.reason)
				}
			}
		}
	})
}

// S2: a module that takes too long to load is given up, also if whoever asked
// for it waits for ever.
func TestS2_LoadTakesNoLongerThanItMay(t *testing.T) {
	for _, interpreter := range []bool{false, true} {
		e := newEngine(t, Config{Interpreter: interpreter, LoadTimeout: 10 * time.Millisecond})
		if _, err := e.Load(t.Context(), "endless", endless()); !errors.Is(err, ErrShortage) || !strings.Contains(err.Error(), "10ms") {
			t.Errorf("error %v", err)
		}
	}
}

// Exports that are imports, and a table of imports, are called like any other
// function, and charged.
func TestImportsAsExportsAndInTables(t *testing.T) {
	exported := wasmtest.Module{
		Imports: []wasmtest.Import{{Module: moduleWASI, Name: "sched_yield", Type: "-> i32"}},
		Funcs:   []wasmtest.Func{{Export: exportMarker}},
		Exports: []wasmtest.Export{{Name: exportRun, Index: 0}, {Name: exportDescribe, Index: 0}},
	}.Bytes()
	table := guest{
		imports: []string{moduleWASI + ".proc_exit", moduleWASI + ".sched_yield"},
		run:     "i32.const 1 call_indirect 0 if unreachable end i32.const 7 i32.const 0 call_indirect 1 i32.const 0",
		module: wasmtest.Module{
			Types: []wasmtest.Type{"-> i32", "i32 ->"}, Tables: []wasmtest.Table{{Min: 2}},
			Elems: []wasmtest.Elem{{Funcs: []string{"proc_exit", "sched_yield"}}},
		},
	}.bytes()
	outs := map[string][]Outcome{}
	onEngines(t, func(t *testing.T, e *Engine) {
		for _, code := range [][]byte{exported, table} {
			out, err := instantiate(t, loaded(t, e, code)).Run(t.Context(), Turn{}, &world{})
			if err != nil {
				t.Fatal(err)
			}
			outs[t.Name()] = append(outs[t.Name()], out)
		}
	})
	for name, out := range outs {
		if out[0].Reason != abi.ReasonCompleted || out[0].Fuel != fuelPerCall || out[1].Reason != abi.ReasonExit || out[1].Fuel < 2*fuelPerCall {
			t.Errorf("%s: %+v", name, out)
		}
		for _, other := range outs {
			if diff := cmp.Diff(out, other); diff != "" {
				t.Errorf("M2: the engines differ: %s", diff)
			}
		}
	}
}

// A stack that a guest made grow is given back with its turn, whatever becomes of
// the cell.
func TestS2_StackIsGivenBack(t *testing.T) {
	// 100 locals that are needed behind the call, so that a frame is large.
	sum, body := "", "local.get 0 if local.get 0 i32.const 1 i32.sub call $deep drop end "
	for i := range 100 {
		body = "local.get 0 i64.extend_i32_u i64.const " + itoa(i) + " i64.mul local.set " + itoa(i+1) + " " + body
		sum += "local.get " + itoa(i+1) + " i64.add "
	}
	deep := wasmtest.Func{Name: "deep", Type: "i32 -> i64", Locals: strings.Repeat("i64 ", 100), Body: body + "i64.const 0 " + sum}
	g := guest{run: "i32.const 1900 call $deep drop i32.const 0", module: wasmtest.Module{Funcs: []wasmtest.Func{deep}}}
	onEngines(t, func(t *testing.T, e *Engine) {
		in := instantiate(t, loaded(t, e, g.bytes()))
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		if out, err := in.Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
			t.Fatal(out, err)
		}
		if grown := heap() - before; grown > 512<<10 {
			t.Errorf("%d bytes are held between turns", grown)
		}
	})
}

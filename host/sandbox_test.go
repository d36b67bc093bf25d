package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// onBoth runs a test on both engines.
func onBoth(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for _, interpreter := range []bool{false, true} {
		t.Run(fmt.Sprintf("interpreter=%t", interpreter), func(t *testing.T) {
			if testing.Short() && interpreter {
				t.Skip("takes long under the race detector")
			}
			r := newRig(t)
			r.runtimes = []runtimes.Runtime{engine(t, interpreter)}
			r.limits = abi.DefaultLimits()
			r.limits.Fuel = 2_000_000
			test(t, r)
		})
	}
}

// stillHonest shows that an honest session of the host works and is proven.
func stillHonest(r *rig) {
	r.t.Helper()
	good := r.createFrom(tally())
	for i := range 2 {
		if got := r.exec(good.UID, "x"); len(got) != 2 || got[1] != fmt.Sprintf("%04d", i+1) {
			r.t.Errorf("the honest session puts out %q", got)
		}
	}
	if v := r.verify(good.UID); v.Reexecuted != 2 {
		r.t.Errorf("verified %+v", v)
	}
}

// hostileJSON is what a model or a tool may answer to bring its reader down.
func hostileJSON() map[string]string {
	const exact = "12345678901234567890"
	return map[string]string{
		"deep":       strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000),
		"deep list":  `{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + "}",
		"endless":    strings.Repeat(`{"a":`, 100_000),
		"none":       `{"a":`,
		"twice":      `{"a":1,"a":2}`,
		"surrogate":  `{"a":"\ud800"}`,
		"infinite":   `{"a":1e999}`,
		"long names": `{"` + strings.Repeat("n", 1<<20) + `":[` + strings.Repeat(exact+",", 20_000) + `1]}`,
		"large":      `{"a":"` + strings.Repeat("x", 9<<20) + `"}`,
	}
}

// S3: what a model or a tool answers is recorded, or is a recorded failure that
// the guest is told of, and in either case the turn goes on.
func TestS3_HostileAnswers(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.tools = map[string]tool.Tool{}
		asks := cell{run: "i32.const 0"}
		for name, text := range hostileJSON() {
			r.models[name] = providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
				return model.Result{Message: abi.Message{Parts: []abi.Part{{Data: &abi.DataPart{Data: abi.Struct(text)}}}}}, nil
			})
			id := strings.ReplaceAll(name, " ", "-")
			r.tools[id] = tool.Tool{
				Definition: abi.ToolDefinition{Name: id},
				Executor: executorFunc(func(context.Context, tool.Call) (abi.ToolResult, error) {
					return abi.ToolResult{Output: abi.Struct(text)}, nil
				}),
			}
			n := len(asks.texts)
			asks.texts = append(
				asks.texts, fmt.Sprintf(`{"model":%q,"messages":[{}]}`, name),
				fmt.Sprintf(`{"calls":[{"id":%q,"tool":%q,"idempotency_key":"k"}]}`, id, id),
			)
			asks.run = fmt.Sprintf("$json %d call $model %s $json %d call $tool_call %s", n, status(abi.StatusFailed), n+1, status(abi.StatusOK)) + asks.run
		}
		r.open()
		s := r.createFrom(asks.harness("asks"))
		r.exec(s.UID, "go")
		failures := 0
		for rec, err := range r.Replay(t.Context(), s.UID, 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e := rec.Event; e.Kind == abi.EventError || e.Kind == abi.EventToolResult && e.Result.IsError {
				failures++
			}
			if len(rec.Line) > abi.MaxInlineBytes {
				t.Errorf("record %d has %d bytes", rec.Seq, len(rec.Line))
			}
		}
		if want := 2 * len(hostileJSON()); failures != want {
			t.Errorf("%d failures are recorded, want %d", failures, want)
		}
		r.verify(s.UID)
		stillHonest(r)
	})
}

// S2: the results of one request are bounded together: those there is no room for
// are failures.
func TestS2_ResultsOfOneRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("tens of MB of JSON")
	}
	r := newRig(t)
	r.tools = map[string]tool.Tool{"big": {
		Definition: abi.ToolDefinition{Name: "big"},
		Executor: executorFunc(func(context.Context, tool.Call) (abi.ToolResult, error) {
			return abi.ToolResult{Output: abi.Struct(`{"x":"` + strings.Repeat("x", 7<<20) + `"}`)}, nil
		}),
	}}
	r.open()
	var calls []string
	for i := range 6 {
		calls = append(calls, fmt.Sprintf(`{"id":"c%d","tool":"big","idempotency_key":"k"}`, i))
	}
	s := r.createFrom(cell{
		texts: []string{`{"calls":[` + strings.Join(calls, ",") + `]}`}, run: "$json 0 call $tool_call " + status(abi.StatusOK) + "i32.const 0",
	}.harness("results"))
	r.exec(s.UID, "go")
	var results, failed int
	for rec, err := range r.Replay(t.Context(), s.UID, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e := rec.Event; e.Kind == abi.EventToolResult {
			results++
			if e.Result.IsError && strings.Contains(e.Result.Error, "of all calls of one request") {
				failed++
			}
		}
	}
	if results != 6 || failed != 2 {
		t.Errorf("%d of %d results found no room, want 2 of 6", failed, results)
	}
	r.verify(s.UID)
}

// S3: what comes from outside is refused before anything is recorded, or is handed
// to the guest as it is.
func TestS3_HostileRequests(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open()
		waits := cell{texts: []string{`{"signal":"go"}`}, run: "$json 0 call $wait drop i32.const 0"}.harness("waits")
		deep := strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)
		s, err := r.Create(t.Context(), host.CreateRequest{Harness: waits, Config: []byte(deep)})
		if err != nil {
			t.Fatalf("a config is any bytes: %v", err)
		}
		if _, err := r.Create(t.Context(), host.CreateRequest{Harness: waits, Config: make([]byte, 1<<20+1)}); !errors.Is(err, host.ErrInvalid) {
			t.Errorf("a config of more than 1 MiB: %v", err)
		}
		for name, text := range hostileJSON() {
			in := []abi.Message{{Parts: []abi.Part{{Data: &abi.DataPart{Data: abi.Struct(text)}}}}}
			if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: in}); !errors.Is(err, host.ErrInvalid) {
				t.Errorf("input %q: %v", name, err)
			}
		}
		if got := mustGet(t, r, s.UID); got.Head.Seq != 0 || got.State != host.ExecPending {
			t.Errorf("what was refused left %+v", got)
		}
		r.park(s.UID, "go")
		for name, text := range hostileJSON() {
			if _, err := r.Signal(t.Context(), s.UID, "go", []byte(text)); !errors.Is(err, host.ErrInvalid) {
				t.Errorf("payload %q: %v", name, err)
			}
		}
		if _, err := r.Signal(t.Context(), s.UID, "go", nil); err != nil {
			t.Error(err)
		}
		r.resume(s.UID)
		r.verify(s.UID)
		stillHonest(r)
	})
}

// S3: a child whose agent_cloned never returns fails its turns, and nothing else.
func TestS3_HostileClone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open()
		s := r.createFrom(cell{run: "i32.const 0", cloned: "loop br 0 end"}.harness("cloned"))
		r.exec(s.UID, "go")
		child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
		for range 2 {
			e, err := r.Exec(t.Context(), host.ExecRequest{Session: child.UID, Inputs: say("go")})
			if err != nil || e.Reason != abi.ReasonFuel {
				t.Errorf("%+v, %v", e, err)
			}
		}
		r.exec(s.UID, "go")
		r.verify(s.UID)
		r.verify(child.UID)
		stillHonest(r)
	})
}

// M2, M3: what a guest has not read of an answer is gone with its turn, whatever
// pointers it keeps: for itself, run again from its image, and for the next tenant
// of the cell.
func TestS3_AnswersEndWithTheirTurn(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open()
		keeps := cell{
			early: true,
			run: `i32.const 256 i32.const 4096 call $read i32.const 0 i32.ne if unreachable end
				i32.const 0 i32.const 0 call $start i32.wrap_i64 i32.eqz if unreachable end
				i32.const 256 i32.const 8 call $read i32.const 8 i32.ne if unreachable end
				i32.const 512 i32.const 256 i32.load i32.store i32.const 0`,
		}.harness("keeps")
		s, other := r.createFrom(keeps), r.createFrom(keeps)
		for range 3 {
			r.exec(s.UID, "a secret")
			r.exec(other.UID, "another")
		}
		r.verify(s.UID)
		stillHonest(r)
	})
}

// S1: a module that does what no image could hold, or what never ends by itself
// before its first turn, is refused when it comes, and leaves nothing.
func TestS1_HostileModulesLeaveNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open()
		honest := r.createFrom(tally())
		table := []wasmtest.Table{{Min: 1}}
		init := func(body string) wasmtest.Module {
			return wasmtest.Module{Funcs: []wasmtest.Func{{Export: "_initialize", Body: body}}}
		}
		for name, m := range map[string]wasmtest.Module{
			"table.set":            {Tables: table, Funcs: []wasmtest.Func{{Name: "f", Body: "i32.const 0 ref.null funcref table.set 0"}}},
			"table.grow":           {Tables: table, Funcs: []wasmtest.Func{{Name: "f", Body: "ref.null funcref i32.const 1 table.grow 0 drop"}}},
			"a huge table":         {Tables: []wasmtest.Table{{Min: 1<<20 + 1}}},
			"a mutable reference":  {Globals: []wasmtest.Global{{Type: "funcref", Mutable: true, Init: "ref.null funcref"}}},
			"many globals":         {Globals: manyGlobals(10_001)},
			"a global of the host": {Globals: []wasmtest.Global{{Type: "i64", Mutable: true, Init: "i64.const 0", Export: "agentcell.fuel"}}},
			"a huge memory":        {Memories: []wasmtest.Memory{{Min: 1 << 16, Export: "memory"}}},
			"a foreign import":     {Imports: []wasmtest.Import{{Module: "env", Name: "system", Type: "i32 -> i32"}}},
			"a trap at once":       init("unreachable"),
			"recursion at once":    init("call $_initialize"),
			"a call through null":  {Types: []wasmtest.Type{"->"}, Tables: table, Funcs: []wasmtest.Func{{Export: "_initialize", Body: "i32.const 0 call_indirect 0"}}},
		} {
			m.Funcs = append(m.Funcs, wasmtest.Func{Export: "agent_abi_v1"},
				wasmtest.Func{Export: "agent_describe", Type: "-> i32", Body: "i32.const 0"},
				wasmtest.Func{Export: "agent_run", Type: "-> i32", Body: "i32.const 0"})
			_, err := r.Create(t.Context(), host.CreateRequest{Harness: host.Harness{Name: "hostile", Code: m.Bytes()}})
			if !errors.Is(err, runtimes.ErrModule) {
				t.Errorf("%s: %v", name, err)
			}
			if ok, err := r.store.HasBlob(abi.DigestOf(m.Bytes())); ok || err != nil {
				t.Errorf("%s is stored: %v", name, err)
			}
		}
		if all := list(t, r); len(all) != 1 || all[0].UID != honest.UID {
			t.Errorf("there are sessions %+v", all)
		}
		stillHonest(r)
	})
}

func manyGlobals(n int) (list []wasmtest.Global) {
	for range n {
		list = append(list, wasmtest.Global{Type: "i32", Mutable: true, Init: "i32.const 0"})
	}
	return list
}

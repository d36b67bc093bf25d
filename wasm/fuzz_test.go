package wasm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// FuzzLoad: any bytes are refused, or load and run a turn that ends in the same
// way, in the same state and at the same fuel figure on both engines.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	f.Add(tenant().bytes())
	f.Add(bump(true))
	f.Add(guest{run: "i32.const 0", module: wasmtest.Module{Memories: []wasmtest.Memory{{Export: "memory"}}}}.bytes())
	f.Add(guest{run: "memory.size", module: wasmtest.Module{
		Memories: []wasmtest.Memory{{Export: "memory"}},
		Funcs:    []wasmtest.Func{{Export: exportInitialize, Body: "i32.const 1 memory.grow drop"}},
	}}.bytes())
	f.Add(guest{run: "i32.const 16 i32.const 0 i32.const 99 memory.fill i32.const 0 call_indirect 0", module: wasmtest.Module{
		Types: []wasmtest.Type{"-> i32"}, Tables: []wasmtest.Table{{Min: 2}},
		Elems: []wasmtest.Elem{{Funcs: []string{exportRun}}},
	}}.bytes())
	compiler, interpreter := newEngine(f, Config{}), newEngine(f, Config{Interpreter: true})
	f.Fuzz(func(t *testing.T, code []byte) {
		want, err1 := fuzzTurn(t, compiler, code)
		got, err2 := fuzzTurn(t, interpreter, code)
		if want.Outcome.Reason == abi.ReasonEngine || got.Outcome.Reason == abi.ReasonEngine ||
			errors.Is(err1, context.DeadlineExceeded) || errors.Is(err2, context.DeadlineExceeded) {
			return // an engine's own bounds are not the guest's
		}
		if diff := cmp.Diff(want, got); diff != "" || (err1 == nil) != (err2 == nil) {
			t.Errorf("errors %v, %v; the engines differ (-compiler +interpreter):\n%s", err1, err2, diff)
		}
	})
}

func fuzzTurn(t *testing.T, e *Engine, code []byte) (s step, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := e.Load(ctx, "fuzz", code)
	if err != nil {
		if !errors.Is(err, ErrModule) && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("not a refusal: %v", err)
		}
		return s, err
	}
	in := instantiate(t, c)
	s.Outcome, err = in.Run(ctx, Turn{Limits: abi.Limits{Fuel: 1_000_000, Depth: 200}}, &world{})
	if err != nil {
		return s, err
	}
	if s.Outcome.Reason == abi.ReasonCompleted {
		img, err := in.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		s.Globals, s.Clock, s.Changed = img.Globals, img.Clock, img.Changed
		s.Memory = abi.DigestOf(memoryOf(t, img, memoryOf(t, c.Golden(), nil)))
	}
	in.Stop()
	return s, nil
}

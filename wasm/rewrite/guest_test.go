package rewrite_test

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/agentcell/agentcell/wasm/rewrite"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// The limits of guests in tests.
const (
	testFuel   = 1 << 40
	testFrames = 100
	testPages  = 64
)

var (
	errFuel   = errors.New("out of fuel")
	errFrames = errors.New("out of frames")
)

func allowAll(string, string, rewrite.FuncType) error { return nil }

func mustRewrite(t testing.TB, code []byte) *rewrite.Module {
	t.Helper()
	m, err := rewrite.Rewrite(code, rewrite.Options{Allowed: allowAll})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// engine is one of wazero's, with the host's functions.
type engine struct {
	name string
	wazero.Runtime
}

// newEngines returns the compiler, where there is one, and the interpreter.
func newEngines(t testing.TB) []engine {
	ctx := context.Background()
	var list []engine
	for _, e := range []struct {
		name   string
		config wazero.RuntimeConfig
	}{
		{"compiler", wazero.NewRuntimeConfigCompiler()},
		{"interpreter", wazero.NewRuntimeConfigInterpreter()},
	} {
		// Closing on context makes a guest that hangs, and should not, fail.
		r := wazero.NewRuntimeWithConfig(ctx, e.config.WithMemoryLimitPages(testPages).WithCloseOnContextDone(true).WithDebugInfoEnabled(false))
		t.Cleanup(func() { r.Close(ctx) })
		if _, err := r.NewHostModuleBuilder(rewrite.Reserved).NewFunctionBuilder().WithFunc(check).Export(rewrite.CheckName).Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := r.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(func(v uint32) uint32 { return v + 1 }).Export("next").Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
		list = append(list, engine{e.name, r})
	}
	return list
}

func check(what uint32) {
	if what == rewrite.CheckDepth {
		panic(errFrames)
	}
	panic(errFuel)
}

// guest is an instance of an original or a rewritten module.
type guest struct {
	api.Module
	compiled wazero.CompiledModule
	metered  bool
	budget   uint64
	frames   uint64
	pages    uint64
}

// instantiate fails if the engine does not compile the code, or the module does
// not start.
func (e engine) instantiate(code []byte) (*guest, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	compiled, err := e.CompileModule(ctx, code)
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	mod, err := e.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		compiled.Close(ctx)
		return nil, err
	}
	g := &guest{Module: mod, compiled: compiled, budget: testFuel, frames: testFrames, pages: testPages}
	_, g.metered = mod.ExportedGlobal(rewrite.ExportFuel).(api.MutableGlobal)
	return g, nil
}

func (g *guest) close() {
	g.Module.Close(context.Background())
	g.compiled.Close(context.Background())
}

func (g *guest) set(name string, v uint64) {
	if g.metered {
		g.ExportedGlobal(name).(api.MutableGlobal).Set(v)
	}
}

// outcome is all that a call leaves behind.
type outcome struct {
	Results []uint64 // NaNs canonical
	Err     string   // its first line
	Fuel    int64    // used; 0 if not metered
	Frames  uint64   // left
	Memory  string   // a short form
}

func (g *guest) call(name string, args ...uint64) outcome {
	results, err := g.only(name, args...)
	o := outcome{Err: firstLine(err), Memory: g.memory()}
	o.Results = canonical(results, g.ExportedFunction(name).Definition().ResultTypes())
	if g.metered {
		o.Fuel = int64(g.budget - g.ExportedGlobal(rewrite.ExportFuel).Get())
		o.Frames = g.ExportedGlobal(rewrite.ExportDepth).Get()
	}
	return o
}

// only calls within the limits.
func (g *guest) only(name string, args ...uint64) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	g.set(rewrite.ExportFuel, g.budget)
	g.set(rewrite.ExportDepth, g.frames)
	g.set(rewrite.ExportPages, g.pages)
	return g.ExportedFunction(name).Call(ctx, args...)
}

var seed = maphash.MakeSeed()

func (g *guest) memory() string {
	m := g.ExportedMemory("memory")
	all, _ := m.Read(0, m.Size())
	return fmt.Sprintf("%d bytes, hash %x", len(all), maphash.Bytes(seed, all))
}

func canonical(results []uint64, types []api.ValueType) []uint64 {
	if len(results) == 0 {
		return nil // also if the call failed
	}
	for i, t := range types {
		switch {
		case t == api.ValueTypeF64 && math.IsNaN(api.DecodeF64(results[i])):
			results[i] = 0x7ff8000000000000
		case t == api.ValueTypeF32 && math.IsNaN(float64(api.DecodeF32(results[i]))):
			results[i] = 0x7fc00000
		}
	}
	return results
}

func firstLine(err error) string {
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	// A panic of the host's function.
	line = strings.TrimSuffix(line, " (recovered by wazero)")
	return line
}

// run rewrites m and calls its export "run" under both engines, which must
// agree, and that of the original if asked to, which must do the same.
func run(t *testing.T, engines []engine, m wasmtest.Module, compareOriginal bool, args ...uint64) outcome {
	t.Helper()
	original := m.Bytes()
	rewritten := mustRewrite(t, original).Code
	var first outcome
	for i, e := range engines {
		got := callOnce(t, e, rewritten, args...)
		if i == 0 {
			first = got
		} else if fmt.Sprint(got) != fmt.Sprint(first) {
			t.Errorf("%s: %+v\n%s: %+v", engines[0].name, first, e.name, got)
		}
		if compareOriginal {
			want := callOnce(t, e, original, args...)
			want.Fuel, want.Frames = got.Fuel, got.Frames
			if fmt.Sprint(want) != fmt.Sprint(got) {
				t.Errorf("%s: rewritten: %+v\noriginal: %+v", e.name, got, want)
			}
		}
	}
	return first
}

func callOnce(t *testing.T, e engine, code []byte, args ...uint64) outcome {
	t.Helper()
	g, err := e.instantiate(code)
	if err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	defer g.close()
	return g.call("run", args...)
}

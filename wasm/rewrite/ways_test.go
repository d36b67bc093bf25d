package rewrite_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/wasm/rewrite"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// way is a way to make an end of a guest that does not come to one.
type way struct {
	name string
	code func(original []byte, rewritten *rewrite.Module) []byte
	// closing is wazero's own way.
	closing bool
	// fuel is what a guest gets, and gets again when it is looked at.
	fuel uint64
}

// ways are what there is to choose from: to do without, which the others are
// held against; to look at a flag; to count fuel, in slices as the engine does;
// and what wazero offers.
var ways = []way{
	{name: "none", code: func(original []byte, _ *rewrite.Module) []byte { return original }},
	{name: "flag", code: flagOnly, fuel: 1 << 62},
	{name: "fuel", code: func(_ []byte, m *rewrite.Module) []byte { return m.Code }, fuel: 10_000},
	{name: "wazero", code: func(original []byte, _ *rewrite.Module) []byte { return original }, closing: true},
}

// flagOnly takes counting out of a rewritten module, and leaves that the fuel is
// looked at: who sets it below zero ends the guest. In place of what is taken out
// stand nops, of which nothing is left in machine code.
func flagOnly(_ []byte, m *rewrite.Module) []byte {
	const (
		globalGet, localTee              = 0x23, 0x22
		i32Const, i32Add, i32Sub, i32LtS = 0x41, 0x6a, 0x6b, 0x48
		i64Const, i64Sub, i64LtS         = 0x42, 0x7d, 0x53
		nop, end                         = 0x01, 0x0b
	)
	code := bytes.Clone(m.Code)
	erase := func(b []byte) {
		for i := range b {
			b[i] = nop
		}
	}
	// each calls f with what follows each place that has a sequence.
	each := func(f func(at, end int), sequence ...byte) {
		for from := 0; ; {
			i := bytes.Index(code[from:], sequence)
			if i < 0 {
				return
			}
			at := from + i
			from = at + len(sequence)
			f(at, from)
		}
	}
	fuel, depth := exportedGlobal(code, rewrite.ExportFuel), exportedGlobal(code, rewrite.ExportDepth)
	get := append([]byte{globalGet}, fuel...)
	each(func(at, end int) {
		if code[end] != localTee { // a function that does not look
			erase(code[at : end+1+len(fuel)])
			return
		}
		_, n := binary.Uvarint(code[end+1:])
		look := append(slices.Clone(get), code[end:end+1+n]...)
		test := end + bytes.Index(code[end:end+24], []byte{i64Const, 0})
		erase(code[at:test])
		copy(code[test-len(look):], look)
	}, append(slices.Clone(get), i64Const, 1, i64Sub)...)
	get = append([]byte{globalGet}, depth...)
	each(func(at, from int) {
		test := bytes.Index(code[from:from+24], []byte{i32Const, 0, i32LtS})
		erase(code[at : from+test+bytes.IndexByte(code[from+test:], end)+1])
	}, append(slices.Clone(get), i32Const, 1, i32Sub)...)
	each(func(at, from int) { erase(code[at : from+1+len(depth)]) }, append(slices.Clone(get), i32Const, 1, i32Add)...)
	return code
}

// exportedGlobal is the index of an exported global as it stands in the code.
func exportedGlobal(code []byte, name string) []byte {
	at := bytes.Index(code, append([]byte(name), byte(rewrite.KindGlobal))) + len(name) + 1
	_, n := binary.Uvarint(code[at:])
	return code[at : at+n]
}

// runner is a guest in one of the ways.
type runner struct {
	way
	ctx         context.Context
	cancel      context.CancelFunc
	host        *agentHost
	mod         api.Module
	fn          api.Function
	fuel, depth api.MutableGlobal
}

// startRunner makes a guest of a module in one way.
func startRunner(b *testing.B, cache wazero.CompilationCache, w way, code []byte, export string) *runner {
	b.Helper()
	config := wazero.NewRuntimeConfigCompiler().WithCloseOnContextDone(w.closing).WithCompilationCache(cache)
	rt := wazero.NewRuntimeWithConfig(b.Context(), config)
	b.Cleanup(func() { rt.Close(context.Background()) })
	r := &runner{way: w, host: &agentHost{input: "3 -4"}}
	r.ctx, r.cancel = context.WithCancel(b.Context())
	b.Cleanup(r.cancel)
	wasi_snapshot_preview1.MustInstantiate(r.ctx, rt)
	r.host.instantiate(b, rt)
	look := api.GoFunc(func(ctx context.Context, _ []uint64) {
		if ctx.Err() != nil {
			panic(errFuel)
		}
		r.fuel.Set(w.fuel)
	})
	_, err := rt.NewHostModuleBuilder(rewrite.Reserved).NewFunctionBuilder().
		WithGoFunction(look, []api.ValueType{api.ValueTypeI32}, nil).Export(rewrite.CheckName).Instantiate(r.ctx)
	if err != nil {
		b.Fatal(err)
	}
	r.mod, err = rt.InstantiateWithConfig(r.ctx, code, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		b.Fatal(err)
	}
	if w.fuel > 0 {
		r.fuel = r.mod.ExportedGlobal(rewrite.ExportFuel).(api.MutableGlobal)
		r.depth = r.mod.ExportedGlobal(rewrite.ExportDepth).(api.MutableGlobal)
		r.mod.ExportedGlobal(rewrite.ExportPages).(api.MutableGlobal).Set(rewrite.MaxPages)
	}
	if r.mod.ExportedFunction("_initialize") != nil {
		r.call(b, r.mod.ExportedFunction("_initialize"))
	}
	r.fn = r.mod.ExportedFunction(export)
	return r
}

// call calls a function of the guest and returns its result.
func (r *runner) call(b *testing.B, fn api.Function, args ...uint64) uint64 {
	if r.fuel != nil {
		r.fuel.Set(r.way.fuel)
		r.depth.Set(20_000)
	}
	var stack [1]uint64
	copy(stack[:], args)
	if err := fn.CallWithStack(r.ctx, stack[:]); err != nil {
		b.Fatal(r.name, err)
	}
	return stack[0]
}

// compareWays runs a guest in all ways, in turn so that all meet the same
// machine, and reports how much longer than without it takes: the median of all
// rounds.
func compareWays(b *testing.B, code []byte, export string, args ...uint64) {
	cache := compileCache(b)
	rewritten := mustRewrite(b, code)
	var runners []*runner
	for _, w := range ways {
		runners = append(runners, startRunner(b, cache, w, w.code(code, rewritten), export))
	}
	var want string
	for i, r := range runners {
		got := fmt.Sprint(r.call(b, r.fn, args...), r.host.said)
		if i == 0 {
			want = got
		} else if got != want {
			b.Fatalf("%s: it comes to %s, not %s", r.name, got, want)
		}
	}
	const batch = 100 * time.Microsecond // shorter ones would measure the clock
	begin := time.Now()
	runners[0].call(b, runners[0].fn, args...)
	calls := 1 + int(batch/(1+time.Since(begin)))
	ratios := make([][]float64, len(runners))
	for b.Loop() {
		var none time.Duration
		for i, r := range runners {
			if r.closing && len(ratios[i]) >= 10 {
				continue // it takes up to a hundred times as long as the others
			}
			begin := time.Now()
			for range calls {
				r.call(b, r.fn, args...)
			}
			took := time.Since(begin)
			if i == 0 {
				none = took
			}
			ratios[i] = append(ratios[i], float64(took)/float64(none))
		}
	}
	for i, r := range runners[1:] {
		list := ratios[i+1]
		slices.Sort(list)
		b.ReportMetric(max(0, 100*list[len(list)/2]-100), r.name+"-%")
	}
	b.ReportMetric(0, "ns/op")
}

// compileCache is that of the engine's tests, since the JavaScript interpreter
// takes ten seconds to compile.
func compileCache(b *testing.B) wazero.CompilationCache {
	dir := os.Getenv("AGENTCELL_TEST_CACHE")
	if dir == "" {
		return wazero.NewCompilationCache()
	}
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	return cache
}

// BenchmarkWays is what each way costs (F8): in percent of doing without.
func BenchmarkWays(b *testing.B) {
	for _, guest := range benchGuests {
		b.Run("loop="+guest.name, func(b *testing.B) {
			m := function("i32 -> i32", "i32", guest.body+" local.get 1")
			m.Funcs = append(m.Funcs, tight...)
			n := uint64(100_000)
			if guest.name == "fib" {
				n = 20
			}
			compareWays(b, m.Bytes(), "run", n)
		})
	}
	for _, name := range []string{"echo", "counter"} {
		b.Run("turn="+name, func(b *testing.B) {
			code, err := harnesses.Module(name)
			if err != nil {
				b.Skipf("run `make harnesses` first: %v", err)
			}
			compareWays(b, code, "agent_run")
		})
	}
	b.Run("javascript", func(b *testing.B) { compareWays(b, buildJavaScript(b), "run") })
}

// buildJavaScript compiles an interpreter of JavaScript with a program in it.
func buildJavaScript(b *testing.B) []byte {
	dir, err := filepath.Abs("testdata/js")
	if err != nil {
		b.Fatal(err)
	}
	out := filepath.Join(b.TempDir(), "js.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off", "GOFLAGS=")
	if text, err := build.CombinedOutput(); err != nil {
		b.Skipf("the interpreter cannot be had: %v\n%s", err, text)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		b.Fatal(err)
	}
	return code
}

// BenchmarkInterrupt is how long after it is told to a guest ends that fills 256
// MiB with one instruction, memory that it has never touched (F8): the median.
// wazero's own way waits until that is done.
func BenchmarkInterrupt(b *testing.B) {
	fill := function("i32 -> i32", "", "i32.const 0 i32.const 1 i32.const 0x10000000 memory.fill local.get 0")
	fill.Memories = []wasmtest.Memory{{Min: 1 << 12, Export: "memory"}}
	code := fill.Bytes()
	rewritten := mustRewrite(b, code)
	took := map[string][]float64{}
	for b.Loop() {
		for _, w := range ways[1:] {
			r := startRunner(b, wazero.NewCompilationCache(), w, w.code(code, rewritten), "run")
			runtime.GC() // one that began now would wait for a guest that never calls out, and timers for it
			told := make(chan time.Time, 1)
			time.AfterFunc(5*time.Millisecond, func() {
				told <- time.Now()
				r.cancel()
				if w.name == "flag" {
					r.fuel.Set(3 << 62) // far below zero
				}
			})
			if r.fuel != nil {
				r.fuel.Set(w.fuel)
			}
			if _, err := r.fn.Call(r.ctx, 0); err == nil {
				b.Fatalf("%s: it was not ended", w.name)
			}
			took[w.name] = append(took[w.name], time.Since(<-told).Seconds()*1000)
			r.mod.Close(context.Background())
		}
	}
	for name, list := range took {
		slices.Sort(list)
		b.ReportMetric(list[len(list)/2], name+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}

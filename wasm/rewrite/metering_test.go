package rewrite_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/wasm/rewrite"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

func function(typ wasmtest.Type, locals, body string) wasmtest.Module {
	return wasmtest.Module{Funcs: []wasmtest.Func{{Export: "run", Type: typ, Locals: locals, Body: body}}}
}

// Fuel is the number of steps: calls, turns of loops, stretches of 256
// instructions. It is the same under both engines.
func TestFuel(t *testing.T) {
	engines := newEngines(t)
	helper := wasmtest.Func{Name: "five", Type: "-> i32", Body: "i32.const 2 i32.const 3 i32.add nop"}
	nops := func(n int) string { return repeat(" nop", n) + " " }
	for _, tt := range []struct {
		name string
		m    wasmtest.Module
		args []uint64
		want int64
	}{
		{"empty", function("", "", ""), nil, 1},
		{"straight", function("-> i32", "", "i32.const 1 i32.const 2 i32.add"), nil, 1},
		{"left early", function("", "", "return"+nops(1000)), nil, 1},
		{"one stretch", function("", "", nops(255)), nil, 1},
		{"two stretches", function("", "", nops(256)), nil, 2},
		{"many stretches", function("", "", nops(25_600)), nil, 1 + 100},
		{"loop once", function("", "", "loop nop end"), nil, 1 + 1},
		{
			"loop", function("i32", "", "loop local.get 0 i32.const 1 i32.sub local.tee 0 br_if 0 nop nop end nop"),
			[]uint64{10},
			1 + 10,
		},
		{
			"loop with a stretch", function("i32", "", "loop local.get 0 i32.const 1 i32.sub local.tee 0"+nops(300)+"br_if 0 end"),
			[]uint64{10},
			1 + 10*2,
		},
		{
			// The inner loop runs 4 times for each of 3 rounds of the outer one.
			"nested", function("", "i32 i32", `
				loop
					i32.const 4 local.set 1
					loop local.get 1 i32.const 1 i32.sub local.tee 1 br_if 0 end
					local.get 0 i32.const 1 i32.add local.tee 0 i32.const 3 i32.lt_u br_if 0
				end`),
			nil, 1 + 3 + 12,
		},
		{
			// Deeper than loops are split, with branches to the inside and outside.
			"deeply nested", function("i32", "", strings.Repeat("loop ", 40)+
				"block local.get 0 i32.const 1 i32.sub local.tee 0 br_table 41 38 39 2 40 1 8 41 end"+strings.Repeat(" end", 40)),
			[]uint64{7},
			1 + 40 + 8 + 1 + 40 + 2 + 39 + 38,
		},
		{"a way out of a block", function("", "", "block br 0"+nops(300)+"end"), nil, 1},
		{"the short way past an if", function("i32", "", "local.get 0 if"+nops(200)+"end"), []uint64{0}, 1},
		{"the longest way counts", function("i32", "", "local.get 0 if"+nops(200)+"end"+nops(100)), []uint64{0}, 2},
		{"one arm", function("i32", "", "local.get 0 if"+nops(300)+"else"+nops(10)+"end"), []uint64{1}, 2},
		{"the other arm", function("i32", "", "local.get 0 if"+nops(300)+"else"+nops(10)+"end"), []uint64{0}, 1},
		{"a step on one way only", function("i32", "", "block local.get 0 br_if 0"+nops(300)+"end"+nops(100)), []uint64{1}, 1},
		{"a branch table", function("i32", "", "block block local.get 0 br_table 0 1"+nops(300)+"end"+nops(300)+"end"), []uint64{1}, 1},
		{"a dead end", function("i32", "", "local.get 0 if unreachable"+nops(300)+"end"), []uint64{0}, 1},
		{
			"call",
			wasmtest.Module{Funcs: []wasmtest.Func{{Export: "run", Type: "-> i32", Body: "call $five call $five i32.add"}, helper}},
			nil, 3,
		},
		{"grow", function("-> i32", "", "i32.const 3 memory.grow"), nil, 1 + 3*1024},
		{"grow too far", function("-> i32", "", "i32.const 64 memory.grow"), nil, 1},
		{"fill", function("", "", "i32.const 1 i32.const 2 i32.const 6407 memory.fill"), nil, 1 + 100},
		{"copy", function("", "", "i32.const 1 i32.const 2 i32.const 6400 memory.copy"), nil, 1 + 100},
		{
			"long fill", function("", "", "i32.const 48 memory.grow drop i32.const 0 i32.const 1 i32.const 3000000 memory.fill"),
			nil, 1 + 48*1024 + 2*16384 + (3000000-2<<20)/64,
		},
		{
			"init", wasmtest.Module{
				Funcs: []wasmtest.Func{
					{Name: "start", Body: "i32.const 0 i32.const 0 i32.const 80 memory.init 0"},
					{Export: "run"},
				},
				Datas: []wasmtest.Data{{Bytes: make([]byte, 80), Passive: true}},
				Start: "start",
			}, nil, 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, engines, tt.m, true, tt.args...)
			if got.Fuel != tt.want || got.Err != "" || got.Frames != testFrames {
				t.Errorf("got %+v, want fuel %d", got, tt.want)
			}
		})
	}
}

func repeat(s string, n int) string {
	b := make([]byte, 0, len(s)*n)
	for range n {
		b = append(b, s...)
	}
	return string(b)
}

// S2: whatever never ends runs out of fuel.
func TestS2_OutOfFuel(t *testing.T) {
	engines := newEngines(t)
	for name, m := range map[string]wasmtest.Module{
		"loop":          function("", "", "loop br 0 end"),
		"br_table":      function("", "", "loop i32.const 7 br_table 0 0 end"),
		"nested":        function("", "", "loop loop br 1 end end"),
		"dead loop end": function("", "", "loop loop i32.const 1 br_if 1 end unreachable end"),
		"calls":         function("", "", "call $run call $run"),
		"with a parameter": {
			Types: []wasmtest.Type{"i32 -> i32"},
			Funcs: []wasmtest.Func{{Export: "run", Type: "-> i32", Body: "i32.const 0 loop type=0 i32.const 1 i32.add br 0 end"}},
		},
		"fills":  function("", "", "loop i32.const 0 i32.const 0 i32.const 65536 memory.fill br 0 end"),
		"grows":  function("", "", "loop i32.const 1 memory.grow drop i32.const -1 memory.grow drop br 0 end"),
		"copies": function("", "", "loop i32.const 0 i32.const 1 i32.const 65535 memory.copy br 0 end"),
	} {
		t.Run(name, func(t *testing.T) {
			code := mustRewrite(t, m.Bytes()).Code
			fuel := map[string]int64{}
			for _, e := range engines {
				g, err := e.instantiate(code)
				if err != nil {
					t.Fatal(err)
				}
				g.budget = 300_000
				g.frames = 20
				got := g.call("run")
				g.close()
				if got.Err != errFuel.Error() && (name != "calls" || got.Err != errFrames.Error()) {
					t.Errorf("%s: %+v", e.name, got)
				}
				fuel[e.name] = got.Fuel
			}
			if fuel["compiler"] != fuel["interpreter"] {
				t.Errorf("fuel differs: %v", fuel)
			}
		})
	}
}

// Short functions that call nothing pay without a check; all others are checked
// at their entry.
func TestS2_Unchecked(t *testing.T) {
	nops := func(n int) wasmtest.Module { return function("", "", repeat("nop ", n-1)) }
	calling := func(then string) wasmtest.Module {
		m := function("", "", "call $short "+then)
		m.Funcs = append(m.Funcs, wasmtest.Func{Name: "short"})
		return m
	}
	const bytes = "i32.const 0 i32.const 1 i32.const 8 "
	for _, tt := range []struct {
		name   string
		m      wasmtest.Module
		budget uint64
		fuel   int64
		err    string
	}{
		{"short", nops(16), 0, 1, ""},
		{"long", nops(17), 0, 1, errFuel.Error()},
		{"caller", calling(""), 0, 1, errFuel.Error()},
		{"loop", function("", "", "loop end"), 0, 1 + 1, errFuel.Error()},
		// What costs nothing checks all the same.
		{"a call", calling(""), 1, 2, ""},
		{"a call and a copy", calling(bytes + "memory.copy loop end"), 1, 2, errFuel.Error()},
		{"a call and a fill", calling(bytes + "memory.fill loop end"), 1, 2, errFuel.Error()},
	} {
		for _, e := range newEngines(t) {
			g, err := e.instantiate(mustRewrite(t, tt.m.Bytes()).Code)
			if err != nil {
				t.Fatal(err)
			}
			defer g.close()
			g.budget = tt.budget
			if got := g.call("run"); got.Fuel != tt.fuel || got.Err != tt.err {
				t.Errorf("%s: %s: %+v", tt.name, e.name, got)
			}
		}
	}
}

// S2: calls end at the limit, and however a function is left its frame is given
// back.
func TestS2_Depth(t *testing.T) {
	engines := newEngines(t)
	down := function("i32 -> i32", "", `
		local.get 0 i32.eqz if i32.const 0 return end
		local.get 0 i32.const 1 i32.sub call $run i32.const 1 i32.add`)
	for _, tt := range []struct {
		depth uint64
		err   string
	}{{0, ""}, {testFrames - 1, ""}, {testFrames, errFrames.Error()}, {1 << 30, errFrames.Error()}} {
		got := run(t, engines, down, tt.err == "", tt.depth)
		if got.Err != tt.err {
			t.Errorf("%d frames: %+v", tt.depth+1, got)
		}
	}
	leaf := wasmtest.Func{Name: "leaf", Type: "i32 -> i32", Body: "local.get 0"}
	for _, tt := range []struct {
		name, body string
		typ        wasmtest.Type
		want       string
	}{
		{"fall through", "local.get 0 call $leaf", "i32 -> i32", "[3]"},
		{"return", "local.get 0 call $leaf return", "i32 -> i32", "[3]"},
		{"return in blocks", "block loop block local.get 0 call $leaf return end end end i32.const 9", "i32 -> i32", "[3]"},
		{"return with values below", "i64.const 1 f32.const 2 local.get 0 call $leaf return", "i32 -> i32", "[3]"},
		{"br out", "block local.get 0 call $leaf br 1 end i32.const 9", "i32 -> i32", "[3]"},
		{"br_if out", "i32.const 7 block local.get 0 call $leaf br_if 0 i32.const 9 br 1 end", "i32 -> i32", "[7]"},
		{"br_table out", "block block i32.const 5 local.get 0 call $leaf br_table 2 2 end end i32.const 9", "i32 -> i32", "[5]"},
		{"if", "local.get 0 call $leaf if i32 i32.const 4 br 1 else i32.const 5 return end", "i32 -> i32", "[4]"},
		{"multi-value", "local.get 0 call $leaf i64.const 8 f64.const 0", "i32 -> i32 i64 f64", "[3 8 0]"},
		{"multi-value return", "block local.get 0 call $leaf i64.const 8 f64.const 0 return end unreachable", "i32 -> i32 i64 f64", "[3 8 0]"},
		{"multi-value br", "block i32.const 1 local.get 0 call $leaf i64.const 8 f64.const 0 br 1 end unreachable", "i32 -> i32 i64 f64", "[3 8 0]"},
		{"dead end", "local.get 0 call $leaf return i32.add drop", "i32 -> i32", "[3]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := function(tt.typ, "", tt.body)
			m.Funcs = append(m.Funcs, leaf)
			got := run(t, engines, m, true, 3)
			if fmt.Sprint(got.Results) != tt.want || got.Err != "" || got.Frames != testFrames {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
		})
	}
}

// S2: memory does not grow past the limit, whatever is asked for.
func TestS2_Grow(t *testing.T) {
	engines := newEngines(t)
	for _, tt := range []struct{ pages, want uint64 }{
		{0, 1}, {1, 1}, {testPages - 1, 1}, {testPages, 0xffffffff}, {0xffffffff, 0xffffffff}, {0x80000000, 0xffffffff},
	} {
		got := run(t, engines, function("i32 -> i32", "", "local.get 0 memory.grow"), true, tt.pages)
		if diff := cmp.Diff([]uint64{tt.want}, got.Results); diff != "" || got.Err != "" {
			t.Errorf("grow by %d: %s %+v", tt.pages, diff, got)
		}
	}
	small := function("i32 -> i32", "", "local.get 0 memory.grow")
	small.Memories = []wasmtest.Memory{{Min: 1, Max: wasmtest.Max(2), Export: "memory"}}
	if got := run(t, engines, small, true, 2); got.Results[0] != 0xffffffff {
		t.Errorf("grew past the module's own maximum: %+v", got)
	}
}

// Filling and copying do what they did, also where they go in chunks.
func TestBulk(t *testing.T) {
	engines := newEngines(t)
	const size = testPages << 16
	random := make([]byte, size) // so that a misplaced byte shows
	rand.NewChaCha8([32]byte{}).Read(random)
	for _, tt := range []struct {
		name    string
		d, s, n uint64
		err     bool
	}{
		{"nothing", 0, 0, 0, false},
		{"nothing at the end", size, size, 0, false},
		{"nothing past the end", size + 1, 0, 0, true},
		{"up to the end", size - 10, 0, 10, false},
		{"past the end", size - 9, 0, 10, true},
		{"wrapping", 0xffffffff, 0, 0xffffffff, true},
		{"everything", 0, 0, size, false},
		{"more than everything", 0, 0, size + 1, true},
		{"long, past the end", 100, 0, size - 99, true},
		{"one chunk", 7, 3, 1 << 20, false},
		{"one chunk and one byte", 7, 3, 1<<20 + 1, false},
		{"chunks overlapping, up", 7, 1000, 3<<20 + 77, false},
		{"chunks overlapping, down", 1000, 7, 3<<20 + 77, false},
		{"chunks overlapping by half a chunk, down", 1 << 19, 0, 3 << 20, false},
		{"chunks overlapping by half a chunk, up", 0, 1 << 19, 3 << 20, false},
		{"two chunks to the very end", size - 2<<20, 5, 2 << 20, false},
		{"source past the end", 0, size - 2<<20 + 1, 2 << 20, true},
		{"on itself", 12345, 12345, 2<<20 + 9, false},
	} {
		for _, op := range []string{"memory.copy", "memory.fill"} {
			if op == "memory.fill" && tt.s > size-2<<20 {
				continue // the source is the value there
			}
			t.Run(op+" "+tt.name, func(t *testing.T) {
				m := function("i32 i32 i32", "", "local.get 0 local.get 1 local.get 2 "+op)
				m.Memories = []wasmtest.Memory{{Min: testPages, Export: "memory"}}
				original := m.Bytes()
				for _, e := range engines {
					var outcomes []outcome
					for _, code := range [][]byte{original, mustRewrite(t, original).Code} {
						g, err := e.instantiate(code)
						if err != nil {
							t.Fatal(err)
						}
						g.ExportedMemory("memory").Write(0, random)
						outcomes = append(outcomes, g.call("run", tt.d, tt.s, tt.n))
						g.close()
					}
					want, got := outcomes[0], outcomes[1]
					if got.Memory != want.Memory || got.Err != want.Err || (got.Err != "") != tt.err {
						t.Errorf("%s: got %+v, want %+v", e.name, got, want)
					}
				}
			})
		}
	}
}

// A start function runs when the host calls it, not before.
func TestStart(t *testing.T) {
	m := wasmtest.Module{
		Funcs:   []wasmtest.Func{{Name: "start", Body: "i32.const 7 global.set 0"}},
		Globals: []wasmtest.Global{{Type: "i32", Mutable: true, Init: "i32.const 1"}},
		Start:   "start",
	}
	rewritten := mustRewrite(t, m.Bytes())
	if !rewritten.HasStart {
		t.Error("HasStart is false")
	}
	for _, e := range newEngines(t) {
		g, err := e.instantiate(rewritten.Code)
		if err != nil {
			t.Fatal(err)
		}
		defer g.close()
		global := g.ExportedGlobal(rewrite.ExportGlobal(0))
		if got := global.Get(); got != 1 {
			t.Errorf("%s: the start function ran by itself", e.name)
		}
		if got := g.call(rewrite.ExportStart); got.Err != "" || global.Get() != 7 {
			t.Errorf("%s: %+v, global %d", e.name, got, global.Get())
		}
	}
}

// What is known of the original is told, and what was added is found.
func TestModule(t *testing.T) {
	m := wasmtest.Module{
		Imports: []wasmtest.Import{{Module: "env", Name: "next", Type: "i32 -> i32"}},
		Funcs: []wasmtest.Func{
			{Export: "run", Type: "i32 -> i32", Body: "local.get 0 call $next i32.const 0 call_indirect 0"},
			{Name: "inner", Type: "i32 -> i32", Body: "unreachable"},
		},
		Memories: []wasmtest.Memory{{Min: 2, Max: wasmtest.Max(5), Export: "memory"}},
		Globals: []wasmtest.Global{
			{Type: "f64", Mutable: true, Init: "f64.const 1"},
			{Type: "i32", Init: "i32.const 1", Export: "constant"},
			{Type: "funcref", Init: "ref.func $inner"},
			{Type: "i64", Mutable: true, Init: "i64.const 1"},
		},
		Tables:  []wasmtest.Table{{Min: 1}},
		Elems:   []wasmtest.Elem{{Funcs: []string{"inner"}}},
		Names:   true,
		Customs: []wasmtest.Custom{{Name: "secret", Bytes: []byte("dropped")}},
	}
	got := mustRewrite(t, m.Bytes())
	i32toI32 := rewrite.FuncType{Params: []byte{0x7f}, Results: []byte{0x7f}}
	want := &rewrite.Module{
		Imports: []rewrite.Import{{Module: "env", Name: "next", Type: i32toI32}},
		Exports: []rewrite.Export{
			{Name: "run", Kind: rewrite.KindFunc, Type: i32toI32},
			{Name: "memory", Kind: rewrite.KindMemory},
			{Name: "constant", Kind: rewrite.KindGlobal},
		},
		Globals:   []byte{0x7c, 0x7e},
		MemoryMin: 2, MemoryMax: 5,
	}
	code := got.Code
	got.Code = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if again := mustRewrite(t, m.Bytes()).Code; string(again) != string(code) {
		t.Error("two rewritings differ")
	}
	for _, e := range newEngines(t) {
		g, err := e.instantiate(code)
		if err != nil {
			t.Fatal(err)
		}
		defer g.close()
		if a, b := g.ExportedGlobal(rewrite.ExportGlobal(0)), g.ExportedGlobal(rewrite.ExportGlobal(1)); a.Get() != 0x3ff0000000000000 || b.Get() != 1 {
			t.Errorf("%s: globals %v, %v", e.name, a, b)
		}
		g.set(rewrite.ExportDepth, 9)
		g.set(rewrite.ExportFuel, 1000)
		_, err = g.ExportedFunction("run").Call(t.Context(), 1)
		if err == nil || !strings.Contains(err.Error(), "\t.inner(i32) i32\n\t.run(i32) i32") {
			t.Errorf("%s: the trap does not name the functions: %v", e.name, err)
		}
	}
}

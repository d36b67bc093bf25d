package rewrite_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/agentcell/agentcell/wasm/rewrite"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// The places where a NaN's bits can be seen, for the float f on top of the
// stack, above the address that the result goes to.
var observers = []string{
	"f%[1]d.store offset=%[2]d",
	"i%[1]d.reinterpret_f%[1]d i%[1]d.store offset=%[2]d",
	"local.set 2 f%[1]d.const 1 local.get 2 f%[1]d.copysign f%[1]d.store offset=%[2]d",
	"global.set 0 global.get 0 i%[1]d.reinterpret_f%[1]d i%[1]d.store offset=%[2]d",
	"call $same i%[1]d.reinterpret_f%[1]d i%[1]d.store offset=%[2]d",
}

// nanModule computes everything that can make a NaN, of every operand, and
// stores it in words of 8 bytes.
func nanModule(bits, observer int) (wasmtest.Module, int) {
	operands := map[int][]uint64{
		32: {0x7fc00000, 0xffc00000, 0x7fc01234, 0xffe00001, 0x7fa00000, 0xff800001, 0x7f800000, 0xff800000, 0, 0x80000000, 0x3f800000, 0xbf800000},
		64: {
			0x7ff8 << 48, 0xfff8 << 48, 0x7ff8000012345678, 0xfffc000000000001, 0x7ff4 << 48, 0xfff0000000000001,
			0x7ff0 << 48, 0xfff0 << 48, 0, 1 << 63, 0x3ff0 << 48, 0xbff0 << 48,
		},
	}[bits]
	f := fmt.Sprint("f", bits)
	convert := map[int]string{32: "f64.promote_f32 f32.demote_f64", 64: "f32.demote_f64 f64.promote_f32"}[bits]
	var body strings.Builder
	n := 0
	add := func(compute string) {
		fmt.Fprintf(&body, "i32.const 0 %s ", compute)
		fmt.Fprintf(&body, observers[observer]+"\n", bits, 8*n)
		n++
	}
	for _, x := range operands {
		fmt.Fprintf(&body, "%s.const bits=%#x local.set 0 ", f, x)
		for _, op := range []string{"abs", "neg", "ceil", "floor", "trunc", "nearest", "sqrt"} {
			add(fmt.Sprintf("local.get 0 %s.%s", f, op))
		}
		add("local.get 0 " + convert)
		for _, y := range operands {
			fmt.Fprintf(&body, "%s.const bits=%#x local.set 1 ", f, y)
			for _, op := range []string{"add", "sub", "mul", "div", "min", "max", "copysign"} {
				add(fmt.Sprintf("local.get 0 local.get 1 %s.%s", f, op))
			}
		}
	}
	return wasmtest.Module{
		Funcs: []wasmtest.Func{
			{Export: "run", Locals: strings.Repeat(f+" ", 3), Body: body.String()},
			{Name: "same", Type: wasmtest.Type(f + " -> " + f), Body: "local.get 0"},
		},
		Globals: []wasmtest.Global{{Type: f, Mutable: true, Init: f + ".const 0"}},
	}, n
}

// M2: no NaN that a guest can see depends on the engine.
func TestM2_NaN(t *testing.T) {
	engines := newEngines(t)
	for _, bits := range []int{32, 64} {
		for observer := range observers {
			m, n := nanModule(bits, observer)
			original := m.Bytes()
			words := func(code []byte) (all [][]uint64) {
				for _, e := range engines {
					g, err := e.instantiate(code)
					if err != nil {
						t.Fatal(err)
					}
					if got := g.call("run"); got.Err != "" {
						t.Fatal(got.Err)
					}
					all = append(all, readWords(g.ExportedMemory("memory"), n))
					g.close()
				}
				return all
			}
			differ := 0
			for i, got := range words(mustRewrite(t, original).Code) {
				for j, w := range got {
					if bits == 32 && isNaN32(w) && w != 0x7fc00000 || bits == 64 && math.IsNaN(math.Float64frombits(w)) && w != 0x7ff8<<48 {
						t.Errorf("f%d, observer %d, %s: word %d is %#x", bits, observer, engines[i].name, j, w)
					}
				}
				for j, w := range words(original)[i] {
					if w != got[j] {
						differ++
					}
				}
			}
			if differ == 0 {
				t.Errorf("f%d, observer %d: the original has nothing to make canonical", bits, observer)
			}
			if all := words(mustRewrite(t, original).Code); len(all) > 1 && fmt.Sprint(all[0]) != fmt.Sprint(all[1]) {
				t.Errorf("f%d, observer %d: the engines differ", bits, observer)
			}
			if all := words(original); runtime.GOARCH == "amd64" && len(all) > 1 && fmt.Sprint(all[0]) == fmt.Sprint(all[1]) {
				t.Logf("f%d, observer %d: the engines agree on the original", bits, observer)
			}
		}
	}
}

// M2: what is set to a float global, which is part of the image, is no other NaN
// either.
func TestM2_NaNGlobals(t *testing.T) {
	m := wasmtest.Module{
		Funcs: []wasmtest.Func{{Export: "run", Body: `
			f32.const bits=0xffa00001 global.set 0
			f64.const bits=0xfff4000000000001 global.set 1
			f32.const -1.5 global.set 2`}},
		Globals: []wasmtest.Global{
			{Type: "f32", Mutable: true, Init: "f32.const 0"}, {Type: "f64", Mutable: true, Init: "f64.const 0"}, {Type: "f32", Mutable: true, Init: "f32.const 0"},
		},
	}
	code := mustRewrite(t, m.Bytes()).Code
	for _, e := range newEngines(t) {
		g, err := e.instantiate(code)
		if err != nil {
			t.Fatal(err)
		}
		defer g.close()
		g.call("run")
		for i, want := range []uint64{0x7fc00000, 0x7ff8 << 48, 0xbfc00000} {
			if got := g.ExportedGlobal(rewrite.ExportGlobal(i)).Get(); got != want {
				t.Errorf("%s: global %d is %#x, want %#x", e.name, i, got, want)
			}
		}
	}
}

func readWords(m api.Memory, n int) []uint64 {
	words := make([]uint64, n)
	for i := range words {
		words[i], _ = m.ReadUint64Le(uint32(8 * i))
	}
	return words
}

func isNaN32(w uint64) bool { return math.IsNaN(float64(math.Float32frombits(uint32(w)))) }

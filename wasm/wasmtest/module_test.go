package wasmtest_test

import (
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// A module with everything the builder knows compiles and computes what its
// text says.
func TestBytes(t *testing.T) {
	m := wasmtest.Module{
		Types:   []wasmtest.Type{"i32 -> i32", "-> i32 i32"},
		Imports: []wasmtest.Import{{Module: "env", Name: "ten", Type: "-> i32"}},
		Funcs: []wasmtest.Func{
			{Name: "init", Body: `i32.const 8 i32.const 0 i32.const 1 memory.init 0 data.drop 0`},
			{Name: "double", Type: "i32 -> i32", Body: `local.get 0 i32.const 2 i32.mul`},
			{Export: "run", Type: "-> i32", Locals: "i32 f64", Body: `
				block type=1
					call $ten
					i32.const 0 i32.load8_u offset=8
				end
				i32.add local.set 0
				f64.const 2.5 local.tee 1 f64.const bits=0x4000000000000000 f64.add
				i32.trunc_sat_f64_s local.get 0 i32.add
				global.get 0 i32.add
				i32.const 0 call_indirect 0
				block i32.const 0 br_table 0 0 end`},
		},
		Tables:  []wasmtest.Table{{Min: 1, Max: wasmtest.Max(1)}},
		Globals: []wasmtest.Global{{Type: "i32", Mutable: true, Init: "i32.const -1", Export: "g"}},
		Exports: []wasmtest.Export{{Name: "again", Kind: 0, Index: 3}},
		Start:   "init",
		Elems:   []wasmtest.Elem{{Funcs: []string{"double"}}},
		Datas:   []wasmtest.Data{{Bytes: []byte{3}, Passive: true}, {Offset: 100, Bytes: []byte("x")}},
		Customs: []wasmtest.Custom{{Name: "note", Bytes: []byte("hello")}},
		Names:   true,
	}
	ctx := t.Context()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx)
	_, err := r.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(func() uint32 { return 10 }).Export("ten").Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := r.Instantiate(ctx, m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"run", "again"} {
		got, err := mod.ExportedFunction(name).Call(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if want := uint64((10 + 3 + 4 - 1) * 2); len(got) != 1 || got[0] != want {
			t.Errorf("%s() = %d, want %d", name, got, want)
		}
	}
}

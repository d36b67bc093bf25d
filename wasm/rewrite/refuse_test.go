package rewrite_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/wasm/rewrite"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// Every refusal says where and why.
func TestRefused(t *testing.T) {
	body := func(text string) wasmtest.Module { return function("", "i32", text) }
	table := func(text string) wasmtest.Module {
		m := body(text)
		m.Tables = []wasmtest.Table{{Min: 1}}
		return m
	}
	memories := func(list ...wasmtest.Memory) wasmtest.Module {
		return wasmtest.Module{Memories: append([]wasmtest.Memory{}, list...)}
	}
	imports := func(module, name string, typ wasmtest.Type) wasmtest.Module {
		return wasmtest.Module{Imports: []wasmtest.Import{{Module: module, Name: name, Type: typ}}}
	}
	indirect := passive(wasmtest.Func{Name: "b", Body: "i32.const 0 i32.const 0 i32.const 0 memory.init 0"}, wasmtest.Func{Export: "run", Body: "i32.const 0 call_indirect 0"})
	indirect.Tables = []wasmtest.Table{{Min: 1}}
	indirect.Elems = []wasmtest.Elem{{Funcs: []string{"b"}}}
	for _, tt := range []struct {
		name string
		m    wasmtest.Module
		want string
	}{
		{"table.set", table("i32.const 0 ref.null funcref table.set 0"), "code section, function 0, offset 0x3a: table.set: tables cannot change, because an image does not hold them; fill the table by its element segments"},
		{"table.grow", table("ref.null funcref i32.const 1 table.grow 0 drop"), "table.grow: tables cannot change"},
		{"table.fill", table("i32.const 0 ref.null funcref i32.const 1 table.fill 0"), "table.fill: tables cannot change"},
		{"table.copy", table("0xfc 0x0e 0x00 0x00"), "table.copy: tables cannot change"},
		{"table.init", table("0xfc 0x0c 0x00 0x00"), "table.init: tables cannot change"},
		{"elem.drop", table("elem.drop 0"), "elem.drop: tables cannot change"},
		{"elem.drop where it never runs", table("return elem.drop 0"), "elem.drop: tables cannot change"},
		{"SIMD", body("0xfd 0x0c"), "SIMD is not supported; build without it"},
		{"v128 local", function("", "v128", ""), "SIMD is not supported"},
		{"v128 parameter", function("v128", "", ""), "type section, offset 0xd: SIMD is not supported"},
		{"v128 block", body("0x02 0x7b end"), "SIMD is not supported"},
		{"atomics", body("0xfe 0x03 0x00"), "threads and atomics are not supported"},
		{"try", body("0x06 0x40 end"), "exception handling is not supported"},
		{"try_table", body("0x1f 0x40 0x00 end"), "exception handling is not supported"},
		{"return_call", body("return_call 0"), "tail calls are not supported"},
		{"return_call_indirect", body("0x13 0x00 0x00"), "tail calls are not supported"},
		{"call_ref", body("0x14 0x00"), "typed function references are not supported"},
		{"gc", body("0xfb 0x00"), "garbage collected types are not supported"},
		{"unknown opcode", body("0xff"), "opcode 0xff is unknown"},
		{"unknown opcode 0xfc", body("0xfc 0x12"), "opcode 0xfc 0x12 is unknown"},
		{"no memory", memories(), "it defines 0 memories; a cell has exactly one"},
		{"two memories", memories(wasmtest.Memory{Min: 1, Export: "memory"}, wasmtest.Memory{Min: 1}), "it defines 2 memories"},
		{"second memory used", body("i32.const 0 0x2d 0x40 0x01 0x00 drop"), "alignment 64 is not supported"},
		{"memory.grow of another", body("i32.const 0 0x40 0x01 drop"), "a second memory is not supported"},
		{"shared memory", memories(wasmtest.Memory{Min: 1, Max: wasmtest.Max(1), Flags: 3, Export: "memory"}), "shared memory is not supported"},
		{"memory64", memories(wasmtest.Memory{Min: 1, Flags: 4, Export: "memory"}), "memory64 is not supported; build for wasm32"},
		{"memory not exported", memories(wasmtest.Memory{Min: 1, Export: "mem"}), `it does not export its memory as "memory"`},
		{"another thing is exported as memory", wasmtest.Module{
			Memories: []wasmtest.Memory{{Min: 1}}, Funcs: []wasmtest.Func{{Export: "memory"}},
		}, `it does not export its memory as "memory"`},
		{"too much memory", memories(wasmtest.Memory{Min: 101, Export: "memory"}), "memory starts with 101 pages (6464 KiB), more than the 100 allowed"},
		{"impossible memory", memories(wasmtest.Memory{Min: 1, Max: wasmtest.Max(65537), Export: "memory"}), "a memory cannot have from 1 to 65537 pages"},
		{"mutable reference", wasmtest.Module{
			Globals: []wasmtest.Global{{Type: "externref", Mutable: true, Init: "ref.null externref"}},
		}, "global 0 is a mutable reference, which an image cannot hold"},
		{"computed initial value", wasmtest.Module{
			Globals: []wasmtest.Global{{Type: "i32", Init: "i32.const 1 i32.const 1 i32.add"}},
		}, "an initial value is not one constant"},
		{"import denied", imports("env", "system", "i32 -> i32"), `import section, offset 0x13: import "env"."system": unknown`},
		{"import of a float", imports("env", "ok", "f64"), `import "env"."ok" has type (f64) -> (): the host takes integers only`},
		{"import of a reference", imports("env", "ok", "externref"), "the host takes integers only"},
		{"reserved import", imports("agentcell", "check", "i32"), `the module name "agentcell" is reserved`},
		{"reserved export", wasmtest.Module{Funcs: []wasmtest.Func{{Export: "agentcell.fuel"}}}, `export "agentcell.fuel": names that begin with "agentcell." are reserved`},
		{"start is an import", wasmtest.Module{
			Imports: []wasmtest.Import{{Module: "env", Name: "ok"}}, Start: "ok",
		}, "the start function 0 is not one that the module defines"},
		{"start with results", wasmtest.Module{
			Funcs: []wasmtest.Func{{Name: "s", Type: "-> i32", Body: "i32.const 0"}}, Start: "s",
		}, "the start function 0 has type () -> (i32)"},
		{"huge table", wasmtest.Module{Tables: []wasmtest.Table{{Min: 1 << 20}, {Min: 1}}}, "the tables have 1048577 elements, more than the 1048576 allowed"},
		{"too many mutable globals", wasmtest.Module{
			Globals: slices.Repeat([]wasmtest.Global{{Type: "i32", Mutable: true, Init: "i32.const 0"}}, 10_001),
		}, "more than the 10000 mutable globals allowed"},
		{"too many locals", function("", strings.Repeat("i32 ", 49_998), ""), "it has 49998 locals, more than the 49996 allowed"},
		{"deep nesting", body(strings.Repeat("block ", 5_001)), "blocks nest deeper than 5000"},
		{"long br_table", body("i32.const 0 br_table" + strings.Repeat(" 0", 1<<16+2)), "a br_table has 65537 targets, more than the 65536 allowed"},
		{"long function", body(strings.Repeat("nop ", 8<<20)), "it has 8388612 bytes, more than the 8388608 allowed"},
		{"goes on after its end", body("end nop"), "the function goes on after its end"},
		{"does not end", body("block"), "it ends too early"},
		// What is added cannot be reached by an index that was out of range.
		{"no such function", body("call 1"), "there is no function 1"},
		{"no such reference", body("ref.func 1 drop"), "there is no function 1"},
		{"no such global", body("global.get 0 drop"), "there is no global 0"},
		{"no such global to set", body("i32.const 0 global.set 2"), "there is no global 2"},
		{"no such local", body("local.get 1 drop"), "there is no local 1"},
		{"no such local to set", body("i32.const 0 local.set 1"), "there is no local 1"},
		{"no such label", body("call 0 block br 2 end"), "there is no label 2"},
		{"no such br_table label", body("call 0 i32.const 0 br_table 0 1"), "there is no label 1"},
		{"no such br_table default", body("call 0 i32.const 0 br_table 1 0"), "there is no label 1"},
		{"no such block type", body("block type=1 end"), "there is no type 1"},
		{"no such indirect type", table("i32.const 0 call_indirect 1"), "there is no type 1"},
		{"no such export", wasmtest.Module{Exports: []wasmtest.Export{{Name: "x", Index: 0}}}, "there is no function 0"},
		{"no such global export", wasmtest.Module{Exports: []wasmtest.Export{{Name: "x", Kind: 3}}}, `export "x": there is no global 0`},
		{"no such kind", wasmtest.Module{Exports: []wasmtest.Export{{Name: "x", Kind: 4}}}, `export "x": there is no kind 4 0`},
		{"memory.init in an export", passive(wasmtest.Func{Export: "run", Body: "i32.const 0 i32.const 0 i32.const 0 memory.init 0"}), "function 1, offset 0x4b: memory.init: data segments are gone after the start function"},
		{"data.drop below an export", passive(
			wasmtest.Func{Export: "run", Body: "call $b"}, wasmtest.Func{Name: "b", Body: "call $c"}, wasmtest.Func{Name: "c", Body: "data.drop 0"},
		), "function 3, offset 0x51: data.drop: data segments are gone"},
		{"memory.init through the table", indirect, "function 1, offset 0x5b: memory.init: data segments are gone"},
		{"memory.init by reference", passive(wasmtest.Func{Name: "b", Body: "i32.const 0 i32.const 0 i32.const 0 memory.init 0"}, wasmtest.Func{Export: "run", Body: "ref.func $b drop"}), "memory.init: data segments are gone"},
		{"data.drop shared by start and an export", passive(wasmtest.Func{Export: "run", Body: "call $start"}), "function 0, offset 0x3b: memory.init: data segments are gone"},
		{"memory.init without a count", body("i32.const 0 i32.const 0 i32.const 0 memory.init 0"), "memory.init without a data count section"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, tt.m.Bytes(), tt.want)
		})
	}
}

// passive has a start function that uses data segments, and others.
func passive(others ...wasmtest.Func) wasmtest.Module {
	return wasmtest.Module{
		Funcs: append([]wasmtest.Func{{Name: "start", Body: "i32.const 0 i32.const 0 i32.const 3 memory.init 0 data.drop 0"}}, others...),
		Datas: []wasmtest.Data{{Bytes: []byte("abc"), Passive: true}},
		Start: "start",
	}
}

// refused expects an error with a text, or none if the text is empty.
func refused(t *testing.T, code []byte, want string) {
	t.Helper()
	_, err := rewrite.Rewrite(code, rewrite.Options{
		MaxMemoryPages: 100,
		Allowed: func(module, name string, _ rewrite.FuncType) error {
			if name != "ok" {
				return fmt.Errorf("unknown")
			}
			return nil
		},
	})
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("not refused; want %q", want)
	case want != "" && (!strings.Contains(err.Error(), want) || !errors.Is(err, rewrite.ErrRefused)):
		t.Errorf("got  %q\nwant %q", err, want)
	}
}

// Malformed files, byte by byte.
func TestRefusedBytes(t *testing.T) {
	const head = "\x00asm\x01\x00\x00\x00"
	for _, tt := range []struct{ name, code, want string }{
		{"empty", "", "this is not a WebAssembly file"},
		{"text", "(module)", "this is not a WebAssembly file"},
		{"component", "\x00asm\x0d\x00\x01\x00", "components are not supported"},
		{"unknown section", head + "\x0e\x00", "offset 0x8: section 14 is unknown"},
		{"tags", head + "\x0d\x01\x00", "exception handling is not supported"},
		{"section past the end", head + "\x01\x7f\x00", "section 1 claims 127 bytes and has 1"},
		{"section of 4 GiB", head + "\x01\xff\xff\xff\xff\x0f\x00", "section 1 claims 4294967295 bytes and has 1"},
		{"overlong number", head + "\x01\x81\x80\x80\x80\x80\x00", "offset 0x9: a malformed number"},
		{"number too large", head + "\x01\xff\xff\xff\xff\x1f", "offset 0x9: a malformed number"},
		{"number cut off", head + "\x01\x80", "it ends too early"},
		{"twice", head + "\x01\x01\x00\x01\x01\x00", "the type section stands twice or out of order"},
		{"out of order", head + "\x03\x01\x00\x01\x01\x00", "the type section stands twice or out of order"},
		{"absurd count", head + "\x01\x05\xff\xff\xff\xff\x0f", "type section, offset 0xa: it claims 4294967295 items, more than it has bytes for"},
		{"bytes left over", head + "\x01\x02\x00\x00", "type section, offset 0xb: 1 bytes too many"},
		{"struct type", head + "\x01\x04\x01\x5f\x00\x00", "type 0 has form 0x5f: only function types are supported"},
		{"name not UTF-8", head + "\x01\x04\x01\x60\x00\x00\x02\x07\x01\x01\xff\x01\x61\x00\x00", "a name is not UTF-8"},
		{"imported memory", head + "\x02\x08\x01\x01e\x01m\x02\x00\x01", `import "e"."m": a cell imports functions only; define the memory in the module`},
		{"imported global", head + "\x02\x08\x01\x01e\x01g\x03\x7f\x01", "define the global in the module"},
		{"imported table", head + "\x02\x09\x01\x01e\x01t\x01\x70\x00\x01", "define the table in the module"},
		{"no functions", head + "\x05\x03\x01\x00\x01\x07\x0a\x01\x06memory\x02\x00\x0a\x04\x01\x02\x00\x0b", "code section, offset 0x1b: there are 1 bodies for 0 functions"},
		{"no bodies", head + "\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x05\x03\x01\x00\x01\x07\x0a\x01\x06memory\x02\x00", "there are 0 bodies for 1 functions"},
	} {
		t.Run(tt.name, func(t *testing.T) { refused(t, []byte(tt.code), tt.want) })
	}
	long := make([]byte, 101)
	if _, err := rewrite.Rewrite(long, rewrite.Options{MaxBytes: 100}); !errors.Is(err, rewrite.ErrRefused) || !strings.Contains(err.Error(), "101 bytes, more than the 100 allowed") {
		t.Error(err)
	}
	if _, err := rewrite.Rewrite(wasmtest.Module{Imports: []wasmtest.Import{{Module: "a", Name: "b"}}}.Bytes(), rewrite.Options{}); err == nil {
		t.Error("an import is allowed by default")
	}
}

// A module cut anywhere is refused, and one with any byte changed does not
// panic.
func TestCutAndChanged(t *testing.T) {
	code := everything().Bytes()
	mustRewrite(t, code)
	o := rewrite.Options{Allowed: allowAll}
	for n := range code {
		if _, err := rewrite.Rewrite(code[:n], o); err == nil && n < len(code)-200 {
			t.Errorf("cut to %d bytes it is not refused", n)
		}
		for _, b := range []byte{0, 1, 0x7f, 0x80, 0xff, code[n] ^ 1, code[n] + 1} {
			changed := bytes.Clone(code)
			changed[n] = b
			_, _ = rewrite.Rewrite(changed, o)
		}
	}
}

// Names are for traps only: a section that is malformed is left out.
func TestMalformedNames(t *testing.T) {
	for _, names := range []string{"\x01", "\x01\x7f", "\x01\x03\x01\x00\x05", "\x01\x03\x01\x09\x00", "\x01\x05\x02\x00\x00\x00\x00", "\x01\x04\x01\x00\x01\xff", "\x00\xff\xff\xff\xff\x0f"} {
		m := function("", "", "")
		m.Customs = []wasmtest.Custom{{Name: "name", Bytes: []byte(names)}}
		if code := mustRewrite(t, m.Bytes()).Code; bytes.Contains(code, []byte("name")) {
			t.Errorf("%q was kept", names)
		}
	}
	m := wasmtest.Module{Funcs: []wasmtest.Func{{Name: "culprit", Body: "0xff"}}, Names: true}
	refused(t, m.Bytes(), `function 0 ("culprit"), offset`)
}

// everything has each kind of section and most kinds of instructions.
func everything() wasmtest.Module {
	m := passive(
		wasmtest.Func{Export: "run", Type: "-> i32 i64", Locals: "i32 f32 f64", Body: `
			block loop local.get 0 br_if 1 i32.const 1 local.set 0 br 0 end end
			f32.const nan global.set 0 f64.const 1 f64.const 2 f64.copysign local.set 2
			i32.const 8 local.get 2 f64.store offset=8
			i32.const 3 i32.const 0 call_indirect 0 call $next
			if i32.const 1 memory.grow drop else i32.const 0 i32.const 9 i32.const 64 memory.fill end
			i32.const 5 i32.const 9 i32.const 64 memory.copy
			local.get 0 i64.const 5 return`},
		wasmtest.Func{Name: "callee", Type: "i32 -> i32", Body: "local.get 0 i32.eqz if i32 i32.const 1 else i32.const 2 end"},
	)
	m.Types = []wasmtest.Type{"i32 -> i32"}
	m.Imports = []wasmtest.Import{{Module: "env", Name: "next", Type: "i32 -> i32"}}
	m.Tables = []wasmtest.Table{{Min: 2, Max: wasmtest.Max(2)}}
	m.Globals = []wasmtest.Global{{Type: "f32", Mutable: true, Init: "f32.const 1"}, {Type: "funcref", Init: "ref.func $callee"}}
	m.Elems = []wasmtest.Elem{{Funcs: []string{"callee", "run"}}}
	m.Datas = append(m.Datas, wasmtest.Data{Offset: 8, Bytes: []byte("data")})
	m.Names = true
	return m
}

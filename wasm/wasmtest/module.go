// Package wasmtest owns how tests come by WebAssembly modules: a Module is a
// struct literal with bodies in a flat text form, and Bytes encodes it. It checks
// nothing but its own syntax, so that hostile modules are as easy as good ones.
//
//	m := wasmtest.Module{
//		Imports: []wasmtest.Import{{Module: "agent", Name: "read", Type: "i32 i32 -> i32"}},
//		Funcs: []wasmtest.Func{{Export: "agent_run", Type: "-> i32", Body: `
//			i32.const 0
//			i32.const 64
//			call $read`}},
//	}
//
// It is for tests only: what it cannot encode makes it panic. Package wasmtest
// imports nothing of ours and never an engine.
package wasmtest

import (
	"fmt"
	"slices"
	"strings"
)

// Type is the type of a function, as "i32 i64 -> f64"; without parameters as
// "-> f64", and the empty Type takes and returns nothing.
type Type string

// Module is a module in the order of its index spaces: Imports before Funcs.
type Module struct {
	// Types come first among the types, so that bodies may use their indices.
	// Other types are added as they are needed.
	Types   []Type
	Imports []Import
	Funcs   []Func
	Tables  []Table
	// Memories, if nil, stands for one page exported as "memory".
	Memories []Memory
	Globals  []Global
	// Exports come after those that Funcs, Memories and Globals name.
	Exports []Export
	// Start names the start function by its Name or Export.
	Start   string
	Elems   []Elem
	Datas   []Data
	Customs []Custom // after all other sections
	// Names adds a name section with the functions' names.
	Names bool
}

// Import is an imported function; bodies call it by "$" and its Name.
type Import struct {
	Module, Name string
	Type         Type
}

// Func is a defined function; bodies call it by "$" and its Name or Export. Body
// goes without the last end. Locals are as in "i32 i64".
type Func struct {
	Name, Export string
	Type         Type
	Locals       string
	Body         string
}

// Table has elements of Type, funcref if empty.
type Table struct {
	Type string
	Min  uint32
	Max  *uint32
}

// Memory is a memory; Flags, if not 0, is written in place of the right ones.
type Memory struct {
	Min    uint32
	Max    *uint32
	Export string
	Flags  byte
}

// Global is a global of Type with the initial value Init, an instruction.
type Global struct {
	Type    string
	Mutable bool
	Init    string
	Export  string
}

// Export exports what has an Index among its Kind: 0 functions, 1 tables, 2
// memories, 3 globals.
type Export struct {
	Name  string
	Kind  byte
	Index uint32
}

// Elem fills table 0 from Offset with functions by name, or is passive.
type Elem struct {
	Offset  int32
	Funcs   []string
	Passive bool
}

// Data fills memory from Offset, or is passive.
type Data struct {
	Offset  int32
	Bytes   []byte
	Passive bool
}

// Custom is a custom section.
type Custom struct {
	Name  string
	Bytes []byte
}

// Max is for the Max of a Table or Memory.
func Max(n uint32) *uint32 { return &n }

// Bytes encodes the module.
func (m Module) Bytes() []byte {
	if m.Memories == nil {
		m.Memories = []Memory{{Min: 1, Export: "memory"}}
	}
	e := encoder{m: &m}
	// The bodies first: they add types.
	functions := vector(m.Funcs, func(f Func) []byte { return unsigned(e.typeIndex(f.Type)) })
	imports := vector(m.Imports, func(i Import) []byte {
		return slices.Concat(text(i.Module), text(i.Name), []byte{0}, unsigned(e.typeIndex(i.Type)))
	})
	code := vector(m.Funcs, e.body)

	out := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, n int, content []byte) {
		if n > 0 {
			out = append(out, id)
			out = append(out, sized(content)...)
		}
	}
	types := vector(e.types, func(t Type) []byte {
		params, results := t.split()
		return slices.Concat([]byte{0x60}, valueTypes(params), valueTypes(results))
	})
	section(1, len(e.types), types)
	section(2, len(m.Imports), imports)
	section(3, len(m.Funcs), functions)
	section(4, len(m.Tables), vector(m.Tables, table))
	section(5, len(m.Memories), vector(m.Memories, memory))
	section(6, len(m.Globals), vector(m.Globals, e.global))
	exports := e.exports()
	section(7, len(exports), vector(exports, func(x Export) []byte {
		return slices.Concat(text(x.Name), []byte{x.Kind}, unsigned(x.Index))
	}))
	if m.Start != "" {
		section(8, 1, unsigned(e.function(m.Start)))
	}
	section(9, len(m.Elems), vector(m.Elems, e.elem))
	if slices.ContainsFunc(m.Datas, func(d Data) bool { return d.Passive }) {
		section(12, 1, unsigned(uint32(len(m.Datas))))
	}
	section(10, len(m.Funcs), code)
	section(11, len(m.Datas), vector(m.Datas, data))
	if m.Names {
		section(0, 1, append(text("name"), e.names()...))
	}
	for _, c := range m.Customs {
		section(0, 1, append(text(c.Name), c.Bytes...))
	}
	return out
}

type encoder struct {
	m     *Module
	types []Type
}

func (e *encoder) typeIndex(t Type) uint32 {
	if e.types == nil {
		e.types = append(e.types, e.m.Types...)
	}
	i := slices.Index(e.types, t)
	if i < 0 {
		e.types = append(e.types, t)
		i = len(e.types) - 1
	}
	return uint32(i)
}

// function finds a function by name.
func (e *encoder) function(name string) uint32 {
	name = strings.TrimPrefix(name, "$")
	for i, x := range e.m.Imports {
		if x.Name == name {
			return uint32(i)
		}
	}
	for i, f := range e.m.Funcs {
		if f.Name == name || f.Export == name {
			return uint32(len(e.m.Imports) + i)
		}
	}
	panic(fmt.Sprintf("wasmtest: no function %q", name))
}

func (e *encoder) body(f Func) []byte {
	locals := vector(strings.Fields(f.Locals), func(t string) []byte { return []byte{1, valueType(t)} })
	return sized(slices.Concat(locals, e.assemble(f.Body), []byte{0x0b}))
}

func (e *encoder) exports() []Export {
	var list []Export
	add := func(name string, kind byte, i int) {
		if name != "" {
			list = append(list, Export{name, kind, uint32(i)})
		}
	}
	for i, f := range e.m.Funcs {
		add(f.Export, 0, len(e.m.Imports)+i)
	}
	for i, x := range e.m.Memories {
		add(x.Export, 2, i)
	}
	for i, g := range e.m.Globals {
		add(g.Export, 3, i)
	}
	return append(list, e.m.Exports...)
}

func (e *encoder) global(g Global) []byte {
	mutable := byte(0)
	if g.Mutable {
		mutable = 1
	}
	return slices.Concat([]byte{valueType(g.Type), mutable}, e.assemble(g.Init), []byte{0x0b})
}

func (e *encoder) elem(x Elem) []byte {
	functions := vector(x.Funcs, func(name string) []byte { return unsigned(e.function(name)) })
	if x.Passive {
		return append([]byte{1, 0}, functions...)
	}
	return slices.Concat([]byte{0, 0x41}, signed(int64(x.Offset)), []byte{0x0b}, functions)
}

func (e *encoder) names() []byte {
	type named struct {
		index int
		name  string
	}
	var list []named
	for i, x := range e.m.Imports {
		list = append(list, named{i, x.Name})
	}
	for i, f := range e.m.Funcs {
		if name := f.Name + f.Export; f.Name == "" || f.Export == "" {
			list = append(list, named{len(e.m.Imports) + i, name})
		} else {
			list = append(list, named{len(e.m.Imports) + i, f.Name})
		}
	}
	return append([]byte{1}, sized(vector(list, func(n named) []byte {
		return append(unsigned(uint32(n.index)), text(n.name)...)
	}))...)
}

func table(t Table) []byte {
	kind := t.Type
	if kind == "" {
		kind = "funcref"
	}
	return append([]byte{valueType(kind)}, limits(0, t.Min, t.Max)...)
}

func memory(x Memory) []byte { return limits(x.Flags, x.Min, x.Max) }

func limits(flags byte, least uint32, most *uint32) []byte {
	if most == nil {
		return append([]byte{flags}, unsigned(least)...)
	}
	return slices.Concat([]byte{flags | 1}, unsigned(least), unsigned(*most))
}

func data(d Data) []byte {
	if d.Passive {
		return append([]byte{1}, sized(d.Bytes)...)
	}
	return slices.Concat([]byte{0, 0x41}, signed(int64(d.Offset)), []byte{0x0b}, sized(d.Bytes))
}

func (t Type) split() (params, results []string) {
	before, after, _ := strings.Cut(string(t), "->")
	return strings.Fields(before), strings.Fields(after)
}

func valueTypes(names []string) []byte {
	return vector(names, func(name string) []byte { return []byte{valueType(name)} })
}

func valueType(name string) byte {
	switch name {
	case "i32":
		return 0x7f
	case "i64":
		return 0x7e
	case "f32":
		return 0x7d
	case "f64":
		return 0x7c
	case "v128":
		return 0x7b
	case "funcref":
		return 0x70
	case "externref":
		return 0x6f
	}
	panic(fmt.Sprintf("wasmtest: no value type %q", name))
}

func vector[T any](items []T, encode func(T) []byte) []byte {
	out := unsigned(uint32(len(items)))
	for _, item := range items {
		out = append(out, encode(item)...)
	}
	return out
}

func sized(b []byte) []byte { return append(unsigned(uint32(len(b))), b...) }

func text(s string) []byte { return sized([]byte(s)) }

func unsigned(v uint32) []byte {
	var b []byte
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

func signed(v int64) []byte {
	var b []byte
	for ; v < -0x40 || v >= 0x40; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v)&0x7f)
}

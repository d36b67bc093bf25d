package rewrite_test

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// generator writes random modules that are valid, by drawing instructions for
// the type that is wanted. What it writes ends or runs out of fuel.
type generator struct {
	t *rapid.T
	// quiet makes the original itself hide the bits of NaNs, so that it must
	// leave the same memory as the rewritten module.
	quiet bool

	types     []wasmtest.Type
	functions []wasmtest.Type // imports too; bodies call them by index
	globals   []string
	table     map[int]int // slots to functions

	// The function that is written.
	out     strings.Builder
	locals  []string
	scratch map[string]int // locals for hiding a NaN, by type
	labels  [][]string     // what a branch to each open block takes, innermost last
	budget  int            // instructions left to write, roughly
}

// The loads of each type, and the select that names it.
var (
	loads = map[string][]string{
		"i32": {"i32.load", "i32.load8_s", "i32.load8_u", "i32.load16_s", "i32.load16_u"},
		"i64": {"i64.load", "i64.load8_s", "i64.load8_u", "i64.load16_s", "i64.load16_u", "i64.load32_s", "i64.load32_u"},
		"f32": {"f32.load"}, "f64": {"f64.load"},
	}
	selects = map[string]string{"i32": "0x1c 0x01 0x7f", "i64": "0x1c 0x01 0x7e", "f32": "0x1c 0x01 0x7d", "f64": "0x1c 0x01 0x7c"}
)

var numericTypes = []string{"i32", "i64", "f32", "f64"}

func genModule(t *rapid.T, quiet bool) wasmtest.Module {
	g := &generator{
		t: t, quiet: quiet,
		types: []wasmtest.Type{
			"", "-> i32", "-> f64", "-> i32 i64", "-> f32 f64 i32", "i32 -> i32", "i64 f64 -> f64", "f32 i32 -> i64 f32", "i32", "i32 i32 -> i32 i32",
		},
		functions: []wasmtest.Type{"i32 -> i32"},
	}
	m := wasmtest.Module{
		Types:   g.types,
		Imports: []wasmtest.Import{{Module: "env", Name: "next", Type: "i32 -> i32"}},
		Names:   g.one(2) == 0,
	}
	for range 1 + g.one(5) {
		g.functions = append(g.functions, g.types[g.one(len(g.types))])
	}
	for range g.one(6) {
		typ := g.typ()
		g.globals = append(g.globals, typ)
		m.Globals = append(m.Globals, wasmtest.Global{Type: typ, Mutable: true, Init: g.constant(typ)})
	}
	elem := wasmtest.Elem{Offset: 1}
	g.table = map[int]int{}
	for i := range 4 {
		f := g.one(len(g.functions) - 1)
		elem.Funcs = append(elem.Funcs, fmt.Sprint("f", f))
		g.table[1+i] = 1 + f
	}
	m.Elems = []wasmtest.Elem{elem}
	for i, typ := range g.functions[1:] {
		f := wasmtest.Func{Name: fmt.Sprint("f", i), Type: typ}
		if typ == "" || strings.HasPrefix(string(typ), "->") {
			f.Export = f.Name
		}
		f.Body, f.Locals = g.body(typ)
		m.Funcs = append(m.Funcs, f)
	}
	if g.one(3) == 0 {
		f := wasmtest.Func{Name: "start"}
		f.Body, f.Locals = g.body("")
		f.Body = "i32.const 32 i32.const 1 i32.const 4 memory.init 0 data.drop 0 " + f.Body
		m.Funcs = append(m.Funcs, f)
		m.Start = "start"
	}
	m.Datas = []wasmtest.Data{{Bytes: []byte("passive"), Passive: true}, {Offset: 5, Bytes: []byte{1, 2, 3, 255, 255, 255, 127, 255, 255, 255, 255, 255, 255, 239, 127}}}
	m.Tables = []wasmtest.Table{{Min: 6}}
	m.Memories = []wasmtest.Memory{{Min: 1, Export: "memory"}}
	if g.one(2) == 0 {
		m.Memories[0].Max = wasmtest.Max(uint32(1 + g.one(4)))
	}
	return m
}

// one draws a number below n.
func (g *generator) one(n int) int { return rapid.IntRange(0, n-1).Draw(g.t, "") }

func (g *generator) typ() string { return numericTypes[g.one(4)] }

func pick[T any](g *generator, list ...T) T { return list[g.one(len(list))] }

func (g *generator) emit(format string, args ...any) {
	fmt.Fprintf(&g.out, format+" ", args...)
	g.budget--
}

func signature(t wasmtest.Type) (params, results []string) {
	before, after, _ := strings.Cut(string(t), "->")
	return strings.Fields(before), strings.Fields(after)
}

func (g *generator) body(typ wasmtest.Type) (body, locals string) {
	params, results := signature(typ)
	g.out.Reset()
	g.locals = append([]string(nil), params...)
	for range 1 + g.one(4) {
		g.locals = append(g.locals, g.typ())
	}
	g.scratch = map[string]int{}
	if g.quiet {
		for _, t := range []string{"f32", "f64"} {
			g.scratch[t] = len(g.locals)
			g.locals = append(g.locals, t)
		}
	}
	g.labels = [][]string{results}
	g.budget = 20 + g.one(150)
	g.statements(3)
	g.values(results, 3)
	return g.out.String(), strings.Join(g.locals[len(params):], " ")
}

func (g *generator) statements(depth int) {
	for range 1 + g.one(5) {
		if g.budget <= 0 {
			return
		}
		if !g.statement(depth) {
			g.dead()
			return
		}
	}
}

// statement leaves the stack as it is. It returns false if what follows is never
// reached.
func (g *generator) statement(depth int) bool {
	switch n := g.one(20); {
	case n < 4:
		i := g.one(len(g.locals))
		g.value(g.locals[i], depth)
		g.emit("local.set %d", i)
	case n < 6 && len(g.globals) > 0:
		i := g.one(len(g.globals))
		g.value(g.globals[i], depth)
		g.hide(g.globals[i])
		g.emit("global.set %d", i)
	case n < 9:
		g.store(depth)
	case n < 13 && depth > 0:
		g.block(depth - 1)
	case n == 13:
		g.value(g.typ(), depth)
		g.emit("drop")
	case n == 14:
		g.drop(g.call(g.one(len(g.functions)), depth))
	case n == 15:
		g.bulk(depth)
	case n == 16:
		l := g.one(len(g.labels))
		types := g.label(l)
		g.values(types, depth)
		g.value("i32", depth)
		g.emit("br_if %d", l)
		g.drop(types)
	case n == 17 && depth < 3:
		g.jump(depth)
		return false
	default:
		g.emit("nop")
	}
	return true
}

// label is what a branch takes.
func (g *generator) label(l int) []string { return g.labels[len(g.labels)-1-l] }

func (g *generator) drop(types []string) {
	for range types {
		g.emit("drop")
	}
}

// jump leaves for elsewhere.
func (g *generator) jump(depth int) {
	switch g.one(8) {
	case 0:
		g.emit("unreachable")
	case 1, 2:
		g.values(g.labels[0], depth)
		g.emit("return")
	case 3, 4:
		l := g.one(len(g.labels))
		g.values(g.label(l), depth)
		g.emit("br %d", l)
	default:
		// All labels of a br_table take the same.
		l := g.one(len(g.labels))
		targets := []string{fmt.Sprint(l)}
		for other := range g.labels {
			if strings.Join(g.label(other), " ") == strings.Join(g.label(l), " ") {
				targets = append(targets, fmt.Sprint(other))
			}
		}
		g.values(g.label(l), depth)
		g.value("i32", depth)
		g.emit("br_table %s", strings.Join(targets, " "))
	}
}

// dead writes code that is never reached, where the stack has whatever is taken
// from it.
func (g *generator) dead() {
	for range g.one(4) {
		g.emit("%s", pick(g,
			"i32.add drop", "f64.store", "f32.store offset=3", "memory.fill", "memory.copy", "memory.grow drop", "return",
			"i64.reinterpret_f64 drop", "f32.copysign drop", "call $next drop", "loop br 0 end", "loop i32 unreachable br 1 end drop", "block unreachable return end",
			"i32.const 1 if unreachable return else unreachable end", "select drop", "unreachable"))
	}
	if g.one(2) == 0 {
		g.statements(0)
	}
}

// block writes a block, a loop or an if that takes and leaves nothing, or has a
// type with parameters.
func (g *generator) block(depth int) {
	open := func(kind string, label []string) {
		g.emit("%s", kind)
		g.labels = append(g.labels, label)
	}
	closed := func() {
		g.labels = g.labels[:len(g.labels)-1]
		g.emit("end")
	}
	switch g.one(6) {
	case 0:
		open("block", nil)
		g.statements(depth)
		closed()
	case 1, 2: // a loop that counts, unless its body changes the counter
		i := g.one(len(g.locals))
		open("loop", nil)
		g.statements(depth)
		if g.locals[i] == "i32" {
			g.emit("local.get %d i32.const 1 i32.add local.tee %d i32.const 7 i32.and br_if 0", i, i)
		}
		closed()
	case 3:
		g.value("i32", depth)
		open("if", nil)
		g.statements(depth)
		if g.one(2) == 0 {
			g.emit("else")
			g.statements(depth)
		}
		closed()
	default:
		two := []string{"i32", "i32"}
		kind := pick(g, "block", "loop", "if")
		g.values(two, depth)
		if kind == "if" {
			g.value("i32", depth)
		}
		open(kind+" type=9", two)
		g.statements(depth)
		if kind == "if" {
			g.emit("else")
			g.statements(depth)
			g.emit("i32.xor")
			g.value("i32", depth)
		}
		closed()
		g.drop(two)
	}
}

// call calls a function, through the table where it can, and returns what is
// then on the stack.
func (g *generator) call(f, depth int) []string {
	params, results := signature(g.functions[f])
	g.values(params, depth)
	for slot, in := range g.table {
		if in == f && g.one(2) == 0 {
			for t, typ := range g.types {
				if typ == g.functions[f] {
					g.emit("i32.const %d call_indirect %d", slot, t)
					return results
				}
			}
		}
	}
	g.emit("call %d", f)
	return results
}

func (g *generator) store(depth int) {
	typ := g.typ()
	g.address(depth)
	g.value(typ, depth)
	g.hide(typ)
	ops := []string{typ + ".store"}
	switch typ {
	case "i32":
		ops = append(ops, "i32.store8", "i32.store16")
	case "i64":
		ops = append(ops, "i64.store8", "i64.store16", "i64.store32")
	}
	g.emit("%s offset=%d", pick(g, ops...), g.one(40))
}

// address is mostly within a small part of memory.
func (g *generator) address(depth int) {
	switch g.one(12) {
	case 0:
		g.emit("i32.const %d", pick(g, 65535, 65528, 65536, 131072, -1, -8))
	case 1, 2:
		g.value("i32", depth-1)
		g.emit("i32.const 127 i32.and")
	default:
		g.emit("i32.const %d", g.one(128))
	}
}

func (g *generator) bulk(depth int) {
	if g.one(3) == 0 {
		g.emit("i32.const %d memory.grow drop", pick(g, 0, 1, 2, 17, 40, -1))
		return
	}
	g.address(depth)
	g.address(depth)
	g.emit("i32.const %d", pick(g, 0, 1, 7, 64, 200, 65000, 65536, 1<<20, 1<<20+1, 2500000, -1))
	g.emit("%s", pick(g, "memory.copy", "memory.fill"))
}

// hide makes a NaN on the stack canonical, in quiet modules.
func (g *generator) hide(typ string) {
	if i, ok := g.scratch[typ]; ok {
		g.emit("local.tee %[2]d %[1]s.const nan local.get %[2]d local.get %[2]d %[1]s.eq select", typ, i)
	}
}

func (g *generator) values(types []string, depth int) {
	for _, typ := range types {
		g.value(typ, depth)
	}
}

// value leaves one value of a type on the stack.
func (g *generator) value(typ string, depth int) {
	if depth <= 0 || g.budget <= 0 {
		g.leaf(typ)
		return
	}
	depth--
	switch g.one(14) {
	case 0, 1, 2:
		g.leaf(typ)
	case 3, 4:
		g.value(typ, depth)
		g.value(typ, depth)
		g.binary(typ)
	case 5, 6:
		g.unary(typ, depth)
	case 7:
		g.value(typ, depth)
		g.value(typ, depth)
		g.value("i32", depth)
		g.emit("%s", pick(g, "select", selects[typ]))
	case 8:
		for i, t := range g.locals {
			if t == typ {
				g.value(typ, depth)
				g.emit("local.tee %d", i)
				return
			}
		}
		g.leaf(typ)
	case 9, 10:
		g.callFor(typ, depth)
	case 11:
		g.address(depth)
		g.emit("%s offset=%d", pick(g, loads[typ]...), g.one(40))
	case 12:
		g.typedBlock(typ, depth)
	default:
		g.value("i32", depth)
		g.emit("if %s", typ)
		g.arm(typ, depth)
		g.emit("else")
		g.arm(typ, depth)
		g.emit("end")
	}
}

// arm is the inside of a block that leaves one value.
func (g *generator) arm(typ string, depth int) {
	g.labels = append(g.labels, []string{typ})
	g.statements(depth)
	g.value(typ, depth)
	if g.one(6) == 0 {
		g.jump(depth)
		g.dead()
		g.value(typ, 0)
	}
	g.labels = g.labels[:len(g.labels)-1]
}

func (g *generator) typedBlock(typ string, depth int) {
	if g.one(3) == 0 { // a loop's label takes nothing
		g.emit("loop %s", typ)
		g.labels = append(g.labels, nil)
		g.statements(depth)
		g.value(typ, depth)
		g.labels = g.labels[:len(g.labels)-1]
	} else {
		g.emit("block %s", typ)
		g.arm(typ, depth)
	}
	g.emit("end")
}

// callFor calls a function whose first result has the type.
func (g *generator) callFor(typ string, depth int) {
	first := g.one(len(g.functions))
	for i := range g.functions {
		f := (first + i) % len(g.functions)
		if _, results := signature(g.functions[f]); len(results) > 0 && results[0] == typ {
			g.drop(g.call(f, depth)[1:])
			return
		}
	}
	g.leaf(typ)
}

func (g *generator) leaf(typ string) {
	n := g.one(4)
	if n == 0 && len(g.globals) > 0 {
		if i := g.one(len(g.globals)); g.globals[i] == typ {
			g.emit("global.get %d", i)
			return
		}
	}
	if n > 0 {
		if i := g.one(len(g.locals)); g.locals[i] == typ {
			g.emit("local.get %d", i)
			return
		}
	}
	if n == 1 && typ == "i32" {
		g.emit("memory.size")
		return
	}
	g.emit("%s", g.constant(typ))
}

func (g *generator) constant(typ string) string {
	switch typ {
	case "i32":
		return "i32.const " + pick(g, "0", "1", "2", "7", "-1", "1000", "0x80000000", "0x7fffffff", "65536")
	case "i64":
		return "i64.const " + pick(g, "0", "1", "-1", "33", "0x8000000000000000", "0x7fffffffffffffff", "0x7ff8000000000001")
	case "f32":
		return "f32.const " + pick(g, "0", "-0", "1.5", "inf", "-inf", "nan", "bits=0xffc00000", "bits=0x7fa00001", "3e9", "-1e-40")
	}
	return "f64.const " + pick(g, "0", "-0", "1.5", "inf", "-inf", "nan", "bits=0xfff8000000000000", "bits=0x7ff4000000000001", "1e300", "-5e-324")
}

func (g *generator) binary(typ string) {
	if typ[0] == 'i' {
		g.emit("%s.%s", typ, pick(g, "add", "sub", "mul", "and", "or", "xor", "shl", "shr_s", "shr_u", "rotl", "rotr", "div_s", "div_u", "rem_s", "rem_u"))
		return
	}
	op := pick(g, "add", "sub", "mul", "div", "min", "max", "copysign")
	if op == "copysign" {
		g.hide(typ)
	}
	g.emit("%s.%s", typ, op)
}

// unary computes a value of a type from one or two of any type.
func (g *generator) unary(typ string, depth int) {
	from, op := typ, ""
	switch typ {
	case "i32":
		switch g.one(5) {
		case 4:
			from, op = "i64", "i32.wrap_i64"
		case 0:
			from = g.typ()
			g.value(from, depth)
			g.value(from, depth)
			suffix := ""
			if from[0] == 'i' {
				suffix = "_u"
			}
			g.emit("%s.%s", from, pick(g, "eq", "ne", "lt"+suffix, "ge"+suffix))
			return
		case 1:
			from, op = "f32", pick(g, "i32.reinterpret_f32", "i32.trunc_f32_s", "i32.trunc_sat_f32_s", "i32.trunc_sat_f32_u")
		case 2:
			from, op = "f64", pick(g, "i32.trunc_sat_f64_s", "i32.trunc_sat_f64_u", "i32.trunc_f64_u")
		default:
			op = pick(g, "i32.eqz", "i32.clz", "i32.popcnt", "i32.extend8_s", "i32.extend16_s", "memory.grow")
		}
	case "i64":
		switch g.one(4) {
		case 3:
			from, op = "f32", pick(g, "i64.trunc_f32_s", "i64.trunc_sat_f32_s", "i64.trunc_sat_f32_u")
		case 0:
			from, op = "f64", pick(g, "i64.reinterpret_f64", "i64.trunc_sat_f64_s", "i64.trunc_sat_f64_u")
		case 1:
			from, op = "i32", pick(g, "i64.extend_i32_s", "i64.extend_i32_u")
		default:
			op = pick(g, "i64.ctz", "i64.extend8_s", "i64.extend16_s", "i64.extend32_s")
		}
	case "f32":
		switch g.one(3) {
		case 0:
			from, op = "i32", pick(g, "f32.reinterpret_i32", "f32.convert_i32_u")
		case 1:
			from, op = "f64", "f32.demote_f64"
		default:
			op = pick(g, "f32.abs", "f32.neg", "f32.sqrt", "f32.ceil", "f32.nearest")
		}
	case "f64":
		switch g.one(3) {
		case 0:
			from, op = "i64", pick(g, "f64.reinterpret_i64", "f64.convert_i64_s")
		case 1:
			from, op = "f32", "f64.promote_f32"
		default:
			op = pick(g, "f64.abs", "f64.neg", "f64.sqrt", "f64.floor", "f64.trunc")
		}
	}
	g.value(from, depth)
	if strings.Contains(op, "reinterpret_f") {
		g.hide(from)
	}
	g.emit("%s", op)
}

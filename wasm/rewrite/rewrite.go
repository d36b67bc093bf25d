package rewrite

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Version is the version of the rewriting. It changes when the same module would
// reach other roots, fuel figures or ends, since what was recorded holds for one
// version only.
const Version = 1

// Revision changes whenever Rewrite would give other bytes for some module, or
// refuse another one: what keeps its results is keyed by it.
const Revision = 5

// ErrRefused reports a module that is malformed or asks for what a cell does
// not have. The text says where and why.
var ErrRefused = errors.New("module refused")

// The names of what is added to a module. A module that uses the prefix itself
// is refused.
const (
	// Reserved is the module that CheckName is imported from, and with a dot the
	// prefix of all added exports.
	Reserved = "agentcell"
	// CheckName is the added import, (i32) -> (): what ran out is its argument.
	// If it returns, the guest goes on with what it left in the globals.
	CheckName = "check"

	ExportFuel  = "agentcell.fuel"  // mutable i64: fuel left
	ExportDepth = "agentcell.depth" // mutable i32: call frames left
	ExportPages = "agentcell.pages" // mutable i32, unsigned: how many pages memory may have
	// ExportRefused, a mutable i32, is 1 if the last memory.grow went past ExportPages.
	ExportRefused = "agentcell.refused"
	ExportStart   = "agentcell.start" // the original's start function, if it has one

	exportGlobal = "agentcell.global."
)

// What ran out, as the argument of the check.
const (
	CheckFuel  = 0
	CheckDepth = 1
)

// The limits that hold whatever Options say.
const (
	// DefaultMaxBytes is how long a module may be by default, MaxBytes at most:
	// what is added then leaves every size within 32 bits.
	DefaultMaxBytes = 64 << 20
	MaxBytes        = 1<<27 - 1

	PageSize = 64 << 10
	MaxPages = 1 << 16

	// What engines compile in more than linear time. Go's largest functions nest
	// some hundred blocks, and have 50 KB and 30 locals.
	maxBody    = 8 << 20 // bytes of one function
	maxLocals  = 50_000  // of one function, the added ones included
	maxNesting = 5_000   // blocks in blocks
	maxTargets = 1 << 16 // of a br_table

	maxParams   = 1_000   // of a type, and as many results
	maxElements = 1 << 20 // of all tables together
	maxMutable  = 10_000  // globals: each image has them all, in one row of the store
)

// ExportGlobal is the name that the i-th mutable global is exported by.
func ExportGlobal(i int) string { return fmt.Sprint(exportGlobal, i) }

// FuncType is the type of a function: value types as in the binary format.
// It must not be changed.
type FuncType struct{ Params, Results []byte }

// String prints the type as "(i32, i32) -> (i64)".
func (t FuncType) String() string {
	list := func(types []byte) string {
		names := make([]string, len(types))
		for i, v := range types {
			names[i] = typeName(v)
		}
		return "(" + strings.Join(names, ", ") + ")"
	}
	return list(t.Params) + " -> " + list(t.Results)
}

func typeName(v byte) string {
	switch v {
	case typeI32:
		return "i32"
	case typeI64:
		return "i64"
	case typeF32:
		return "f32"
	case typeF64:
		return "f64"
	case typeFuncref:
		return "funcref"
	case typeExternref:
		return "externref"
	}
	return fmt.Sprintf("%#x", v)
}

// Kind is what an export names.
type Kind byte

// The kinds, as in the binary format.
const (
	KindFunc   Kind = 0
	KindTable  Kind = 1
	KindMemory Kind = 2
	KindGlobal Kind = 3
)

func (k Kind) String() string {
	switch k {
	case KindFunc:
		return "function"
	case KindTable:
		return "table"
	case KindMemory:
		return "memory"
	case KindGlobal:
		return "global"
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// Import is a function that the original module imports.
type Import struct {
	Module, Name string
	Type         FuncType
}

// Export is an export of the original module. Type is set for functions.
type Export struct {
	Name string
	Kind Kind
	Type FuncType
}

// Options are what a module is held to. The zero value refuses every import.
type Options struct {
	// MaxBytes is how long the original may be; 0 means DefaultMaxBytes.
	MaxBytes int
	// MaxMemoryPages is how many pages memory may start with; 0 means MaxPages.
	MaxMemoryPages uint32
	// Allowed returns an error that says why, if the function may not be
	// imported. If nil, no function may.
	Allowed func(module, name string, t FuncType) error
}

// Module is a rewritten module and what is known of the original.
type Module struct {
	// Code is the rewritten binary. It shares no memory with the original.
	Code []byte
	// Imports and Exports are those of the original, in its order.
	Imports []Import
	Exports []Export
	// Globals has the types of the original's mutable globals in index order;
	// the i-th is exported as ExportGlobal(i).
	Globals []byte
	// HasStart says that the original has a start function. It no longer runs
	// by itself, but is exported as ExportStart.
	HasStart bool
	// MemoryMin and MemoryMax are in pages; without a maximum it is MaxPages.
	MemoryMin, MemoryMax uint32
}

// Rewrite checks a module and returns it rewritten, or an error that wraps
// ErrRefused. It is a function of its arguments alone, and keeps no part of
// code. That the code is well typed is left to the engine.
func Rewrite(code []byte, o Options) (*Module, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if limit := min(o.MaxBytes, MaxBytes); len(code) > limit {
		return nil, fmt.Errorf("%w: it has %d bytes, more than the %d allowed", ErrRefused, len(code), limit)
	}
	if o.MaxMemoryPages == 0 {
		o.MaxMemoryPages = MaxPages
	}
	w := &rewriter{
		o:        o,
		r:        reader{buf: code, end: len(code)},
		function: -1,
		out:      make([]byte, 0, len(code)+len(code)/2+1024),
	}
	w.r.fault = w.fault
	w.sections()
	if w.r.err != nil {
		return nil, w.r.err
	}
	w.m.Code = w.out
	return &w.m, nil
}

type global struct {
	valueType byte
	mutable   bool
}

// rewriter holds the original, what was learned of it, and what is written.
type rewriter struct {
	o   Options
	r   reader
	m   Module
	out []byte
	// copied is up to where the original has been copied or replaced.
	copied int

	section  string // being read, for errors
	function int    // original index of the function being read, or -1
	at       [sectionCount]span
	names    span // of the name section

	types     []FuncType
	functions []uint32 // type index by original function index
	imported  uint32   // how many of them are imports; the index of the check
	globals   []global
	tables    uint32
	blockType map[uint32]uint32 // function type to the type of a block with its results

	graph callGraph
	body  body
}

// fault is the error for what stands at an offset of the original.
func (w *rewriter) fault(at int, format string, args ...any) error {
	var where strings.Builder
	if w.section != "" {
		fmt.Fprintf(&where, "%s section, ", w.section)
	}
	if w.function >= 0 {
		fmt.Fprintf(&where, "function %d", w.function)
		if name := w.functionName(uint32(w.function)); name != "" {
			fmt.Fprintf(&where, " (%.100q)", name)
		}
		where.WriteString(", ")
	}
	fmt.Fprintf(&where, "offset %#x: ", at)
	return fmt.Errorf("%w: %s%s", ErrRefused, where.String(), fmt.Sprintf(format, args...))
}

// copyTo copies what was read and not replaced, up to an offset.
func (w *rewriter) copyTo(end int) {
	w.out = append(w.out, w.r.buf[w.copied:end]...)
	w.copied = end
}

// shift is the new index of a function: the check stands between imports and
// defined functions.
func (w *rewriter) shift(index uint32) uint32 {
	if index >= w.imported {
		return index + 1
	}
	return index
}

// functionIndex reads the index of a function and replaces it by the new one.
func (w *rewriter) functionIndex() uint32 {
	at := w.r.pos
	index := w.r.u32()
	if index >= uint32(len(w.functions)) {
		w.r.fail(at, "there is no function %d", index)
		return 0
	}
	if index >= w.imported {
		w.copyTo(at)
		w.out = appendU32(w.out, index+1)
		w.copied = w.r.pos
	}
	return index
}

// constant reads the expression of an initial value or an offset.
func (w *rewriter) constant() {
	at := w.r.pos
	switch op := w.r.byte(); op {
	case opI32Const:
		w.r.signed(32)
	case opI64Const:
		w.r.signed(64)
	case opF32Const:
		w.r.skip(4)
	case opF64Const:
		w.r.skip(8)
	case opGlobalGet:
		if i := w.r.u32(); i >= uint32(len(w.globals)) {
			w.r.fail(at, "there is no global %d", i)
		}
	case opRefNull:
		w.referenceType()
	case opRefFunc:
		w.graph.addRoot(w.functionIndex())
	default:
		w.r.fail(at, "opcode %#x is not supported in an initial value", op)
	}
	if at := w.r.pos; w.r.byte() != opEnd {
		w.r.fail(at, "an initial value is not one constant")
	}
}

func (w *rewriter) valueType() byte {
	at := w.r.pos
	v := w.r.byte()
	w.checkValueType(at, v)
	return v
}

func (w *rewriter) checkValueType(at int, v byte) {
	switch v {
	case typeI32, typeI64, typeF32, typeF64, typeFuncref, typeExternref:
	case typeV128:
		w.r.fail(at, "%s", unsupported(0xfd))
	default:
		w.r.fail(at, "value type %#x is not supported", v)
	}
}

func (w *rewriter) referenceType() byte {
	at := w.r.pos
	v := w.valueType()
	if v != typeFuncref && v != typeExternref {
		w.r.fail(at, "%s is not a reference type", typeName(v))
	}
	return v
}

// resultsBlock is the block type with the results of a function type.
func (w *rewriter) resultsBlock(dst []byte, index uint32) []byte {
	switch t := w.types[index]; len(t.Results) {
	case 0:
		return append(dst, blockEmpty)
	case 1:
		return append(dst, t.Results[0])
	}
	return appendS64(dst, int64(w.blockType[index]))
}

// multiValue lists the types of defined functions with several results, in
// order.
func (w *rewriter) multiValue() []uint32 {
	var list []uint32
	for _, t := range w.functions[w.imported:] {
		if len(w.types[t].Results) > 1 {
			list = append(list, t)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

package rewrite

import (
	"bytes"
	"slices"
	"strings"
)

// items reads how many items a section has; an absent one has none.
func (w *rewriter) items(id, size int) int {
	if w.at[id] == (span{}) {
		return 0
	}
	return w.r.count(size)
}

func (w *rewriter) typeSection() {
	n := w.r.count(3)
	w.types = make([]FuncType, 0, n)
	for range n {
		at := w.r.pos
		if form := w.r.byte(); form != 0x60 {
			w.r.fail(at, "type %d has form %#x: only function types are supported", len(w.types), form)
		}
		t := FuncType{w.valueTypes(), w.valueTypes()}
		if w.r.err != nil {
			return
		}
		w.types = append(w.types, t)
	}
}

func (w *rewriter) valueTypes() []byte {
	at := w.r.pos
	n := w.r.count(1)
	if n > maxParams {
		w.r.fail(at, "a function type has %d parameters or results, more than the %d allowed", n, maxParams)
	}
	start := w.r.pos
	for range n {
		w.valueType()
	}
	if w.r.err != nil {
		return nil
	}
	return bytes.Clone(w.r.buf[start:w.r.pos])
}

// typeIndex reads the index of a type of the original.
func (w *rewriter) typeIndex() uint32 {
	at := w.r.pos
	t := w.r.u32()
	if t >= uint32(len(w.types)) {
		w.r.fail(at, "there is no type %d", t)
		return 0
	}
	return t
}

// writeTypes writes the original's types, those of the check and the added
// functions, and those of blocks with several results.
func (w *rewriter) writeTypes() {
	blocks := w.multiValue()
	w.write(sectionType, func() {
		n := uint32(len(w.types))
		w.out = appendU32(w.out, n+addedTypes+uint32(len(blocks)))
		w.copyVector(sectionType)
		w.out = append(w.out,
			0x60, 1, typeI32, 0, // typeCheck
			0x60, 1, typeI32, 1, typeI32, // typeGrow
			0x60, 3, typeI32, typeI32, typeI32, 0, // typeBulk
			0x60, 2, typeI32, typeI32, 0) // typeShort
		w.blockType = make(map[uint32]uint32, len(blocks))
		for i, t := range blocks {
			w.blockType[t] = n + addedTypes + uint32(i)
			w.out = append(w.out, 0x60, 0)
			w.out = appendU32(w.out, uint32(len(w.types[t].Results)))
			w.out = append(w.out, w.types[t].Results...)
		}
	})
}

// copyVector copies the items of a section that was read before.
func (w *rewriter) copyVector(id int) {
	if s := w.at[id]; s != (span{}) {
		w.r.pos, w.r.end = s.start, s.end
		w.r.u32()
		w.out = append(w.out, w.r.buf[w.r.pos:s.end]...)
		w.r.end = len(w.r.buf)
	}
}

func (w *rewriter) importSection() {
	n := w.r.count(4)
	w.m.Imports = make([]Import, 0, n)
	for range n {
		at := w.r.pos
		module, name := w.r.name(), w.r.name()
		if w.r.err != nil {
			return
		}
		switch kind := Kind(w.r.byte()); {
		case module == Reserved:
			w.r.fail(at, "import %q.%q: the module name %q is reserved for the host", module, name, Reserved)
		case kind == KindFunc:
			w.importedFunction(at, module, name)
		case kind == KindTable || kind == KindMemory || kind == KindGlobal:
			w.r.fail(at, "import %q.%q: a cell imports functions only; define the %s in the module", module, name, kind)
		case kind == 4:
			w.r.fail(at, "import %q.%q: %s", module, name, unsupported(0x06))
		default:
			w.r.fail(at, "import %q.%q is of unknown kind %d", module, name, kind)
		}
	}
}

func (w *rewriter) importedFunction(at int, module, name string) {
	index := w.typeIndex()
	if w.r.err != nil {
		return
	}
	t := w.types[index]
	switch {
	case slices.ContainsFunc(t.Params, func(v byte) bool { return v != typeI32 && v != typeI64 }):
		// The host could see a NaN's bits or an object of the engine.
		w.r.fail(at, "import %q.%q has type %s: the host takes integers only", module, name, t)
	case w.o.Allowed == nil:
		w.r.fail(at, "import %q.%q: no import is allowed", module, name)
	default:
		if err := w.o.Allowed(module, name, t); err != nil {
			w.r.fail(at, "import %q.%q: %v", module, name, err)
		}
	}
	w.m.Imports = append(w.m.Imports, Import{module, name, t})
	w.functions = append(w.functions, index)
	w.imported++
}

func (w *rewriter) writeImports() {
	w.write(sectionImport, func() {
		w.out = appendU32(w.out, w.imported+1)
		w.copyVector(sectionImport)
		w.out = appendName(w.out, Reserved)
		w.out = appendName(w.out, CheckName)
		w.out = append(w.out, byte(KindFunc))
		w.out = appendU32(w.out, w.added(typeCheck))
	})
}

func (w *rewriter) functionSection() {
	n := w.r.count(1)
	w.functions = slices.Grow(w.functions, n)
	for range n {
		w.functions = append(w.functions, w.typeIndex())
	}
}

func (w *rewriter) writeFunctions() {
	w.write(sectionFunction, func() {
		w.out = appendU32(w.out, uint32(len(w.functions))-w.imported+addedFunctions)
		w.copyVector(sectionFunction)
		w.out = appendU32(w.out, w.added(typeGrow))
		w.out = appendU32(w.out, w.added(typeBulk))
		w.out = appendU32(w.out, w.added(typeBulk))
	})
}

func (w *rewriter) tableSection() {
	n := w.r.count(3)
	total := uint64(0)
	for range n {
		at := w.r.pos
		w.referenceType()
		flags := w.r.byte()
		if flags > 1 {
			w.r.fail(at, "table flags %#x are not supported", flags)
		}
		total += uint64(w.r.u32())
		if flags == 1 {
			w.r.u32()
		}
		if total > maxElements {
			w.r.fail(at, "the tables have %d elements, more than the %d allowed", total, maxElements)
		}
	}
	w.tables = uint32(n)
}

func (w *rewriter) memorySection() {
	at := w.r.pos
	switch n := w.items(sectionMemory, 2); {
	case w.r.err != nil:
		return
	case n != 1:
		w.r.fail(at, "it defines %d memories; a cell has exactly one", n)
		return
	}
	at = w.r.pos
	switch flags := w.r.byte(); {
	case flags&4 != 0:
		w.r.fail(at, "memory64 is not supported; build for wasm32")
	case flags&2 != 0:
		w.r.fail(at, "shared memory is not supported; build without threads")
	case flags > 1:
		w.r.fail(at, "memory flags %#x are not supported", flags)
	default:
		w.m.MemoryMin, w.m.MemoryMax = w.r.u32(), MaxPages
		if flags == 1 {
			w.m.MemoryMax = w.r.u32()
		}
	}
	switch {
	case w.m.MemoryMax > MaxPages || w.m.MemoryMin > w.m.MemoryMax:
		w.r.fail(at, "a memory cannot have from %d to %d pages", w.m.MemoryMin, w.m.MemoryMax)
	case w.m.MemoryMin > w.o.MaxMemoryPages:
		w.r.fail(at, "memory starts with %d pages (%d KiB), more than the %d allowed; give the cell more memory or build with less",
			w.m.MemoryMin, w.m.MemoryMin*(PageSize>>10), w.o.MaxMemoryPages)
	}
}

func (w *rewriter) globalSection() {
	n := w.items(sectionGlobal, 4)
	w.out = appendU32(w.out, uint32(n)+addedGlobals)
	w.copied = w.r.pos
	w.globals = make([]global, 0, n)
	for range n {
		at := w.r.pos
		g := global{valueType: w.valueType()}
		switch m := w.r.byte(); m {
		case 0:
		case 1:
			g.mutable = true
			w.m.Globals = append(w.m.Globals, g.valueType)
			if len(w.m.Globals) > maxMutable {
				w.r.fail(at, "more than the %d mutable globals allowed", maxMutable)
			}
			if g.valueType == typeFuncref || g.valueType == typeExternref {
				w.r.fail(at, "global %d is a mutable reference, which an image cannot hold; keep an index into a table", len(w.globals))
			}
		default:
			w.r.fail(at, "global flags %#x are not supported", m)
		}
		w.constant()
		if w.r.err != nil {
			return
		}
		w.globals = append(w.globals, g)
	}
	w.copyTo(w.r.pos)
	w.out = append(w.out,
		typeI64, 1, opI64Const, 0, opEnd, // globalFuel
		typeI32, 1, opI32Const, 0, opEnd, // globalDepth
		typeI32, 1, opI32Const, 0, opEnd, // globalPages
		typeI32, 1, opI32Const, 0, opEnd) // globalRefused
}

func (w *rewriter) startSection() {
	at := w.r.pos
	index := w.r.u32()
	switch {
	case w.r.err != nil:
		return
	case index < w.imported || index >= uint32(len(w.functions)):
		w.r.fail(at, "the start function %d is not one that the module defines", index)
		return
	}
	if t := w.types[w.functions[index]]; len(t.Params)+len(t.Results) > 0 {
		w.r.fail(at, "the start function %d has type %s, not () -> ()", index, t)
	}
	w.m.HasStart = true
	w.graph.start = index
}

func (w *rewriter) exportSection() {
	n := w.items(sectionExport, 3)
	added := addedGlobals + len(w.m.Globals)
	if w.m.HasStart {
		added++
	}
	w.out = appendU32(w.out, uint32(n+added))
	w.copied = w.r.pos
	w.m.Exports = make([]Export, 0, n)
	memory := false
	for range n {
		at := w.r.pos
		e := Export{Name: w.r.name(), Kind: Kind(w.r.byte())}
		w.exported(at, &e)
		if w.r.err != nil {
			return
		}
		w.m.Exports = append(w.m.Exports, e)
		memory = memory || e.Name == "memory" && e.Kind == KindMemory
	}
	if !memory {
		w.r.fail(w.r.pos, "it does not export its memory as \"memory\"; export it by that name")
	}
	w.copyTo(w.r.pos)
	w.writeExports()
}

// exported reads what an export refers to.
func (w *rewriter) exported(at int, e *Export) {
	if strings.HasPrefix(e.Name, Reserved+".") {
		w.r.fail(at, "export %q: names that begin with %q are reserved for the host", e.Name, Reserved+".")
		return
	}
	limit := uint32(0)
	switch e.Kind {
	case KindFunc:
		if f := w.functionIndex(); w.r.err == nil {
			w.graph.addRoot(f)
			e.Type = w.types[w.functions[f]]
		}
		return
	case KindTable:
		limit = w.tables
	case KindMemory:
		limit = 1
	case KindGlobal:
		limit = uint32(len(w.globals))
	}
	if i := w.r.u32(); i >= limit {
		w.r.fail(at, "export %q: there is no %s %d", e.Name, e.Kind, i)
	}
}

func (w *rewriter) writeExports() {
	export := func(name string, kind Kind, index uint32) {
		w.out = appendName(w.out, name)
		w.out = append(w.out, byte(kind))
		w.out = appendU32(w.out, index)
	}
	export(ExportFuel, KindGlobal, w.globalIndex(globalFuel))
	export(ExportDepth, KindGlobal, w.globalIndex(globalDepth))
	export(ExportPages, KindGlobal, w.globalIndex(globalPages))
	export(ExportRefused, KindGlobal, w.globalIndex(globalRefused))
	ordinal := 0
	for i, g := range w.globals {
		if g.mutable {
			export(ExportGlobal(ordinal), KindGlobal, uint32(i))
			ordinal++
		}
	}
	if w.m.HasStart {
		export(ExportStart, KindFunc, w.shift(w.graph.start))
	}
}

func (w *rewriter) elementSection() {
	for range w.r.count(2) {
		at := w.r.pos
		flags := w.r.u32()
		if flags > 7 {
			w.r.fail(at, "element segment flags %#x are not supported", flags)
		}
		passive, explicit, expressions := flags&1 != 0, flags&2 != 0, flags&4 != 0
		if !passive {
			if explicit {
				w.r.u32() // table
			}
			w.constant()
		}
		if passive || explicit {
			if expressions {
				w.referenceType()
			} else if at := w.r.pos; w.r.byte() != 0 {
				w.r.fail(at, "an element segment is not of functions")
			}
		}
		for range w.r.count(1) {
			if expressions {
				w.constant()
			} else {
				w.graph.addRoot(w.functionIndex())
			}
		}
		if w.r.err != nil {
			return
		}
	}
}

func (w *rewriter) dataCountSection() {
	at := w.r.pos
	n := w.r.u32()
	if s := w.at[sectionData]; int64(n) > int64(s.end-s.start) {
		w.r.fail(at, "it claims %d data segments, more than there are bytes of them", n)
	}
	w.graph.wanted = true
}

package rewrite

// body is the state of the function that is being rewritten.
type body struct {
	typeIndex uint32
	locals    uint32 // parameters and declared ones
	temps     []byte // types of added locals
	code      []byte // rewritten instructions, without what stands before and after
	calls     bool
	blocks    []bool   // open blocks: is it a loop
	regions   []region // the function and the open loops
}

// region is a stretch of code that is paid for at once, when it is entered.
type region struct {
	cost uint32
	room int // where in code a loop's cost is to be filled in
}

const (
	// costRoom is how many bytes a loop's cost is padded to.
	costRoom = 4
	// uncheckedCost is up to what cost a function that calls nothing leaves the
	// check to its caller, which takes a fifth off a loop of such calls. Between
	// two checks there are at most maxBody/2 of them: some 20 ms.
	uncheckedCost = 16
)

func (w *rewriter) codeSection() {
	at := w.r.pos
	n := w.items(sectionCode, 2)
	if defined := uint32(len(w.functions)) - w.imported; w.r.err == nil && uint32(n) != defined {
		w.r.fail(at, "there are %d bodies for %d functions", n, defined)
	}
	w.out = appendU32(w.out, uint32(n)+addedFunctions)
	for i := range n {
		w.function = int(w.imported) + i
		at := w.r.pos
		size := int(w.r.u32())
		if size > maxBody {
			w.r.fail(at, "it has %d bytes, more than the %d allowed", size, maxBody)
		}
		w.r.within(size, w.functionBody)
		if w.r.err != nil {
			return
		}
		w.graph.ends = append(w.graph.ends, len(w.graph.calls))
	}
	w.function = -1
	w.copied = w.r.pos
	w.writeAdded()
}

func (w *rewriter) functionBody() {
	b := &w.body
	*b = body{
		typeIndex: w.functions[w.function],
		temps:     b.temps[:0],
		code:      b.code[:0],
		blocks:    b.blocks[:0],
		regions:   append(b.regions[:0], region{}),
	}
	groups, declared := w.declaredLocals()
	if w.r.err != nil {
		return
	}
	w.copied = w.r.pos
	w.out, b.code = b.code, w.out // the instructions are written aside
	w.instructions()
	w.out, b.code = b.code, w.out
	if w.r.err == nil {
		w.assemble(groups, declared)
	}
}

// declaredLocals reads the locals and returns how many groups of them there
// are, and where.
func (w *rewriter) declaredLocals() (groups int, declared span) {
	groups = w.r.count(2)
	declared.start = w.r.pos
	total := uint64(len(w.types[w.body.typeIndex].Params))
	for range groups {
		total += uint64(w.r.u32())
		w.valueType()
	}
	declared.end = w.r.pos
	if limit := uint64(maxLocals - addedLocals); total > limit {
		w.r.fail(declared.start, "it has %d locals, more than the %d allowed", total, limit)
	}
	w.body.locals = uint32(total)
	return groups, declared
}

// temp is the added local of a type.
func (w *rewriter) temp(valueType byte) uint32 {
	b := &w.body
	for i, t := range b.temps {
		if t == valueType {
			return b.locals + uint32(i)
		}
	}
	b.temps = append(b.temps, valueType)
	return b.locals + uint32(len(b.temps)) - 1
}

// assemble writes the function: what is paid and counted at its entry, the
// instructions, and what is counted at its exit. For the latter they stand in a
// block, which what was a branch out of the function now leaves.
func (w *rewriter) assemble(groups int, declared span) {
	b := &w.body
	cost := b.regions[0].cost
	checked := b.calls || cost > uncheckedCost
	var fuel, depth uint32
	if checked {
		fuel = w.temp(typeI64)
	}
	if b.calls {
		depth = w.temp(typeI32)
	}
	at := w.sized()
	w.out = appendU32(w.out, uint32(groups+len(b.temps)))
	w.out = append(w.out, w.r.buf[declared.start:declared.end]...)
	for _, t := range b.temps {
		w.out = append(w.out, 1, t)
	}
	w.out = appendU32(append(w.out, opGlobalGet), w.globalIndex(globalFuel))
	w.out = appendS64(append(w.out, opI64Const), int64(cost))
	w.out = append(w.out, opI64Sub)
	if checked {
		w.out = w.appendFuelCheck(w.out, fuel)
	} else {
		w.out = appendU32(append(w.out, opGlobalSet), w.globalIndex(globalFuel))
	}
	if b.calls {
		w.out = w.appendEntry(w.out, depth)
		w.out = w.resultsBlock(append(w.out, opBlock), b.typeIndex)
	}
	w.out = append(w.out, b.code...)
	if b.calls {
		w.out = append(w.out, opEnd)
		w.out = w.appendExit(w.out)
	}
	w.out = append(w.out, opEnd)
	w.endSized(at)
}

// appendEntry takes a call frame, and calls the check if there was none left.
func (w *rewriter) appendEntry(b []byte, i32Local uint32) []byte {
	b = appendU32(append(b, opGlobalGet), w.globalIndex(globalDepth))
	b = append(b, opI32Const, 1, opI32Sub)
	b = appendU32(append(b, opLocalTee), i32Local)
	b = appendU32(append(b, opGlobalSet), w.globalIndex(globalDepth))
	b = appendU32(append(b, opLocalGet), i32Local)
	b = append(b, opI32Const, 0, opI32LtS, opIf, blockEmpty, opI32Const, CheckDepth)
	b = appendU32(append(b, opCall), w.imported)
	return append(b, opEnd)
}

// appendExit gives the call frame back.
func (w *rewriter) appendExit(b []byte) []byte {
	b = appendU32(append(b, opGlobalGet), w.globalIndex(globalDepth))
	b = append(b, opI32Const, 1, opI32Add)
	return appendU32(append(b, opGlobalSet), w.globalIndex(globalDepth))
}

// instructions rewrites up to the end of the function, which it leaves out.
// What is not touched is copied in long runs.
func (w *rewriter) instructions() {
	r, b := &w.r, &w.body
	for cost := &b.regions[0].cost; r.err == nil; {
		at := r.pos
		op := r.byte()
		*cost++
		switch kinds[op] {
		case kindPlain:
		case kindLocal:
			if i := r.u32(); i >= b.locals {
				r.fail(at, "there is no local %d", i)
			}
		case kindMemArg:
			w.memArg(at)
		case kindI32:
			r.signed(32)
		case kindI64:
			r.signed(64)
		case kindF32:
			r.skip(4)
		case kindF64:
			r.skip(8)
		case kindFloat32:
			w.canonical(at, typeF32)
		case kindFloat64:
			w.canonical(at, typeF64)
		case kindStore32:
			w.canonical(at, typeF32)
			w.memArg(at)
		case kindStore64:
			w.canonical(at, typeF64)
			w.memArg(at)
		case kindControl:
			if w.control(at, op) {
				return
			}
			cost = &b.regions[len(b.regions)-1].cost
		default:
			w.unknown(at, op)
		}
	}
}

func (w *rewriter) unknown(at int, op byte) {
	if why := unsupported(op); why != "" {
		w.r.fail(at, "%s", why)
		return
	}
	w.r.fail(at, "opcode %#x is unknown", op)
}

func (w *rewriter) memArg(at int) {
	if align := w.r.u32(); align > 3 {
		w.r.fail(at, "alignment %d is not supported", align)
	}
	w.r.u32()
}

// canonical makes a NaN on top of the stack the canonical one, before what
// stands at an offset.
func (w *rewriter) canonical(at int, valueType byte) {
	w.copyTo(at)
	t := w.temp(valueType)
	o := appendU32(append(w.out, opLocalTee), t)
	eq := byte(opF32Eq)
	if valueType == typeF32 {
		o = append(o, opF32Const, 0, 0, 0xc0, 0x7f)
	} else {
		o = append(o, opF64Const, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f)
		eq = opF64Eq
	}
	o = appendU32(append(o, opLocalGet), t)
	o = appendU32(append(o, opLocalGet), t)
	w.out = append(o, eq, opSelect)
}

// control handles the instructions that stand for themselves. It returns true
// at the end of the function.
func (w *rewriter) control(at int, op byte) bool {
	r, b := &w.r, &w.body
	switch op {
	case opBlock, opLoop, opIf:
		w.open(at, op == opLoop)
	case opElse:
	case opEnd:
		if len(b.blocks) == 0 {
			w.copyTo(at)
			w.copied = r.pos
			if r.pos != r.end {
				r.fail(r.pos, "the function goes on after its end")
			}
			return true
		}
		w.close()
	case opBr, opBrIf:
		w.label(at)
	case opBrTable:
		n := r.count(1)
		if n > maxTargets {
			r.fail(at, "a br_table has %d targets, more than the %d allowed", n, maxTargets)
			return false
		}
		for range n + 1 {
			w.label(at)
		}
	case opReturn:
		w.copyTo(at)
		w.out = appendU32(append(w.out, opBr), uint32(len(b.blocks)))
		w.copied = r.pos
	case opCall:
		b.calls = true
		w.graph.addCall(w.functionIndex())
	case opCallIndirect:
		b.calls = true
		w.typeIndex()
		r.u32()
	case opSelectTyped:
		if n := r.u32(); n != 1 {
			r.fail(at, "select of %d types", n)
		}
		w.valueType()
	case opGlobalGet, opGlobalSet:
		w.global(at, op)
	case opTableGet:
		r.u32()
	case opTableSet:
		r.fail(at, "table.set: %s", frozenTables)
	case opMemorySize:
		w.memoryIndex(at)
	case opMemoryGrow:
		w.memoryIndex(at)
		w.callAdded(at, functionGrow)
	case opRefNull:
		w.referenceType()
	case opRefFunc:
		w.graph.addRoot(w.functionIndex())
	case opMisc:
		w.misc(at)
	}
	return false
}

// open reads a block's type; a loop is paid for at its head.
func (w *rewriter) open(at int, loop bool) {
	r, b := &w.r, &w.body
	switch t := r.signed(33); {
	case t >= 0:
		if t >= int64(len(w.types)) {
			r.fail(at, "there is no type %d", t)
		}
	case t == blockEmpty-0x80:
	case t > blockEmpty-0x80:
		w.checkValueType(at, byte(t&0x7f))
	default:
		r.fail(at, "block type %d is unknown", t)
	}
	if len(b.blocks) >= maxNesting {
		r.fail(at, "blocks nest deeper than %d", maxNesting)
	}
	b.blocks = append(b.blocks, loop)
	if !loop || r.err != nil {
		return
	}
	w.copyTo(r.pos)
	w.out = appendU32(append(w.out, opGlobalGet), w.globalIndex(globalFuel))
	w.out = append(w.out, opI64Const)
	b.regions = append(b.regions, region{room: len(w.out)})
	w.out = append(w.out, make([]byte, costRoom)...)
	w.out = append(w.out, opI64Sub)
	w.out = w.appendFuelCheck(w.out, w.temp(typeI64))
}

// close ends a block.
func (w *rewriter) close() {
	b := &w.body
	last := len(b.blocks) - 1
	if b.blocks[last] {
		loop := b.regions[len(b.regions)-1]
		patch(w.out[loop.room:loop.room+costRoom], loop.cost)
		b.regions = b.regions[:len(b.regions)-1]
	}
	b.blocks = b.blocks[:last]
}

func (w *rewriter) label(at int) {
	if l := w.r.u32(); int64(l) > int64(len(w.body.blocks)) {
		w.r.fail(at, "there is no label %d", l)
	}
}

func (w *rewriter) global(at int, op byte) {
	i := w.r.u32()
	if i >= uint32(len(w.globals)) {
		w.r.fail(at, "there is no global %d", i)
		return
	}
	if t := w.globals[i].valueType; op == opGlobalSet && (t == typeF32 || t == typeF64) {
		w.canonical(at, t)
	}
}

func (w *rewriter) memoryIndex(at int) {
	if w.r.byte() != 0 {
		w.r.fail(at, "a second memory is not supported")
	}
}

// callAdded replaces the instruction at an offset by the call of a function.
func (w *rewriter) callAdded(at int, f uint32) {
	w.copyTo(at)
	w.out = appendU32(append(w.out, opCall), w.functionAdded(f))
	w.copied = w.r.pos
}

// misc handles the instructions that begin with opMisc.
func (w *rewriter) misc(at int) {
	r := &w.r
	switch op := r.u32(); {
	case op <= 7: // saturating conversions
	case op == miscMemoryInit:
		w.dropping(at, "memory.init")
		r.u32()
		w.memoryIndex(at)
		w.chargeInit(at)
	case op == miscDataDrop:
		w.dropping(at, "data.drop")
		r.u32()
	case op == miscMemoryCopy:
		w.memoryIndex(at)
		w.memoryIndex(at)
		w.callAdded(at, functionCopy)
	case op == miscMemoryFill:
		w.memoryIndex(at)
		w.callAdded(at, functionFill)
	case op == miscTableSize:
		r.u32()
	case mutating(op) != "":
		r.fail(at, "%s: %s", mutating(op), frozenTables)
	default:
		r.fail(at, "opcode 0xfc %#x is unknown", op)
	}
}

// dropping notes an instruction for checkDropping.
func (w *rewriter) dropping(at int, name string) {
	if !w.graph.wanted {
		w.r.fail(at, "%s without a data count section", name)
	}
	w.graph.drops = append(w.graph.drops, drop{uint32(w.function), at, name})
}

// chargeInit pays for a memory.init by its length, which is on top of the
// stack.
func (w *rewriter) chargeInit(at int) {
	w.copyTo(at)
	n := w.temp(typeI32)
	o := appendU32(append(w.out, opLocalTee), n)
	o = appendU32(append(o, opGlobalGet), w.globalIndex(globalFuel))
	o = appendU32(append(o, opLocalGet), n)
	o = append(o, opI64ExtendU, opI64Const, bytesPerFuelShift, opI64ShrU, opI64Sub)
	w.out = w.appendFuelCheck(o, w.temp(typeI64))
}

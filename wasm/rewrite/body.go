package rewrite

// body is the state of the function that is being rewritten.
type body struct {
	typeIndex uint32
	locals    uint32 // parameters and declared ones
	temps     []byte // types of added locals
	code      []byte // rewritten instructions, without what stands before and after
	calls     bool
	blocks    []block // open
	split     int     // how many of them are split loops
	size      int     // instructions
	// since is how many instructions there are at most since the last step on
	// any way to here, unreached where there is no way.
	since int
}

// block is an open block, loop or if.
type block struct {
	op byte
	// entry is since at the beginning, exit the most of since where a branch
	// leaves for the end.
	entry, exit int
	// split says that it is a loop that has become three blocks, around is how
	// many of those are open around it.
	split  bool
	around int
}

// unreached is since where control cannot come.
const unreached = -1

const (
	// stride is how many instructions may follow one another without a step.
	stride = 256
	// uncheckedSize is up to what size a function that has neither calls nor
	// loops leaves the check to its caller, which takes a fifth off a loop of such
	// calls. Between two checks there are at most maxBody/2 of them: some 20 ms.
	uncheckedSize = 16
	// maxSplit is up to what depth loops in loops are split: compiling takes
	// the square of how deep blocks nest.
	maxSplit = 32
)

func (w *rewriter) codeSection() {
	at := w.r.pos
	n := w.items(sectionCode, 2)
	if defined := uint32(len(w.functions)) - w.imported; w.r.err == nil && uint32(n) != defined {
		w.r.fail(at, "there are %d bodies for %d functions", n, defined)
	}
	if w.r.err != nil {
		return
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
	checked := b.calls || b.size > uncheckedSize
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
	w.out = w.appendStep(w.out)
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

// appendStep pushes the fuel that is left when one unit is gone.
func (w *rewriter) appendStep(b []byte) []byte {
	b = appendU32(append(b, opGlobalGet), w.globalIndex(globalFuel))
	return append(b, opI64Const, 1, opI64Sub)
}

// step pays a unit, and checks, before what stands at an offset.
func (w *rewriter) step(at int) {
	w.copyTo(at)
	w.out = w.appendFuelCheck(w.appendStep(w.out), w.temp(typeI64))
	w.body.since = 0
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
	for r.err == nil {
		at := r.pos
		if b.since == stride {
			w.step(at)
		}
		op := r.byte()
		b.size++
		if b.since != unreached {
			b.since++
		}
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
	w.r.fail(at, "opcode %#x is unknown; build for WebAssembly 2.0", op)
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
	case opUnreachable:
		b.since = unreached
	case opBlock, opLoop, opIf:
		w.open(at, op)
	case opElse:
		w.otherwise(at)
	case opEnd:
		if len(b.blocks) == 0 {
			w.copyTo(at)
			w.copied = r.pos
			if r.pos != r.end {
				r.fail(r.pos, "the function goes on after its end")
			}
			return true
		}
		w.close(at)
	case opBr:
		w.label(at)
		b.since = unreached
	case opBrIf:
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
		b.since = unreached
	case opReturn:
		b.since = unreached
		w.copyTo(at)
		w.out = appendU32(append(w.out, opBr), w.labelShifted(uint32(len(b.blocks))))
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

// open reads a block's type; the head of a loop is a step.
func (w *rewriter) open(at int, op byte) {
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
	b.blocks = append(b.blocks, block{op: op, entry: b.since, exit: unreached, around: b.split})
	switch {
	case op != opLoop || r.err != nil:
	case b.split < maxSplit:
		w.openLoop(at)
	default:
		w.step(r.pos)
	}
}

// openLoop writes the head of a loop, which is a step, and closeLoop its end. The
// loop is split, and the check is called from the outer part:
//
//	left = 0
//	loop
//	    if left < 0 { check(CheckFuel); fuel++ }
//	    loop
//	        fuel--; left = fuel
//	        if left >= 0 {
//	            ...
//	        } else { continue the outer loop }
//
// If the call stood in the loop itself, the engine would keep what lives in it
// on the stack and not in registers, on the way past the call as well, and jump
// over the call in each turn.
func (w *rewriter) openLoop(at int) {
	b, head, left := &w.body, w.r.pos, w.temp(typeI64)
	w.copyTo(at)
	o := appendU32(append(w.out, opI64Const, 0, opLocalSet), left)
	o = append(o, w.r.buf[at:head]...)
	o = appendU32(append(o, opLocalGet), left)
	o = append(o, opI64Const, 0, opI64LtS, opIf, blockEmpty, opI32Const, CheckFuel)
	o = appendU32(append(o, opCall), w.imported)
	o = appendU32(append(o, opGlobalGet), w.globalIndex(globalFuel))
	o = append(o, opI64Const, 1, opI64Add)
	o = appendU32(append(o, opGlobalSet), w.globalIndex(globalFuel))
	o = append(o, opEnd)
	o = append(o, w.r.buf[at:head]...)
	o = append(w.appendPaid(w.appendStep(o), left), opI64GeS, opIf)
	w.out = append(o, w.r.buf[at+1:head]...)
	w.copied = head
	b.blocks[len(b.blocks)-1].split = true
	b.split++
	b.since = 0
}

func (w *rewriter) closeLoop(at int) {
	w.copyTo(at)
	w.out = append(w.out, opElse, opBr, 2, opEnd, opEnd)
	w.body.split--
}

// otherwise goes on with the other arm of an if.
func (w *rewriter) otherwise(at int) {
	b := &w.body
	last := len(b.blocks) - 1
	if last < 0 || b.blocks[last].op != opIf {
		w.r.fail(at, "else outside an if")
		return
	}
	arm := &b.blocks[last]
	arm.op, arm.exit = opElse, max(arm.exit, b.since)
	b.since = arm.entry
}

// close ends a block.
func (w *rewriter) close(at int) {
	b := &w.body
	last := b.blocks[len(b.blocks)-1]
	b.blocks = b.blocks[:len(b.blocks)-1]
	if last.split {
		w.closeLoop(at)
	}
	b.since = max(b.since, last.exit)
	if last.op == opIf {
		b.since = max(b.since, last.entry)
	}
}

// label reads where a branch may go.
func (w *rewriter) label(at int) {
	b, number := &w.body, w.r.pos
	l := w.r.u32()
	if int64(l) > int64(len(b.blocks)) {
		w.r.fail(at, "there is no label %d", l)
	}
	if w.r.err != nil {
		return
	}
	if int(l) < len(b.blocks) {
		// A branch to a loop goes to its head, which is a step.
		if target := &b.blocks[len(b.blocks)-1-int(l)]; target.op != opLoop {
			target.exit = max(target.exit, b.since)
		}
	}
	if b.split > 0 {
		w.copyTo(number)
		w.out = appendU32(w.out, w.labelShifted(l))
		w.copied = w.r.pos
	}
}

// labelShifted is the new number of a label: a branch to a split loop goes to
// the middle one of its three blocks.
func (w *rewriter) labelShifted(l uint32) uint32 {
	b := &w.body
	target := len(b.blocks) - 1 - int(l)
	if target < 0 { // out of the function
		return l + 2*uint32(b.split)
	}
	l += 2 * uint32(b.split-b.blocks[target].around)
	if b.blocks[target].split {
		l--
	}
	return l
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
		w.r.fail(at, "a second memory is not supported; build with one")
	}
}

// callAdded replaces the instruction at an offset by the call of a function.
func (w *rewriter) callAdded(at int, f uint32) {
	w.copyTo(at)
	w.out = appendU32(append(w.out, opCall), w.functionAdded(f))
	w.copied = w.r.pos
}

// bulk replaces a fill or copy by the call of a function. One so short that it
// costs nothing stays where it is, unless the fuel is gone: then the function calls
// the check.
func (w *rewriter) bulk(at int, f uint32, instruction ...byte) {
	w.copyTo(at)
	n := w.temp(typeI32)
	o := appendU32(append(w.out, opLocalTee), n)
	o = append(appendS64(append(o, opI32Const), 1<<bytesPerFuelShift), opI32LtU)
	o = appendU32(append(o, opGlobalGet), w.globalIndex(globalFuel))
	o = append(o, opI64Const, 0, opI64GeS, opI32And)
	o = appendS64(append(o, opIf), int64(w.added(typeShort)))
	o = appendU32(append(o, opLocalGet), n)
	o = append(append(o, instruction...), opElse)
	o = appendU32(append(o, opLocalGet), n)
	o = appendU32(append(o, opCall), w.functionAdded(f))
	w.out = append(o, opEnd)
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
		w.bulk(at, functionCopy, opMisc, miscMemoryCopy, 0, 0)
	case op == miscMemoryFill:
		w.memoryIndex(at)
		w.bulk(at, functionFill, opMisc, miscMemoryFill, 0)
	case op == miscTableSize:
		r.u32()
	case mutating(op) != "":
		r.fail(at, "%s: %s", mutating(op), frozenTables)
	default:
		r.fail(at, "opcode 0xfc %#x is unknown; build for WebAssembly 2.0", op)
	}
}

// dropping notes an instruction for checkDropping.
func (w *rewriter) dropping(at int, name string) {
	if !w.graph.wanted {
		w.r.fail(at, "%s without a data count section, which the toolchain should have written", name)
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

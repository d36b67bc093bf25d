package rewrite

// What is added to each index space, in order, after the original's.
const (
	typeCheck  = iota // (i32) -> ()
	typeGrow          // (i32) -> (i32)
	typeBulk          // (i32, i32, i32) -> ()
	typeShort         // (i32, i32) -> ()
	addedTypes = iota
)

const (
	globalFuel = iota
	globalDepth
	globalPages
	globalRefused
	addedGlobals = iota
)

const (
	functionGrow = iota
	functionFill
	functionCopy
	addedFunctions = iota
)

// addedLocals is how many locals a function may get, one of each number type.
const addedLocals = 4

const (
	// bytesPerFuelShift is how much memory one unit of fuel fills, copies or, when
	// memory grows, zeroes, as a shift.
	bytesPerFuelShift = 6
	// chunk is how much is filled or copied between two checks.
	chunk = 1 << 20
)

func (w *rewriter) added(t uint32) uint32       { return uint32(len(w.types)) + t }
func (w *rewriter) globalIndex(g uint32) uint32 { return uint32(len(w.globals)) + g }

// functionAdded is the new index of an added function.
func (w *rewriter) functionAdded(f uint32) uint32 { return uint32(len(w.functions)) + 1 + f }

// assembler writes code of added functions.
type assembler struct {
	w   *rewriter
	out []byte
}

func (a *assembler) op(ops ...byte)          { a.out = append(a.out, ops...) }
func (a *assembler) index(op byte, i uint32) { a.out = appendU32(append(a.out, op), i) }
func (a *assembler) get(local uint32)        { a.index(opLocalGet, local) }
func (a *assembler) set(local uint32)        { a.index(opLocalSet, local) }
func (a *assembler) i32(v int32)             { a.out = appendS64(append(a.out, opI32Const), int64(v)) }
func (a *assembler) i64(v int64)             { a.out = appendS64(append(a.out, opI64Const), v) }
func (a *assembler) global(op byte, g uint32) {
	a.index(op, a.w.globalIndex(g))
}

// memoryBytes pushes the size of memory as an i64.
func (a *assembler) memoryBytes() {
	a.op(opMemorySize, 0, opI64ExtendU)
	a.i64(16)
	a.op(opI64Shl)
}

// charge takes an amount of fuel off, which cost pushes as an i64, and checks
// what is left; i64Local is clobbered.
func (a *assembler) charge(i64Local uint32, cost func()) {
	a.global(opGlobalGet, globalFuel)
	cost()
	a.op(opI64Sub)
	a.out = a.w.appendFuelCheck(a.out, i64Local)
}

// appendPaid stores the fuel left, which is on the stack, and pushes it and zero
// to be compared.
func (w *rewriter) appendPaid(b []byte, i64Local uint32) []byte {
	b = appendU32(append(b, opLocalTee), i64Local)
	b = appendU32(append(b, opGlobalSet), w.globalIndex(globalFuel))
	b = appendU32(append(b, opLocalGet), i64Local)
	return append(b, opI64Const, 0)
}

// appendFuelCheck stores the fuel left, which is on the stack, and calls the
// check if it is below zero.
func (w *rewriter) appendFuelCheck(b []byte, i64Local uint32) []byte {
	b = append(w.appendPaid(b, i64Local), opI64LtS, opIf, blockEmpty, opI32Const, CheckFuel)
	b = appendU32(append(b, opCall), w.imported)
	return append(b, opEnd)
}

// writeAdded writes the bodies of the added functions.
func (w *rewriter) writeAdded() {
	for _, f := range []func(*assembler){grow, fill, copyMemory} {
		a := &assembler{w: w}
		f(a)
		a.op(opEnd)
		w.out = appendU32(w.out, uint32(len(a.out)))
		w.out = append(w.out, a.out...)
	}
}

// grow is memory.grow within ExportPages.
func grow(a *assembler) {
	const n, t = 0, 1
	a.op(1, 1, typeI64)
	a.op(opMemorySize, 0, opI64ExtendU)
	a.get(n)
	a.op(opI64ExtendU, opI64Add)
	a.global(opGlobalGet, globalPages)
	a.op(opI64ExtendU, opI64GtU, opIf, blockEmpty)
	a.i32(1)
	a.global(opGlobalSet, globalRefused)
	a.i32(-1)
	a.op(opReturn, opEnd)
	a.i32(0)
	a.global(opGlobalSet, globalRefused)
	a.charge(t, func() {
		a.get(n)
		a.op(opI64ExtendU)
		a.i64(PageSize >> bytesPerFuelShift)
		a.op(opI64Mul)
	})
	a.get(n)
	a.op(opMemoryGrow, 0)
}

// bulk is a fill or copy of n bytes. Up to a chunk it is done by one original
// instruction, which also traps as it would, and charged after. More is first
// held to the memory's bounds, then goes chunk by chunk, each charged.
func bulk(a *assembler, n, t uint32, whole func(), outOfBounds func(), step func()) {
	chargeBytes := func(length func()) {
		a.charge(t, func() {
			length()
			a.i64(bytesPerFuelShift)
			a.op(opI64ShrU)
		})
	}
	long := func() {
		a.get(n)
		a.i32(chunk)
		a.op(opI32GtU)
	}
	long()
	a.op(opIf, blockEmpty)
	outOfBounds()
	a.op(opIf, blockEmpty)
	whole()
	a.op(opEnd)
	a.op(opLoop, blockEmpty)
	step()
	a.get(n)
	a.i32(chunk)
	a.op(opI32Sub)
	a.set(n)
	chargeBytes(func() { a.i64(chunk) })
	long()
	a.op(opBrIf, 0, opEnd, opEnd)
	whole()
	chargeBytes(func() {
		a.get(n)
		a.op(opI64ExtendU)
	})
}

// past pushes whether n bytes from start end past the memory.
func (a *assembler) past(start, n uint32) {
	a.get(start)
	a.op(opI64ExtendU)
	a.get(n)
	a.op(opI64ExtendU, opI64Add)
	a.memoryBytes()
	a.op(opI64GtU)
}

// advance adds a chunk to a local.
func (a *assembler) advance(local uint32) {
	a.get(local)
	a.i32(chunk)
	a.op(opI32Add)
	a.set(local)
}

func fill(a *assembler) {
	const d, v, n, t = 0, 1, 2, 3
	a.op(1, 1, typeI64)
	bulk(a, n, t,
		func() {
			a.get(d)
			a.get(v)
			a.get(n)
			a.op(opMisc, miscMemoryFill, 0)
		},
		func() { a.past(d, n) },
		func() {
			a.get(d)
			a.get(v)
			a.i32(chunk)
			a.op(opMisc, miscMemoryFill, 0)
			a.advance(d)
		})
}

// copyMemory goes up from the start or, when the destination is above the
// source, down from the end.
func copyMemory(a *assembler) {
	const d, s, n, t = 0, 1, 2, 3
	a.op(1, 1, typeI64)
	bulk(a, n, t,
		func() {
			a.get(d)
			a.get(s)
			a.get(n)
			a.op(opMisc, miscMemoryCopy, 0, 0)
		},
		func() {
			a.past(d, n)
			a.past(s, n)
			a.op(opI32Or)
		},
		func() {
			a.get(d)
			a.get(s)
			a.op(opI32LeU, opIf, blockEmpty)
			a.get(d)
			a.get(s)
			a.i32(chunk)
			a.op(opMisc, miscMemoryCopy, 0, 0)
			a.advance(d)
			a.advance(s)
			a.op(opElse)
			for _, start := range []uint32{d, s} {
				a.get(start)
				a.get(n)
				a.op(opI32Add)
				a.i32(chunk)
				a.op(opI32Sub)
			}
			a.i32(chunk)
			a.op(opMisc, miscMemoryCopy, 0, 0)
			a.op(opEnd)
		})
}

package rewrite

// Value types.
const (
	typeI32       = 0x7f
	typeI64       = 0x7e
	typeF32       = 0x7d
	typeF64       = 0x7c
	typeV128      = 0x7b
	typeFuncref   = 0x70
	typeExternref = 0x6f
)

// The opcodes that are looked at or written.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableGet     = 0x25
	opTableSet     = 0x26
	opF32Store     = 0x38
	opF64Store     = 0x39
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI32LtS       = 0x48
	opI32LtU       = 0x49
	opI32GtU       = 0x4b
	opI32LeU       = 0x4d
	opI64LtS       = 0x53
	opI64GtU       = 0x56
	opI64GeS       = 0x59
	opF32Eq        = 0x5b
	opF64Eq        = 0x61
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI32And       = 0x71
	opI32Or        = 0x72
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Mul       = 0x7e
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opF32Copysign  = 0x98
	opF64Copysign  = 0xa6
	opI64ExtendU   = 0xad
	opI32ReinterpF = 0xbc
	opI64ReinterpF = 0xbd
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opMisc         = 0xfc

	miscMemoryInit = 8
	miscDataDrop   = 9
	miscMemoryCopy = 10
	miscMemoryFill = 11
	miscTableInit  = 12
	miscElemDrop   = 13
	miscTableCopy  = 14
	miscTableGrow  = 15
	miscTableSize  = 16
	miscTableFill  = 17

	blockEmpty = 0x40
)

// kind says what follows an opcode, and whether it is more than copied.
type kind uint8

const (
	kindUnknown kind = iota
	kindPlain        // nothing follows
	kindLocal        // a local's index
	kindMemArg       // alignment and offset
	kindI32          // a signed number
	kindI64
	kindF32 // four bytes
	kindF64
	kindFloat32 // nothing follows; the f32 on top is made canonical before
	kindFloat64
	kindStore32 // alignment and offset; likewise
	kindStore64
	kindControl // all others, each handled by itself
)

// kinds has the instructions of WebAssembly 2.0 without vectors.
var kinds = func() (k [256]kind) {
	set := func(from, to int, what kind) {
		for op := from; op <= to; op++ {
			k[op] = what
		}
	}
	set(0x00, 0x01, kindPlain) // unreachable, nop
	set(opUnreachable, opUnreachable, kindControl)
	set(opBlock, opElse, kindControl)
	set(opEnd, opCallIndirect, kindControl)
	set(0x1a, opSelect, kindPlain) // drop, select
	set(opSelectTyped, opSelectTyped, kindControl)
	set(opLocalGet, opLocalTee, kindLocal)
	set(opGlobalGet, opTableSet, kindControl)
	set(0x28, 0x3e, kindMemArg)
	set(opMemorySize, opMemoryGrow, kindControl)
	k[opI32Const], k[opI64Const], k[opF32Const], k[opF64Const] = kindI32, kindI64, kindF32, kindF64
	set(0x45, 0xc4, kindPlain) // comparisons, arithmetic, conversions
	k[opF32Store], k[opF64Store] = kindStore32, kindStore64
	k[opF32Copysign], k[opI32ReinterpF] = kindFloat32, kindFloat32
	k[opF64Copysign], k[opI64ReinterpF] = kindFloat64, kindFloat64
	set(opRefNull, opRefNull, kindControl)
	set(0xd1, 0xd1, kindPlain) // ref.is_null
	set(opRefFunc, opRefFunc, kindControl)
	set(opMisc, opMisc, kindControl)
	return k
}()

// unsupported says why an opcode that kinds does not have is refused.
func unsupported(op byte) string {
	switch op {
	case 0x06, 0x07, 0x08, 0x09, 0x0a, 0x18, 0x19, 0x1f:
		return "exception handling is not supported; build without it (clang: no -fwasm-exceptions)"
	case 0x12, 0x13, 0x15:
		return "tail calls are not supported; build without them (clang: -mno-tail-call)"
	case 0x14, 0xd3, 0xd4, 0xd5, 0xd6:
		return "typed function references are not supported; build for WebAssembly 2.0"
	case 0xfb:
		return "garbage collected types are not supported; build for WebAssembly 2.0"
	case 0xfd:
		return "SIMD is not supported; build without it (clang: -mno-simd128)"
	case 0xfe:
		return "threads and atomics are not supported; build without them (clang: -mno-atomics)"
	}
	return ""
}

const frozenTables = "tables cannot change, because an image does not hold them; fill the table by its element segments"

// mutating names the instructions that are refused for what they change.
func mutating(misc uint32) string {
	switch misc {
	case miscTableInit:
		return "table.init"
	case miscElemDrop:
		return "elem.drop"
	case miscTableCopy:
		return "table.copy"
	case miscTableGrow:
		return "table.grow"
	case miscTableFill:
		return "table.fill"
	}
	return ""
}

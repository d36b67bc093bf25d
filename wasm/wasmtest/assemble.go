package wasmtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// assemble encodes instructions in a flat text form, words separated by blanks
// and new lines:
//
//	block, loop, if       followed by nothing, a value type, or type=INDEX
//	else, end
//	br 1, br_table 0 1 2  labels; the last of a br_table is its default
//	call $name            or an index
//	call_indirect 0       a type; or 0:1 with a table
//	local.get 0, global.set 1, memory.init 0, table.get 0, ref.func $name
//	i32.load offset=8     the offset may be left out; the alignment is always 1
//	f64.const 1.5         or nan, inf, -inf, bits=0x7ff4000000000000
//	0xfd                  a byte as it is
func (e *encoder) assemble(src string) []byte {
	a := assembly{e: e, words: strings.Fields(src)}
	for len(a.words) > 0 {
		a.instruction(a.next())
	}
	return a.out
}

type assembly struct {
	e     *encoder
	words []string
	out   []byte
}

func (a *assembly) next() string {
	if len(a.words) == 0 {
		panic("wasmtest: code ends where an operand should be")
	}
	word := a.words[0]
	a.words = a.words[1:]
	return word
}

// option takes the next word if it has the prefix, and returns what follows.
func (a *assembly) option(prefix string) (string, bool) {
	if len(a.words) > 0 && strings.HasPrefix(a.words[0], prefix) {
		return strings.TrimPrefix(a.next(), prefix), true
	}
	return "", false
}

func (a *assembly) instruction(word string) {
	if strings.HasPrefix(word, "0x") {
		a.out = append(a.out, byte(integer(word, 8)))
		return
	}
	if plain, ok := plain[word]; ok {
		a.out = append(a.out, plain...)
		return
	}
	if op, ok := memoryOps[word]; ok {
		offset := uint32(0)
		if text, ok := a.option("offset="); ok {
			offset = uint32(integer(text, 32))
		}
		a.out = append(append(a.out, op, 0), unsigned(offset)...)
		return
	}
	if op, ok := indexOps[word]; ok {
		a.out = append(append(a.out, op...), unsigned(a.index())...)
		if word == "memory.init" {
			a.out = append(a.out, 0)
		}
		return
	}
	a.special(word)
}

func (a *assembly) special(word string) {
	switch word {
	case "block", "loop", "if":
		a.out = append(a.out, byte(2+slices.Index([]string{"block", "loop", "if"}, word)))
		a.blockType()
	case "br_table":
		a.out = append(a.out, 0x0e)
		var labels []uint32
		for len(a.words) > 0 && a.words[0][0] >= '0' && a.words[0][0] <= '9' {
			labels = append(labels, a.index())
		}
		a.out = append(a.out, unsigned(uint32(len(labels)-1))...)
		for _, l := range labels {
			a.out = append(a.out, unsigned(l)...)
		}
	case "call_indirect":
		t, table, _ := strings.Cut(a.next(), ":")
		a.out = append(append(a.out, 0x11), unsigned(uint32(integer(t, 32)))...)
		if table == "" {
			table = "0"
		}
		a.out = append(a.out, unsigned(uint32(integer(table, 32)))...)
	case "i32.const":
		a.out = append(append(a.out, 0x41), signed(int64(int32(integer(a.next(), 32))))...)
	case "i64.const":
		a.out = append(append(a.out, 0x42), signed(integer(a.next(), 64))...)
	case "f32.const":
		a.out = binary.LittleEndian.AppendUint32(append(a.out, 0x43), a.f32())
	case "f64.const":
		a.out = binary.LittleEndian.AppendUint64(append(a.out, 0x44), a.f64())
	case "ref.null":
		a.out = append(a.out, 0xd0, valueType(a.next()))
	default:
		panic(fmt.Sprintf("wasmtest: no instruction %q", word))
	}
}

func (a *assembly) blockType() {
	if text, ok := a.option("type="); ok {
		a.out = append(a.out, signed(integer(text, 32))...)
		return
	}
	if len(a.words) > 0 && slices.Contains([]string{"i32", "i64", "f32", "f64", "funcref", "externref"}, a.words[0]) {
		a.out = append(a.out, valueType(a.next()))
		return
	}
	a.out = append(a.out, 0x40)
}

func (a *assembly) index() uint32 {
	word := a.next()
	if strings.HasPrefix(word, "$") {
		return a.e.function(word)
	}
	return uint32(integer(word, 32))
}

func (a *assembly) f32() uint32 {
	word := a.next()
	if bits, ok := strings.CutPrefix(word, "bits="); ok {
		return uint32(integer(bits, 32))
	}
	if word == "nan" {
		return 0x7fc00000
	}
	return math.Float32bits(float32(float(word, 32)))
}

func (a *assembly) f64() uint64 {
	word := a.next()
	if bits, ok := strings.CutPrefix(word, "bits="); ok {
		return uint64(integer(bits, 64))
	}
	if word == "nan" {
		return 0x7ff8000000000000
	}
	return math.Float64bits(float(word, 64))
}

func float(word string, bits int) float64 {
	f, err := strconv.ParseFloat(word, bits)
	if err != nil {
		panic(fmt.Sprintf("wasmtest: %q is no float", word))
	}
	return f
}

// integer takes what fits as signed or as unsigned.
func integer(word string, bits int) int64 {
	if v, err := strconv.ParseInt(word, 0, bits); err == nil {
		return v
	}
	v, err := strconv.ParseUint(word, 0, bits)
	if err != nil {
		panic(fmt.Sprintf("wasmtest: %q is no integer of %d bits", word, bits))
	}
	return int64(v)
}

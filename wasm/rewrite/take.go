package rewrite

import "fmt"

// Segment is what a module has at an offset of its memory when it begins.
type Segment struct {
	Offset  uint32
	Content []byte
}

// TakeData takes the active data segments out of code, which Rewrite has made:
// whoever has their content elsewhere, as in an image of memory, need not have it
// copied into each instance. They are to be applied in their order. The segments
// that are left keep their indices. Contents are parts of code, which is not
// changed.
func TakeData(code []byte) (rest []byte, data []Segment, err error) {
	r := reader{buf: code, end: len(code)}
	r.fault = func(at int, format string, args ...any) error {
		return fmt.Errorf("take the data of a module: at offset %#x: %s", at, fmt.Sprintf(format, args...))
	}
	rest = make([]byte, 0, len(code))
	rest, r.pos = append(rest, code[:8]...), 8
	named := false // by instructions
	for r.err == nil && r.pos < r.end {
		at := r.pos
		id := r.byte()
		body := r.bytes()
		switch {
		case r.err != nil:
		case id == sectionData:
			section := reader{buf: code, pos: r.pos - len(body), end: r.pos, fault: r.fault}
			var left []byte
			left, data = takeSegments(&section, named)
			if r.err = section.err; left != nil {
				rest = append(rest, sectionData)
				rest = appendU32(rest, uint32(len(left)))
				rest = append(rest, left...)
			}
		default:
			named = named || id == sectionDataCount
			rest = append(rest, code[at:r.pos]...)
		}
	}
	return rest, data, r.err
}

// takeSegments reads a data section. What is left of it is nil if nothing is: where
// no instruction names segments, none is needed.
func takeSegments(r *reader, named bool) (left []byte, data []Segment) {
	count := r.count(2)
	left = appendU32(nil, uint32(count))
	for range count {
		at := r.pos
		flags := r.u32()
		if flags == 1 {
			r.bytes()
			left = append(left, r.buf[at:r.pos]...)
			continue
		}
		if flags == 2 {
			r.u32() // the memory, of which there is one
		}
		if op := r.byte(); op != opI32Const {
			r.fail(at, "a data segment whose offset is not a constant")
		}
		offset := uint32(r.signed(32))
		r.byte() // end
		if content := r.bytes(); len(content) > 0 {
			data = append(data, Segment{offset, content})
		}
		if r.err != nil {
			return nil, nil
		}
		left = append(left, 0, opI32Const, 0, opEnd, 0)
	}
	if !named {
		left = nil
	}
	return left, data
}

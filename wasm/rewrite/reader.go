package rewrite

import "unicode/utf8"

// reader reads the original module. Offsets are those of the whole file. The
// first fault stays in err, and from then on there is nothing more to read, so
// that callers look at err where it suits them.
type reader struct {
	buf      []byte
	pos, end int
	err      error
	// fault makes the error for what stands at an offset.
	fault func(at int, format string, args ...any) error
}

func (r *reader) fail(at int, format string, args ...any) {
	if r.err == nil {
		r.err = r.fault(at, format, args...)
	}
	r.pos = r.end
}

func (r *reader) byte() byte {
	if r.pos >= r.end {
		r.fail(r.pos, "it ends too early")
		return 0
	}
	b := r.buf[r.pos]
	r.pos++
	return b
}

func (r *reader) skip(n int) {
	if n > r.end-r.pos {
		r.fail(r.pos, "it ends too early")
		return
	}
	r.pos += n
}

// u32 reads an unsigned LEB128 number, padded or not.
func (r *reader) u32() uint32 {
	if r.pos < r.end {
		if b := r.buf[r.pos]; b < 0x80 {
			r.pos++
			return uint32(b)
		}
	}
	return r.longU32()
}

func (r *reader) longU32() uint32 {
	at := r.pos
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		if shift == 28 && b > 0x0f {
			break
		}
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	r.fail(at, "a malformed number")
	return 0
}

// signed reads a signed LEB128 number of the given width.
func (r *reader) signed(bits int) int64 {
	at := r.pos
	var v int64
	for shift := 0; shift < bits; shift += 7 {
		b := r.byte()
		v |= int64(b&0x7f) << shift
		if b >= 0x80 {
			continue
		}
		if shift+7 < 64 {
			v = v << (64 - 7 - shift) >> (64 - 7 - shift)
		}
		// Bits above the width must repeat the sign.
		if rest := bits - shift; rest < 7 {
			if top := int8(b<<1) >> rest; top != 0 && top != -1 {
				break
			}
		}
		return v
	}
	r.fail(at, "a malformed number")
	return 0
}

// count reads the length of a vector whose items take at least size bytes each.
func (r *reader) count(size int) int {
	at := r.pos
	n := int(r.u32())
	if n > (r.end-r.pos)/size {
		r.fail(at, "it claims %d items, more than it has bytes for", n)
		return 0
	}
	return n
}

// bytes reads a length and that many bytes.
func (r *reader) bytes() []byte {
	at := r.pos
	n := int(r.u32())
	if n > r.end-r.pos {
		r.fail(at, "it claims %d bytes and has %d", n, r.end-r.pos)
		return nil
	}
	r.pos += n
	return r.buf[r.pos-n : r.pos]
}

func (r *reader) name() string {
	at := r.pos
	b := r.bytes()
	if !utf8.Valid(b) {
		r.fail(at, "a name is not UTF-8")
		return ""
	}
	return string(b)
}

// within reads n further bytes with f, which must use all of them.
func (r *reader) within(n int, f func()) {
	if n > r.end-r.pos {
		r.fail(r.pos, "it claims %d bytes and has %d", n, r.end-r.pos)
		return
	}
	outer := r.end
	r.end = r.pos + n
	f()
	if r.err == nil && r.pos != r.end {
		r.fail(r.pos, "%d bytes too many", r.end-r.pos)
	}
	r.end = outer
	if r.err != nil {
		r.pos = r.end
	}
}

func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendS64(b []byte, v int64) []byte {
	for v < -0x40 || v >= 0x40 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}

func appendName(b []byte, name string) []byte {
	return append(appendU32(b, uint32(len(name))), name...)
}

// patch writes v as an unsigned number padded to the length of room.
func patch(room []byte, v uint32) {
	for i := range room {
		room[i] = byte(v)&0x7f | 0x80
		v >>= 7
	}
	room[len(room)-1] &= 0x7f
}

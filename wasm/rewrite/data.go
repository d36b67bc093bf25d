package rewrite

// dataSection copies the data segments, and merges those that it can: Go's
// linker makes tens of thousands of small ones, and an engine pays for each in
// every instance. Where instructions name segments, it merges none.
func (w *rewriter) dataSection() {
	m := merger{w: w, merges: !w.graph.wanted}
	segments := w.r.count(2)
	at := w.sized()
	for range segments {
		m.segment()
		if w.r.err != nil {
			return
		}
	}
	m.close()
	patch(w.out[at-5:at], uint32(m.written))
	w.copied = w.r.pos
}

const (
	// maxGap is how many zeros are written at most to merge two segments. All
	// of them together are no more than the module has bytes.
	maxGap = 64
	// maxClosed is how many segments are remembered.
	maxClosed = 64
)

// merger writes data segments. They are applied in order to a memory that is all
// zero, so one that begins where the last one ends can be a part of it, and so
// can one that begins a little later, if nothing was written in between.
type merger struct {
	w       *rewriter
	merges  bool
	written int // segments
	zeros   int // that were added

	open   stretch
	at     int       // where its content begins in w.out; 0: no segment is open
	free   uint64    // nothing was written from the open segment's end to here
	closed []stretch // all that was written before; unknown if there are too many
}

// stretch is a part of memory.
type stretch struct{ start, end uint64 }

// segment reads one segment.
func (m *merger) segment() {
	w := m.w
	at := w.r.pos
	flags := w.r.u32()
	if flags > 2 {
		w.r.fail(at, "data segment flags %#x are not supported", flags)
	}
	if flags == 2 && w.r.u32() != 0 {
		w.r.fail(at, "a data segment is for a second memory; build with one")
	}
	expression := w.r.pos
	if flags != 1 {
		w.constant()
	}
	if w.r.err != nil {
		return
	}
	number := reader{buf: w.r.buf, pos: expression + 1, end: w.r.pos}
	known := flags != 1 && w.r.buf[expression] == opI32Const
	content := w.r.bytes()
	switch {
	case w.r.err != nil:
	case m.merges && known && len(content) > 0:
		m.add(uint64(uint32(number.signed(32))), content)
	default:
		m.close()
		w.out = append(w.out, w.r.buf[at:w.r.pos]...)
		m.written++
		// Where an offset is not known, neither is what it writes.
		m.merges = m.merges && (known || flags == 1)
	}
}

// add appends content to the open segment, or begins another one.
func (m *merger) add(offset uint64, content []byte) {
	w := m.w
	if gap := offset - m.open.end; m.at != 0 && m.reaches(offset) {
		w.out = append(w.out, make([]byte, gap)...)
		m.zeros += int(gap)
	} else {
		m.close()
		w.out = append(w.out, 0, opI32Const)
		w.out = append(appendS64(w.out, int64(int32(offset))), opEnd)
		m.at = w.sized()
		m.open.start = offset
		m.free = m.freeFrom(offset)
		m.written++
	}
	w.out = append(w.out, content...)
	m.open.end = offset + uint64(len(content))
}

// reaches reports whether the open segment may be filled up to offset.
func (m *merger) reaches(offset uint64) bool {
	gap := offset - m.open.end
	return offset == m.open.end ||
		offset > m.open.end && offset <= m.free && gap <= maxGap && m.zeros+int(gap) <= len(m.w.r.buf)
}

// freeFrom is up to where nothing was written from offset on: offset itself if
// that is not known.
func (m *merger) freeFrom(offset uint64) uint64 {
	free := uint64(1) << 32
	for _, s := range m.closed {
		if s.end > offset {
			free = min(free, s.start)
		}
	}
	if len(m.closed) == maxClosed || free < offset {
		return offset
	}
	return free
}

// close ends the open segment, if there is one.
func (m *merger) close() {
	if m.at == 0 {
		return
	}
	m.w.endSized(m.at)
	m.at = 0
	if len(m.closed) < maxClosed {
		m.closed = append(m.closed, m.open)
	}
}

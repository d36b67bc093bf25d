package rewrite

import (
	"bytes"
	"strings"
)

// The sections' numbers. sectionOrder has the order they stand in.
const (
	sectionCustom    = 0
	sectionType      = 1
	sectionImport    = 2
	sectionFunction  = 3
	sectionTable     = 4
	sectionMemory    = 5
	sectionGlobal    = 6
	sectionExport    = 7
	sectionStart     = 8
	sectionElement   = 9
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
	sectionCount     = 13
)

const sectionOrder = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0c\x0a\x0b"

var sectionNames = [sectionCount]string{
	"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data", "data count",
}

// span is a part of the original. The zero span is an absent section.
type span struct{ start, end int }

// sections finds all sections first, since the first ones to be written need
// to know what the later ones have; then it rewrites one after the other.
func (w *rewriter) sections() {
	if !bytes.HasPrefix(w.r.buf, []byte("\x00asm")) {
		w.r.fail(0, "this is not a WebAssembly file")
		return
	}
	if !bytes.HasPrefix(w.r.buf[4:], []byte("\x01\x00\x00\x00")) {
		w.r.fail(4, "this is not a core module of version 1; components are not supported")
		return
	}
	w.find()
	w.out = append(w.out, w.r.buf[:8]...)
	w.read(sectionType, w.typeSection)
	w.read(sectionImport, w.importSection)
	w.read(sectionFunction, w.functionSection)
	if w.r.err != nil {
		return
	}
	w.writeTypes()
	w.writeImports()
	w.writeFunctions()
	w.rewrite(sectionTable, w.tableSection)
	w.rewrite(sectionMemory, w.memorySection)
	w.rewrite(sectionGlobal, w.globalSection)
	w.read(sectionStart, w.startSection)
	w.rewrite(sectionExport, w.exportSection)
	w.rewrite(sectionElement, w.elementSection)
	w.rewrite(sectionDataCount, w.dataCountSection)
	w.rewrite(sectionCode, w.codeSection)
	w.rewrite(sectionData, w.dataSection)
	w.section = ""
	w.checkDropping()
	w.writeNames()
}

// find notes where each section is.
func (w *rewriter) find() {
	next := 0 // in sectionOrder
	for w.r.pos = 8; w.r.pos < w.r.end; {
		at := w.r.pos
		id := w.r.byte()
		size := int(w.r.u32())
		if size > w.r.end-w.r.pos {
			w.r.fail(at, "section %d claims %d bytes and has %d", id, size, w.r.end-w.r.pos)
		}
		body := span{w.r.pos, w.r.pos + size}
		switch order := strings.IndexByte(sectionOrder, id); {
		case w.r.err != nil:
			return
		case id == sectionCustom:
			w.within(sectionCustom, body, func() {
				if w.r.name() == "name" && w.names == (span{}) {
					w.names = span{w.r.pos, body.end}
				}
				w.r.pos = w.r.end
			})
		case id == 13:
			w.r.fail(at, "%s", unsupported(0x06))
		case order < 0:
			w.r.fail(at, "section %d is unknown", id)
		case order < next:
			w.r.fail(at, "the %s section stands twice or out of order", sectionNames[id])
		default:
			next = order + 1
			w.at[id] = body
		}
		w.r.pos = body.end
		if w.r.err != nil {
			return
		}
	}
}

// within reads one section by f.
func (w *rewriter) within(id int, s span, f func()) {
	if w.r.err != nil {
		return
	}
	w.section = sectionNames[id]
	w.r.pos, w.r.end = s.start, s.end
	f()
	if w.r.err == nil && w.r.pos != s.end {
		w.r.fail(w.r.pos, "%d bytes too many", s.end-w.r.pos)
	}
	w.r.end = len(w.r.buf)
	w.section = ""
}

// read reads a section, if there is one.
func (w *rewriter) read(id int, f func()) {
	if s := w.at[id]; s != (span{}) {
		w.within(id, s, f)
	}
}

// rewrite reads a section by f, which writes the new one. Sections that are
// always written get an empty one to read if there is none.
func (w *rewriter) rewrite(id int, f func()) {
	s := w.at[id]
	if s == (span{}) {
		switch id {
		case sectionMemory, sectionGlobal, sectionExport, sectionCode:
		default:
			return
		}
	}
	w.write(byte(id), func() {
		w.copied = s.start
		w.within(id, s, f)
		if w.r.err == nil {
			w.copyTo(s.end)
		}
	})
}

// write writes a section's head and, by f, its content.
func (w *rewriter) write(id byte, f func()) {
	w.out = append(w.out, id)
	at := w.sized()
	f()
	w.endSized(at)
}

// sized leaves room for a size, endSized fills it in.
func (w *rewriter) sized() int {
	w.out = append(w.out, 0, 0, 0, 0, 0)
	return len(w.out)
}

func (w *rewriter) endSized(at int) {
	patch(w.out[at-5:at], uint32(len(w.out)-at))
}

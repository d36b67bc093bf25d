package rewrite

import "unicode/utf8"

// The parts of the name section that are kept.
const (
	namesModule    = 0
	namesFunctions = 1
)

// eachName calls f with the part of the name section that has functions' names,
// name by name in order, until f returns false. It returns false if the section
// is malformed.
func (w *rewriter) eachName(f func(index uint32, name []byte) bool) bool {
	ok, next := true, uint64(0)
	r := reader{buf: w.r.buf, pos: w.names.start, end: w.names.end}
	r.fault = func(int, string, ...any) error { return ErrRefused }
	for r.pos < r.end && r.err == nil {
		id := r.byte()
		r.within(int(r.u32()), func() {
			if id != namesFunctions {
				r.pos = r.end
				return
			}
			for range r.count(2) {
				index := r.u32()
				name := r.bytes()
				if r.err != nil {
					return
				}
				if uint64(index) < next || index >= uint32(len(w.functions)) || !utf8.Valid(name) {
					ok = false
					r.pos = r.end
					return
				}
				next = uint64(index) + 1
				if !f(index, name) {
					r.pos = r.end
					return
				}
			}
		})
	}
	return ok && r.err == nil
}

// functionName is the name of a function by its original index, if it has one.
func (w *rewriter) functionName(index uint32) string {
	var found string
	w.eachName(func(i uint32, name []byte) bool {
		if i == index {
			found = string(name)
		}
		return i < index
	})
	return found
}

// writeNames writes the functions' names, with those of the added functions, so
// that traps show them. A name section that is malformed is no fault of the
// module, and left out.
func (w *rewriter) writeNames() {
	if w.r.err != nil || w.names == (span{}) {
		return
	}
	n := uint32(0)
	names := make([]byte, 0, w.names.end-w.names.start+64)
	add := func(index uint32, name []byte) {
		names = appendU32(names, index)
		names = appendU32(names, uint32(len(name)))
		names = append(names, name...)
		n++
	}
	checked := false
	check := func() {
		if !checked {
			add(w.imported, []byte(Reserved+"."+CheckName))
			checked = true
		}
	}
	if !w.eachName(func(index uint32, name []byte) bool {
		if index >= w.imported {
			check()
		}
		add(w.shift(index), name)
		return true
	}) {
		return
	}
	check()
	for f, name := range []string{"memory.grow", "memory.fill", "memory.copy"} {
		add(w.functionAdded(uint32(f)), []byte(Reserved+"."+name))
	}
	w.write(sectionCustom, func() {
		w.out = appendName(w.out, "name")
		w.out = append(w.out, namesFunctions)
		at := w.sized()
		w.out = appendU32(w.out, n)
		w.out = append(w.out, names...)
		w.endSized(at)
	})
}

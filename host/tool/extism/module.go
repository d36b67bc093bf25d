package extism

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrModule reports a module that is no plug-in a host takes. The error that wraps
// it says why.
var ErrModule = errors.New("not a plug-in")

// What tables a plug-in may have: a host's memory is behind their entries, which no
// limit of memory counts.
const (
	maxTables       = 16
	MaxTableEntries = 1 << 18
)

// envModule is where plug-ins import what Extism gives them, and hostModule where
// they get what is done here in another way.
const (
	envModule   = "extism:host/env"
	hostModule  = "agentcell:host/env"
	httpRequest = "http_request"
)

// The sections that are changed, and the kinds of imports.
const (
	sectionImport = 2
	sectionTable  = 4

	importFunc   = 0
	importTable  = 1
	importMemory = 2
	importGlobal = 3
)

// mend makes a plug-in import http_request from hostModule, and limits its tables.
// The rest is left to the engine, which refuses what is no module.
func mend(code []byte) (_ []byte, err error) {
	// Below, what is no module is a panic of errBroken.
	defer func() {
		if r := recover(); r != nil {
			if r != errBroken {
				panic(r)
			}
			err = errBroken
		}
	}()
	const header = "\x00asm\x01\x00\x00\x00"
	if !bytes.HasPrefix(code, []byte(header)) {
		return nil, fmt.Errorf("%w: it is not a WebAssembly module", ErrModule)
	}
	out := append(make([]byte, 0, len(code)+64), header...)
	for in := (reader{code[len(header):]}); len(in.rest) > 0; {
		id := in.byte()
		body := in.take(in.u32())
		switch id {
		case sectionImport:
			body, err = mendImports(reader{body})
		case sectionTable:
			body, err = mendTables(reader{body})
		}
		if err != nil {
			return nil, err
		}
		out = append(out, id)
		out = binary.AppendUvarint(out, uint64(len(body)))
		out = append(out, body...)
	}
	return out, nil
}

func mendImports(in reader) ([]byte, error) {
	count := in.u32()
	out := binary.AppendUvarint(nil, uint64(count))
	for range count {
		module, name := in.take(in.u32()), in.take(in.u32())
		if string(module) == envModule && string(name) == httpRequest {
			module = []byte(hostModule)
		}
		for _, s := range [][]byte{module, name} {
			out = binary.AppendUvarint(out, uint64(len(s)))
			out = append(out, s...)
		}
		kind := in.byte()
		out = append(out, kind)
		before := in.rest
		switch kind {
		case importFunc:
			in.u32()
		case importTable:
			in.byte()
			in.limits()
		case importMemory:
			in.limits()
		case importGlobal:
			in.take(2)
		default:
			return nil, fmt.Errorf("%w: the import %q is of a kind that is not taken: %d", ErrModule, name, kind)
		}
		out = append(out, before[:len(before)-len(in.rest)]...)
	}
	return append(out, in.rest...), nil
}

func mendTables(in reader) ([]byte, error) {
	count := in.u32()
	if count > maxTables {
		return nil, fmt.Errorf("%w: it has %d tables, at most %d are taken", ErrModule, count, maxTables)
	}
	out := binary.AppendUvarint(nil, uint64(count))
	for range count {
		const funcref, externref = 0x70, 0x6f
		kind := in.byte()
		if kind != funcref && kind != externref {
			return nil, fmt.Errorf("%w: it has a table of a type that is not taken: %#x", ErrModule, kind)
		}
		least, most := in.limits()
		if least > MaxTableEntries {
			return nil, fmt.Errorf("%w: it has a table of %d entries, at most %d are taken", ErrModule, least, MaxTableEntries)
		}
		const bounded = 1
		out = append(out, kind, bounded)
		out = binary.AppendUvarint(out, uint64(least))
		out = binary.AppendUvarint(out, uint64(min(most, MaxTableEntries)))
	}
	return append(out, in.rest...), nil
}

// errBroken is what a reader panics with.
var errBroken = fmt.Errorf("%w: its imports or tables are broken off, or none", ErrModule)

// reader reads a part of a module from its beginning.
type reader struct{ rest []byte }

func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.rest)) {
		panic(errBroken)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte { return r.take(1)[0] }

func (r *reader) u32() uint32 {
	const longest = 5
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || size > longest || n > 1<<32-1 {
		panic(errBroken)
	}
	r.take(uint32(size))
	return uint32(n)
}

// limits are the least and the most of a table or memory.
func (r *reader) limits() (least, most uint32) {
	switch bounded := r.byte(); bounded {
	case 0:
		return r.u32(), 1<<32 - 1
	case 1:
		least = r.u32()
		return least, r.u32()
	}
	panic(errBroken)
}

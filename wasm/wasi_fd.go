package wasm

import (
	"encoding/binary"
	"math"
)

// le is the byte order of WebAssembly.
var le = binary.LittleEndian

// Layouts and constants of WASI preview 1.
const (
	filetypeCharacterDevice = 2
	rightFdRead             = 1 << 1
	rightFdWrite            = 1 << 6

	fdstatSize   = 24
	filestatSize = 64
	iovecSize    = 8

	// maxVectors bounds the lists of one call, as IOV_MAX does elsewhere.
	maxVectors = 1024
)

func fdFdstatGet(c *call, args []uint64) errno {
	fd := uint32(args[0])
	stat, ok := c.cell.mem.view(uint32(args[1]), fdstatSize)
	switch {
	case fd > 2:
		return errnoBadf
	case !ok:
		return errnoFault
	}
	clear(stat)
	stat[0] = filetypeCharacterDevice
	rights := uint64(rightFdWrite)
	if fd == 0 {
		rights = rightFdRead
	}
	le.PutUint64(stat[8:], rights)
	return errnoSuccess
}

func fdFilestatGet(c *call, args []uint64) errno {
	stat, ok := c.cell.mem.view(uint32(args[1]), filestatSize)
	switch {
	case uint32(args[0]) > 2:
		return errnoBadf
	case !ok:
		return errnoFault
	}
	clear(stat)
	stat[16] = filetypeCharacterDevice
	return errnoSuccess
}

// vectors checks the n entries of a list of vectors at ptr, and all they name.
func (c *call) vectors(ptr, n uint32) ([]byte, errno) {
	if n > maxVectors {
		return nil, errnoInval
	}
	list, ok := c.cell.mem.view(ptr, n*iovecSize)
	if !ok {
		return nil, errnoFault
	}
	for v := list; len(v) > 0; v = v[iovecSize:] {
		if _, ok := c.cell.mem.view(le.Uint32(v), le.Uint32(v[4:])); !ok {
			return nil, errnoFault
		}
	}
	return list, errnoSuccess
}

// fdRead reads the end of the standard input, which is where it begins.
func fdRead(c *call, args []uint64) errno {
	if uint32(args[0]) != 0 {
		return errnoBadf
	}
	if _, e := c.vectors(uint32(args[1]), uint32(args[2])); e != errnoSuccess {
		return e
	}
	n, ok := c.cell.mem.view(uint32(args[3]), 4)
	if !ok {
		return errnoFault
	}
	le.PutUint32(n, 0)
	return errnoSuccess
}

// fdWrite logs what goes to the standard output and error.
func fdWrite(c *call, args []uint64) errno {
	fd := uint32(args[0])
	if fd != 1 && fd != 2 {
		return errnoBadf
	}
	list, e := c.vectors(uint32(args[1]), uint32(args[2]))
	if e != errnoSuccess {
		return e
	}
	if _, ok := c.cell.mem.view(uint32(args[3]), 4); !ok {
		return errnoFault
	}
	// Printing calls out, so what is printed must not be guest memory.
	var total uint64
	var text []byte
	for v := list; len(v) > 0; v = v[iovecSize:] {
		part, _ := c.cell.mem.view(le.Uint32(v), le.Uint32(v[4:]))
		total += uint64(len(part))
		text = append(text, part[:min(len(part), maxLog-len(text))]...)
	}
	if total > math.MaxInt32 {
		return errnoInval
	}
	c.chargeBytes(len(list) + int(total))
	if err := c.log.print(c, int(fd-1), text); err != nil {
		c.leave(err)
	}
	written, _ := c.cell.mem.view(uint32(args[3]), 4)
	le.PutUint32(written, uint32(total))
	return errnoSuccess
}

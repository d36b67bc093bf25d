package wasm

import (
	"fmt"

	"github.com/tetratelabs/wazero/experimental"
)

const (
	wasmPage  = 64 << 10 // the unit in which memory grows
	maxMemory = 1 << 32
)

// memory is the linear memory of one cell. The engine owns it, not wazero,
// so that a host without memory gives an error instead of ending the process,
// and so that it can one day be mapped onto a saved image.
//
// The guest and the host use it in turns, never at the same time.
type memory struct {
	region region
	size   int
}

var _ experimental.LinearMemory = (*memory)(nil)

// newMemory reserves size bytes of zeros. It reports ErrShortage.
func newMemory(size uint64) (*memory, error) {
	m := new(memory)
	if err := m.region.resize(int(size)); err != nil {
		return nil, fmt.Errorf("reserve %d bytes of memory: %w: %w", size, ErrShortage, err)
	}
	m.size = int(size)
	return m, nil
}

// Allocate makes m its own wazero allocator: a cell has one memory, and it was
// reserved before wazero asks for it.
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// shortage is what Reallocate panics with; wazero turns it into the error of
// the call that grew the memory.
type shortage struct{ err error }

func (s shortage) Error() string { return s.err.Error() }

// Reallocate implements experimental.LinearMemory. A host that is out of
// memory must not be an answer that the guest can notice (M2), so it ends the
// call.
func (m *memory) Reallocate(size uint64) []byte {
	if int(size) > len(m.region.bytes) {
		if err := m.region.resize(int(size)); err != nil {
			panic(shortage{fmt.Errorf("grow memory to %d bytes: %w: %w", size, ErrShortage, err)})
		}
	}
	m.size = int(size)
	return m.bytes()
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() {
	m.region.free()
	m.size = 0
}

// bytes is the memory as it is now. It is invalid after the guest has run.
func (m *memory) bytes() []byte { return m.region.bytes[:m.size:m.size] }

// view is the part [ptr, ptr+n) of the memory, false if it lies outside.
func (m *memory) view(ptr, n uint32) ([]byte, bool) {
	end := uint64(ptr) + uint64(n)
	if end > uint64(m.size) {
		return nil, false
	}
	return m.region.bytes[ptr:end:end], true
}

package wasm

import (
	"fmt"
	"math"

	"github.com/tetratelabs/wazero/experimental"

	"github.com/agentcell/agentcell/sdk/abi"
)

const (
	wasmPage  = 64 << 10 // the unit in which memory grows
	maxMemory = 1 << 32
)

// memory is the linear memory of one cell. The engine owns it, not wazero, so
// that a host without memory gives an error instead of ending the process.
//
// The guest and the host use it in turns, never at the same time.
type memory struct {
	region region
	whole  []byte // all of region
	size   int
	list   []uint32 // what touched has last returned
}

var _ experimental.LinearMemory = (*memory)(nil)

// newMemory reserves size bytes of zeros. It reports ErrShortage.
func newMemory(b backend, size uint64) (*memory, error) {
	m := &memory{region: b.region()}
	if err := m.resize(size); err != nil {
		m.region.free()
		return nil, err
	}
	return m, nil
}

func (m *memory) resize(size uint64) error {
	if size > math.MaxInt {
		return fmt.Errorf("a memory of %d bytes: %w: this system's programs have no more than %d", size, ErrShortage, math.MaxInt)
	}
	if int(size) > len(m.whole) || m.whole == nil {
		whole, err := m.region.resize(int(size))
		if err != nil {
			return fmt.Errorf("a memory of %d bytes: %w: %w", size, ErrShortage, err)
		}
		m.whole = whole
	}
	m.size = int(size)
	return nil
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
	if err := m.resize(size); err != nil {
		panic(shortage{err})
	}
	return m.bytes()
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() {
	m.region.free()
	m.whole, m.size = nil, 0
}

// bytes is the memory as it is now. It is invalid after the guest has run.
func (m *memory) bytes() []byte { return m.whole[:m.size:m.size] }

// become makes the memory equal to g, and all zero beyond g's size, which is no
// greater than its own. After an error it can only be freed.
func (m *memory) become(g *goldenMemory) error {
	if err := m.region.become(g); err != nil {
		return fmt.Errorf("a memory of %d bytes: %w: %w", m.size, ErrShortage, err)
	}
	m.list = m.list[:0]
	return nil
}

// touched lists the pages that may differ from what the memory became. The list
// is good until the next call.
func (m *memory) touched() []uint32 {
	m.list = m.region.touched(m.list[:0], m.size/abi.PageSize)
	return m.list
}

// view is the part [ptr, ptr+n) of the memory, false if it lies outside. What is
// empty lies outside nowhere: the pointer of an empty slice may be anything.
func (m *memory) view(ptr, n uint32) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	end := uint64(ptr) + uint64(n)
	if end > uint64(m.size) {
		return nil, false
	}
	return m.whole[ptr:end:end], true
}

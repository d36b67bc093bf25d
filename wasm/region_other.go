//go:build !linux

package wasm

import (
	"errors"
	"runtime"
)

// allocated is a region of the Go heap.
type allocated struct{ bytes []byte }

func newRegion() region { return new(allocated) }

func (r *allocated) resize(n int) ([]byte, error) {
	bytes := make([]byte, max(n, 1))
	copy(bytes, r.bytes)
	r.bytes = bytes
	return bytes, nil
}

func (r *allocated) free() { r.bytes = nil }

func (r *allocated) become(g *goldenMemory) error {
	clear(r.bytes[copy(r.bytes, g.content):])
	return nil
}

func (r *allocated) touched(dst []uint32, n int) []uint32 { return allPages(dst, n) }

// goldenMemory is the memory of a golden image.
type goldenMemory struct{ content []byte }

// newGoldenMemory takes content over.
func newGoldenMemory(content []byte) *goldenMemory { return &goldenMemory{content} }

// newFlatMemory is not called where mapped is false.
func newFlatMemory(int, func(func(uint32, []byte) error) error) (*goldenMemory, error) {
	return nil, MappedMemory()
}

// mapped reports whether regions can be mapped from g: here none can.
func (*goldenMemory) mapped() bool { return false }

func (g *goldenMemory) size() int { return len(g.content) }

func (*goldenMemory) close() {}

// MappedMemory reports why the memories of cells cannot be mapped copy-on-write
// from one image here, nil if they can. Without, a turn copies its memory and
// looks at all of it for what has changed: that takes longer and gives the same.
func MappedMemory() error {
	return errors.New(runtime.GOOS + " has no memory files and page maps that agentcell knows")
}

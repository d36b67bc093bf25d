package wasm

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Memory names a way to hold the memories of cells. All give the same ends, images
// and fuel figures; they differ in what a new cell, and a turn's end, cost.
type Memory string

// The ways, the best first.
const (
	// MemoryAuto is the first of the others that works on this system.
	MemoryAuto Memory = ""
	// MemoryMemfd maps cells copy-on-write from files that are in memory only, and
	// has the kernel tell which pages were written. Linux only.
	MemoryMemfd Memory = "memfd"
	// MemoryFile maps them from files in the directory for temporary ones, which
	// have no name there any more, and compares all pages with what they were.
	// Not on Windows.
	MemoryFile Memory = "file"
	// MemoryCopy gives each cell a copy and compares all pages. It works
	// everywhere.
	MemoryCopy Memory = "copy"
)

// MemoryFacts tell how an engine holds the memories of cells.
type MemoryFacts struct {
	Memory Memory
	// Dirty is how it finds the pages that a turn has written: DirtyScan,
	// DirtyPagemap or DirtyCompare.
	Dirty string
	// Why says for each better way why it does not work here; nil if there is none.
	Why error
}

// How written pages are found.
const (
	DirtyScan    = "pagemap scan" // one call that lists them
	DirtyPagemap = "pagemap"      // the kernel's word on each page
	DirtyCompare = "comparison"   // of all pages with what they were
)

// ProbeMemory tells how an engine with that Config.Memory holds memories on this
// system. The error says why it cannot.
func ProbeMemory(m Memory) (MemoryFacts, error) {
	b, err := newBackend(m)
	if err != nil {
		return MemoryFacts{}, err
	}
	defer b.close()
	return b.facts(), nil
}

// backend is a way to hold the memories of cells: the seam between the engine and
// what a system can do for it. It is safe for concurrent use, what it makes is not.
type backend interface {
	// region is an empty one.
	region() region
	// share makes the memory of an image of size bytes, more than none, from the pages that fill
	// writes, from as many goroutines as it likes; the others are zero. Regions of
	// this backend become it without a copy. The error wraps errors.ErrUnsupported
	// where that cannot be, ErrShortage where it can, but not now.
	share(size int, fill func(write func(page uint32, content []byte) error) error) (*goldenMemory, error)
	facts() MemoryFacts
	// close must follow when nothing that the backend has made is there any more.
	close()
}

// region is a stretch of bytes of the host that can be resized.
type region interface {
	// resize makes the region n bytes long, new bytes zero, and returns it. It
	// may move. The old one stays as it is if there is an error.
	resize(n int) ([]byte, error)
	// become makes the region equal to g, and all zero beyond g's size, which
	// is no greater than its own. After an error it can only be freed.
	become(g *goldenMemory) error
	// touched appends, ascending, those of the first n pages that may differ
	// from what the region became; all of them where that is not known.
	touched(dst []uint32, n int) []uint32
	free()
}

// newBackend makes the one that m asks for.
func newBackend(m Memory) (backend, error) {
	var why error
	for _, way := range backends() {
		if m != MemoryAuto && m != way.name {
			continue
		}
		b, err := way.make(why)
		if err == nil {
			return b, nil
		}
		why = errors.Join(why, fmt.Errorf("memory %q: %w", way.name, err))
	}
	if why == nil {
		why = fmt.Errorf("memory %q: %w on this system", m, errors.ErrUnsupported)
	}
	return nil, why
}

// way is how a backend is made. Its facts say why those before it were not.
type way struct {
	name Memory
	make func(why error) (backend, error)
}

// goldenMemory is the memory of an image. Nobody writes to it but the cell whose own
// it is.
type goldenMemory struct {
	content []byte
	file    *os.File     // that regions are mapped from; nil: they copy content
	unmap   func([]byte) // set if content is a mapping of file
}

// newGoldenMemory makes content, which it takes over, the memory of an image: one
// that regions of b are mapped from, if that can be.
func newGoldenMemory(b backend, content []byte) *goldenMemory {
	if len(content) > 0 {
		g, err := b.share(len(content), func(write func(uint32, []byte) error) error { return writePages(content, nonZero(content), write) })
		if err == nil {
			return g
		}
	}
	return &goldenMemory{content: content}
}

// writePages writes these pages of content.
func writePages(content []byte, list []uint32, write func(page uint32, content []byte) error) error {
	for _, i := range list {
		if err := write(i, content[int(i)*abi.PageSize:][:abi.PageSize]); err != nil {
			return err
		}
	}
	return nil
}

// mapped reports whether regions are mapped from g.
func (g *goldenMemory) mapped() bool { return g.file != nil }

func (g *goldenMemory) size() int { return len(g.content) }

// write makes content a page of g, in file and so in content, before any region that does
// not have a page of its own there is looked at again.
func (g *goldenMemory) write(page uint32, content []byte) error {
	_, err := g.file.WriteAt(content, int64(page)*abi.PageSize)
	return err
}

// close gives back what g holds of the system. Regions that became g keep what they
// have.
func (g *goldenMemory) close() {
	if g.unmap != nil {
		g.unmap(g.content)
		g.content, g.unmap = nil, nil
	}
	if g.file != nil {
		_ = g.file.Close() // nothing is lost
		g.file = nil
	}
}

// allPages is what touched gives where nothing is known.
func allPages(dst []uint32, n int) []uint32 {
	for i := range n {
		dst = append(dst, uint32(i))
	}
	return dst
}

// copying holds memories on the Go heap.
type copying struct{ why error }

func newCopying(why error) (backend, error) { return copying{why}, nil }

func (copying) region() region { return new(copied) }

func (copying) share(int, func(func(uint32, []byte) error) error) (*goldenMemory, error) {
	return nil, fmt.Errorf("memories are copied: %w", errors.ErrUnsupported)
}

func (c copying) facts() MemoryFacts {
	return MemoryFacts{Memory: MemoryCopy, Dirty: DirtyCompare, Why: c.why}
}

func (copying) close() {}

// copied is a region of the Go heap.
type copied struct{ bytes []byte }

func (r *copied) resize(n int) ([]byte, error) {
	if n > cap(r.bytes) || r.bytes == nil {
		// A guest may grow page by page, so there is room for more.
		more := make([]byte, n, max(n, cap(r.bytes)+cap(r.bytes)/2, 1))
		copy(more, r.bytes)
		r.bytes = more
	}
	r.bytes = r.bytes[:max(n, len(r.bytes))] // beyond its length nobody has written
	return r.bytes, nil
}

func (r *copied) become(g *goldenMemory) error {
	clear(r.bytes[copy(r.bytes, g.content):])
	return nil
}

func (r *copied) touched(dst []uint32, n int) []uint32 { return allPages(slices.Grow(dst, n), n) }

func (r *copied) free() { r.bytes = nil }

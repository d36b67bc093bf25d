//go:build unix

package wasm

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentcell/agentcell/sdk/abi"
)

// mapping holds memories in regions of the kernel's, mapped copy-on-write from files
// that have no name.
type mapping struct {
	sys   system
	dirty tracker // nil: pages are compared
	known MemoryFacts
	// most is how many regions there may be; those beyond are copies, because a
	// process that the kernel gives no more mappings to cannot go on.
	most    int64
	regions atomic.Int64
}

// system is what mapping asks of the kernel.
type system struct {
	file     func() (*os.File, error) // an empty one that has no name
	mmap     func(fd int, at unsafe.Pointer, size, prot, flags int) (unsafe.Pointer, error)
	protect  func(b []byte, prot int) error
	pageSize int
}

// tracker tells which pages of a private mapping are no longer its file's.
type tracker interface {
	// private appends, ascending, the pages of mem that the process has a copy of its
	// own of, or perhaps more of them.
	private(dst []uint32, mem []byte) ([]uint32, error)
	close()
}

// reservation is how many bytes of addresses a region takes, which cost nothing: as
// many as a guest may have by default, and where addresses are scarce few enough
// for a hundred cells.
const reservation = 256 << 20 >> (4 * (64 - bits.UintSize) / 32)

func newSystem(file func() (*os.File, error)) system {
	return system{
		file: file,
		mmap: func(fd int, at unsafe.Pointer, size, prot, flags int) (unsafe.Pointer, error) {
			p, err := unix.MmapPtr(fd, 0, at, uintptr(size), prot, flags)
			return p, os.NewSyscallError("mmap", err)
		},
		protect:  func(b []byte, prot int) error { return os.NewSyscallError("mprotect", unix.Mprotect(b, prot)) },
		pageSize: os.Getpagesize(),
	}
}

// newFileMapping is MemoryFile.
func newFileMapping(why error) (backend, error) {
	return newMapping(newSystem(temporaryFile), MemoryFile, why, nil)
}

// temporaryFile makes a file that nobody else can open.
func temporaryFile() (*os.File, error) {
	f, err := os.CreateTemp("", "agentcell-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// newMapping makes the backend if an example works. Of the trackers it takes the
// first that tells the truth about the example; there are kernels, and what passes for them,
// where they do not. It closes the others.
func newMapping(sys system, way Memory, why error, trackers []tracker) (backend, error) {
	m := &mapping{sys: sys, known: MemoryFacts{Memory: way, Dirty: DirtyCompare, Why: why}, most: mostRegions()}
	err := m.works()
	for _, t := range trackers {
		if err == nil && m.dirty == nil && m.tells(t) {
			m.dirty, m.known.Dirty = t, fmt.Sprint(t)
			continue
		}
		t.close()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// example is a region of two pages of WebAssembly, the first of which is mapped.
func (m *mapping) example() (*mapped, func(), error) {
	g, err := m.share(wasmPage, func(write func(uint32, []byte) error) error {
		var content page
		content[0] = 1
		return write(0, content[:])
	})
	if err != nil {
		return nil, nil, err
	}
	r := &mapped{by: m}
	if _, err = r.resize(2 * wasmPage); err == nil {
		err = r.become(g)
	}
	free := func() {
		r.free()
		g.close()
	}
	if err != nil {
		free()
		return nil, nil, err
	}
	return r, free, nil
}

// works tells what is wrong with an example.
func (m *mapping) works() error {
	if size := m.sys.pageSize; wasmPage%size != 0 {
		return fmt.Errorf("%w: the system's pages have %d bytes", errors.ErrUnsupported, size)
	}
	r, free, err := m.example()
	if err != nil {
		return err
	}
	defer free()
	r.bytes[0]++
	if r.bytes[0] != 2 || r.from.content[0] != 1 || r.bytes[1] != 0 || r.bytes[wasmPage] != 0 {
		return errors.New("a private mapping is not private")
	}
	return nil
}

// tells shows by an example that t knows which pages were written.
func (m *mapping) tells(t tracker) bool {
	r, free, err := m.example()
	if err != nil {
		return false
	}
	defer free()
	const last = wasmPage/abi.PageSize - 1
	read := r.bytes[0] + r.bytes[last*abi.PageSize]
	list, err := t.private(nil, r.bytes[:wasmPage])
	if err != nil || len(list) != 0 {
		return false
	}
	r.bytes[last*abi.PageSize] = read
	r.bytes[len(r.bytes)-1] = read
	list, err = t.private(nil, r.bytes)
	// Where the system's pages are larger than ours, those beside a written one count.
	span := uint32(max(1, m.sys.pageSize/abi.PageSize))
	return err == nil && len(list) == 2*int(span) && list[span-1] == last && list[len(list)-1] == 2*(last+1)-1
}

func (m *mapping) region() region {
	if m.regions.Add(1) > m.most {
		m.regions.Add(-1)
		return new(copied)
	}
	return &mapped{by: m, counted: true}
}

func (m *mapping) facts() MemoryFacts { return m.known }

func (m *mapping) close() {
	if m.dirty != nil {
		m.dirty.close()
	}
}

func (m *mapping) share(size int, fill func(write func(page uint32, content []byte) error) error) (_ *goldenMemory, err error) {
	g := new(goldenMemory)
	defer func() {
		if err != nil {
			g.close()
			err = fmt.Errorf("an image of %d bytes: %w", size, err)
		}
	}()
	lacking := func(err error) error { return fmt.Errorf("%w: %w", ErrShortage, err) }
	if g.file, err = m.sys.file(); err != nil {
		return nil, lacking(err)
	}
	if err := g.file.Truncate(int64(size)); err != nil {
		return nil, lacking(err)
	}
	// Written to through a mapping, a file for which there is no room would end the
	// process.
	err = fill(func(page uint32, content []byte) error {
		if _, err := g.file.WriteAt(content, int64(page)*abi.PageSize); err != nil {
			return lacking(err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p, err := m.sys.mmap(int(g.file.Fd()), nil, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, lacking(err)
	}
	g.content, g.unmap = unsafe.Slice((*byte)(p), size), unmap
	return g, nil
}

// unmap fails only for what was not mapped.
func unmap(b []byte) { _ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b))) }

// mapped is a region of the kernel's: fresh pages cost nothing until they are
// touched, and growing within what is reserved moves nothing.
type mapped struct {
	by       *mapping
	counted  bool   // among by.regions
	reserved []byte // addresses, of which only those of bytes may be used
	bytes    []byte
	// from, if set, is what the region's beginning is a private mapping of, filed
	// how much of it is one, of from's file or of an earlier one.
	from  *goldenMemory
	filed int
}

const (
	readWrite = unix.PROT_READ | unix.PROT_WRITE
	anonymous = unix.MAP_ANON | unix.MAP_PRIVATE | mapNoReserve
)

func (r *mapped) resize(n int) ([]byte, error) {
	n = max(n, wasmPage) // the kernel maps no less than a page
	if n > len(r.reserved) {
		return r.move(n)
	}
	if used := len(r.bytes); n > used {
		if err := r.by.sys.protect(r.reserved[used:n], readWrite); err != nil {
			return nil, err
		}
	}
	r.bytes = r.reserved[:n]
	return r.bytes, nil
}

// move makes the region n bytes long in another place, with room to grow if there
// are addresses enough.
func (r *mapped) move(n int) ([]byte, error) {
	to := mapped{by: r.by, counted: r.counted}
	for _, size := range []int{max(reservation, n+min(n/4, math.MaxInt-n)/wasmPage*wasmPage), n} {
		p, err := r.by.sys.mmap(-1, nil, size, unix.PROT_NONE, anonymous)
		if err == nil {
			to.reserved = unsafe.Slice((*byte)(p), size)
			break
		}
		if size == n {
			return nil, err
		}
	}
	if _, err := to.resize(n); err != nil {
		unmap(to.reserved)
		return nil, err
	}
	copy(to.bytes, r.bytes)
	if r.reserved != nil {
		unmap(r.reserved)
	}
	*r = to
	return r.bytes, nil
}

func (r *mapped) free() {
	if r.reserved != nil {
		unmap(r.reserved)
	}
	if r.counted {
		r.by.regions.Add(-1)
	}
	*r = mapped{by: r.by}
}

func (r *mapped) become(g *goldenMemory) error {
	// Beyond g there are fresh pages, which are zero: let go, those of a file would
	// be the file's again.
	if err := r.remap(-1, len(g.content), len(r.bytes), anonymous); err != nil {
		return err
	}
	if g.file == nil {
		copy(r.bytes, g.content)
		r.from, r.filed = nil, min(r.filed, len(g.content))
		return nil
	}
	if err := r.remap(int(g.file.Fd()), 0, len(g.content), unix.MAP_PRIVATE); err != nil {
		return err
	}
	r.from, r.filed = g, len(g.content)
	return nil
}

// remap maps what is in a place anew.
func (r *mapped) remap(fd, from, to, flags int) error {
	if from == to {
		return nil
	}
	_, err := r.by.sys.mmap(fd, unsafe.Pointer(&r.bytes[from]), to-from, readWrite, flags|unix.MAP_FIXED)
	return err
}

func (r *mapped) touched(dst []uint32, n int) []uint32 {
	if r.from == nil || r.by.dirty == nil {
		return allPages(dst, n)
	}
	list, err := r.by.dirty.private(dst, r.bytes[:n*abi.PageSize])
	if err != nil {
		return allPages(dst, n)
	}
	return list
}

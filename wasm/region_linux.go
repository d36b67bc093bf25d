package wasm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentcell/agentcell/sdk/abi"
)

// mapped is a region of the kernel's: fresh pages cost nothing until they are
// touched, and growing within what is reserved moves nothing.
type mapped struct {
	reserved []byte // addresses, of which only those of bytes may be used
	bytes    []byte
	// from, if set, is what the region's beginning is a private mapping of, filed
	// how much of it is one, of from's file or of an earlier one.
	from    *goldenMemory
	filed   int
	entries []byte // of the page map, to be used again
}

func newRegion() region { return new(mapped) }

// reservation is how many bytes of addresses a region takes, which cost nothing:
// as many as a guest may have by default.
const reservation = 256 << 20

func (r *mapped) resize(n int) ([]byte, error) {
	n = max(n, wasmPage) // the kernel maps no less than a page
	if n > len(r.reserved) {
		return r.move(n)
	}
	if used := len(r.bytes); n > used {
		if err := unix.Mprotect(r.reserved[used:n], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return nil, os.NewSyscallError("mprotect", err)
		}
	}
	r.bytes = r.reserved[:n]
	return r.bytes, nil
}

// move makes the region n bytes long in another place.
func (r *mapped) move(n int) ([]byte, error) {
	reserve := func(size int) ([]byte, error) {
		return unix.Mmap(-1, 0, size, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	}
	to := new(mapped)
	var err error
	if to.reserved, err = reserve(max(n, reservation)); err != nil {
		if to.reserved, err = reserve(n); err != nil {
			return nil, os.NewSyscallError("mmap", err)
		}
	}
	if _, err := to.resize(n); err != nil {
		to.free()
		return nil, err
	}
	copy(to.bytes, r.bytes)
	r.free()
	*r = *to
	return r.bytes, nil
}

func (r *mapped) free() {
	if r.reserved != nil {
		_ = unix.Munmap(r.reserved) // it fails only for what was not mapped
		*r = mapped{}
	}
}

func (r *mapped) become(g *goldenMemory) error {
	if r.filed > len(g.content) {
		// Let go, these pages would be those of the file again.
		_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(r.bytes[len(g.content):])), uintptr(r.filed-len(g.content)),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
		if err != nil {
			return os.NewSyscallError("mmap", err)
		}
		r.filed = len(g.content)
	}
	if beyond := r.bytes[len(g.content):]; len(beyond) > 0 {
		// Fresh pages are zero, and cheaper than writing zeros to those that
		// nobody has touched.
		if err := unix.Madvise(beyond, unix.MADV_DONTNEED); err != nil {
			return os.NewSyscallError("madvise", err)
		}
	}
	if g.file == nil {
		copy(r.bytes, g.content)
		r.from = nil
		return nil
	}
	_, err := unix.MmapPtr(int(g.file.Fd()), 0, unsafe.Pointer(unsafe.SliceData(r.bytes)), uintptr(len(g.content)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	r.from, r.filed = g, len(g.content)
	return nil
}

// The flags of an entry of the page map: 8 bytes a page, see the kernel's
// Documentation/admin-guide/mm/pagemap.rst.
const (
	pagemapEntry   = 8
	pagemapPresent = 1 << 63
	pagemapSwapped = 1 << 62
	pagemapFile    = 1 << 61 // the file's own page, not a private copy
)

func (r *mapped) touched(dst []uint32, n int) []uint32 {
	if r.from == nil || !r.readPagemap(n) {
		return allPages(dst, n)
	}
	for i := range n {
		flags := le.Uint64(r.entries[i*pagemapEntry:])
		if flags&(pagemapPresent|pagemapSwapped) != 0 && flags&pagemapFile == 0 {
			dst = append(dst, uint32(i))
		}
	}
	return dst
}

func (r *mapped) readPagemap(n int) bool {
	if len(r.entries) < n*pagemapEntry {
		r.entries = make([]byte, n*pagemapEntry)
	}
	at := int64(uintptr(unsafe.Pointer(unsafe.SliceData(r.bytes)))) / abi.PageSize * pagemapEntry
	got, err := r.from.pagemap.ReadAt(r.entries[:n*pagemapEntry], at)
	return err == nil && got == n*pagemapEntry
}

// goldenMemory is the memory of a golden image. Where the system can, it is also
// a file in memory that regions are mapped from, and the kernel tells which of
// their pages are still the file's.
type goldenMemory struct {
	content []byte
	file    *os.File // nil where the system cannot
	pagemap *os.File
	viewed  bool // content is a mapping of file
}

// mapped reports whether regions can be mapped from g.
func (g *goldenMemory) mapped() bool { return g.file != nil }

func (g *goldenMemory) size() int { return len(g.content) }

// newFlatMemory makes the memory of an image of size bytes from the pages that fill
// writes, from as many goroutines as it likes; the others are zero. There is no
// copy of it but the file.
func newFlatMemory(size int, fill func(write func(page uint32, content []byte) error) error) (_ *goldenMemory, err error) {
	g := new(goldenMemory)
	defer func() {
		if err != nil {
			g.close()
			err = fmt.Errorf("an image of %d bytes: %w", size, err)
		}
	}()
	fd, err := unix.MemfdCreate("agentcell", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrShortage, os.NewSyscallError("memfd_create", err))
	}
	g.file = os.NewFile(uintptr(fd), "image")
	if err := g.file.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrShortage, err)
	}
	// Written to through a mapping, a file for which there is no memory would end
	// the process.
	err = fill(func(page uint32, content []byte) error {
		if _, err := g.file.WriteAt(content, int64(page)*abi.PageSize); err != nil {
			return fmt.Errorf("%w: %w", ErrShortage, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if g.pagemap, err = os.Open("/proc/self/pagemap"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrShortage, err)
	}
	if g.content, err = unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrShortage, os.NewSyscallError("mmap", err))
	}
	g.viewed = true
	return g, nil
}

// newGoldenMemory takes content over.
func newGoldenMemory(content []byte) *goldenMemory {
	g := &goldenMemory{content: content}
	if len(content) == 0 || g.open() != nil {
		g.close()
	}
	return g
}

// open makes the files, or says why the system cannot.
func (g *goldenMemory) open() error {
	if size := os.Getpagesize(); size != abi.PageSize {
		return fmt.Errorf("the system's pages have %d bytes, not %d", size, abi.PageSize)
	}
	fd, err := unix.MemfdCreate("agentcell", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	g.file = os.NewFile(uintptr(fd), "golden image")
	if _, err := g.file.Write(g.content); err != nil {
		return err
	}
	if g.pagemap, err = os.Open("/proc/self/pagemap"); err != nil {
		return err
	}
	if !g.tells() {
		return errors.New("/proc/self/pagemap does not tell which pages were written")
	}
	return nil
}

// MappedMemory reports why the memories of cells cannot be mapped copy-on-write
// from one image here, nil if they can. Without, a turn copies its memory and
// looks at all of it for what has changed: that takes longer and gives the same.
func MappedMemory() error {
	g := &goldenMemory{content: make([]byte, abi.PageSize)}
	defer g.close()
	return g.open()
}

// tells shows by an example that the page map says which pages were written:
// there are kernels, and what passes for them, where it does not.
func (g *goldenMemory) tells() bool {
	r := new(mapped)
	defer r.free()
	if _, err := r.resize(len(g.content)); err != nil || r.become(g) != nil {
		return false
	}
	read := r.bytes[0]
	if len(r.touched(nil, len(r.bytes)/abi.PageSize)) != 0 {
		return false
	}
	last := len(g.content)/abi.PageSize - 1
	r.bytes[last*abi.PageSize] = read + 1
	return slices.Equal(r.touched(nil, len(r.bytes)/abi.PageSize), []uint32{uint32(last)})
}

// close gives the files back; the content stays if it is not the file's.
func (g *goldenMemory) close() {
	if g.viewed {
		_ = unix.Munmap(g.content) // it fails only for what was not mapped
		g.content, g.viewed = nil, false
	}
	for _, f := range []*os.File{g.file, g.pagemap} {
		if f != nil {
			_ = f.Close() // nothing is lost
		}
	}
	g.file, g.pagemap = nil, nil
}

package wasm

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentcell/agentcell/sdk/abi"
)

const mapNoReserve = unix.MAP_NORESERVE

func backends() []way {
	return []way{{MemoryMemfd, newMemfdMapping}, {MemoryFile, newFileMapping}, {MemoryCopy, newCopying}}
}

// newMemfdMapping is MemoryMemfd.
func newMemfdMapping(why error) (backend, error) {
	sys := newSystem(memoryFile)
	return newMapping(sys, MemoryMemfd, why, trackers(sys.pageSize))
}

func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("agentcell", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "memory image"), nil
}

// mostRegions leaves the runtime a quarter of the mappings that a process may
// have: a region takes three.
func mostRegions() int64 {
	most := int64(65530)
	if text, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			most = n
		}
	}
	return most / 4
}

// trackers are those of this system, the best first.
func trackers(pageSize int) []tracker {
	var list []tracker
	for _, open := range []func(*os.File) tracker{
		func(f *os.File) tracker { return pageScan{f} },
		func(f *os.File) tracker { return pageMap{f, pageSize} },
	} {
		f, err := os.Open("/proc/self/pagemap")
		if err != nil {
			break // comparing needs none
		}
		list = append(list, open(f))
	}
	return list
}

// pageScan asks with the ioctl PAGEMAP_SCAN, which Linux has from 6.7 on, for the
// pages of interest alone: see the kernel's Documentation/admin-guide/mm/pagemap.rst.
type pageScan struct{ pagemap *os.File }

// pagemapScan is _IOWR('f', 16, struct pm_scan_arg).
const pagemapScan = 0xc0606610

// The categories of a page.
const (
	pageIsFile    = 1 << 2 // the file's own, not a private copy
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
)

// scanArg is the kernel's struct pm_scan_arg.
type scanArg struct {
	size, flags      uint64
	start, end       uint64
	walkEnd          uint64
	vec, vecLen      uint64
	maxPages         uint64
	inverted         uint64
	mask, anyOf, ret uint64
}

// scanRun is the kernel's struct page_region.
type scanRun struct{ start, end, _ uint64 }

// scanBuffer does not move while the kernel writes to it.
type scanBuffer struct {
	arg  scanArg
	runs [256]scanRun
}

var scanBuffers = sync.Pool{New: func() any { return new(scanBuffer) }}

func (s pageScan) private(dst []uint32, mem []byte) ([]uint32, error) {
	buf := scanBuffers.Get().(*scanBuffer)
	defer scanBuffers.Put(buf)
	begin := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	end := begin + uint64(len(mem))
	for from := begin; from < end; from = buf.arg.walkEnd {
		buf.arg = scanArg{
			size:  uint64(unsafe.Sizeof(buf.arg)),
			start: from, end: end,
			vec: uint64(uintptr(unsafe.Pointer(&buf.runs))), vecLen: uint64(len(buf.runs)),
			inverted: pageIsFile, mask: pageIsFile, anyOf: pageIsPresent | pageIsSwapped,
		}
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, s.pagemap.Fd(), pagemapScan, uintptr(unsafe.Pointer(&buf.arg)))
		runtime.KeepAlive(s.pagemap)
		if errno != 0 {
			return dst, os.NewSyscallError("ioctl", errno)
		}
		if int(n) > len(buf.runs) || buf.arg.walkEnd <= from {
			return dst, errors.New("ioctl: PAGEMAP_SCAN gives no sense")
		}
		for _, run := range buf.runs[:n] {
			for at := run.start; at < min(run.end, end); at += abi.PageSize {
				dst = append(dst, uint32((at-begin)/abi.PageSize))
			}
		}
	}
	return dst, nil
}

func (s pageScan) close() { _ = s.pagemap.Close() } // nothing is lost

func (pageScan) String() string { return DirtyScan }

// pageMap reads the page map: 8 bytes a page, see the same document.
type pageMap struct {
	pagemap  *os.File
	pageSize int
}

// The flags of an entry.
const (
	pagemapEntry   = 8
	pagemapPresent = 1 << 63
	pagemapSwapped = 1 << 62
	pagemapFile    = 1 << 61
)

// entries is what is read of a page map at a time.
type entries [8 << 10]byte

var entryBuffers = sync.Pool{New: func() any { return new(entries) }}

func (p pageMap) private(dst []uint32, mem []byte) ([]uint32, error) {
	buf := entryBuffers.Get().(*entries)
	defer entryBuffers.Put(buf)
	begin := int64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) / int64(p.pageSize)
	for first, n := 0, len(mem)/p.pageSize; first < n; {
		part := buf[:min(len(buf), (n-first)*pagemapEntry)]
		got, err := p.pagemap.ReadAt(part, (begin+int64(first))*pagemapEntry)
		if err != nil || got != len(part) {
			return dst, fmt.Errorf("read the page map: %d of %d bytes: %w", got, len(part), err)
		}
		dst = appendPrivate(dst, part, first, p.pageSize)
		first += len(part) / pagemapEntry
	}
	return dst, nil
}

// appendPrivate appends the pages that entries, the first of which is the system's
// page first, call private.
func appendPrivate(dst []uint32, entries []byte, first, pageSize int) []uint32 {
	span := pageSize / abi.PageSize
	for i := range len(entries) / pagemapEntry {
		flags := le.Uint64(entries[i*pagemapEntry:])
		if flags&(pagemapPresent|pagemapSwapped) != 0 && flags&pagemapFile == 0 {
			for page := range span {
				dst = append(dst, uint32((first+i)*span+page))
			}
		}
	}
	return dst
}

func (p pageMap) close() { _ = p.pagemap.Close() } // nothing is lost

func (pageMap) String() string { return DirtyPagemap }

package wasm

import (
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/sdk/abi"
)

// moveRegion has a region grow beyond what it has reserved, as it does in a guest that
// has more memory than most.
func moveRegion(t *rapid.T, r region, size int) {
	if r, ok := r.(*mapped); ok {
		if _, err := r.move(size); err != nil {
			t.Fatal(err)
		}
	}
}

// swapOut has the kernel take away what it can of a region.
func swapOut(r region) {
	if r, ok := r.(*mapped); ok {
		_ = unix.Madvise(r.bytes, unix.MADV_PAGEOUT) // without swap it takes the file's pages alone
	}
}

// present counts the pages that are in memory.
func present(t *testing.T, mem []byte) (n int) {
	t.Helper()
	for _, e := range pageEntries(t, mem) {
		if e&(pagemapPresent|pagemapSwapped) != 0 {
			n++
		}
	}
	return n
}

// pageEntries is what the page map says of mem.
func pageEntries(t *testing.T, mem []byte) (all []uint64) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	raw := make([]byte, len(mem)/os.Getpagesize()*pagemapEntry)
	if _, err := f.ReadAt(raw, int64(uintptr(unsafe.Pointer(&mem[0])))/int64(os.Getpagesize())*pagemapEntry); err != nil {
		t.Fatal(err)
	}
	for ; len(raw) > 0; raw = raw[pagemapEntry:] {
		all = append(all, le.Uint64(raw))
	}
	return all
}

// trackedBackends are memfd mappings with each tracker, and without.
func trackedBackends(t testing.TB) (list []backend) {
	t.Helper()
	sys := newSystem(memoryFile)
	for _, by := range append(trackers(sys.pageSize), nil) {
		var only []tracker
		if by != nil {
			only = append(only, by)
		}
		b, err := newMapping(sys, MemoryMemfd, nil, only)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.close)
		list = append(list, b)
	}
	return list
}

func eachTracker(b *testing.B, run func(b *testing.B, by backend)) {
	for _, by := range trackedBackends(b) {
		run(b, by)
	}
}

// All ways to find written pages agree with what was written.
func TestTrackersAgree(t *testing.T) {
	for _, b := range trackedBackends(t) {
		t.Run(b.facts().Dirty, func(t *testing.T) {
			content := slices.Repeat([]byte{3}, 4*wasmPage)
			g := newGoldenMemory(b, content)
			defer g.close()
			rapid.Check(t, func(t *rapid.T) { testRegion(t, b, []*goldenMemory{g}) })
		})
	}
}

// The kernel tells exactly the pages that were written, also more of them than one
// call has room for, and beyond the file.
func TestTrackersAreExact(t *testing.T) {
	for _, b := range trackedBackends(t) {
		if b.facts().Dirty == DirtyCompare {
			continue
		}
		t.Run(b.facts().Dirty, func(t *testing.T) {
			const pages = 3000
			g := newGoldenMemory(b, slices.Repeat([]byte{3}, pages*abi.PageSize/wasmPage*wasmPage))
			defer g.close()
			r := b.region()
			defer r.free()
			mem, err := r.resize(g.size() + 4*wasmPage)
			if err == nil {
				err = r.become(g)
			}
			if err != nil {
				t.Fatal(err)
			}
			var want []uint32
			for i := 0; i < len(mem)/abi.PageSize; i += 1 + i%3 {
				mem[i*abi.PageSize]++
				want = append(want, uint32(i))
			}
			_ = unix.Madvise(mem, unix.MADV_PAGEOUT)
			if diff := cmp.Diff(want, r.touched(nil, len(mem)/abi.PageSize)); diff != "" {
				t.Errorf("touched (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want[:10], r.touched(nil, int(want[10]))); diff != "" {
				t.Errorf("touched of the first (-want +got):\n%s", diff)
			}
		})
	}
}

// A page that is not in memory, but for which the kernel has an entry of swap, is the
// process's own. Tests have no swap to send pages to; a guard has such an entry, too.
func TestTrackersCountSwapped(t *testing.T) {
	for _, b := range trackedBackends(t) {
		if b.facts().Dirty == DirtyCompare {
			continue
		}
		t.Run(b.facts().Dirty, func(t *testing.T) {
			g := newGoldenMemory(b, slices.Repeat([]byte{3}, wasmPage))
			defer g.close()
			r := b.region()
			defer r.free()
			mem, err := r.resize(g.size())
			if err == nil {
				err = r.become(g)
			}
			if err != nil {
				t.Fatal(err)
			}
			mem[5*abi.PageSize]++
			const guardInstall = 102 // MADV_GUARD_INSTALL, from Linux 6.13 on
			guarded := mem[9*abi.PageSize : 11*abi.PageSize]
			if err := unix.Madvise(guarded, guardInstall); err != nil {
				t.Skip("this kernel has no guards: ", err)
			}
			for _, e := range pageEntries(t, guarded) {
				if e&(pagemapPresent|pagemapSwapped) != pagemapSwapped {
					t.Skipf("this kernel calls a guard something else: %#x", e)
				}
			}
			if diff := cmp.Diff([]uint32{5, 9, 10}, r.touched(nil, wasmPage/abi.PageSize)); diff != "" {
				t.Errorf("touched (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAppendPrivate(t *testing.T) {
	var raw []byte
	for _, flags := range []uint64{
		0,
		pagemapPresent,
		pagemapSwapped, // what was swapped out is still the process's own
		pagemapPresent | pagemapFile,
		pagemapSwapped | pagemapFile,
		pagemapFile,
		pagemapPresent | 1<<55 | 1<<56 | 12345,
	} {
		raw = le.AppendUint64(raw, flags)
	}
	for _, test := range []struct {
		first, pageSize int
		want            []uint32
	}{
		{0, 4 << 10, []uint32{9, 1, 2, 6}},
		{100, 4 << 10, []uint32{9, 101, 102, 106}},
		{1, 16 << 10, []uint32{9, 8, 9, 10, 11, 12, 13, 14, 15, 28, 29, 30, 31}},
	} {
		if diff := cmp.Diff(test.want, appendPrivate([]uint32{9}, raw, test.first, test.pageSize)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test, diff)
		}
	}
}

// liar is a tracker that gives what it is told to.
type liar struct {
	list []uint32
	err  error
}

func (l liar) private(dst []uint32, _ []byte) ([]uint32, error) { return append(dst, l.list...), l.err }
func (liar) close()                                             {}
func (liar) String() string                                     { return "liar" }

// A tracker that does not tell the truth about an example is not used, whatever the
// system's pages are, and neither are mappings where they cannot be.
func TestMappingIsProbed(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*system)
		by   []tracker
		want string // "" for none
	}{
		{"all is well", func(*system) {}, trackers(os.Getpagesize()), trackedBackends(t)[0].facts().Dirty},
		{"none", func(*system) {}, nil, DirtyCompare},
		{"knows nothing", func(*system) {}, []tracker{liar{}}, DirtyCompare},
		{"too much", func(*system) {}, []tracker{liar{list: allPages(nil, 16)}}, DirtyCompare},
		{"fails", func(*system) {}, []tracker{liar{err: errors.New("no")}}, DirtyCompare},
		{"the second is right", func(*system) {}, append([]tracker{liar{}}, trackers(os.Getpagesize())...), trackedBackends(t)[0].facts().Dirty},
		{"larger pages than the kernel's", func(s *system) { s.pageSize = 16 << 10 }, trackers(16 << 10), DirtyCompare},
		{"pages that memory cannot be mapped in", func(s *system) { s.pageSize = 128 << 10 }, nil, ""},
		{"no files", func(s *system) { s.file = func() (*os.File, error) { return nil, unix.ENOSYS } }, nil, ""},
		{"no mappings", func(s *system) {
			s.mmap = func(int, unsafe.Pointer, int, int, int) (unsafe.Pointer, error) { return nil, unix.EPERM }
		}, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			sys := newSystem(memoryFile)
			test.edit(&sys)
			b, err := newMapping(sys, MemoryMemfd, nil, test.by)
			if err != nil {
				if test.want != "" {
					t.Error(err)
				}
				return
			}
			defer b.close()
			if got := b.facts().Dirty; got != test.want {
				t.Errorf("written pages are found by %q, want %q", got, test.want)
			}
		})
	}
}

package wasm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

// pageCounter reads the pages of a memory and counts them.
type pageCounter struct {
	content []byte
	reads   atomic.Int64
}

func (p *pageCounter) ReadPage(index uint32, dst []byte) error {
	p.reads.Add(1)
	return pagesOf(p.content).ReadPage(index, dst)
}

// large is an image of the module with so many pages that differ from golden, each
// filled with a number of its own beginning with first, and what reads them.
func large(c *Compiled, pages int, first byte) (Image, *pageCounter) {
	img := c.Golden()
	size := (max(pages*abi.PageSize, int(img.Size)) + wasmPage - 1) / wasmPage * wasmPage
	content := make([]byte, size)
	copy(content, c.memory.content)
	img.Size, img.Changed = uint64(size), nil
	for i := range pages {
		copy(content[i*abi.PageSize:], bytes.Repeat([]byte{first + byte(i%100) + 1}, abi.PageSize))
		img.Changed = append(img.Changed, uint32(i))
	}
	counter := &pageCounter{content: content}
	img.Pages = counter
	img.Root = abi.DigestOf(content)
	return img, counter
}

func restore(t testing.TB, c *Compiled, img Image) *Instance {
	t.Helper()
	in, err := c.Restore(img)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Stop)
	return in
}

// needMapping skips a test where memories are copied.
func needMapping(t testing.TB, e *Engine) {
	t.Helper()
	if facts := e.Memory(); facts.Memory == MemoryCopy {
		t.Skip("memories are copied: ", facts.Why)
	}
}

// An image of many pages is read once, however many cells come to its state; each
// has its own (M3), tells what its guest changed, and is golden for the next
// tenant.
func TestFlatImages(t *testing.T) {
	onMemories(t, func(t *testing.T, e *Engine) {
		needMapping(t, e)
		const pages, many = 1000, 20
		c := loaded(t, e, bump(false))
		golden := bytes.Clone(c.memory.content)
		img, counter := large(c, pages, 0)
		var wg sync.WaitGroup
		all := make([]*Instance, many)
		for i := range all {
			wg.Go(func() {
				var err error
				if all[i], err = c.Restore(img); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := counter.reads.Load(); n != pages {
			t.Errorf("%d pages were read, want %d", n, pages)
		}
		for i, in := range all {
			if !bytes.Equal(in.cell.mem.bytes(), counter.content) {
				t.Fatalf("instance %d is not in the image's state", i)
			}
			if snap, err := in.Snapshot(); err != nil || len(snap.Changed) != 0 {
				t.Fatalf("instance %d: %v differ before its turn: %v", i, snap.Changed, err)
			}
		}
		first := all[0]
		for turn := range 3 {
			if out, err := first.Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
				t.Fatal(out, err)
			}
			snap, err := first.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]uint32{3}, snap.Changed); diff != "" {
				t.Errorf("turn %d (-want +got): %s", turn, diff)
			}
			if diff := memoryOf(t, snap, counter.content)[12288] - counter.content[12288]; diff != byte(turn+1) {
				t.Errorf("turn %d: it counts %d", turn, diff)
			}
		}
		for i, in := range all[1:] {
			if !bytes.Equal(in.cell.mem.bytes(), counter.content) {
				t.Errorf("instance %d sees a write of another", i+1)
			}
		}
		for _, in := range all {
			in.Stop()
		}
		again := 0
		for cell := c.pool.get(img.Size); cell != nil; cell = c.pool.get(img.Size) {
			defer cell.free()
			again++
			if mem := cell.mem.bytes(); !bytes.Equal(mem[:len(golden)], golden) || len(bytes.Trim(mem[len(golden):], "\x00")) != 0 {
				t.Fatal("memory is left for the next tenant")
			}
		}
		if again == 0 { // some may have been trimmed meanwhile
			t.Error("no cell is used again")
		}
		// Kept for the next one, and gone with time.
		restore(t, c, img).Stop()
		if n := counter.reads.Load(); n != pages {
			t.Errorf("%d pages were read", n)
		}
		f := c.flats.join(img.Root)
		c.flats.leave(f)
		c.flats.expire(f)
		c.flats.mu.Lock()
		defer c.flats.mu.Unlock()
		if len(c.flats.all) != 0 || c.flats.bytes != 0 {
			t.Errorf("%d flat images are left, %d bytes", len(c.flats.all), c.flats.bytes)
		}
	})
}

// An image that is near to one that is there is that one with some pages over it,
// and one that is far is made of what is there.
func TestFlatImages_Near(t *testing.T) {
	e := newEngine(t, Config{})
	needMapping(t, e)
	c := loaded(t, e, bump(false))
	const pages = 2000
	one, _ := large(c, pages, 0)
	first := restore(t, c, one)
	for _, far := range []int{0, 1, maxOverlay, maxOverlay + 1} {
		t.Run(fmt.Sprint(far), func(t *testing.T) {
			two, counter := large(c, pages, 0)
			var differ []uint32
			for i := range uint32(far) {
				page := 7 * i % pages
				counter.content[page*abi.PageSize] ^= 0xff
				differ = append(differ, page)
			}
			slices.Sort(differ)
			two.Root = abi.DigestOf(counter.content)
			two.Diff = func(root abi.Digest) ([]uint32, bool) { return differ, root == one.Root }
			in := restore(t, c, two)
			if !bytes.Equal(in.cell.mem.bytes(), counter.content) {
				t.Error("not in the image's state")
			}
			if n := counter.reads.Load(); n != int64(far) {
				t.Errorf("%d pages were read, want %d", n, far)
			}
			if snap, err := in.Snapshot(); err != nil || len(snap.Changed) != 0 {
				t.Errorf("%v differ before its turn: %v", snap.Changed, err)
			}
			if own := in.cell.flat.root == two.Root; own != (far == 0 || far > maxOverlay) {
				t.Errorf("it has a flat image of its own: %t", own)
			}
			in.Stop()
		})
	}
	if !bytes.Equal(first.cell.mem.bytes(), one.Pages.(*pageCounter).content) {
		t.Error("the first has changed")
	}
}

// What is not in use keeps within its bound; none is made where that is asked for.
func TestFlatImages_Bound(t *testing.T) {
	const pages = 512
	e := newEngine(t, Config{MaxFlatBytes: 3 * pages * abi.PageSize})
	needMapping(t, e)
	c := loaded(t, e, bump(false))
	held, _ := large(c, pages, 200)
	restore(t, c, held)
	for i := range byte(6) {
		img, _ := large(c, pages, i)
		restore(t, c, img).Stop()
		if c.flats.bytes > 3*pages*abi.PageSize {
			t.Errorf("%d bytes are kept", c.flats.bytes)
		}
	}
	if c.flats.join(held.Root) == nil {
		t.Error("one that is in use was dropped")
	}
	c.flats.leave(c.flats.all[len(c.flats.all)-1])

	none := loaded(t, newEngine(t, Config{MaxFlatBytes: -1}), bump(false))
	img, counter := large(none, pages, 0)
	if in := restore(t, none, img); in.cell.flat != nil || !bytes.Equal(in.cell.mem.bytes(), counter.content) {
		t.Error("not copied")
	}
}

// An image that cannot be read is nobody's, and can be tried again.
func TestFlatImages_Unreadable(t *testing.T) {
	e := newEngine(t, Config{})
	needMapping(t, e)
	c := loaded(t, e, bump(false))
	img, counter := large(c, 600, 0)
	broken := errors.New("broken disk")
	bad := img
	bad.Pages = unreadable{broken}
	for range 2 {
		if _, err := c.Restore(bad); !errors.Is(err, broken) {
			t.Fatalf("got %v", err)
		}
	}
	if len(c.flats.all) != 0 || c.flats.bytes != 0 {
		t.Errorf("%d are kept, %d bytes", len(c.flats.all), c.flats.bytes)
	}
	if in := restore(t, c, img); !bytes.Equal(in.cell.mem.bytes(), counter.content) {
		t.Error("not in the image's state")
	}
}

// BenchmarkRestore is F5 and the first half of F6: an instance in the state of an
// image that differs from golden in so many pages, kept whole or copied.
func BenchmarkRestore(b *testing.B) {
	for _, pages := range []int{24, 256, 25_600} {
		for _, flat := range []bool{true, false} {
			b.Run(fmt.Sprintf("pages=%d/flat=%t", pages, flat), func(b *testing.B) {
				c := loaded(b, newEngine(b, Config{CacheDir: testCacheDir(b)}), bundledModule(b, "notebook"))
				img, _ := large(c, max(pages, int(c.golden.Size)/abi.PageSize), 0)
				img.Changed = img.Changed[:pages]
				if !flat {
					img.Root = abi.Digest{}
				}
				restore(b, c, img).Stop()
				for b.Loop() {
					in, err := c.Restore(img)
					if err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					in.Stop()
					b.StartTimer()
				}
			})
		}
	}
}

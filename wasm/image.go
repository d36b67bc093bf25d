package wasm

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Image is the whole state of a cell between turns.
type Image struct {
	// Size is the length of linear memory in bytes.
	Size uint64
	// Globals are the mutable globals of the original module, in index order.
	Globals []abi.Global
	// Clock is the virtual time in nanoseconds.
	Clock int64
	// Changed lists, ascending, the pages below Size that may differ from the
	// image this one is told against: all zeros for a golden image, the golden
	// image for one that Restore takes, the state at the beginning of the turn
	// for a Snapshot. Pages beyond the other image's size count as zero there.
	Changed []uint32
	// Pages reads the pages named in Changed, from several goroutines at once.
	Pages PageReader
	// Root, if not zero, names the image: of two with one root all is equal. It
	// lets Restore keep a large image for the next one that asks for it.
	Root abi.Digest
	// Diff, if set, lists the pages in which this image differs from the one that a
	// root names, false if it does not know that one.
	Diff func(root abi.Digest) ([]uint32, bool)
}

// PageReader reads pages of an image.
type PageReader interface {
	// ReadPage fills dst, which has abi.PageSize bytes, with page index.
	ReadPage(index uint32, dst []byte) error
}

// pagesOf reads the pages of a memory that is not written meanwhile.
type pagesOf []byte

// ReadPage implements PageReader.
func (p pagesOf) ReadPage(index uint32, dst []byte) error {
	from := int(index) * abi.PageSize
	if from >= len(p) {
		return fmt.Errorf("read page %d: it is beyond the memory", index)
	}
	copy(dst, p[from:from+abi.PageSize])
	return nil
}

// page is the content of one page of memory.
type page [abi.PageSize]byte

// zeroPage is what every memory holds beyond its golden size.
var zeroPage page

// base is the memory that an instance's own is compared with: the golden
// memory, which all instances of a module share and nobody writes, and over it
// the pages in which this instance differed when it was last compared.
type base struct {
	golden  []byte
	overlay []*page // by index; nil: as golden. It grows with the memory
	pages   *sync.Pool
}

// page is page i of the base.
func (b *base) page(i int) []byte {
	if i < len(b.overlay) && b.overlay[i] != nil {
		return b.overlay[i][:]
	}
	return b.goldenPage(i)
}

func (b *base) goldenPage(i int) []byte {
	if from := i * abi.PageSize; from < len(b.golden) {
		return b.golden[from : from+abi.PageSize]
	}
	return zeroPage[:]
}

// compare lists the pages in which mem differs from the base. Only those in
// touched can, as all others are golden.
func (b *base) compare(mem []byte, touched []uint32) (changed []uint32) {
	for _, i := range touched {
		if !bytes.Equal(mem[int(i)*abi.PageSize:][:abi.PageSize], b.page(int(i))) {
			changed = append(changed, i)
		}
	}
	return changed
}

// take makes these pages of the base those of mem.
func (b *base) take(mem []byte, changed []uint32) {
	for _, i := range changed {
		b.set(int(i), len(mem)/abi.PageSize, mem[int(i)*abi.PageSize:][:abi.PageSize])
	}
}

// set makes content page i of a memory of n pages.
func (b *base) set(i, n int, content []byte) {
	if len(b.overlay) < n {
		b.overlay = append(b.overlay, make([]*page, n-len(b.overlay))...)
	}
	if b.overlay[i] == nil {
		b.overlay[i] = b.pages.Get().(*page)
	}
	copy(b.overlay[i][:], content)
}

// reset makes the base golden again.
func (b *base) reset() {
	for i, p := range b.overlay {
		if p != nil {
			b.overlay[i] = nil
			b.pages.Put(p)
		}
	}
}

// nonZero lists the pages of mem that have a byte other than zero.
func nonZero(mem []byte) []uint32 {
	var list []uint32
	for i := range len(mem) / abi.PageSize {
		if !bytes.Equal(mem[i*abi.PageSize:(i+1)*abi.PageSize], zeroPage[:]) {
			list = append(list, uint32(i))
		}
	}
	return list
}

// check tells whether an image can be one of a module whose golden image is
// golden. Its pages are another matter.
func (img *Image) check(golden *Image) error {
	switch {
	case img.Size < golden.Size || img.Size%wasmPage != 0 || img.Size > maxMemory:
		return fmt.Errorf("image: a memory of %d bytes does not belong to this module", img.Size)
	case len(img.Globals) != len(golden.Globals):
		return fmt.Errorf("image: %d globals, the module has %d", len(img.Globals), len(golden.Globals))
	case img.Clock < golden.Clock:
		return fmt.Errorf("image: clock %d is before the golden image's", img.Clock)
	}
	for i, g := range img.Globals {
		if g.Type != golden.Globals[i].Type {
			return fmt.Errorf("image: global %d has type %#x, the module's has %#x", i, g.Type, golden.Globals[i].Type)
		}
	}
	return nil
}

// checkPages tells whether a list can be one of pages of the image.
func (img *Image) checkPages(list []uint32) error {
	last := int64(-1)
	for _, i := range list {
		if int64(i) <= last || (uint64(i)+1)*abi.PageSize > img.Size {
			return fmt.Errorf("image: page %d is out of order or beyond the memory", i)
		}
		last = int64(i)
	}
	return nil
}

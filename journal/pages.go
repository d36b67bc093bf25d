package journal

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// zeroPage is what all-zero subtrees hold.
var zeroPage [abi.PageSize]byte

// ReadPages reads pages of im, in any order and side by side, and hands each to use,
// whose content is valid until it returns. So use is called from several goroutines
// at once. Read so, many pages cost a fraction of what ReadPage takes for each.
//
// It ends with the first error, of use or of a page that is not what the image names,
// which is ErrCorrupt; which pages use has had by then is open.
func (j *Journal) ReadPages(im *Image, pages []uint32, use func(page uint32, content []byte) error) error {
	if im.journal != j {
		return fmt.Errorf("read pages: %w", errForeign)
	}
	stored := make([]storedPage, 0, len(pages))
	for _, page := range pages {
		if page >= im.tree.pages {
			return fmt.Errorf("read pages: image %v has no page %d", im.root, page)
		}
		nd, err := im.tree.leaf(page)
		if err != nil {
			return fmt.Errorf("image %v: %w", im.root, err)
		}
		content := &zeroPage
		if nd != nil {
			if content = nd.page.Load(); content == nil {
				stored = append(stored, storedPage{nd.hash, page})
				continue
			}
		}
		if err := use(page, content[:]); err != nil {
			return err
		}
	}
	if err := j.readStored(stored, use); err != nil {
		return fmt.Errorf("image %v: %w", im.root, err)
	}
	return nil
}

// storedPage is a page that is read from the store.
type storedPage struct {
	hash abi.Digest
	page uint32
}

// readChunk is how many pages a worker takes at once: as many as are worth a
// goroutine, and more where there are more, because a walk pays for its beginning.
func readChunk(pages int) int {
	const least, most = 32, 2048
	return min(max((pages+1)/runtime.GOMAXPROCS(0), least), most)
}

func (j *Journal) readStored(pages []storedPage, use func(page uint32, content []byte) error) error {
	// The store has them in the order of their hashes.
	slices.SortFunc(pages, func(a, b storedPage) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	return sideBySide(len(pages), readChunk(len(pages)), func(low, high int) error {
		view := j.view()
		defer view.Close()
		keys := make([][]byte, high-low)
		for i, p := range pages[low:high] {
			keys[i] = digestKey(kindPage, p.hash)
		}
		buf := new([abi.PageSize]byte)
		return getAll(view, keys, func(i int, row []byte, err error) error {
			p := pages[low+i]
			content, err := p.content(row, err, buf)
			if err != nil {
				return err
			}
			return use(p.page, content)
		})
	})
}

// content is the page that a look for its row gave, in buf or in the row itself. That
// there is none, or another one, is corruption.
func (p storedPage) content(row []byte, err error, buf *[abi.PageSize]byte) (content []byte, _ error) {
	if err = mustExist(err); err == nil {
		content, err = unpackPage(row, buf)
	}
	if err == nil {
		if got := hashPage(content); got != p.hash {
			err = fmt.Errorf("%w: its %d bytes have the hash %v", ErrCorrupt, len(content), got)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("page %d, %v: %w", p.page, p.hash, err)
	}
	return content, nil
}

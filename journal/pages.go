package journal

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

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
	r := pageRead{j: j, pages: stored, use: use}
	if err := r.run(); err != nil {
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
func readChunk(pages, workers int) int {
	const least, most = 32, 2048
	return min(max(pages/workers, least), most)
}

// pageRead is the reading of pages from the store, side by side.
type pageRead struct {
	j     *Journal
	pages []storedPage
	use   func(page uint32, content []byte) error

	next   atomic.Int64
	mu     sync.Mutex
	failed error
}

func (r *pageRead) run() error {
	// The store has them in the order of their hashes.
	slices.SortFunc(r.pages, func(a, b storedPage) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	workers := runtime.GOMAXPROCS(0)
	chunk := readChunk(len(r.pages), workers)
	var others sync.WaitGroup
	for range min(workers, (len(r.pages)+chunk-1)/chunk) - 1 {
		others.Go(func() { r.work(chunk) })
	}
	r.work(chunk)
	others.Wait()
	return r.failed
}

// work reads chunks until there are no more.
func (r *pageRead) work(chunk int) {
	for {
		begin := int(r.next.Add(int64(chunk))) - chunk
		if begin >= len(r.pages) {
			return
		}
		if err := r.read(r.pages[begin:min(begin+chunk, len(r.pages))]); err != nil {
			r.next.Store(int64(len(r.pages)))
			r.mu.Lock()
			r.failed = errors.Join(r.failed, err)
			r.mu.Unlock()
			return
		}
	}
}

func (r *pageRead) read(pages []storedPage) error {
	view := r.j.view()
	defer view.Close()
	keys := make([][]byte, len(pages))
	for i, p := range pages {
		keys[i] = digestKey(kindPage, p.hash)
	}
	return getAll(view, keys, func(i int, value []byte, err error) error {
		if err := checkPage(pages[i].page, pages[i].hash, value, err); err != nil {
			return err
		}
		return r.use(pages[i].page, value)
	})
}

// checkPage checks what a read of a page gave: that the store lacks it is corruption.
func checkPage(page uint32, hash abi.Digest, stored []byte, err error) error {
	if err = mustExist(err); err == nil {
		if got := hashPage(stored); got != hash {
			err = fmt.Errorf("%w: its %d bytes have the hash %v", ErrCorrupt, len(stored), got)
		}
	}
	if err != nil {
		return fmt.Errorf("page %d, %v: %w", page, hash, err)
	}
	return nil
}

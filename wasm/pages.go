package wasm

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// PagesReader is a PageReader that reads many pages for less than each costs alone.
type PagesReader interface {
	PageReader
	// ReadPages hands the listed pages to use, in any order and from several
	// goroutines at once; what use gets is valid until it returns. The first error,
	// of use or of a page, ends it.
	ReadPages(list []uint32, use func(index uint32, content []byte) error) error
}

// readPages reads pages side by side and hands each on, to several goroutines' use;
// its content is good until that returns.
func readPages(from PageReader, list []uint32, workers int, use func(page uint32, content []byte) error) error {
	if len(list) == 0 {
		return nil
	}
	if bulk, ok := from.(PagesReader); ok {
		if err := bulk.ReadPages(list, use); err != nil {
			return fmt.Errorf("image: %w", err)
		}
		return nil
	}
	const chunk = 64
	var (
		next   atomic.Int64
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	work := func() {
		var content page
		for {
			begin := int(next.Add(chunk)) - chunk
			if begin >= len(list) {
				return
			}
			for _, i := range list[begin:min(begin+chunk, len(list))] {
				err := from.ReadPage(i, content[:])
				if err == nil {
					err = use(i, content[:])
				}
				if err != nil {
					next.Store(int64(len(list)))
					mu.Lock()
					failed = errors.Join(failed, fmt.Errorf("image: page %d: %w", i, err))
					mu.Unlock()
					return
				}
			}
		}
	}
	for range min(workers, len(list)/chunk+1) - 1 {
		wg.Go(work)
	}
	work() // a few pages are not worth another goroutine
	wg.Wait()
	return failed
}

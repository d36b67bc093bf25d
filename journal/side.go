package journal

import (
	"cmp"
	"runtime"
	"sync"
	"sync/atomic"
)

// sideBySide calls f for stretches of n things, of chunk each, on all processors. An
// error keeps further ones from being begun, and is returned.
func sideBySide(n, chunk int, f func(low, high int) error) error {
	workers := min(runtime.GOMAXPROCS(0), (n+chunk-1)/chunk)
	if workers <= 1 {
		if n == 0 {
			return nil
		}
		return f(0, n)
	}
	var next atomic.Int64
	failed := make([]error, workers)
	work := func(worker int) {
		for failed[worker] == nil {
			low := int(next.Add(int64(chunk))) - chunk
			if low >= n {
				return
			}
			failed[worker] = f(low, min(low+chunk, n))
		}
		next.Store(int64(n))
	}
	var others sync.WaitGroup
	for worker := 1; worker < workers; worker++ {
		others.Go(func() { work(worker) })
	}
	work(0)
	others.Wait()
	return cmp.Or(failed...)
}

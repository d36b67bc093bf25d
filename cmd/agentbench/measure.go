package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// memory is what the process takes, in bytes.
type memory struct {
	// Heap is what is live of the Go heap.
	Heap int64 `json:"heap"`
	// Private is the memory that is the process's own: the heap, what the runtime
	// keeps for it, cells; not the files that it has mapped. 0 where the system does
	// not tell.
	Private int64 `json:"private"`
	// Resident is that and what is in memory of mapped files.
	Resident int64 `json:"resident"`
}

func (m memory) less(n memory) memory {
	return memory{m.Heap - n.Heap, m.Private - n.Private, m.Resident - n.Resident}
}

// memory measures when idle cells have gone and garbage is collected.
func (b *bench) memory(ctx context.Context) (memory, error) {
	select {
	case <-time.After(b.settle):
	case <-ctx.Done():
		return memory{}, context.Cause(ctx)
	}
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m := memory{Heap: int64(stats.HeapAlloc)}
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if os.IsNotExist(err) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		var kB int64
		if _, err := fmt.Sscan(rest, &kB); err != nil {
			continue
		}
		switch name {
		case "Rss":
			m.Resident = kB << 10
		case "Anonymous":
			m.Private = kB << 10
		}
	}
	return m, nil
}

// latency is how long something takes.
type latency struct {
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Count int           `json:"count"`
}

func newLatency(took []time.Duration) latency {
	if len(took) == 0 {
		return latency{}
	}
	slices.Sort(took)
	return latency{took[len(took)/2], took[len(took)*99/100], len(took)}
}

// reference is what the machine can do, in the same run.
type reference struct {
	// Sync is a write of 4 KiB to a file that is synced.
	Sync latency `json:"sync"`
	// Copy is how many bytes a second are copied in memory.
	Copy float64 `json:"copy_bytes_per_second"`
}

func references(dir string) (r reference, err error) {
	f, err := os.Create(filepath.Join(dir, "reference"))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	page := make([]byte, 4096)
	var took []time.Duration
	for range samples {
		begin := time.Now()
		if _, err := f.Write(page); err != nil {
			return r, err
		}
		if err := f.Sync(); err != nil {
			return r, err
		}
		took = append(took, time.Since(begin))
	}
	r.Sync = newLatency(took)
	from, to := make([]byte, 64<<20), make([]byte, 64<<20)
	copy(to, from) // faults its pages in
	begin := time.Now()
	for range 8 {
		copy(to, from)
	}
	r.Copy = 8 * float64(len(from)) / time.Since(begin).Seconds()
	return r, nil
}

// machine names where this runs.
func machine() string {
	name := fmt.Sprintf("%d CPUs, %s/%s, %s", runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version())
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return name
	}
	for line := range strings.Lines(string(text)) {
		if key, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(model) + ", " + name
		}
	}
	return name
}

package edge_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	wasmruntime "github.com/agentcell/agentcell/runtimes/wasm"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// median reports the median of what was measured, and returns it.
func median(b *testing.B, took []time.Duration, unit string) time.Duration {
	b.Helper()
	slices.Sort(took)
	p50 := took[len(took)/2]
	b.ReportMetric(float64(p50)/float64(time.Microsecond), unit)
	return p50
}

// writer is a harness whose memory has so many megabytes, of which each turn writes
// to so many pages, spread over all of it.
func writer(megabytes, pages int) runtimes.Module {
	descriptor := `{"id":"writer","capabilities":{"resumability":"RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT"}}`
	stride := megabytes << 20 / pages &^ (abi.PageSize - 1)
	// Global 0 counts turns, the local pages. A word in the middle of each is written.
	run := fmt.Sprintf(`global.get 0 i64.const 1 i64.add global.set 0
		loop
			local.get 0 i32.const %d i32.mul i32.const 2048 i32.add global.get 0 i64.store
			local.get 0 i32.const 1 i32.add local.tee 0 i32.const %d i32.lt_u br_if 0
		end
		i32.const 0`, stride, pages)
	code := wasmtest.Module{
		Imports: []wasmtest.Import{{Module: "agent", Name: "reply", Type: "i32 i32 -> i64"}},
		Funcs: []wasmtest.Func{
			{Export: "agent_abi_v1"},
			{Export: "agent_describe", Type: "-> i32", Body: fmt.Sprintf("i32.const 0 i32.const %d call $reply drop i32.const 0", len(descriptor))},
			{Export: "agent_run", Type: "-> i32", Locals: "i32", Body: run},
		},
		Memories: []wasmtest.Memory{{Min: uint32(megabytes << 4), Export: "memory"}},
		Globals:  []wasmtest.Global{{Type: "i64", Mutable: true, Init: "i64.const 0"}},
		Datas:    []wasmtest.Data{{Bytes: []byte(descriptor)}},
	}.Bytes()
	return runtimes.Module{Name: "writer", Digest: abi.DigestOf(code), Code: func() ([]byte, error) { return code, nil }}
}

// noCalls is the world of a harness that asks for nothing.
type noCalls struct{ runtimes.Port }

// BenchmarkSnapshot is F7: what a turn pays at its end for its memory, which has so
// many megabytes, and of which it has written to so many pages: to find them, to hash
// them and the tree, to look for rows that are there, and to pack the others. The journal is in memory: a
// turn's image has no commit of its own. The references are SHA-256 and a copy of
// those pages.
func BenchmarkSnapshot(b *testing.B) {
	for _, tt := range []struct{ megabytes, dirty int }{{3, 20}, {100, 20}, {100, 2000}} {
		b.Run(fmt.Sprintf("MB=%d/dirty=%d", tt.megabytes, tt.dirty), func(b *testing.B) {
			e, err := wasm.New(wasm.Config{CacheDir: testCache(b)})
			if err != nil {
				b.Fatal(err)
			}
			r := wasmruntime.New(e)
			defer r.Close(context.Background())
			j := journal.OpenMemory()
			defer j.Close()
			module := writer(tt.megabytes, tt.dirty)
			in, err := r.Create(b.Context(), module)
			if err != nil {
				b.Fatal(err)
			}
			var image *journal.Image
			var took []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				out, err := in.Run(b.Context(), runtimes.Turn{}, noCalls{})
				if err != nil || out.Reason != abi.ReasonCompleted {
					b.Fatal(out, err)
				}
				b.StartTimer()
				start := time.Now()
				snap, err := in.(runtimes.Snapshotter).Snapshot(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				image, err = j.NewImage(image, journal.ImageSpec{
					Size: snap.Size, Globals: snap.Globals, Clock: snap.Clock, Changed: snap.Changed, Read: snap.Pages.ReadPage,
				})
				if err == nil {
					err = j.SaveImage(b.Context(), image)
				}
				if err != nil || len(snap.Changed) != tt.dirty {
					b.Fatal(len(snap.Changed), err)
				}
				took = append(took, time.Since(start))
			}
			median(b, took, "p50-µs")
		})
	}
	for _, pages := range []int{20, 2000} {
		content := make([]byte, pages*abi.PageSize)
		b.Run(fmt.Sprintf("reference/SHA-256/pages=%d", pages), func(b *testing.B) {
			for b.Loop() {
				sha256.Sum256(content)
			}
		})
		to := make([]byte, len(content))
		b.Run(fmt.Sprintf("reference/copy/pages=%d", pages), func(b *testing.B) {
			for b.Loop() {
				copy(to, content)
			}
		})
	}
}

// BenchmarkResume is F6: the first turn of a session in a host that has its module
// and nothing else of it, beyond what its next turn takes, in which its memory is
// there. The files are in the system's cache. A counter of 3 MB differs from its golden
// image in some 50 pages, a notebook of 100 MB in all.
func BenchmarkResume(b *testing.B) {
	for _, tt := range []struct {
		megabytes int
		harness   string
		inputs    []string // all turns but the one that is measured, which repeats the last
	}{
		{3, "counter", []string{"1", "2", "3"}},
		{100, "notebook", []string{"fill 50", "fill 50", "size"}},
	} {
		b.Run(fmt.Sprintf("MB=%d", tt.megabytes), func(b *testing.B) {
			dir := b.TempDir()
			open := func() *edge.Host {
				h, err := edge.Open(dir, edge.Options{CacheDir: testCache(b)})
				if err != nil {
					b.Fatal(err)
				}
				return h
			}
			h := open()
			create := func() abi.SessionID {
				s, err := h.Create(context.Background(), host.CreateRequest{Harness: bundled(b, tt.harness)})
				if err != nil {
					b.Fatal(err)
				}
				return s.UID
			}
			say := func(uid abi.SessionID, text string) time.Duration {
				start := time.Now()
				e, err := h.Exec(context.Background(), host.ExecRequest{Session: uid, Inputs: []abi.Message{abi.Text(abi.RoleUser, text)}})
				if err != nil || e.State != abi.StateCompleted {
					b.Fatalf("%q: %+v, %v", text, e, err)
				}
				return time.Since(start)
			}
			closing := func() {
				if err := h.Close(); err != nil {
					b.Fatal(err)
				}
			}
			uid := create()
			for _, text := range tt.inputs {
				say(uid, text)
			}
			last := tt.inputs[len(tt.inputs)-1]
			var cold, warm []time.Duration
			for b.Loop() {
				b.StopTimer()
				closing()
				h = open()
				other := create()
				say(other, last)
				b.StartTimer()
				cold = append(cold, say(uid, last))
				b.StopTimer()
				warm = append(warm, say(uid, last))
				b.StartTimer()
			}
			closing()
			more := median(b, cold, "cold-µs") - median(b, warm, "warm-µs")
			b.ReportMetric(float64(more)/float64(time.Microsecond), "resume-µs")
			b.ReportMetric(float64(tt.megabytes<<20)/float64(more.Nanoseconds()), "GB/s")
		})
	}
	content, to := make([]byte, 100<<20), make([]byte, 100<<20)
	b.Run("reference/SHA-256/MB=100", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			sha256.Sum256(content)
		}
	})
	b.Run("reference/copy/MB=100", func(b *testing.B) {
		for b.Loop() {
			copy(to, content)
		}
	})
}

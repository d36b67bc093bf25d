package wasm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/rewrite"
)

// BenchmarkLoad is what a process pays before the first turn of a harness in Go
// that was compiled before.
func BenchmarkLoad(b *testing.B) {
	code := bundledModule(b, "echo")
	cfg := Config{CacheDir: testCacheDir(b)}
	loaded(b, newEngine(b, cfg), code)
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			e, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			loaded(b, e, code)
			if err := e.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("rewrite", func(b *testing.B) {
		e := newEngine(b, cfg)
		for b.Loop() {
			if _, err := e.prepare(code); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("translate", func(b *testing.B) {
		m, err := rewrite.Rewrite(code, rewrite.Options{Allowed: newEngine(b, cfg).allowed})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			e, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			if _, _, err := e.translate(b.Context(), m.Code); err != nil {
				b.Fatal(err)
			}
			if err := e.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkInstantiate is what a session pays for its cell.
func BenchmarkInstantiate(b *testing.B) {
	c := loaded(b, newEngine(b, Config{CacheDir: testCacheDir(b)}), bundledModule(b, "echo"))
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			cell, err := c.newCell()
			if err == nil {
				err = cell.makeGolden()
			}
			if err != nil {
				b.Fatal(err)
			}
			cell.free()
		}
	})
	b.Run("pooled", func(b *testing.B) {
		for b.Loop() {
			in, err := c.Instantiate()
			if err != nil {
				b.Fatal(err)
			}
			in.Stop()
		}
	})
}

// BenchmarkRun is the smallest turn of a harness in Go without its host: from
// the golden state, as a session of a harness without memory has it, and going
// on in one instance.
func BenchmarkRun(b *testing.B) {
	c := loaded(b, newEngine(b, Config{CacheDir: testCacheDir(b)}), bundledModule(b, "echo"))
	run := func(b *testing.B, in *Instance) {
		out, err := in.Run(b.Context(), Turn{}, &chatWorld{input: "12"})
		if err != nil || out.Reason != abi.ReasonCompleted {
			b.Fatalf("outcome %v %v, %v", out.Reason, out.Err, err)
		}
	}
	b.Run("golden", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			in := instantiate(b, c)
			run(b, in)
			in.Stop()
		}
	})
	b.Run("same", func(b *testing.B) {
		b.ReportAllocs()
		in := instantiate(b, c)
		for b.Loop() {
			run(b, in)
		}
	})
}

// BenchmarkSmallImages is what a turn costs its cell's memory, mapped or copied: it writes to
// some pages and these are found. A fresh cell comes to the image before, one from
// the pool goes back to it afterwards.
func BenchmarkSmallImages(b *testing.B) {
	for _, kb := range []int{64, 256, 1024, 4096} {
		for _, fresh := range []bool{true, false} {
			for _, memory := range memories(b) {
				if memory == MemoryFile {
					continue
				}
				b.Run(fmt.Sprintf("KB=%d/fresh=%t/%s", kb, fresh, memory), func(b *testing.B) {
					benchmarkSmall(b, memory, bytes.Repeat([]byte{7}, kb<<10), fresh)
				})
			}
		}
	}
}

func benchmarkSmall(b *testing.B, memory Memory, content []byte, fresh bool) {
	by, err := newBackend(memory)
	if err != nil {
		b.Fatal(err)
	}
	defer by.close()
	g := newGoldenMemory(by, content)
	defer g.close()
	r := by.region()
	defer r.free()
	mem, err := r.resize(g.size())
	if err == nil {
		err = r.become(g)
	}
	if err != nil {
		b.Fatal(err)
	}
	const writes = 8
	own := base{golden: g.content}
	var list []uint32
	for b.Loop() {
		if fresh {
			if err := r.become(g); err != nil {
				b.Fatal(err)
			}
		}
		for i := range writes {
			mem[i*abi.PageSize]++
		}
		list = r.touched(list[:0], len(mem)/abi.PageSize)
		changed := own.compare(mem, list)
		if len(changed) != writes {
			b.Fatal(len(changed))
		}
		for _, i := range changed {
			copy(mem[int(i)*abi.PageSize:][:abi.PageSize], own.goldenPage(int(i)))
		}
	}
}

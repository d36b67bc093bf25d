package wasm

import (
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

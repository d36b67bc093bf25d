package wasm

import (
	"testing"

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

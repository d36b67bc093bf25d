package extism_test

import (
	"slices"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/extism"
	"github.com/agentcell/agentcell/sdk/abi"
)

// BenchmarkCall is what a call costs: of a small plug-in and of one of 1.8 MB, which
// counts vowels; warm, with the module compiled, in its own sandbox as always; "loaded",
// the first in a process, whose compiled module is on disk; and "cold", the first ever.
func BenchmarkCall(b *testing.B) {
	small, vowels := other(b, "hello.wasm"), other(b, "count_vowels.wasm")
	hello := extism.Manifest{Export: "run_test"}
	count := extism.Manifest{Export: "count_vowels", Input: "text"}
	run := func(b *testing.B, fresh func() *extism.Plugins, code []byte, m extism.Manifest) {
		call := tool.Call{ToolCall: abi.ToolCall{ID: "c1", Args: abi.Struct(`{"text":"hello world"}`)}}
		pinned, p := module(code), fresh()
		var took []time.Duration
		b.ReportAllocs()
		for b.Loop() {
			e := p.Executor(pinned, m)
			start := time.Now()
			if _, err := e.Call(b.Context(), call); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
			p = fresh()
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	}
	b.Run("warm/small", func(b *testing.B) {
		p := plugins(b, extism.Options{})
		run(b, func() *extism.Plugins { return p }, small, hello)
	})
	b.Run("warm/vowels", func(b *testing.B) {
		p := plugins(b, extism.Options{})
		run(b, func() *extism.Plugins { return p }, vowels, count)
	})
	b.Run("loaded/vowels", func(b *testing.B) {
		cache := testCache(b)
		if _, err := call(b, plugins(b, extism.Options{CacheDir: cache}), vowels, count, `{"text":""}`); err != nil {
			b.Fatal(err)
		}
		run(b, func() *extism.Plugins { return plugins(b, extism.Options{CacheDir: cache}) }, vowels, count)
	})
	b.Run("cold/vowels", func(b *testing.B) {
		run(b, func() *extism.Plugins { return plugins(b, extism.Options{}) }, vowels, count)
	})
}

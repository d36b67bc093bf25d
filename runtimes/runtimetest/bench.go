package runtimetest

import (
	"context"
	"testing"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Benchmark measures what a host pays a runtime for, with a port that answers
// at once.
func Benchmark(b *testing.B, open Open) {
	f := &fixture{Fixture: open(b)}
	b.Cleanup(func() { _ = f.Runtime.Close(context.Background()) })
	for _, m := range []runtimes.Module{f.Echo, f.Counter} { // loading is not measured
		if _, err := f.Runtime.Describe(b.Context(), m); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("fresh_turn", func(b *testing.B) { benchmarkFresh(b, f) })
	b.Run("next_turn", func(b *testing.B) { benchmarkNext(b, f, false) })
	if f.Runtime.Capabilities().MemorySnapshot {
		b.Run("fresh_turn_snapshot", func(b *testing.B) { benchmarkFreshSnapshot(b, f) })
		b.Run("next_turn_snapshot", func(b *testing.B) { benchmarkNext(b, f, true) })
		b.Run("restored_turn", func(b *testing.B) { benchmarkRestored(b, f) })
	}
}

// benchmarkFresh is a turn of a stateless harness, from the golden state.
func benchmarkFresh(b *testing.B, f *fixture) {
	b.ReportAllocs()
	for b.Loop() {
		in := f.start(b, f.Echo)
		completed(b, in, 1, newPort("hi"))
		_ = in.Stop(b.Context())
	}
}

// benchmarkFreshSnapshot is the same with the state that END's root needs.
func benchmarkFreshSnapshot(b *testing.B, f *fixture) {
	b.ReportAllocs()
	for b.Loop() {
		in := f.start(b, f.Echo)
		completed(b, in, 1, newPort("hi"))
		readAll(b, snapshotOf(b, in))
		_ = in.Stop(b.Context())
	}
}

// benchmarkNext is a turn in a living incarnation.
func benchmarkNext(b *testing.B, f *fixture, snapshot bool) {
	in := f.start(b, f.Counter)
	b.Cleanup(func() { _ = in.Stop(context.Background()) })
	completed(b, in, 1, newPort("1"))
	b.ReportAllocs()
	for b.Loop() {
		completed(b, in, 1, newPort("1"))
		if snapshot {
			readAll(b, snapshotOf(b, in))
		}
	}
}

// benchmarkRestored is a turn from a saved image.
func benchmarkRestored(b *testing.B, f *fixture) {
	in := f.start(b, f.Counter)
	completed(b, in, 1, newPort("1"))
	img := f.snapshot(b, in, f.Counter).image(f.golden(b, f.Counter))
	_ = in.Stop(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		in, err := f.Runtime.(runtimes.Restorer).Restore(b.Context(), f.Counter, img)
		if err != nil {
			b.Fatal(err)
		}
		completed(b, in, 1, newPort("1"))
		readAll(b, snapshotOf(b, in))
		_ = in.Stop(b.Context())
	}
}

// start is create without the clean-up, which would pile up in a loop.
func (f *fixture) start(b *testing.B, m runtimes.Module) runtimes.Incarnation {
	in, err := f.Runtime.Create(b.Context(), m)
	if err != nil {
		b.Fatal(err)
	}
	return in
}

func readAll(b *testing.B, img runtimes.Image) {
	var page [abi.PageSize]byte
	for _, i := range img.Changed {
		if err := img.Pages.ReadPage(i, page[:]); err != nil {
			b.Fatal(err)
		}
	}
}

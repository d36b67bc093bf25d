//go:build !linux

package wasm

import (
	"testing"

	"pgregory.net/rapid"
)

func moveRegion(*rapid.T, region, int) {}

func swapOut(region) {}

// present: there is no simple way to count pages here.
func present(t *testing.T, _ []byte) int {
	t.Skip("pages are counted on Linux only")
	return 0
}

func eachTracker(b *testing.B, run func(b *testing.B, by backend)) {
	by, err := newBackend(MemoryAuto)
	if err != nil {
		b.Fatal(err)
	}
	defer by.close()
	run(b, by)
}

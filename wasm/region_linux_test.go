package wasm

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

func newMapped(t *testing.T, content []byte) (*mapped, *goldenMemory) {
	t.Helper()
	if err := MappedMemory(); err != nil {
		if os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" && runtime.GOARCH == "amd64" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	g := newGoldenMemory(content)
	t.Cleanup(g.close)
	if g.file == nil {
		t.Fatal("MappedMemory says that memory can be mapped, and it was not")
	}
	r := new(mapped)
	t.Cleanup(r.free)
	if _, err := r.resize(len(content)); err != nil {
		t.Fatal(err)
	}
	if err := r.become(g); err != nil {
		t.Fatal(err)
	}
	return r, g
}

func touchedPages(r *mapped) []uint32 { return r.touched(nil, len(r.bytes)/abi.PageSize) }

func TestMappedTellsWhatWasTouched(t *testing.T) {
	content := bytes.Repeat([]byte{7}, 32*abi.PageSize)
	r, g := newMapped(t, content)
	if !bytes.Equal(r.bytes, content) {
		t.Fatal("the region is not what it became")
	}
	if got := touchedPages(r); len(got) != 0 {
		t.Errorf("touched by reading: %v", got)
	}
	r.bytes[3*abi.PageSize+5] = 1
	r.bytes[31*abi.PageSize] = 7 // what was there
	if diff := cmp.Diff([]uint32{3, 31}, touchedPages(r)); diff != "" {
		t.Errorf("touched (-want +got):\n%s", diff)
	}
	twin, err := new(mapped), error(nil)
	defer twin.free()
	if _, err = twin.resize(len(content)); err == nil {
		err = twin.become(g)
	}
	if err != nil || !bytes.Equal(twin.bytes, content) {
		t.Errorf("M3: a write is seen in another region (%v)", err)
	}
	if err := r.become(g); err != nil || !bytes.Equal(r.bytes, content) || len(touchedPages(r)) != 0 {
		t.Errorf("not as it was: %v, touched %v", err, touchedPages(r))
	}
}

func TestMappedGrows(t *testing.T) {
	content := bytes.Repeat([]byte{7}, 16*abi.PageSize)
	r, _ := newMapped(t, content)
	r.bytes[2*abi.PageSize] = 1
	want := bytes.Clone(r.bytes)
	grow := func(n int) {
		t.Helper()
		if _, err := r.resize(n); err != nil {
			t.Fatal(err)
		}
		want = append(want, make([]byte, n-len(want))...)
		if !bytes.Equal(r.bytes, want) {
			t.Fatalf("%d bytes: the content changed", n)
		}
	}
	touched := touchedPages(r)
	grow(2 * wasmPage)
	r.bytes[20*abi.PageSize], want[20*abi.PageSize] = 3, 3
	if got := touchedPages(r); !slices.Contains(got, 2) || !slices.Contains(got, 20) || len(touched) != 1 {
		t.Errorf("touched %v, then %v", touched, got)
	}
	grow(reservation)
	grow(reservation + wasmPage)
	// It has moved and is no mapping any more, so every page counts.
	if got := len(touchedPages(r)); got != len(want)/abi.PageSize {
		t.Errorf("touched %d pages", got)
	}
}

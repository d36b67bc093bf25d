package wasm

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// memoryOf puts the memory of an image together, told against base.
func memoryOf(t testing.TB, img Image, base []byte) []byte {
	t.Helper()
	mem := make([]byte, img.Size)
	copy(mem, base)
	for _, i := range img.Changed {
		if err := img.Pages.ReadPage(i, mem[int(i)*abi.PageSize:][:abi.PageSize]); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

func TestIdleCellsAreBounded(t *testing.T) {
	e := newEngine(t, Config{MaxIdle: 3})
	c := loaded(t, e, guest{run: "i32.const 0"}.bytes())
	var all []*Instance
	for range 10 {
		all = append(all, instantiate(t, c))
	}
	for _, in := range all {
		in.Stop()
	}
	if n := len(c.pool.idle); n != 3 {
		t.Errorf("%d idle cells", n)
	}
}

// bump adds one to a byte on page 3 and to a global, and grows on request.
func bump(grow bool) []byte {
	g := guest{module: wasmtest.Module{Globals: []wasmtest.Global{{Type: "i64", Mutable: true, Init: "i64.const 0"}}}}
	g.run = "i32.const 12288 i32.const 12288 i32.load8_u i32.const 1 i32.add i32.store8 global.get 0 i64.const 1 i64.add global.set 0 "
	if grow {
		g.run += "i32.const 1 memory.grow drop memory.size i32.const 65536 i32.mul i32.const 1 i32.sub i32.const 7 i32.store8 "
	}
	g.run += "i32.const 0"
	return g.bytes()
}

func TestM1_RestoreGivesTheState(t *testing.T) {
	onMemories(t, func(t *testing.T, e *Engine) {
		for _, grow := range []bool{false, true} {
			c := loaded(t, e, bump(grow))
			kept := memoryOf(t, c.Golden(), nil)
			img := c.Golden()
			img.Changed = nil
			for turn := range 3 {
				in, err := c.Restore(img)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := in.Run(t.Context(), Turn{}, &world{}); err != nil {
					t.Fatal(err)
				}
				snap, err := in.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				want := []uint32{3}
				if grow {
					want = append(want, uint32(snap.Size/abi.PageSize)-1)
				}
				if diff := cmp.Diff(want, snap.Changed); diff != "" {
					t.Errorf("turn %d, changed (-want +got):\n%s", turn, diff)
				}
				kept = memoryOf(t, snap, kept)
				if kept[12288] != byte(turn+1) || snap.Globals[0].Value[0] != byte(turn+1) {
					t.Errorf("turn %d: memory %d, global %d", turn, kept[12288], snap.Globals[0].Value[0])
				}
				img = snap
				img.Changed = nil
				for i := range uint32(snap.Size / abi.PageSize) {
					img.Changed = append(img.Changed, i)
				}
				img.Pages = pagesOf(kept)
				in.Stop()
			}
		}
	})
}

func TestRestoreRefusesOtherImages(t *testing.T) {
	e := newEngine(t, Config{})
	c := loaded(t, e, bump(false))
	broken := errors.New("broken disk")
	for _, test := range []struct {
		name string
		edit func(*Image)
		want string
	}{
		{"smaller", func(i *Image) { i.Size = 0 }, "0 bytes"},
		{"odd size", func(i *Image) { i.Size += abi.PageSize }, "does not belong"},
		{"huge", func(i *Image) { i.Size = 1 << 40 }, "does not belong"},
		{"no globals", func(i *Image) { i.Globals = nil }, "0 globals"},
		{"another type", func(i *Image) { i.Globals = []abi.Global{{Type: 0x7d}} }, "type 0x7d"},
		{"before golden", func(i *Image) { i.Clock-- }, "clock"},
		{"page beyond", func(i *Image) { i.Changed = []uint32{16} }, "page 16"},
		{"page far beyond", func(i *Image) { i.Changed = []uint32{1<<32 - 1} }, "page 4294967295"},
		{"out of order", func(i *Image) { i.Changed = []uint32{2, 1} }, "page 1"},
		{"unreadable", func(i *Image) { i.Changed = []uint32{2}; i.Pages = unreadable{broken} }, "broken disk"},
	} {
		t.Run(test.name, func(t *testing.T) {
			img := c.Golden()
			img.Changed = nil
			test.edit(&img)
			if _, err := c.Restore(img); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	if img, err := instantiate(t, c).Snapshot(); err != nil || len(img.Changed) != 0 {
		t.Errorf("after that: %v, %v", img.Changed, err)
	}
}

type unreadable struct{ err error }

func (u unreadable) ReadPage(uint32, []byte) error { return u.err }

// The pages of a snapshot are gone with the next turn and with Stop, and never
// become another tenant's.
func TestM3_SnapshotsEnd(t *testing.T) {
	e := newEngine(t, Config{})
	c := loaded(t, e, bump(false))
	in := instantiate(t, c)
	run := func() Image {
		if _, err := in.Run(t.Context(), Turn{}, &world{}); err != nil {
			t.Fatal(err)
		}
		img, err := in.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	var p page
	first := run()
	second := run()
	if err := first.Pages.ReadPage(3, p[:]); !errors.Is(err, ErrStopped) {
		t.Errorf("the first snapshot: %v", err)
	}
	if err := second.Pages.ReadPage(3, p[:]); err != nil || p[0] != 2 {
		t.Errorf("the second snapshot: %d, %v", p[0], err)
	}
	in.Stop()
	if err := second.Pages.ReadPage(3, p[:]); !errors.Is(err, ErrStopped) {
		t.Errorf("after stop: %v", err)
	}
}

func TestStopWhileOthersWork(t *testing.T) {
	e := newEngine(t, Config{})
	c := loaded(t, e, bump(false))
	for range 50 {
		in, err := c.Instantiate()
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if _, err := in.Run(t.Context(), Turn{}, &world{}); err != nil {
					return
				}
				img, err := in.Snapshot()
				if err != nil {
					return
				}
				var p page
				for _, i := range img.Changed {
					_ = img.Pages.ReadPage(i, p[:])
				}
			}
		})
		wg.Go(in.Stop)
		wg.Go(in.Stop)
		wg.Wait()
		if in.Status() != Stopped {
			t.Fatalf("status %d", in.Status())
		}
	}
}

func TestShortageIsNotTheGuestsToSee(t *testing.T) {
	lacking := errors.New("cannot allocate memory")
	onEngines(t, func(t *testing.T, e *Engine) {
		g := guest{run: "i32.const 1 memory.grow drop i32.const 0"}
		in := instantiate(t, loaded(t, e, g.bytes()))
		in.cell.mem.region = exhausted{in.cell.mem.region, lacking}
		out, err := in.Run(t.Context(), Turn{}, &world{})
		if !errors.Is(err, ErrShortage) || !errors.Is(err, lacking) || out != (Outcome{Fuel: out.Fuel}) {
			t.Errorf("outcome %v, %v", out, err)
		}
		if strings.Contains(err.Error(), "recovered") {
			t.Errorf("the engine shows: %v", err)
		}
	})
}

// exhausted is a region that cannot grow.
type exhausted struct {
	region
	err error
}

func (r exhausted) resize(int) ([]byte, error) { return nil, r.err }

func TestBaseFollowsMemory(t *testing.T) {
	golden := bytes.Repeat([]byte{1}, 4*abi.PageSize)
	b := base{golden: golden, pages: &sync.Pool{New: func() any { return new(page) }}}
	mem := slices.Concat(golden, make([]byte, 2*abi.PageSize)) // grown
	for i, step := range []struct {
		page int
		set  byte
		want []uint32
	}{
		{1, 1, nil},
		{1, 2, []uint32{1}},
		{1, 2, nil},
		{5, 9, []uint32{5}},
		{4, 0, nil},
		{1, 1, []uint32{1}}, // as golden again, but not as before
		{5, 0, []uint32{5}},
	} {
		mem[step.page*abi.PageSize] = step.set
		changed := b.compare(mem, allPages(nil, 6))
		if diff := cmp.Diff(step.want, changed); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
		b.take(mem, changed)
		for p := range 6 {
			if !bytes.Equal(b.page(p), mem[p*abi.PageSize:][:abi.PageSize]) {
				t.Errorf("step %d: page %d differs", i, p)
			}
		}
	}
}

// A page that a turn brings back to what an older snapshot had has changed all
// the same.
func TestChangedIsToldAgainstTheTurnsBeginning(t *testing.T) {
	flip := guest{run: "i32.const 12288 i32.const 12288 i32.load8_u i32.const 1 i32.xor i32.store8 i32.const 0"}
	onEngines(t, func(t *testing.T, e *Engine) {
		in := instantiate(t, loaded(t, e, flip.bytes()))
		for range 2 { // the second turn undoes the first, of which there is no snapshot
			if _, err := in.Run(t.Context(), Turn{}, &world{}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			img, err := in.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]uint32{3}, img.Changed); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
		}
	})
}

package wasm

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// tenant does what its start says: 'f' fills all that a guest can write with a
// marker, and leaves an answer half read and a line without end; 'i' traps if it
// finds anything that is not golden.
func tenant() guest {
	const next = " local.get 0 i32.const 8 i32.add local.tee 0 i32.const 131072 i32.ne br_if 0 "
	return guest{
		imports: append(allOps(), moduleWASI+".fd_write", moduleWASI+".clock_time_get"),
		locals:  "i32 i32",
		module: wasmtest.Module{
			Memories: []wasmtest.Memory{{Min: 2, Export: "memory"}},
			Globals: []wasmtest.Global{
				{Type: "i32", Mutable: true, Init: "i32.const 1"},
				{Type: "i64", Mutable: true, Init: "i64.const 2"},
				{Type: "f32", Mutable: true, Init: "f32.const 3"},
				{Type: "f64", Mutable: true, Init: "f64.const 4"},
			},
		},
		run: `
			i32.const 0 i32.const 8 call $read` + wantI32(0) + `
			i32.const 0 i32.const 0 call $start drop
			i32.const 0 i32.const 1 call $read` + wantI32(1) + `
			i32.const 0 i32.load8_u local.set 1
			i32.const 0 i32.const 0 i32.store8
			local.get 1 i32.const 102 i32.eq
			if
				i32.const 0 i32.const 16 i32.store
				i32.const 4 i32.const 4 i32.store
				i32.const 1 i32.const 0 i32.const 1 i32.const 8 call $fd_write drop
				i32.const 0 i32.const 0 call $model drop
				loop
					local.get 0 i64.const 0x5555555555555555 i64.store` + next + `
				end
				i32.const 0x55 global.set 0
				i64.const 0x55 global.set 1
				f32.const 5.5 global.set 2
				f64.const 5.5 global.set 3
			else
				loop
					local.get 0 i64.load i64.const 0 i64.ne if unreachable end` + next + `
				end
				global.get 0 i32.const 1 i32.ne if unreachable end
				global.get 1 i64.const 2 i64.ne if unreachable end
				global.get 2 f32.const 3 f32.ne if unreachable end
				global.get 3 f64.const 4 f64.ne if unreachable end
			end
			i32.const 0`,
	}
}

func starting(text string) *world {
	return &world{answers: map[abi.Op]Response{abi.OpStart: {Body: []byte(text)}, abi.OpModel: {Body: []byte("the answer")}}}
}

func TestM3_NextTenantFindsNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e *Engine) {
		c := loaded(t, e, tenant().bytes())
		golden := memoryOf(t, c.Golden(), nil)
		for i := range 8 {
			snapshot := i%2 == 1
			switch i {
			case 4: // cells are mapped from the golden memory, but no one tells what they touched
				c.memory.close()
			case 6: // cells are copies of the golden memory
				instantiate(t, c)
			}
			first := instantiate(t, c)
			used := first.cell
			out, err := first.Run(t.Context(), Turn{Start: time.Unix(2_000_000_000, 0), Seed: [32]byte{1}}, starting("f?"))
			if err != nil || out.Reason != abi.ReasonCompleted {
				t.Fatal(out, err)
			}
			if snapshot {
				img, err := first.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(memoryOf(t, img, golden), bytes.Repeat([]byte{0x55}, int(img.Size))) {
					t.Fatal("the first tenant has not filled its memory")
				}
			}
			first.Stop()
			second := instantiate(t, c)
			if second.cell != used {
				t.Fatal("the cell was not used again; the test shows nothing")
			}
			img, err := second.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(memoryOf(t, img, golden), golden) || !bytes.Equal(used.mem.bytes(), golden) {
				t.Error("memory is left")
			}
			if diff := cmp.Diff(c.Golden().Globals, img.Globals); diff != "" || img.Clock != int64(goldenClock) {
				t.Errorf("clock %d, globals (-golden +next):\n%s", img.Clock, diff)
			}
			w := starting("i?")
			if out, err := second.Run(t.Context(), Turn{}, w); err != nil || out.Reason != abi.ReasonCompleted {
				t.Errorf("the next tenant: %v %v, %v", out.Reason, out.Err, err)
			}
			if diff := cmp.Diff([]string{"start "}, w.asked); diff != "" {
				t.Errorf("the next tenant asked (-want +got):\n%s", diff)
			}
			second.Stop()
			first.Stop() // must not reach the cell any more
		}
	})
}

// A cell is used again only if its guest has simply returned, and one whose
// memory has grown only for an image as large.
func TestM3_WhichCellsAreUsedAgain(t *testing.T) {
	for _, test := range []struct {
		name  string
		run   string
		again bool
	}{
		{"completed", "i32.const 0", true},
		{"failed", "i32.const 1", false},
		{"trapped", "unreachable", false},
		{"exited", "i32.const 0 call $proc_exit i32.const 0", false},
		{"grown", "i32.const 1 memory.grow drop i32.const 0", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEngine(t, Config{MaxIdle: 1})
			c := loaded(t, e, guest{run: test.run, imports: []string{moduleWASI + ".proc_exit"}}.bytes())
			in := instantiate(t, c)
			cell := in.cell
			if _, err := in.Run(t.Context(), Turn{}, &world{}); err != nil {
				t.Fatal(err)
			}
			in.Stop()
			next := instantiate(t, c)
			if (next.cell == cell) != test.again {
				t.Errorf("used again: %v", !test.again)
			}
			if img, err := next.Snapshot(); err != nil || img.Size != wasmPage || len(img.Changed) != 0 {
				t.Errorf("the next one: %d bytes, pages %v, %v", img.Size, img.Changed, err)
			}
		})
	}
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
	onEngines(t, func(t *testing.T, e *Engine) {
		for i, grow := range []bool{false, true, false, true} {
			c := loaded(t, e, bump(grow))
			if i >= 2 { // without mappings
				c.memory.close()
				instantiate(t, c)
			}
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
		if !errors.Is(err, ErrShortage) || !errors.Is(err, lacking) || out != (Outcome{}) {
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

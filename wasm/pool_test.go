package wasm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// filler makes its memory pages (of WebAssembly) long and puts a marker into
// each 8 bytes of it.
func filler(pages int) []byte {
	return guest{
		locals: "i32",
		run: fmt.Sprintf(`
			i32.const %d memory.size i32.sub memory.grow drop
			loop
				local.get 0 i64.const 0x5555555555555555 i64.store
				local.get 0 i32.const 8 i32.add local.tee 0 i32.const %d i32.ne br_if 0
			end
			i32.const 0`, pages, pages*wasmPage),
	}.bytes()
}

// sized is the golden image with that much memory.
func sized(c *Compiled, size uint64) Image {
	img := c.Golden()
	img.Size, img.Changed = size, nil
	return img
}

// A cell whose memory has grown is used again, for images that are as large, and
// nothing is left in any page of it.
func TestM3_GrownCells(t *testing.T) {
	const many = maxTouched*abi.PageSize/wasmPage + 1 // more than an idle cell may hold
	onMemories(t, func(t *testing.T, e *Engine) {
		for _, pages := range []int{1, 3, many} {
			for _, snapshot := range []bool{true, false} {
				t.Run(fmt.Sprintf("pages=%d,snapshot=%v", pages, snapshot), func(t *testing.T) {
					testGrown(t, loaded(t, newEngine(t, e.cfg), filler(pages)), uint64(pages*wasmPage), snapshot)
				})
			}
		}
	})
}

func testGrown(t *testing.T, c *Compiled, size uint64, snapshot bool) {
	golden := memoryOf(t, c.Golden(), nil)
	restore := func(size uint64) *Instance {
		t.Helper()
		in, err := c.Restore(sized(c, size))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(in.Stop)
		return in
	}
	first := instantiate(t, c)
	cell := first.cell
	if out, err := first.Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
		t.Fatal(out, err)
	}
	if snapshot {
		img, err := first.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(memoryOf(t, img, golden), bytes.Repeat([]byte{0x55}, int(size))) {
			t.Fatal("the first tenant has not filled its memory")
		}
	}
	first.Stop()

	if size > wasmPage {
		if instantiate(t, c).cell == cell || restore(size-wasmPage).cell == cell {
			t.Error("a tenant got more memory than its image has")
		}
	}
	larger := size + wasmPage
	next := restore(larger)
	if next.cell != cell {
		t.Fatal("the cell was not used again; the test shows nothing")
	}
	want := append(bytes.Clone(golden), make([]byte, int(larger)-len(golden))...)
	if !bytes.Equal(cell.mem.bytes(), want) {
		t.Error("memory is left")
	}
	if img, err := next.Snapshot(); err != nil || img.Size != larger || len(img.Changed) != 0 {
		t.Errorf("the next tenant has %d bytes, and pages %v differ from its image: %v", img.Size, img.Changed, err)
	}
}

// The pool gives the largest cell that fits.
func TestPoolFits(t *testing.T) {
	c := loaded(t, newEngine(t, Config{}), bump(false))
	cells := map[uint64]*cell{}
	for _, pages := range []uint64{5, 2, 4} {
		in, err := c.Restore(sized(c, pages*wasmPage))
		if err != nil {
			t.Fatal(err)
		}
		cells[pages] = in.cell
		defer in.Stop()
	}
	for _, cell := range cells {
		cell.recycle()
	}
	for _, step := range []struct{ pages, want uint64 }{{3, 2}, {9, 5}, {4, 4}} {
		if got := c.pool.get(step.pages * wasmPage); got != cells[step.want] {
			t.Errorf("for %d pages: not the cell of %d", step.pages, step.want)
		}
	}
}

// Of the idle cells that nobody needs half are freed at a time, and a few stay.
func TestPoolTrims(t *testing.T) {
	c := loaded(t, newEngine(t, Config{}), bump(false))
	use := func() {
		var all []*Instance
		for range 20 {
			all = append(all, instantiate(t, c))
		}
		for _, in := range all {
			in.Stop()
		}
	}
	var left []int
	trim := func() {
		c.pool.timer.Stop()
		c.pool.trim()
		left = append(left, len(c.pool.idle))
	}
	use()
	trim() // the timer was set when three were idle
	use()
	trim() // all were needed
	for c.pool.timer != nil {
		trim()
	}
	if got := fmt.Sprint(left); got != "[18 20 10 5 2]" {
		t.Errorf("left: %s", got)
	}
	bytes := 0
	for _, cell := range c.pool.idle {
		bytes += cell.held
	}
	if bytes != c.pool.bytes {
		t.Errorf("%d bytes are held, %d are counted", bytes, c.pool.bytes)
	}
	in := instantiate(t, c)
	if out, err := in.Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
		t.Errorf("a turn after that: %v, %v", out, err)
	}
}

func TestDefaultRoom(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, test := range []struct {
		memory uint64
		bits   int
		want   room
	}{
		{0, 64, room{512, 256 * mib, 512 * mib}},
		{64 * gib, 64, room{512, 256 * mib, 512 * mib}},
		{gib, 64, room{512, 64 * mib, 128 * mib}},
		{128 * mib, 64, room{512, 8 * mib, 16 * mib}},
		{4096, 64, room{512, mib, mib}},
		{gib, 32, room{32, 64 * mib, 128 * mib}},
		{512 * mib, 32, room{32, 32 * mib, 64 * mib}},
	} {
		if got := defaultRoom(test.memory, test.bits); got != test.want {
			t.Errorf("%d bytes, %d bits: %+v, want %+v", test.memory, test.bits, got, test.want)
		}
	}
}

// The function of a turn, and with it its stack, is kept for the next turn of the same
// tenant, unless the guest has made it large.
func TestRunnerIsKept(t *testing.T) {
	deep := func(frames int) []byte {
		return guest{
			module: wasmtest.Module{
				Memories: []wasmtest.Memory{{Min: 1, Export: "memory"}},
				Globals:  []wasmtest.Global{{Type: "i32", Mutable: true, Init: "i32.const 0"}},
			},
			run: fmt.Sprintf(`global.get 0 i32.const 1 i32.add global.set 0
				global.get 0 i32.const %d i32.rem_u if call $agent_run drop end
				i32.const 0`, frames),
		}.bytes()
	}
	for _, test := range []struct {
		frames      int
		interpreter bool
		keeps       bool
	}{{100, false, true}, {10_000, false, false}, {100, true, false}} {
		t.Run(fmt.Sprintf("frames=%d/interpreter=%t", test.frames, test.interpreter), func(t *testing.T) {
			in := instantiate(t, loaded(t, newEngine(t, Config{Interpreter: test.interpreter}), deep(test.frames)))
			completes(t, in)
			first := in.cell.run
			if keeps := first != nil; keeps != test.keeps {
				t.Errorf("kept: %v", keeps)
			}
			completes(t, in)
			cell := in.cell
			if cell.run != first {
				t.Error("the second turn has another one")
			}
			in.Stop()
			if cell.run != nil {
				t.Error("it is left to the next tenant")
			}
		})
	}
}

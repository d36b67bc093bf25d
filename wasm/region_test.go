package wasm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// eachBackend runs a test with each backend of this system.
func eachBackend(t *testing.T, test func(t *testing.T, b backend)) {
	t.Helper()
	for _, memory := range memories(t) {
		t.Run(string(memory), func(t *testing.T) {
			b, err := newBackend(memory)
			if err != nil {
				t.Fatal(err)
			}
			defer b.close()
			test(t, b)
		})
	}
}

func TestProbeMemory(t *testing.T) {
	for _, memory := range memories(t) {
		facts, err := ProbeMemory(memory)
		if err != nil || facts.Memory != memory || facts.Why != nil {
			t.Errorf("%q: %+v, %v", memory, facts, err)
		}
	}
	best, err := ProbeMemory(MemoryAuto)
	if err != nil || best.Memory != memories(t)[0] {
		t.Errorf("auto: %+v, %v; there are %v", best, err, memories(t))
	}
	if _, err := New(Config{Memory: "paper"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no such memory: %v", err)
	}
}

// model is what a region should hold, and may tell.
type model struct {
	t       *rapid.T
	r       region
	g       *goldenMemory
	bytes   []byte
	written map[uint32]bool // since it became g
}

// check holds the region to the model: what it does not call touched is as it became.
func (m *model) check() {
	n := len(m.bytes) / abi.PageSize
	mem, err := m.r.resize(len(m.bytes))
	if err != nil {
		m.t.Fatal(err)
	}
	if !bytes.Equal(mem, m.bytes) {
		m.t.Fatal("the region does not hold what was written")
	}
	touched := m.r.touched(nil, n)
	if !slices.IsSorted(touched) || len(touched) > 0 && int(touched[len(touched)-1]) >= n {
		m.t.Fatalf("touched: %v of %d pages", touched, n)
	}
	for page := range m.written {
		if _, ok := slices.BinarySearch(touched, page); !ok {
			m.t.Fatalf("page %d was written; touched: %v", page, touched)
		}
	}
	// What differs is found through what was touched, exactly.
	var want []uint32
	b := base{golden: m.g.content}
	for i := range n {
		if !bytes.Equal(mem[i*abi.PageSize:][:abi.PageSize], b.goldenPage(i)) {
			want = append(want, uint32(i))
		}
	}
	if diff := cmp.Diff(want, b.compare(mem, touched)); diff != "" {
		m.t.Fatalf("differs from what it became (-want +got):\n%s", diff)
	}
}

// TestRegions has all ways to hold memories go through the same random writes, growth
// in place and elsewhere, and images they become: each holds what was written, and tells
// which pages differ.
func TestRegions(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		var sources []*goldenMemory
		for i, pages := range []int{1, 2, 4} {
			content := bytes.Repeat([]byte{byte(i + 1)}, pages*wasmPage)
			clear(content[5*abi.PageSize : 9*abi.PageSize])
			g := newGoldenMemory(b, content)
			defer g.close()
			sources = append(sources, g, &goldenMemory{content: slices.Clone(content)}) // one that cannot be mapped
		}
		rapid.Check(t, func(t *rapid.T) { testRegion(t, b, sources) })
	})
}

func testRegion(t *rapid.T, b backend, sources []*goldenMemory) {
	m := &model{t: t, r: b.region()}
	defer func() { m.r.free() }()
	resize := func(n int) {
		mem, err := m.r.resize(n)
		if err != nil || len(mem) != n {
			t.Fatal(len(mem), err)
		}
		m.bytes = append(m.bytes, make([]byte, n-len(m.bytes))...)
	}
	become := func(t *rapid.T) {
		g := rapid.SampledFrom(sources).Draw(t, "image")
		resize(max(len(m.bytes), g.size()))
		if err := m.r.become(g); err != nil {
			t.Fatal(err)
		}
		m.g, m.written = g, map[uint32]bool{}
		clear(m.bytes[copy(m.bytes, g.content):])
	}
	page := func(t *rapid.T) uint32 {
		return rapid.Uint32Range(0, uint32(len(m.bytes)/abi.PageSize)-1).Draw(t, "page")
	}
	write := func(page uint32, value byte) {
		mem, err := m.r.resize(len(m.bytes))
		if err != nil {
			t.Fatal(err)
		}
		at := int(page)*abi.PageSize + int(page)%abi.PageSize
		mem[at], m.bytes[at] = value, value
		m.written[page] = true
	}
	become(t)
	t.Repeat(map[string]func(*rapid.T){
		"become": become,
		"write":  func(t *rapid.T) { write(page(t), rapid.Byte().Draw(t, "value")) },
		"write what is there": func(t *rapid.T) {
			i := page(t)
			write(i, m.bytes[int(i)*abi.PageSize+int(i)%abi.PageSize])
		},
		"write back": func(t *rapid.T) {
			i := page(t)
			at := int(i)*abi.PageSize + int(i)%abi.PageSize
			old := m.bytes[at]
			write(i, old+1)
			write(i, old)
		},
		"grow": func(t *rapid.T) {
			if len(m.bytes) < 20*wasmPage {
				resize(len(m.bytes) + rapid.IntRange(1, 3).Draw(t, "by")*wasmPage)
			}
		},
		"move": func(t *rapid.T) { moveRegion(t, m.r, len(m.bytes)) },
		"swap": func(*rapid.T) { swapOut(m.r) },
		"":     func(*rapid.T) { m.check() },
	})
}

// Growth beyond the limit is an answer to the guest, however its memory is held.
func TestS2_GrowthBeyondTheLimit(t *testing.T) {
	onMemories(t, func(t *testing.T, e *Engine) {
		for _, test := range []struct {
			run   string
			limit abi.Int64
		}{
			{"loop i32.const 1 memory.grow i32.const -1 i32.ne br_if 0 end memory.size i32.const 10 i32.ne", 10*wasmPage + 1},
			{"i32.const 10 memory.grow i32.const -1 i32.ne", 10 * wasmPage},
			{"i32.const 65535 memory.grow i32.const -1 i32.ne", 0},
			{"i32.const -1 memory.grow i32.const -1 i32.ne", 0},
		} {
			in := instantiate(t, loaded(t, e, guest{run: test.run}.bytes()))
			out, err := in.Run(t.Context(), Turn{Limits: abi.Limits{MemoryBytes: test.limit}}, &world{})
			if err != nil || out.Reason != abi.ReasonCompleted {
				t.Errorf("%s: outcome %v %v, %v", test.run, out.Reason, out.Err, err)
			}
		}
	})
}

// A copied region has room to grow, so that a guest that grows page by page does not
// copy its memory each time.
func TestCopiedGrows(t *testing.T) {
	r, moves := new(copied), 0
	var at *byte
	for n := wasmPage; n <= 1000*wasmPage; n += wasmPage {
		mem, err := r.resize(n)
		if err != nil || len(mem) != n || mem[n-1] != 0 {
			t.Fatal(len(mem), err)
		}
		if at != &mem[0] {
			at = &mem[0]
			moves++
		}
		mem[n-1] = 1
	}
	if moves > 25 {
		t.Errorf("it has moved %d times", moves)
	}
}

// An idle cell's memory, and what is told of it, come at the price of the pages that
// were touched; a new one has touched none, and neither has making it.
func TestNewCellsTouchNothing(t *testing.T) {
	for _, memory := range memories(t) {
		if memory == MemoryCopy {
			continue
		}
		t.Run(string(memory), func(t *testing.T) {
			e := newEngine(t, Config{Memory: memory, MaxIdle: -1})
			full := loaded(t, e, guest{run: "i32.const 0", module: wasmtest.Module{
				Memories: []wasmtest.Memory{{Min: 2, Export: "memory"}},
				Datas:    []wasmtest.Data{{Offset: 9, Bytes: bytes.Repeat([]byte{7}, wasmPage)}},
			}}.bytes())
			made, err := full.newCell()
			if err != nil {
				t.Fatal(err)
			}
			defer made.free()
			if n := present(t, made.mem.bytes()); n != 0 {
				t.Errorf("making a cell touches %d pages", n)
			}
			if mem := instantiate(t, full).cell.mem.bytes(); mem[8] != 0 || mem[9] != 7 || mem[wasmPage+8] != 7 || mem[wasmPage+9] != 0 {
				t.Error("a new cell has not what its module begins with")
			}
			c := loaded(t, e, filler(40))
			for _, in := range []*Instance{instantiate(t, c), restore(t, c, sized(c, 40*wasmPage))} {
				if n := present(t, in.cell.mem.bytes()); n != 0 {
					t.Errorf("%d pages are there before the first turn", n)
				}
				if out, err := in.Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
					t.Fatal(out, err)
				}
				if n := present(t, in.cell.mem.bytes()); n != 40*wasmPage/abi.PageSize {
					t.Errorf("%d pages are there after it", n)
				}
			}
		})
	}
}

// wanderer writes to so many pages of its 8 MiB in a turn, and begins the next where it
// has ended.
func wanderer(pages int) []byte {
	return guest{
		locals: "i32",
		module: wasmtest.Module{
			Memories: []wasmtest.Memory{{Min: 128, Export: "memory"}},
			Globals:  []wasmtest.Global{{Type: "i32", Mutable: true, Init: "i32.const 0"}},
		},
		run: fmt.Sprintf(`loop
				global.get 0 global.get 0 i32.load i32.const 1 i32.add i32.store
				global.get 0 i32.const 4096 i32.add i32.const 8388607 i32.and global.set 0
				local.get 0 i32.const 1 i32.add local.tee 0 i32.const %d i32.ne br_if 0
			end
			i32.const 0`, pages),
	}.bytes()
}

// Touched pages do not pile up over 200 turns, and each turn tells exactly what it
// has changed.
func TestTouchedPagesDoNotPileUp(t *testing.T) {
	onMemories(t, func(t *testing.T, e *Engine) {
		c := loaded(t, e, wanderer(100))
		in := instantiate(t, c)
		mem := memoryOf(t, c.Golden(), nil)
		var snap Image
		anew, most := 0, 0
		for turn := range 200 {
			flat := (*flat)(nil)
			if in.rest == nil {
				flat = in.cell.flat
			}
			completes(t, in)
			if in.cell.flat != flat {
				anew++
			}
			var err error
			if snap, err = in.Snapshot(); err != nil {
				t.Fatal(err)
			}
			var want []uint32
			for i := range 100 {
				page := (100*turn + i) % (len(mem) / abi.PageSize)
				mem[page*abi.PageSize]++
				want = append(want, uint32(page))
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, snap.Changed); diff != "" {
				t.Fatalf("turn %d (-want +got):\n%s", turn, diff)
			}
			most = max(most, len(in.cell.touched()))
			if turn%50 == 30 {
				if _, err := in.Rest(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !bytes.Equal(in.cell.mem.bytes(), mem) {
			t.Error("the memory is not what was written")
		}
		in.Stop()
		if n := len(c.flats.all); n != 0 {
			t.Errorf("%d images of the cell are left", n)
		}
		if e.Memory().Dirty == DirtyCompare {
			return
		}
		if anew < 5 || most > pileFrom+100 {
			t.Errorf("mapped anew %d times; %d pages were touched", anew, most)
		}
	})
}

// A small memory of which a turn writes little is mapped anew when enough pages have been
// compared in vain, from then on by writing what was touched to its own image. An instance
// that rests does not hold that.
func TestComparingInVainEnds(t *testing.T) {
	onMemories(t, func(t *testing.T, e *Engine) {
		const pages, turns = 3, 300
		c := loaded(t, e, wanderer(pages))
		in := instantiate(t, c)
		golden := memoryOf(t, c.Golden(), nil)
		mem := slices.Clone(golden)
		late := 0
		var own *flat
		for turn := range turns {
			completes(t, in)
			snap, err := in.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			var want []uint32
			for i := range pages {
				page := pages*turn + i
				mem[page*abi.PageSize]++
				want = append(want, uint32(page))
			}
			if diff := cmp.Diff(want, snap.Changed); diff != "" {
				t.Fatalf("turn %d (-want +got):\n%s", turn, diff)
			}
			if turn == turns/2 {
				own = in.cell.flat
			}
			if turn > turns/2 {
				late = max(late, len(in.cell.touched()))
			}
		}
		if e.Memory().Dirty != DirtyCompare {
			if !in.cell.owns() || in.cell.flat != own {
				t.Error("the cell does not go on with an image of its own")
			}
			if late > 40*pages {
				t.Errorf("%d pages were touched", late)
			}
		}
		if _, err := in.Rest(); err != nil {
			t.Fatal(err)
		}
		if n := len(c.flats.all); in.rest.flat != nil || n != 0 {
			t.Errorf("it rests on an image, and %d are kept", n)
		}
		if err := in.Wake(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(in.cell.mem.bytes(), mem) {
			t.Error("the memory is not what was written")
		}
		in.Stop()
		if next := instantiate(t, c); !bytes.Equal(next.cell.mem.bytes(), golden) {
			t.Error("memory is left to the next tenant")
		}
	})
}

// What cannot be written to the image of a cell's own changes nothing that a turn sees.
func TestOwnImageThatCannotBeWritten(t *testing.T) {
	e := newEngine(t, Config{})
	if e.Memory().Dirty == DirtyCompare {
		t.Skip("no cell has an image of its own here")
	}
	const pages = 3
	c := loaded(t, e, wanderer(pages))
	in := instantiate(t, c)
	var own *flat
	for turn := range 300 {
		completes(t, in)
		snap, err := in.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if len(snap.Changed) != pages {
			t.Fatalf("turn %d has changed %v", turn, snap.Changed)
		}
		if own == nil && in.cell.owns() {
			own = in.cell.flat
			if err := own.memory.file.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if own == nil || in.cell.flat != own || in.cell.vain <= vainTouched*len(in.cell.touched()) {
		t.Error("there was nothing to be written to the image; the test shows nothing")
	}
}

// BenchmarkDirty is what it takes to find the 24 pages that a turn has written.
func BenchmarkDirty(b *testing.B) {
	for _, mb := range []int{3, 100} {
		content := bytes.Repeat([]byte{7}, mb<<20)
		eachTracker(b, func(b *testing.B, by backend) {
			b.Run(fmt.Sprintf("MB=%d/%s", mb, by.facts().Dirty), func(b *testing.B) {
				g := newGoldenMemory(by, slices.Clone(content))
				defer g.close()
				r := by.region()
				defer r.free()
				mem, err := r.resize(len(content))
				if err == nil {
					err = r.become(g)
				}
				if err != nil {
					b.Fatal(err)
				}
				for i := range 24 {
					mem[i*7919%(len(mem)/abi.PageSize)*abi.PageSize]++
				}
				own := base{golden: g.content}
				var list []uint32
				b.ReportAllocs()
				for b.Loop() {
					list = r.touched(list[:0], len(mem)/abi.PageSize)
					if len(own.compare(mem, list)) != 24 {
						b.Fatal(len(list))
					}
				}
			})
		})
	}
}

package wasm

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// scribbler writes to places of its memory that a turn's seed decides, zeros for
// the most part, so that pages become golden again; it counts in a global, and grows
// now and then.
func scribbler() []byte {
	return guest{
		imports: []string{moduleWASI + ".random_get"},
		locals:  "i32",
		module: wasmtest.Module{
			Memories: []wasmtest.Memory{{Min: 2, Export: "memory"}},
			Globals:  []wasmtest.Global{{Type: "i64", Mutable: true, Init: "i64.const 0"}},
			Datas:    []wasmtest.Data{{Offset: 70_000, Bytes: []byte("golden")}},
		},
		run: `
			i32.const 0 i32.const 64 call $random_get drop
			i32.const 60 i32.load8_u i32.const 7 i32.and i32.eqz if i32.const 1 memory.grow drop end
			loop
				local.get 0 i32.load memory.size i32.const 65536 i32.mul i32.rem_u
				local.get 0 i32.load8_u i32.const 1 i32.and i32.store8
				local.get 0 i32.const 4 i32.add local.tee 0 i32.const 48 i32.ne br_if 0
			end
			i32.const 0 i64.const 0 i64.store
			global.get 0 i64.const 1 i64.add global.set 0
			i32.const 0`,
	}.bytes()
}

// A turn begins and ends in the same state, and tells the same changes, whether the
// instance has rested before it or not: from golden, from an image that was copied,
// and from one that was mapped.
func TestM2_RestChangesNothing(t *testing.T) {
	onMemories(t, func(t *testing.T, e *Engine) {
		for _, from := range []string{"golden", "copied", "flat"} {
			t.Run(from, func(t *testing.T) {
				if from == "flat" {
					needMapping(t, e)
				}
				c := loaded(t, e, scribbler())
				begin, before := func() *Instance { return instantiate(t, c) }, memoryOf(t, c.Golden(), nil)
				if from == "copied" || from == "flat" {
					img, counter := large(c, 300, 0)
					if from == "copied" {
						img.Root = abi.Digest{}
					}
					begin, before = func() *Instance { return restore(t, c, img) }, counter.content
				}
				for seed := range uint64(4) {
					testRests(t, rand.New(rand.NewPCG(seed, 1)), begin(), begin(), before)
				}
			})
		}
	})
}

// testRests runs turns in two instances, one of which rests at random.
func testRests(t *testing.T, random *rand.Rand, plain, rests *Instance, before []byte) {
	t.Helper()
	// rest lets it rest, or not, and wakes it, or not.
	rest := func() {
		for range random.IntN(3) {
			if _, err := rests.Rest(); err != nil {
				t.Fatal(err)
			}
			if random.IntN(2) == 0 {
				if err := rests.Wake(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	memories := [2][]byte{before, before}
	for turn := range 12 {
		seed := [32]byte{byte(random.Uint32()), byte(random.Uint32())}
		snapshot := random.IntN(4) > 0 // else the next one does not know the changes yet
		var steps [2]step
		for i, in := range []*Instance{plain, rests} {
			if in == rests {
				rest()
			}
			out, err := in.Run(t.Context(), Turn{Seed: seed}, &world{})
			if err != nil || out.Reason != abi.ReasonCompleted {
				t.Fatal(out, err)
			}
			steps[i].Outcome = out
			if in == rests {
				rest() // between the turn and its snapshot
			}
			img, err := in.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			memories[i] = memoryOf(t, img, memories[i])
			if !bytes.Equal(memories[i], in.cell.mem.bytes()) {
				t.Fatalf("turn %d, instance %d: what changed does not lead to what memory is", turn, i)
			}
			steps[i].Size, steps[i].Globals, steps[i].Clock, steps[i].Memory = img.Size, img.Globals, img.Clock, abi.DigestOf(memories[i])
			if snapshot {
				steps[i].Changed = img.Changed
			}
		}
		if diff := cmp.Diff(steps[0], steps[1]); diff != "" {
			t.Fatalf("turn %d (-plain +rested):\n%s", turn, diff)
		}
	}
}

// small is more than an instance that rests holds beside its blocks of one page.
const small = 300

// An instance that rests has no cell, and holds the pages that are not golden and
// little else; its cell is another's, who finds nothing of it (M3).
func TestM3_RestGivesTheCellBack(t *testing.T) {
	onEngines(t, func(t *testing.T, e *Engine) {
		c := loaded(t, e, bump(false))
		in := instantiate(t, c)
		if held, err := in.Rest(); err != nil || held > small {
			t.Errorf("a golden instance holds %d bytes: %v", held, err)
		}
		for range 2 {
			if out, err := in.Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
				t.Fatal(out, err)
			}
		}
		cell := in.cell
		first, err := in.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if held, err := in.Rest(); err != nil || held < restBlock || held > restBlock+small {
				t.Errorf("it holds %d bytes for one page: %v", held, err)
			}
		}
		if err := first.Pages.ReadPage(3, make([]byte, abi.PageSize)); !errors.Is(err, ErrStopped) {
			t.Errorf("its snapshot from before: %v", err)
		}
		next := instantiate(t, c)
		if next.cell != cell {
			t.Error("the cell was not used again")
		}
		if !bytes.Equal(next.cell.mem.bytes(), c.memory.content) {
			t.Error("memory is left for the next tenant")
		}
		snap, err := in.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]uint32{3}, snap.Changed); diff != "" || snap.Globals[0].Value[0] != 2 || in.cell == cell {
			t.Errorf("global %v, changed (-want +got):\n%s", snap.Globals[0].Value, diff)
		}
	})
}

// Clones of an instance, whether it rests or not, begin in its state, and see nothing
// of one another (M3).
func TestM3_Clones(t *testing.T) {
	onEngines(t, func(t *testing.T, e *Engine) {
		c := loaded(t, e, scribbler())
		for _, flat := range []bool{false, true} {
			in, before := instantiate(t, c), memoryOf(t, c.Golden(), nil)
			if flat && e.Memory().Memory != MemoryCopy {
				img, counter := large(c, 300, 0)
				in, before = restore(t, c, img), counter.content
			}
			turn := func(in *Instance, seed byte, before []byte) []byte {
				t.Helper()
				if out, err := in.Run(t.Context(), Turn{Seed: [32]byte{seed}}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
					t.Fatal(out, err)
				}
				img, err := in.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				return memoryOf(t, img, before)
			}
			parent := turn(in, 1, before)
			var clones []*Instance
			for i := range 6 {
				if i == 3 {
					if _, err := in.Rest(); err != nil {
						t.Fatal(err)
					}
				}
				clone, err := in.Clone()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(clone.Stop)
				clones = append(clones, clone)
			}
			want := turn(in, 2, parent)
			in.Stop()
			for i, clone := range clones {
				if i%3 == 0 {
					turn(clone, 3, parent) // writes what no other may see
				} else if !bytes.Equal(turn(clone, 2, parent), want) {
					t.Errorf("clone %d does not come to what its original does", i)
				}
				clone.Stop()
			}
			again, err := c.Instantiate()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again.cell.mem.bytes()[:len(c.memory.content)], c.memory.content) {
				t.Error("memory is left for the next tenant")
			}
			again.Stop()
			if _, err := in.Clone(); !errors.Is(err, ErrStopped) {
				t.Errorf("a clone of one that was stopped: %v", err)
			}
		}
		if c.flats.rested() != 0 {
			t.Errorf("%d rest on a large image", c.flats.rested())
		}
	})
}

// rested is how many instances rest on flat images.
func (s *flats) rested() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		n += f.rested
	}
	return n
}

func TestRestStopped(t *testing.T) {
	c := loaded(t, newEngine(t, Config{}), bump(false))
	in := instantiate(t, c)
	if _, err := in.Rest(); err != nil || in.Status() != Ready {
		t.Fatal(in.Status(), err)
	}
	in.Stop()
	in.Stop()
	if in.Status() != Stopped {
		t.Errorf("status %d", in.Status())
	}
	_, restErr := in.Rest()
	_, runErr := in.Run(t.Context(), Turn{}, &world{})
	for _, err := range []error{restErr, runErr, in.Wake()} {
		if !errors.Is(err, ErrStopped) {
			t.Errorf("got %v", err)
		}
	}

	in = instantiate(t, c)
	if _, err := in.Rest(); err != nil {
		t.Fatal(err)
	}
	if err := c.engine.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := in.Wake(); !errors.Is(err, ErrStopped) || in.Status() != Stopped {
		t.Errorf("after the engine was closed: %v, status %d", err, in.Status())
	}
	in.Stop()
}

// Who rests on a large image keeps it beyond its time, but not from others that need
// the room, and then cannot run any more.
func TestRestOnFlatImage(t *testing.T) {
	const pages, many = 512, 10
	e := newEngine(t, Config{MaxFlatBytes: 2 * pages * abi.PageSize})
	needMapping(t, e)
	c := loaded(t, e, bump(false))
	img, counter := large(c, pages, 0)
	var all []*Instance
	for range many {
		in := restore(t, c, img)
		if out, err := in.Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
			t.Fatal(out, err)
		}
		if held, err := in.Rest(); err != nil || held > restBlock+small {
			t.Fatalf("%d bytes: %v", held, err)
		}
		all = append(all, in)
	}
	f := c.flats.all[0]
	if f.users != 0 || f.rested != many || f.timer != nil {
		t.Errorf("%d use it, %d rest on it, and it has a time: %t", f.users, f.rested, f.timer != nil)
	}
	for _, in := range all[1:] {
		in.Stop()
	}
	if err := all[0].Wake(); err != nil || f.users != 1 || f.rested != 0 {
		t.Fatal(f.users, f.rested, err)
	}
	counter.content[3*abi.PageSize]++
	if !bytes.Equal(all[0].cell.mem.bytes(), counter.content) {
		t.Error("not in the state in which it went to rest")
	}
	if n := counter.reads.Load(); n != pages {
		t.Errorf("%d pages were read", n)
	}
	if _, err := all[0].Rest(); err != nil {
		t.Fatal(err)
	}
	for i := range byte(4) {
		other, _ := large(c, pages, 100+i)
		restore(t, c, other).Stop()
	}
	if err := all[0].Wake(); !errors.Is(err, ErrStopped) || all[0].Status() != Stopped {
		t.Errorf("its image was dropped: %v, status %d", err, all[0].Status())
	}
	all[0].Stop()
	if f.rested != 0 || c.flats.bytes > 2*pages*abi.PageSize {
		t.Errorf("%d rest on it, %d bytes are kept", f.rested, c.flats.bytes)
	}
}

// BenchmarkRest is what it costs to let an instance of a Go harness rest after a
// turn, to wake it, and its next turn, beside a copy of as many bytes as it holds.
func BenchmarkRest(b *testing.B) {
	c := loaded(b, newEngine(b, Config{CacheDir: testCacheDir(b)}), bundledModule(b, "counter"))
	turn := func(in *Instance) {
		out, err := in.Run(b.Context(), Turn{}, &chatWorld{input: "12"})
		if err != nil || out.Reason != abi.ReasonCompleted {
			b.Fatal(out, err)
		}
	}
	rest := func(in *Instance) int {
		held, err := in.Rest()
		if err != nil {
			b.Fatal(err)
		}
		return held
	}
	begun := func() *Instance {
		in, err := c.Instantiate()
		if err != nil {
			b.Fatal(err)
		}
		turn(in)
		return in
	}
	in := begun()
	held := rest(in)
	in.Stop()
	for _, bench := range []struct {
		name          string
		before, timed func(in *Instance)
	}{
		{"rest", func(*Instance) {}, func(in *Instance) { rest(in) }},
		{"wake", func(in *Instance) { rest(in) }, func(in *Instance) {
			if err := in.Wake(); err != nil {
				b.Fatal(err)
			}
		}},
		{"turn=hot", func(*Instance) {}, turn},
		{"turn=rested", func(in *Instance) { rest(in) }, turn},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				in := begun()
				bench.before(in)
				start := time.Now()
				bench.timed(in)
				took = append(took, time.Since(start))
				in.Stop()
			}
			slices.Sort(took)
			b.ReportMetric(0, "ns/op") // that of the preparations
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
			b.ReportMetric(float64(held)/1024, "held-KiB")
		})
	}
	b.Run("copy", func(b *testing.B) {
		from, to := make([]byte, held), make([]byte, held)
		for b.Loop() {
			copy(to, from)
		}
	})
}

package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// state is an image put together: what a host keeps of a cell.
type state struct {
	Memory  []byte
	Globals []abi.Global
	Clock   int64
}

func newState() *state { return new(state) }

// apply brings s to img, whose Changed is told against s.
func (s *state) apply(t testing.TB, img runtimes.Image) {
	t.Helper()
	if img.Size == 0 || img.Size%abi.PageSize != 0 || img.Size < uint64(len(s.Memory)) {
		t.Fatalf("an image of %d bytes after one of %d", img.Size, len(s.Memory))
	}
	s.Memory = append(s.Memory, make([]byte, int(img.Size)-len(s.Memory))...)
	last := -1
	for _, i := range img.Changed {
		if int(i) <= last || int(i) >= len(s.Memory)/abi.PageSize {
			t.Fatalf("page %d after %d of %d", i, last, len(s.Memory)/abi.PageSize)
		}
		last = int(i)
		if err := img.Pages.ReadPage(i, s.Memory[int(i)*abi.PageSize:][:abi.PageSize]); err != nil {
			t.Fatalf("read page %d: %v", i, err)
		}
	}
	s.Globals, s.Clock = slices.Clone(img.Globals), img.Clock
}

// image is s as it is given to Restore, told against golden.
func (s *state) image(golden *state) runtimes.Image {
	img := runtimes.Image{Size: uint64(len(s.Memory)), Globals: s.Globals, Clock: s.Clock, Pages: s}
	for i := range len(s.Memory) / abi.PageSize {
		if from := i * abi.PageSize; from >= len(golden.Memory) ||
			!bytes.Equal(s.Memory[from:from+abi.PageSize], golden.Memory[from:from+abi.PageSize]) {
			img.Changed = append(img.Changed, uint32(i))
		}
	}
	return img
}

// ReadPage implements runtimes.PageReader.
func (s *state) ReadPage(index uint32, dst []byte) error {
	copy(dst, s.Memory[int(index)*abi.PageSize:])
	return nil
}

func (s *state) clone() *state {
	return &state{bytes.Clone(s.Memory), slices.Clone(s.Globals), s.Clock}
}

// diff tells how s and other differ, "" if they do not. Memories are told by
// page: millions of bytes are too many to print, or to compare one by one.
func (s *state) diff(other *state) string {
	if s == nil || other == nil {
		return cmp.Diff(s == nil, other == nil)
	}
	pages := func(s *state) (list []abi.Digest) {
		for page := range slices.Chunk(s.Memory, abi.PageSize) {
			list = append(list, abi.DigestOf(page))
		}
		return list
	}
	d := cmp.Diff(s.Globals, other.Globals) + cmp.Diff(s.Clock, other.Clock)
	if !bytes.Equal(s.Memory, other.Memory) {
		d += cmp.Diff(pages(s), pages(other))
	}
	return d
}

// golden is the state of a fresh incarnation of m.
func (f *fixture) golden(t testing.TB, m runtimes.Module) *state {
	t.Helper()
	d, err := f.Runtime.Describe(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	s := newState()
	s.apply(t, d.Golden)
	return s
}

// snapshot is the state of an incarnation that has run one turn from the golden
// state; nil where the runtime has no snapshots.
func (f *fixture) snapshot(t testing.TB, in runtimes.Incarnation, m runtimes.Module) *state {
	t.Helper()
	if !f.Runtime.Capabilities().MemorySnapshot {
		return nil
	}
	s := f.golden(t, m)
	s.apply(t, snapshotOf(t, in))
	return s
}

func snapshotOf(t testing.TB, in runtimes.Incarnation) runtimes.Image {
	t.Helper()
	img, err := in.(runtimes.Snapshotter).Snapshot(t.Context())
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	return img
}

func (f *fixture) restore(t testing.TB, m runtimes.Module, s *state) runtimes.Incarnation {
	t.Helper()
	in, err := f.Runtime.(runtimes.Restorer).Restore(t.Context(), m, s.image(f.golden(t, m)))
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	t.Cleanup(func() { _ = in.Stop(t.Context()) })
	return in
}

// testSnapshot runs one session in one incarnation, and again in a new one,
// restored, for every turn: nothing may differ.
func testSnapshot(t *testing.T, f *fixture) {
	f.snapshots(t)
	inputs := []string{"5", "7, 8", "total", "times 7"}
	living := f.create(t, f.Counter)
	kept := f.golden(t, f.Counter)
	for i, input := range inputs {
		a, b := newPort(input), newPort(input)
		want := completed(t, living, byte(i), a)
		live := kept.clone()
		live.apply(t, snapshotOf(t, living))

		restored := f.restore(t, f.Counter, kept)
		got := completed(t, restored, byte(i), b)
		kept.apply(t, snapshotOf(t, restored))
		if err := restored.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("turn %d, outcome (-living +restored):\n%s", i, diff)
		}
		if diff := cmp.Diff(a.calls, b.calls, cmp.AllowUnexported(call{})); diff != "" {
			t.Errorf("turn %d, calls (-living +restored):\n%s", i, diff)
		}
		if diff := live.diff(kept); diff != "" {
			t.Fatalf("turn %d, state (-living +restored):\n%.2000s", i, diff)
		}
	}
}

// testChanged takes snapshots seldom and twice: Changed is told against the
// beginning of the last turn whatever was asked before.
func testChanged(t *testing.T, f *fixture) {
	f.snapshots(t)
	in := f.create(t, f.Counter)
	fresh := f.golden(t, f.Counter)
	fresh.apply(t, snapshotOf(t, in))
	if diff := f.golden(t, f.Counter).diff(fresh); diff != "" {
		t.Fatalf("a fresh incarnation (-golden +snapshot):\n%.2000s", diff)
	}
	twin := f.create(t, f.Counter)
	completed(t, in, 1, newPort("1"))
	completed(t, twin, 1, newPort("1"))
	begin := f.snapshot(t, twin, f.Counter)
	// in has no snapshot of its first turn, but its Changed begins there.
	completed(t, in, 2, newPort("2"))
	completed(t, twin, 2, newPort("2"))
	want := begin.clone()
	want.apply(t, snapshotOf(t, twin))
	for range 2 {
		got := begin.clone()
		got.apply(t, snapshotOf(t, in))
		if diff := want.diff(got); diff != "" {
			t.Fatalf("state (-twin +in):\n%.2000s", diff)
		}
	}
	if n := len(snapshotOf(t, in).Changed); n == 0 || n == len(want.Memory)/abi.PageSize {
		t.Errorf("a turn changed %d pages", n)
	}
}

func testClones(t *testing.T, f *fixture) {
	f.snapshots(t)
	parent := f.create(t, f.Counter)
	completed(t, parent, 1, newPort("1000"))
	image := f.snapshot(t, parent, f.Counter)
	a, b := f.restore(t, f.Counter, image), f.restore(t, f.Counter, image)
	for i, x := range []struct {
		in    runtimes.Incarnation
		input string
		want  string
	}{
		{a, "1", "added 1, total 1001"},
		{b, "20", "added 20, total 1020"},
		{parent, "300", "added 300, total 1300"},
		{a, "1", "added 1, total 1002"},
		{f.restore(t, f.Counter, image), "total", "1000"},
	} {
		p := newPort(x.input)
		completed(t, x.in, byte(10+i), p)
		if diff := cmp.Diff([]string{"start", "output assistant: " + x.want}, p.transcript()); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

// testRest runs one session in an incarnation that rests between its turns, wakes by
// itself or is woken, and again in one that does not.
func testRest(t *testing.T, f *fixture) {
	rests, ok := f.create(t, f.Counter).(runtimes.Rester)
	if !ok {
		t.Skip("incarnations do not implement Rester")
	}
	plain := f.create(t, f.Counter)
	for i, input := range []string{"5", "7, 8", "total", "times 7"} {
		a, b := newPort(input), newPort(input)
		want := completed(t, plain, byte(i), a)
		for range i {
			if held, err := rests.Rest(t.Context()); err != nil || held == 0 {
				t.Fatalf("it holds %d bytes: %v", held, err)
			}
		}
		if i%2 == 1 {
			if err := rests.Wake(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if rests.Status() != runtimes.Ready {
			t.Errorf("turn %d, status %d", i, rests.Status())
		}
		got := completed(t, rests, byte(i), b)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("turn %d, outcome (-plain +rested):\n%s", i, diff)
		}
		if diff := cmp.Diff(a.calls, b.calls, cmp.AllowUnexported(call{})); diff != "" {
			t.Errorf("turn %d, calls (-plain +rested):\n%s", i, diff)
		}
		if !f.Runtime.Capabilities().MemorySnapshot {
			continue
		}
		live, rested := f.golden(t, f.Counter), f.golden(t, f.Counter)
		live.apply(t, snapshotOf(t, plain))
		rested.apply(t, snapshotOf(t, rests))
		if diff := live.diff(rested); diff != "" {
			t.Fatalf("turn %d, state (-plain +rested):\n%.2000s", i, diff)
		}
	}
	var clones []runtimes.Rester
	for range 2 { // of one that is awake, and of one that rests
		clone, err := rests.Clone(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = clone.Stop(context.Background()) })
		clones = append(clones, clone)
		if _, err := rests.Rest(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := rests.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, in := range append(clones, plain.(runtimes.Rester)) {
		p := newPort("100")
		completed(t, in, 9, p)
		if diff := cmp.Diff([]string{"start", "output assistant: added 100, total 120"}, p.transcript()); diff != "" {
			t.Errorf("clone %d, and then what did not rest (-want +got):\n%s", i, diff)
		}
	}
	_, restErr := rests.Rest(t.Context())
	_, cloneErr := rests.Clone(t.Context())
	for _, err := range []error{restErr, cloneErr, rests.Wake(t.Context())} {
		if !errors.Is(err, runtimes.ErrStopped) {
			t.Errorf("after stop: %v", err)
		}
	}
}

package journal

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

// journalOn opens a journal in store until the test ends.
func journalOn(t testing.TB, store Storage) *Journal {
	t.Helper()
	j, err := New(store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// watched is a Storage that keeps the batches it is given.
type watched struct {
	Storage
	maxAhead int // 0: that of Storage
	batches  [][]Entry
}

func (w *watched) Commit(b *Batch) error {
	w.batches = append(w.batches, slices.Concat(b.Ahead, b.Puts))
	return w.Storage.Commit(b)
}

func (w *watched) Limits() Limits {
	l := w.Storage.Limits()
	if w.maxAhead > 0 {
		l.Ahead = w.maxAhead
	}
	return l
}

// count is how many rows of each kind were put.
func (w *watched) count() map[string]int {
	n := map[string]int{}
	for _, b := range w.batches {
		for _, e := range b {
			n[string(e.Key[:1])]++
		}
	}
	return n
}

// TestM5_APageIsStoredOnce counts the rows that reach the store: of images that
// share pages, built on one another, apart, and by another process.
func TestM5_APageIsStoredOnce(t *testing.T) {
	w := &watched{Storage: newMemory()}
	j := journalOn(t, w)
	w.batches = nil
	golden := pagesOf(800)
	base := newImage(t, j, nil, golden.spec(every(800)...))
	saveImage(t, j, base)
	// 255 different pages; 50 nodes of which the contents repeat after lcm(16,
	// 255) pages, so all differ; 4 and 1 above.
	if diff := cmp.Diff(map[string]int{"p": 255, "t": 55, "i": 1}, w.count()); diff != "" {
		t.Errorf("the golden image: %s", diff)
	}

	step := func(name string, j *Journal, base *Image, m mem, changed []uint32, want map[string]int) *Image {
		t.Helper()
		w.batches = nil
		im := newImage(t, j, base, m.spec(changed...))
		saveImage(t, j, im)
		if diff := cmp.Diff(want, w.count()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		return im
	}
	next := pagesOf(800)
	next.pages[5], next.pages[700] = 0, 0 // a page of zeros has no row
	child := step("a child", j, base, next, []uint32{5, 6, 700}, map[string]int{"t": 5, "i": 1})
	step("its twin", j, base, next, []uint32{5, 700}, map[string]int{})
	step("a later clock", j, child, mem{pages: next.pages, clock: 8}, nil, map[string]int{"i": 1})
	other := journalOn(t, w) // it knows nothing of what the first one saved
	step("built from nothing by another process", other, nil, golden, every(800), map[string]int{})
	golden.clock = 9
	step("the same pages in another image there", other, nil, golden, every(800), map[string]int{"i": 1})
}

// TestM4_NothingIsStoredBeforeWhatItNames saves images in small batches. After
// each of them everything that a stored row names is there, which also makes a
// row's presence proof of all below it.
func TestM4_NothingIsStoredBeforeWhatItNames(t *testing.T) {
	w := &watched{Storage: newMemory(), maxAhead: 1_000}
	j := journalOn(t, w)
	w.batches = nil
	m := pagesOf(300)
	first := newImage(t, j, nil, m.spec(every(300)...))
	saveImage(t, j, first)
	m.pages = append(m.pages, 1, 2, 3)
	saveImage(t, j, newImage(t, j, first, m.spec(300, 301, 302)))

	there := map[abi.Digest]bool{}
	for _, b := range w.batches {
		for _, e := range b {
			there[abi.Digest(e.Key[1:])] = true
		}
		for _, e := range b {
			for _, named := range names(t, e) {
				if !there[named] {
					t.Fatalf("%c %x is stored before %v", e.Key[0], e.Key[1:], named)
				}
			}
		}
	}
	if len(w.batches) < 50 {
		t.Errorf("only %d batches: too few to show anything", len(w.batches))
	}
}

// names lists the hashes that a row names.
func names(t *testing.T, e Entry) []abi.Digest {
	t.Helper()
	var hashes []abi.Digest
	switch e.Key[0] {
	case kindNode:
		for kids := range slices.Chunk(e.Value, sha256.Size) {
			hashes = append(hashes, abi.Digest(kids))
		}
	case kindImage:
		row, err := decodeImageRow(e.Value)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, row.pages)
	}
	return hashes
}

func TestImage_SharesAndLetsGo(t *testing.T) {
	j := journalOn(t, newMemory())
	m := pagesOf(800)
	base := newImage(t, j, nil, m.spec(every(800)...))
	if same := newImage(t, j, base, m.spec(3, 4, 799)); same != base {
		t.Error("writing what was there makes another image")
	}
	saveImage(t, j, base)
	m.pages[799] = 17
	child := newImage(t, j, base, m.spec(3, 4, 799))
	rows, err := j.unsaved(child)
	if err != nil {
		t.Fatal(err)
	}
	// The page is known, from index 16; three nodes lead to it.
	var kinds strings.Builder
	for _, e := range rows {
		kinds.WriteByte(e.Key[0])
	}
	if diff := cmp.Diff("ttti", kinds.String()); diff != "" {
		t.Errorf("rows of one changed page: %s", diff)
	}
	saveImage(t, j, child)
	for page := range uint32(800) {
		if nd, err := child.tree.leaf(page); err != nil || nd.page.Load() != nil {
			t.Fatalf("page %d stays in memory after a save (%v)", page, err)
		}
	}
	requirePages(t, j, child, m)
}

// TestImages_Concurrently has many goroutines build on one base, loaded from the
// store, so that the race detector sees them.
func TestImages_Concurrently(t *testing.T) {
	j := journalOn(t, newMemory())
	m := pagesOf(300)
	golden := newImage(t, j, nil, m.spec(every(300)...))
	saveImage(t, j, golden)
	base, err := j.LoadImage(golden.Root())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			own := mem{pages: bytes.Clone(m.pages), clock: int64(i % 3)}
			own.pages[i] = 0
			own.pages[250] = byte(i % 4)
			im, err := j.NewImage(base, own.spec(uint32(i), 250))
			if err == nil {
				err = j.SaveImage(t.Context(), im)
			}
			var changed []uint32
			if err == nil {
				changed, err = j.DiffImages(base, im)
			}
			if err != nil {
				t.Error(err)
				return
			}
			if diff := cmp.Diff([]uint32{uint32(i), 250}, changed); diff != "" {
				t.Error(diff)
			}
			requirePages(t, j, im, own)
		})
	}
	wg.Wait()
	requirePages(t, j, base, m)
}

func TestNewImage_Refuses(t *testing.T) {
	j := journalOn(t, newMemory())
	failing := errors.New("the runtime is gone")
	read := func(uint32, []byte) error { return failing }
	tests := []struct {
		name string
		spec ImageSpec
		want string
	}{
		{"odd size", ImageSpec{Size: 4097}, "size 4097 is not a multiple of 4096"},
		{"too large", ImageSpec{Size: 4<<30 + 4096}, "up to 4 GiB"},
		{"descending", ImageSpec{Size: 8192, Changed: []uint32{1, 0}}, "not ascending at page 0"},
		{"twice", ImageSpec{Size: 8192, Changed: []uint32{1, 1}}, "not ascending at page 1"},
		{"beyond", ImageSpec{Size: 8192, Changed: []uint32{1, 2}}, "changed page 2 is beyond the size of 8192 bytes"},
		{"of no pages", ImageSpec{Changed: []uint32{0}}, "changed page 0 is beyond the size of 0 bytes"},
		{"read fails", ImageSpec{Size: 8192, Changed: []uint32{1}, Read: read}, "read page 1: the runtime is gone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := j.NewImage(nil, tt.spec)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	if _, err := j.NewImage(nil, tests[6].spec); !errors.Is(err, failing) {
		t.Errorf("%v does not wrap what the reader returned", err)
	}
}

func TestImages_OfAnotherJournal(t *testing.T) {
	here, there := journalOn(t, newMemory()), journalOn(t, newMemory())
	m := pagesOf(2)
	foreign := newImage(t, there, nil, m.spec(0, 1))
	own := newImage(t, here, nil, m.spec(0, 1))
	page := make([]byte, abi.PageSize)
	_, buildErr := here.NewImage(foreign, m.spec())
	_, diffErr := here.DiffImages(own, foreign)
	_, appendErr := here.Append(t.Context(), "s", Append{Events: [][]byte{[]byte("{}")}, Image: foreign})
	for name, err := range map[string]error{
		"build":  buildErr,
		"diff":   diffErr,
		"append": appendErr,
		"read":   here.ReadPage(foreign, 0, page),
		"bulk":   here.ReadPages(foreign, []uint32{0}, nil),
		"save":   here.SaveImage(t.Context(), foreign),
	} {
		if !errors.Is(err, errForeign) {
			t.Errorf("%s: error %v, want %v", name, err, errForeign)
		}
	}
	for name, err := range map[string]error{
		"beyond the end": here.ReadPage(own, 2, page),
		"short buffer":   here.ReadPage(own, 0, page[1:]),
	} {
		if err == nil {
			t.Errorf("reading a page %s: no error", name)
		}
	}
	if _, err := here.LoadImage(abi.Digest{1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown root: %v, want ErrNotFound", err)
	}
}

// TestCorruptImages damages one row of one image at a time: what needs the row
// is an error that names it, everything else goes on.
func TestCorruptImages(t *testing.T) {
	victim, bystander := pagesOf(40), pagesOf(40)
	victim.pages[20] = 77
	page := hashPage(content(77))
	damages := map[string]func([]byte) []byte{
		"flipped": func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"cut":     func(b []byte) []byte { return b[:len(b)-1] },
		"longer":  func(b []byte) []byte { return append(b, 0) },
		"emptied": func(b []byte) []byte { return nil },
	}
	for damage, apply := range damages {
		for _, kind := range []byte{kindPage, kindNode, kindImage} {
			t.Run(fmt.Sprintf("%s %c", damage, kind), func(t *testing.T) {
				store := newMemory()
				j := journalOn(t, store)
				other := newImage(t, j, nil, bystander.spec(every(40)...))
				im := newImage(t, j, other, victim.spec(20))
				saveImage(t, j, other)
				saveImage(t, j, im)
				digest := map[byte]abi.Digest{kindPage: page, kindImage: im.Root()}[kind]
				if kind == kindNode {
					kids, err := im.tree.kids(im.tree.root, 2, 0)
					if err != nil {
						t.Fatal(err)
					}
					digest = kids[1].hash
				}
				key := digestKey(kind, digest)
				view := store.View()
				old, err := view.Get(key)
				view.Close()
				if err != nil {
					t.Fatal(err)
				}
				b := new(Batch)
				b.Put(Entry{key, apply(bytes.Clone(old))})
				if err := store.Commit(b); err != nil {
					t.Fatal(err)
				}

				j = journalOn(t, store)
				err = readAll(j, im.Root())
				if !errors.Is(err, ErrCorrupt) {
					t.Fatalf("reading gives %v, want ErrCorrupt", err)
				}
				if !strings.Contains(err.Error(), digest.String()) {
					t.Errorf("%q does not name %v", err, digest)
				}
				if kind == kindPage && !strings.Contains(err.Error(), "page 20") {
					t.Errorf("%q does not name page 20", err)
				}
				if bulk := readAtOnce(j, im.Root()); bulk == nil || bulk.Error() != err.Error() {
					t.Errorf("read at once: %q, page by page: %q", bulk, err)
				}
				if err := readAll(j, other.Root()); err != nil {
					t.Errorf("the other image: %v", err)
				}
			})
		}
	}
}

// readAll loads an image and reads every page.
func readAll(j *Journal, root abi.Digest) error {
	im, err := j.LoadImage(root)
	if err != nil {
		return err
	}
	dst := make([]byte, abi.PageSize)
	for page := range uint32(im.Size() / abi.PageSize) {
		if err := j.ReadPage(im, page, dst); err != nil {
			return err
		}
	}
	return nil
}

// readAtOnce loads an image and reads all pages at once.
func readAtOnce(j *Journal, root abi.Digest) error {
	im, err := j.LoadImage(root)
	if err == nil {
		_, err = readPages(j, im, every(int(im.Size()/abi.PageSize)))
	}
	return err
}

func TestMissingRowsAreCorruption(t *testing.T) {
	j := journalOn(t, newMemory())
	m := pagesOf(40)
	im := newImage(t, j, nil, m.spec(every(40)...))
	rows, err := j.unsaved(im)
	if err != nil {
		t.Fatal(err)
	}
	for i, missing := range rows[:len(rows)-1] {
		store := newMemory()
		j := journalOn(t, store)
		b := new(Batch)
		for k, e := range rows {
			if k != i {
				b.Put(e)
			}
		}
		if err := store.Commit(b); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{readAll(j, im.Root()), readAtOnce(j, im.Root())} {
			if !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound) {
				t.Fatalf("without %c: %v, want ErrCorrupt", missing.Key[0], err)
			}
		}
	}
}

// FuzzImageRow: any bytes are refused or say again what they were.
func FuzzImageRow(f *testing.F) {
	for _, r := range []imageRow{
		{},
		{size: 8192, pages: abi.Digest{1}, clock: -1},
		{globals: []abi.Global{{Type: 0x7f}, {Type: 0x7c, Value: [16]byte{15: 9}}}},
	} {
		f.Add(r.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeImageRow(b)
		if err != nil {
			return
		}
		if got := r.encode(); !bytes.Equal(got, b) {
			t.Fatalf("%x is read as %+v, which is %x", b, r, got)
		}
	})
}

// FuzzNodeRow: any bytes are refused or say again what they were, at every level
// and size.
func FuzzNodeRow(f *testing.F) {
	f.Add(fullZero[0][:], uint8(1), uint32(1))
	f.Add(bytes.Repeat(fullZero[1][:], 16), uint8(2), uint32(256))
	f.Add(bytes.Repeat([]byte{1}, 64), uint8(5), uint32(2<<16))
	f.Fuzz(func(t *testing.T, b []byte, level uint8, pages uint32) {
		l := 1 + int(level)%maxHeight
		pages = 1 + pages%span(l)
		kids, err := decodeKids(b, l, pages)
		if err != nil {
			return
		}
		if got := appendKids(nil, kids, l, pages); !bytes.Equal(got, b) {
			t.Fatalf("%x is read as %x", b, got)
		}
	})
}

// benchStores are the stores that the benchmarks compare.
func benchStores(b *testing.B) map[string]Storage {
	disk, err := openBadger(b.TempDir(), 0)
	if err != nil {
		b.Fatal(err)
	}
	return map[string]Storage{"memory": newMemory(), "badger": disk}
}

// BenchmarkNewImage is the snapshot of a small turn: 21 changed pages of 800.
// The reference is SHA-256 of those bytes alone.
func BenchmarkNewImage(b *testing.B) {
	m := pagesOf(800)
	var changed []uint32
	for i := range uint32(21) {
		changed = append(changed, i*37)
	}
	page := content(9)
	b.Run("reference", func(b *testing.B) {
		for b.Loop() {
			for range changed {
				hashPage(page)
			}
		}
	})
	for name, store := range benchStores(b) {
		j := journalOn(b, store)
		base := newImage(b, j, nil, m.spec(every(800)...))
		saveImage(b, j, base)
		page := content(9)
		n := 0
		spec := m.spec(changed...)
		spec.Read = func(p uint32, dst []byte) error {
			page[8], page[9], page[10], page[11] = byte(n), byte(n>>8), byte(n>>16), byte(p)
			copy(dst, page)
			return nil
		}
		b.Run(name+"/build", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n++
				newImage(b, j, base, spec)
			}
		})
		b.Run(name+"/build and list rows", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n++
				if rows, err := j.unsaved(newImage(b, j, base, spec)); err != nil || len(rows) < 22 {
					b.Fatal(len(rows), err)
				}
			}
		})
	}
}

// BenchmarkLoadImage is what a cold resume reads: an image, what differs from
// the golden one, and those 64 pages. The reference is SHA-256 of those bytes.
func BenchmarkLoadImage(b *testing.B) {
	m := pagesOf(800)
	var changed []uint32
	for i := range uint32(64) {
		changed = append(changed, i*12)
	}
	b.Run("reference", func(b *testing.B) {
		page := content(9)
		for b.Loop() {
			for range changed {
				hashPage(page)
			}
		}
	})
	for name, store := range benchStores(b) {
		j := journalOn(b, store)
		golden := newImage(b, j, nil, m.spec(every(800)...))
		next := pagesOf(800)
		for _, page := range changed {
			next.pages[page]++
		}
		head := newImage(b, j, golden, next.spec(changed...))
		saveImage(b, j, golden)
		saveImage(b, j, head)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				im, err := j.LoadImage(head.Root())
				if err != nil {
					b.Fatal(err)
				}
				pages, err := j.DiffImages(golden, im)
				if err != nil || len(pages) != len(changed) {
					b.Fatal(len(pages), err)
				}
				if err := j.ReadPages(im, pages, func(uint32, []byte) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

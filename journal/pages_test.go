package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

// TestStorage_GetAll reads many keys at once, near to one another and far apart,
// some of them twice or missing, and compares with what Get says.
func TestStorage_GetAll(t *testing.T) {
	const stored = 3000
	hashed := func(i int) []byte {
		d := abi.DigestOf(fmt.Append(nil, i))
		return digestKey(kindPage, d)
	}
	some := func(from, to, step int) (keys [][]byte) {
		for i := from; i < to; i += step {
			keys = append(keys, hashed(i))
		}
		return keys
	}
	tests := []struct {
		name string
		keys [][]byte
	}{
		{"a few", some(0, stored, 100)},
		{"all", some(0, stored, 1)},
		{"most", slices.Concat(some(0, stored, 3), some(1, stored, 3))},
		{"here and there", some(0, stored, 8)},
		{"some twice", slices.Concat(some(0, stored, 2), some(0, stored, 6))},
		{"some missing", some(stored/2, stored*3/2, 2)},
		{"all missing", some(stored, 2*stored, 1)},
		{"beyond the last", slices.Concat(some(0, stored, 5), [][]byte{{kindPage + 1}, {kindPage + 2}})},
	}
	onBothStores(t, func(t *testing.T, s Storage) {
		b := new(Batch)
		for i := range stored {
			b.Put(Entry{hashed(i), fmt.Append(nil, "value ", i)})
		}
		if err := s.Commit(b); err != nil {
			t.Fatal(err)
		}
		view := s.View()
		defer view.Close()
		for _, tt := range tests {
			slices.SortFunc(tt.keys, bytes.Compare)
			say := func(value []byte, err error) string { return fmt.Sprintf("%s %v", value, err) }
			var want, got []string
			for _, key := range tt.keys {
				want = append(want, say(view.Get(key)))
			}
			err := getAll(view, tt.keys, func(i int, value []byte, err error) error {
				if i != len(got) {
					t.Errorf("%s: place %d comes after %d others", tt.name, i, len(got))
				}
				got = append(got, say(value, err))
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", tt.name, diff)
			}
			enough := errors.New("enough")
			for _, last := range []int{0, len(tt.keys) / 2, len(tt.keys) - 1} {
				n := 0
				err := getAll(view, tt.keys, func(i int, _ []byte, _ error) error {
					if n++; i == last {
						return enough
					}
					return nil
				})
				if !errors.Is(err, enough) || n != last+1 {
					t.Errorf("%s: ended after %d of %d with %v", tt.name, n, last+1, err)
				}
			}
		}
	})
}

// readPages reads these pages at once, and tells which came how often.
func readPages(j *Journal, im *Image, list []uint32) (map[uint32][][]byte, error) {
	var mu sync.Mutex
	got := make(map[uint32][][]byte)
	err := j.ReadPages(im, list, func(page uint32, content []byte) error {
		mu.Lock()
		defer mu.Unlock()
		got[page] = append(got[page], bytes.Clone(content))
		return nil
	})
	return got, err
}

// requireBulk checks every page of im against m, all read at once.
func requireBulk(t interface {
	Helper()
	Fatalf(string, ...any)
}, j *Journal, im *Image, m mem,
) {
	t.Helper()
	got, err := readPages(j, im, every(len(m.pages)))
	if err != nil {
		t.Fatalf("read all pages: %v", err)
	}
	for i, id := range m.pages {
		if all := got[uint32(i)]; len(all) != 1 || !bytes.Equal(all[0], content(id)) {
			t.Fatalf("page %d came %d times, or is not what was written", i, len(all))
		}
	}
}

// noise is a page that cannot be packed.
func noise(seed ...byte) []byte {
	page := make([]byte, abi.PageSize)
	_, _ = rand.NewChaCha8(abi.DigestOf(seed)).Read(page) // never fails
	return page
}

// manyPages is a memory of n pages, some of them zero and hardly any two the same.
func manyPages(j *Journal, base *Image, n int, seed byte) (*Image, func(page uint32) []byte, error) {
	page := func(i uint32) []byte {
		switch i % 10 {
		case 9:
			return zeroPage[:]
		case 3, 6:
			return noise(seed, byte(i), byte(i>>8))
		}
		return bytes.Repeat([]byte{seed, byte(i), byte(i >> 8), 1}, abi.PageSize/4)
	}
	im, err := j.NewImage(base, ImageSpec{
		Size: uint64(n) * abi.PageSize, Changed: every(n),
		Read: func(i uint32, dst []byte) error { copy(dst, page(i)); return nil },
	})
	return im, page, err
}

// TestReadPages reads images of many pages, one after another out of a store that
// holds all of them, before and after they are saved.
func TestReadPages(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		for seed := range byte(4) {
			im, content, err := manyPages(j, nil, 900, seed)
			if err != nil {
				t.Fatal(err)
			}
			check := func(when string, im *Image) {
				got, err := readPages(j, im, every(900))
				if err != nil || len(got) != 900 {
					t.Fatalf("%s: %d pages, %v", when, len(got), err)
				}
				for i, all := range got {
					if len(all) != 1 || !bytes.Equal(all[0], content(i)) {
						t.Fatalf("%s: page %d came %d times, or is another one", when, i, len(all))
					}
				}
			}
			check("new", im)
			saveImage(t, j, im)
			check("saved", im)
			if im, err = j.LoadImage(im.Root()); err != nil {
				t.Fatal(err)
			}
			check("loaded", im)
		}
	})
}

func TestReadPages_Fails(t *testing.T) {
	j := journalOn(t, newMemory())
	im, _, err := manyPages(j, nil, 900, 1)
	if err != nil {
		t.Fatal(err)
	}
	saveImage(t, j, im)
	failing := errors.New("no room for it")
	for _, last := range []uint32{0, 1, 9, 899} {
		err := j.ReadPages(im, every(900), func(page uint32, _ []byte) error {
			if page == last {
				return failing
			}
			return nil
		})
		if !errors.Is(err, failing) {
			t.Errorf("use fails at page %d: %v", last, err)
		}
	}
	err = j.ReadPages(im, []uint32{900}, func(uint32, []byte) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "has no page 900") {
		t.Errorf("beyond the end: %v", err)
	}
}

// filling is a Storage that is full after so many commits more.
type filling struct {
	watched
	room atomic.Int64
}

func (f *filling) Commit(b *Batch) error {
	if f.room.Add(-1) < 0 {
		return ErrFull
	}
	return f.watched.Commit(b)
}

// TestS3_FullWithinAnImage: a disk that fills while an image of many batches is
// saved costs the append that carries it. The session stays where it was, at an image
// that is whole; the same append succeeds when there is room.
func TestS3_FullWithinAnImage(t *testing.T) {
	const plenty = 1 << 30
	before := func(t *testing.T) (*filling, *Journal, *Image, Head) {
		f := &filling{watched: watched{Storage: newMemory(), maxAhead: 40_000}}
		f.room.Store(plenty)
		j := journalOn(t, f)
		create(t, j, "s", "p", "")
		base, _, err := manyPages(j, nil, 20, 1)
		if err != nil {
			t.Fatal(err)
		}
		records, err := j.Append(t.Context(), "s", Append{Events: [][]byte{event("1")}, Image: base})
		if err != nil {
			t.Fatal(err)
		}
		return f, j, base, Head{Seq: records[0].Seq, Hash: records[0].Hash}
	}
	for n, all := 0, 1; n < all; n++ {
		f, j, base, head := before(t)
		im, _, err := manyPages(j, base, 300, 2)
		if err != nil {
			t.Fatal(err)
		}
		a := Append{Head: head, Events: [][]byte{event("2")}, Image: im}
		f.room.Store(int64(n))
		if _, err := j.Append(t.Context(), "s", a); !errors.Is(err, ErrFull) {
			t.Fatalf("with room for %d commits: %v", n, err)
		}
		s, err := j.Session("s")
		if err != nil || s.Head.Seq != head.Seq {
			t.Fatalf("with room for %d commits: the head is %+v, %v", n, s.Head, err)
		}
		if _, err := j.LoadImage(im.Root()); !errors.Is(err, ErrNotFound) {
			t.Errorf("with room for %d commits: the image is there, %v", n, err)
		}
		if err := readAtOnce(j, base.Root()); err != nil {
			t.Error(err)
		}
		f.room.Store(plenty)
		f.batches = nil
		if _, err := j.Append(t.Context(), "s", a); err != nil {
			t.Fatal(err)
		}
		if err := readAtOnce(j, im.Root()); err != nil {
			t.Error(err)
		}
		if n == 0 {
			if all = len(f.batches); all < 5 {
				t.Errorf("only %d batches: too few to show anything", all)
			}
		}
	}
}

// BenchmarkReadPages reads an image of a reopened store at once: one that has nearly all
// pages there, one that has an eighth of them, and 64 pages of that. None can be
// packed. The references are SHA-256 and a copy of those pages, and ReadPage for each.
func BenchmarkReadPages(b *testing.B) {
	const stored = 25_600
	for _, tt := range []struct {
		name                  string
		images, pages, wanted int
	}{
		{"all", 1, stored, stored},
		{"an eighth", 8, stored / 8, stored / 8},
		{"64", 8, stored / 8, 64},
	} {
		dir := b.TempDir()
		j, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		var im *Image
		for seed := range tt.images {
			im = newImage(b, j, nil, ImageSpec{
				Size: uint64(tt.pages) * abi.PageSize, Changed: every(tt.pages),
				Read: func(i uint32, dst []byte) error {
					copy(dst, noise(byte(seed), byte(i), byte(i>>8)))
					return nil
				},
			})
			saveImage(b, j, im)
		}
		if err := j.Close(); err != nil {
			b.Fatal(err)
		}
		j = openIn(b, dir)
		if im, err = j.LoadImage(im.Root()); err != nil {
			b.Fatal(err)
		}
		memory := make([]byte, tt.wanted*abi.PageSize)
		page := func(i uint32) []byte { return memory[int(i)*abi.PageSize:][:abi.PageSize] }
		ways := []struct {
			name string
			read func() error
		}{
			{"at once", func() error {
				return j.ReadPages(im, every(tt.wanted), func(i uint32, content []byte) error {
					copy(page(i), content)
					return nil
				})
			}},
			{"one by one", func() (err error) {
				for i := uint32(0); int(i) < tt.wanted && err == nil; i++ {
					err = j.ReadPage(im, i, page(i))
				}
				return err
			}},
			{"SHA-256", func() error { hashPage(memory); return nil }},
			{"copy", func() error { copy(memory, memory[len(memory)/2:]); return nil }},
		}
		for _, way := range ways {
			b.Run(tt.name+"/"+way.name, func(b *testing.B) {
				b.SetBytes(int64(len(memory)))
				b.ReportAllocs()
				for b.Loop() {
					if err := way.read(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

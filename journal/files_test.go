package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// readingOnly opens the journal in dir as it is, without changing anything.
func readingOnly(t *testing.T, dir string) *Journal {
	t.Helper()
	store, err := openStandby(newSpace(dir, 0), ErrReadOnly, func() (*badgerStorage, error) { return nil, ErrReadOnly })
	if err == nil {
		var j *Journal
		if j, err = New(store, Options{}); err == nil {
			return j
		}
	}
	t.Fatal(err)
	return nil
}

// everything is all that a view has, as one walk up or down tells it.
func everything(t *testing.T, v View, reverse bool) (all []string) {
	t.Helper()
	for e, err := range v.Scan(nil, []byte{0xff}, reverse) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%x=%x", e.Key, e.Value))
	}
	return all
}

// hasOnly wants a view to have these things whichever way it is read.
func hasOnly(t *testing.T, v View, want []string) {
	t.Helper()
	if got := everything(t, v, false); !slices.Equal(want, got) {
		t.Fatalf("it has %d keys, want %d, or others", len(got), len(want))
	}
	down := everything(t, v, true)
	slices.Reverse(down)
	if !slices.Equal(want, down) {
		t.Fatal("downwards it has others than upwards")
	}
	for e := range v.Scan(nil, []byte{0xff}, false) {
		value, err := v.Get(e.Key)
		if err != nil || string(value) != string(e.Value) {
			t.Fatalf("key %x: %.20x, %v, want %.20x", e.Key, value, err, e.Value)
		}
	}
}

// putAndDelete writes some of a few hundred keys, and takes others away.
func putAndDelete(t *testing.T, s Storage, random *rand.Rand) {
	t.Helper()
	key := func() []byte { return fmt.Appendf(nil, "k%03d", random.IntN(400)) }
	for i := range 10 {
		b := new(Batch)
		for range 12 {
			b.Put(Entry{key(), fmt.Appendf(nil, "%d %x", i, make([]byte, random.IntN(3000)))})
			b.Delete(key())
		}
		if err := s.Commit(b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFiles writes keys again and again and takes some away, over several openings
// that leave tables on several levels, and reads the files in between.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	levels := map[int]bool{}
	var files *fileStore
	for range maxLevelZero + 4 {
		store, err := openBadger(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		putAndDelete(t, store, random)
		view := store.View()
		want := everything(t, view, false)
		view.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if files, err = openFiles(newSpace(dir, 0)); err != nil {
			t.Fatal(err)
		}
		defer files.Close()
		for level, tables := range files.levels {
			levels[level] = levels[level] || len(tables) > 0
		}
		hasOnly(t, files.View(), want)
	}
	for _, absent := range []string{"", "a", "k", "k1234", "z"} {
		if value, err := files.View().Get([]byte(absent)); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %q, %v", absent, value, err)
		}
	}
	if len(levels) < 2 {
		t.Errorf("there were tables only on the levels %v", levels)
	}
}

// TestFiles_Ahead reads the write-ahead file of a store that has no table yet, and
// so removes no file, while it is open.
func TestFiles_Ahead(t *testing.T) {
	dir := t.TempDir()
	store, err := openBadger(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	putAndDelete(t, store, rand.New(rand.NewPCG(3, 4)))
	files, err := openFiles(newSpace(dir, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if len(files.ahead) == 0 {
		t.Error("nothing was read")
	}
	view := store.View()
	defer view.Close()
	hasOnly(t, files.View(), everything(t, view, false))
}

// TestFiles_Damaged has damaged files read: whatever is wrong with them, it is
// an error that names the file.
func TestFiles_Damaged(t *testing.T) {
	d := makeOnDisk(t)
	for name, damage := range map[string]func(b []byte) []byte{
		"empty":   func([]byte) []byte { return nil },
		"short":   func(b []byte) []byte { return b[:3] },
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
		"index":   func(b []byte) []byte { b[len(b)-100] ^= 1; return b },
		"no size": func(b []byte) []byte { clear(b[len(b)-4:]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			table := d.tables(t)[0]
			b, err := os.ReadFile(table)
			if err != nil {
				t.Fatal(err)
			}
			rewrite(t, table, damage(slices.Clone(b)))
			defer rewrite(t, table, b)
			_, err = openFiles(newSpace(d.dir, 0))
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v, want ErrCorrupt", err)
			}
		})
	}
	manifest := filepath.Join(d.dir, "MANIFEST")
	rewrite(t, manifest, []byte("nothing"))
	if _, err := openFiles(newSpace(d.dir, 0)); err == nil {
		t.Error("a manifest that is none was read")
	}
}

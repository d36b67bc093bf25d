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
	store, err := openStandby(dir, ErrReadOnly, func() (*badgerStorage, error) { return nil, ErrReadOnly })
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

// sameViews holds a view of the files against badger's.
func sameViews(t *testing.T, badger, files View) {
	t.Helper()
	defer badger.Close()
	defer files.Close()
	want, got := everything(t, badger, false), everything(t, files, false)
	if !slices.Equal(want, got) {
		t.Fatalf("badger has %d keys, the files %d, or others", len(want), len(got))
	}
	slices.Reverse(want)
	if got := everything(t, files, true); !slices.Equal(want, got) {
		t.Fatal("downwards the files have others than upwards")
	}
	for e := range badger.Scan(nil, []byte{0xff}, false) {
		value, err := files.Get(e.Key)
		if err != nil || string(value) != string(e.Value) {
			t.Fatalf("key %x: %.20x, %v, want %.20x", e.Key, value, err, e.Value)
		}
	}
}

// TestFiles writes keys again and again and takes some away, over several openings
// that leave tables on several levels, and reads the files while badger has the
// store open.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	key := func() []byte { return fmt.Appendf(nil, "k%03d", random.IntN(400)) }
	tables := map[int]bool{}
	for opening := range maxLevelZero + 4 {
		store, err := openBadger(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			b := new(Batch)
			for range 12 {
				b.Put(Entry{key(), fmt.Appendf(nil, "%d %d %x", opening, i, make([]byte, random.IntN(3000)))})
			}
			if err := store.Commit(b); err != nil {
				t.Fatal(err)
			}
		}
		files, err := openFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		for level, all := range files.levels {
			tables[level] = tables[level] || len(all) > 0
		}
		sameViews(t, store.View(), files.View())
		for _, absent := range []string{"", "a", "k", "k1234", "z"} {
			if value, err := files.View().Get([]byte(absent)); !errors.Is(err, ErrNotFound) {
				t.Errorf("%q: %q, %v", absent, value, err)
			}
		}
		if err := errors.Join(store.Close(), files.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if len(tables) < 2 {
		t.Errorf("there were tables only on the levels %v", tables)
	}
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
			_, err = openFiles(d.dir)
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v, want ErrCorrupt", err)
			}
		})
	}
	manifest := filepath.Join(d.dir, "MANIFEST")
	rewrite(t, manifest, []byte("nothing"))
	if _, err := openFiles(d.dir); err == nil {
		t.Error("a manifest that is none was read")
	}
}

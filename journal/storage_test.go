package journal

import (
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// onBothStores holds each Storage to the contract.
func onBothStores(t *testing.T, test func(t *testing.T, s Storage)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { test(t, newMemory()) })
	t.Run("badger", func(t *testing.T) {
		s, err := openBadger(t.TempDir(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s)
	})
}

func entries(keysAndValues ...string) (all []Entry) {
	for i := 0; i < len(keysAndValues); i += 2 {
		all = append(all, Entry{[]byte(keysAndValues[i]), []byte(keysAndValues[i+1])})
	}
	return all
}

func commit(t *testing.T, s Storage, puts ...string) {
	t.Helper()
	b := new(Batch)
	for _, e := range entries(puts...) {
		b.Put(e)
	}
	if err := s.Commit(b); err != nil {
		t.Fatal(err)
	}
}

func keysIn(t *testing.T, scan iter.Seq2[Entry, error]) (keys string) {
	t.Helper()
	for e, err := range scan {
		if err != nil {
			t.Fatal(err)
		}
		keys += string(e.Key) + " "
	}
	return keys
}

// What a store in memory takes is what its rows have.
func TestStorage_MemorySize(t *testing.T) {
	m := newMemory()
	size := func(want int64) {
		t.Helper()
		if got, err := m.diskBytes(); got != want || err != nil {
			t.Errorf("%d bytes, %v, want %d", got, err, want)
		}
	}
	size(0)
	commit(t, m, "a", "one", "b", "two")
	size(8)
	commit(t, m, "a", "three", "a", "four")
	size(9)
	b := new(Batch)
	b.PutAhead(Entry{[]byte("page"), []byte("12345678")})
	b.Delete([]byte("a"))
	b.Delete([]byte("nothing"))
	if err := m.Commit(b); err != nil {
		t.Fatal(err)
	}
	size(16)
}

func TestStorage_Scan(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Storage) {
		commit(t, s, "a", "", "b", "", "b\x00", "", "b\xff", "", "c", "", "\xff", "")
		v := s.View()
		defer v.Close()
		for _, tt := range []struct{ from, to, want string }{
			{"a", "c", "a b b\x00 b\xff "},
			{"b", "c", "b b\x00 b\xff "},
			{"b", "b\xff", "b b\x00 "},
			{"aa", "b\x00", "b "},
			{"", "\xff\xff", "a b b\x00 b\xff c \xff "},
			{"b", "b", ""},
			{"c", "b", ""},
			{"x", "y", ""},
		} {
			if got := keysIn(t, v.Scan([]byte(tt.from), []byte(tt.to), false)); got != tt.want {
				t.Errorf("%q to %q: %q, want %q", tt.from, tt.to, got, tt.want)
			}
			back := ""
			for e := range v.Scan([]byte(tt.from), []byte(tt.to), true) {
				back = string(e.Key) + " " + back
			}
			if back != tt.want {
				t.Errorf("%q to %q, backwards: %q, want %q", tt.from, tt.to, back, tt.want)
			}
		}
	})
}

// TestStorage_Commit looks at the rules of a batch: requirements, order, limits.
func TestStorage_Commit(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Storage) {
		commit(t, s, "k", "value", "k", "later")
		if _, err := s.View().Get([]byte("nothing")); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		limits := s.Limits()
		for _, tt := range []struct {
			name string
			b    *Batch
			want error
		}{
			{"the value begins so", &Batch{Requires: []Requirement{{[]byte("k"), []byte("late")}}}, nil},
			{"any value", &Batch{Requires: []Requirement{{[]byte("k"), []byte{}}}}, nil},
			{"it began so before", &Batch{Requires: []Requirement{{[]byte("k"), []byte("value")}}}, ErrConflict},
			{"it is absent", &Batch{Requires: []Requirement{{[]byte("absent"), nil}}}, nil},
			{"it is there", &Batch{Requires: []Requirement{{[]byte("k"), nil}}}, ErrConflict},
			{"an absent value begins so", &Batch{Requires: []Requirement{{[]byte("absent"), []byte{}}}}, ErrConflict},
			{"one of two", &Batch{Requires: []Requirement{{[]byte("absent"), nil}, {[]byte("k"), nil}}}, ErrConflict},
			{"too many puts", &Batch{size: limits.Size + 1}, ErrTooLarge},
			{"too much ahead", &Batch{ahead: limits.Ahead + 1}, ErrTooLarge},
		} {
			key := []byte("put by " + tt.name)
			tt.b.Put(Entry{key, nil})
			if err := s.Commit(tt.b); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
			v := s.View()
			if _, err := v.Get(key); (err == nil) != (tt.want == nil) {
				t.Errorf("%s: after it: %v", tt.name, err)
			}
			v.Close()
		}
	})
}

// TestStorage_Deletes lets entries go, together with puts, before the eyes of a
// view that goes on seeing them.
func TestStorage_Deletes(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Storage) {
		var all []string
		for i := range 200 {
			all = append(all, fmt.Sprintf("k%03d", i), "v")
		}
		commit(t, s, all...)
		old := s.View()
		defer old.Close()

		b := new(Batch)
		b.Require([]byte("k000"), []byte("v")) // which a Storage may remember
		b.Put(Entry{[]byte("k002"), []byte("put")})
		for i := range 198 {
			b.Delete(fmt.Appendf(nil, "k%03d", i))
		}
		b.Delete([]byte("absent"))
		b.Put(Entry{[]byte("k003"), []byte("put")})
		if err := s.Commit(b); err != nil {
			t.Fatal(err)
		}
		now := s.View()
		defer now.Close()
		for _, reverse := range []bool{false, true} {
			n := 0
			for range old.Scan([]byte("k"), []byte("l"), reverse) {
				n++
			}
			if n != 200 {
				t.Errorf("the old view: %d entries", n)
			}
		}
		if got := keysIn(t, now.Scan([]byte("k"), []byte("l"), false)); got != "k002 k003 k198 k199 " {
			t.Errorf("left: %q", got)
		}
		if got := keysIn(t, now.Scan([]byte("k"), []byte("l"), true)); got != "k199 k198 k003 k002 " {
			t.Errorf("left, backwards: %q", got)
		}
		if _, err := now.Get([]byte("k000")); !errors.Is(err, ErrNotFound) {
			t.Errorf("k000: %v, want ErrNotFound", err)
		}
		if v, err := now.Get([]byte("k002")); err != nil || string(v) != "put" {
			t.Errorf("k002: %q, %v", v, err)
		}
		for _, tt := range []struct {
			key    string
			prefix []byte
			want   error
		}{
			{"k000", nil, nil},
			{"k001", []byte{}, ErrConflict},
			{"k003", []byte("put"), nil},
		} {
			b := new(Batch)
			b.Require([]byte(tt.key), tt.prefix)
			b.Delete([]byte("k198"))
			if err := s.Commit(b); !errors.Is(err, tt.want) {
				t.Errorf("requiring %s: %v, want %v", tt.key, err, tt.want)
			}
		}
		b = &Batch{}
		for b.Size() <= s.Limits().Size {
			b.Delete(fmt.Appendf(nil, "k%040d", len(b.Deletes)))
		}
		if err := s.Commit(b); !errors.Is(err, ErrTooLarge) {
			t.Errorf("too many deletes: %v, want ErrTooLarge", err)
		}
		b.size -= (&Entry{Key: b.Deletes[0]}).size()
		b.Deletes = b.Deletes[1:]
		if err := s.Commit(b); err != nil {
			t.Errorf("as many deletes as a batch takes: %v", err)
		}
	})
}

// TestStorage_FullBatches commits what the limits just allow, of large entries
// and of the smallest.
func TestStorage_FullBatches(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Storage) {
		limits := s.Limits()
		for _, length := range []int{0, 4096, 512 << 10} {
			b := new(Batch)
			value := make([]byte, length)
			entry := func(ahead bool) Entry {
				return Entry{fmt.Appendf(nil, "%d %t %d", length, ahead, len(b.Puts)+len(b.Ahead)), value}
			}
			for e := entry(false); b.Size()+e.size() <= limits.Size; e = entry(false) {
				b.Put(e)
			}
			for e := entry(true); b.AheadSize()+e.size() <= limits.Ahead; e = entry(true) {
				b.PutAhead(e)
			}
			if err := s.Commit(b); err != nil {
				t.Fatalf("entries of %d bytes: %v", length, err)
			}
			v := s.View()
			for _, e := range append(b.Ahead, b.Puts...) {
				if got, err := v.Get(e.Key); err != nil || len(got) != length {
					t.Fatalf("%q: %d bytes, %v", e.Key, len(got), err)
				}
			}
			v.Close()
		}
	})
}

// TestStorage_View reads an old state while new ones are committed, and does not
// wait for a commit.
func TestStorage_View(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Storage) {
		commit(t, s, "a", "1")
		old := s.View()
		defer old.Close()
		for i := range 50 {
			commit(t, s, "a", fmt.Sprint(i), fmt.Sprint("b", i), "")
		}
		got, err := old.Get([]byte("a"))
		if err != nil || string(got) != "1" {
			t.Errorf("the old view: %q, %v", got, err)
		}
		if keys := keysIn(t, old.Scan(nil, []byte("z"), false)); keys != "a " {
			t.Errorf("the old view: %q", keys)
		}
		now := s.View()
		defer now.Close()
		if got, err := now.Get([]byte("a")); err != nil || string(got) != "49" {
			t.Errorf("a new view: %q, %v", got, err)
		}
	})
}

func TestVersions(t *testing.T) {
	var v versions
	v.open(7)
	first := v.acquire()
	if diff := cmp.Diff([]uint64{7, 7}, []uint64{first, v.committed(8)}); diff != "" {
		t.Error(diff)
	}
	second, third := v.acquire(), v.acquire()
	v.release(first)
	if diff := cmp.Diff([]uint64{8, 8, 8}, []uint64{second, third, v.committed(9)}); diff != "" {
		t.Error(diff)
	}
	v.release(second)
	v.release(third)
	if got := v.committed(10); got != 10 {
		t.Errorf("without views, versions up to %d can go, want 10", got)
	}
}

// TestCloseEndsEverything opens, uses and closes journals and looks for what
// still runs.
func TestCloseEndsEverything(t *testing.T) {
	running := goleak.IgnoreCurrent()
	for _, j := range []*Journal{OpenMemory(), openNow(t, t.TempDir())} {
		create(t, j, "s", "p", "")
		extend(t, j, "s", 2)
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		if _, err := j.Session("s"); !errors.Is(err, ErrClosed) {
			t.Errorf("a closed journal: %v", err)
		}
		for _, err := range j.Read("s", 0, 0) {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("a closed journal: %v", err)
			}
		}
		if _, err := j.List("p", "", 1); !errors.Is(err, ErrClosed) {
			t.Errorf("a closed journal: %v", err)
		}
	}
	goleak.VerifyNone(t, running)
}

func openNow(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

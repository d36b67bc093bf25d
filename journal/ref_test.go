package journal

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

func TestRefs(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		one, two := abi.DigestOf([]byte("1")), abi.DigestOf([]byte("2"))
		set := func(kind string, r Ref) {
			t.Helper()
			before := j.Commits()
			if err := j.SetRef(t.Context(), kind, r); err != nil {
				t.Fatal(err)
			}
			if n := j.Commits() - before; n != 1 {
				t.Errorf("%d commits, want 1", n)
			}
		}
		list := func(kind string, want ...Ref) {
			t.Helper()
			got, err := j.Refs(kind)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", kind, diff)
			}
		}
		list("h")
		set("h", Ref{Name: "b", Digest: one, Note: []byte("note")})
		set("h", Ref{Name: "a", Digest: one})
		set("ha", Ref{Name: "a", Digest: two})
		set("", Ref{Name: "ha", Digest: two})
		list("h", Ref{Name: "a", Digest: one}, Ref{Name: "b", Digest: one, Note: []byte("note")})
		list("ha", Ref{Name: "a", Digest: two})
		list("", Ref{Name: "ha", Digest: two})
		list("none")

		// The same name again.
		set("h", Ref{Name: "b", Digest: two})
		got, err := j.Ref("h", "b")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Ref{Name: "b", Digest: two}, got); diff != "" {
			t.Error(diff)
		}

		// A name that was removed is as good as new.
		if err := j.RemoveRef(t.Context(), "h", "b"); err != nil {
			t.Fatal(err)
		}
		list("h", Ref{Name: "a", Digest: one})
		long := strings.Repeat("n", maxName+1)
		for _, name := range []string{"b", "c", "", "A", long} {
			if _, err := j.Ref("h", name); !errors.Is(err, ErrNotFound) {
				t.Errorf("Ref(%.10q): got error %v, want ErrNotFound", name, err)
			}
			if err := j.RemoveRef(t.Context(), "h", name); !errors.Is(err, ErrNotFound) {
				t.Errorf("RemoveRef(%.10q): got error %v, want ErrNotFound", name, err)
			}
		}
		set("h", Ref{Name: "b", Digest: one})
		list("h", Ref{Name: "a", Digest: one}, Ref{Name: "b", Digest: one})

		for _, bad := range []struct{ kind, name string }{{"h", ""}, {"h", long}, {long, "a"}} {
			if err := j.SetRef(t.Context(), bad.kind, Ref{Name: bad.name}); err == nil {
				t.Errorf("set %.10q %.10q", bad.kind, bad.name)
			}
		}
		if err := j.SetRef(t.Context(), "h", Ref{Name: "big", Note: make([]byte, 4<<20)}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("got error %v, want ErrTooLarge", err)
		}
		if _, err := j.Refs(long); err == nil {
			t.Error("listed a kind with too long a name")
		}
	})
}

// Of all who add one name at once, one has it; a name that was removed is free.
func TestAddRef(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		for _, uid := range []abi.SessionID{"s", "deleted"} {
			if _, err := j.Create(t.Context(), Session{UID: uid}); err != nil {
				t.Fatal(err)
			}
		}
		add := func(n int) error {
			r := Ref{Name: "a", Digest: abi.DigestOf([]byte{byte(n)}), Note: []byte{byte(n)}}
			return j.AddRef(t.Context(), "kind", r, "s")
		}
		const rivals = 16
		for round := range 3 {
			errs := make([]error, rivals)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() { errs[i] = add(i) })
			}
			all.Wait()
			won := -1
			for i, err := range errs {
				switch {
				case err == nil && won < 0:
					won = i
				case !errors.Is(err, ErrExists):
					t.Errorf("round %d: %d: got error %v, want ErrExists", round, i, err)
				}
			}
			got, err := j.Ref("kind", "a")
			if err != nil || won < 0 || got.Note[0] != byte(won) {
				t.Fatalf("round %d: %d won, the ref is %+v, %v", round, won, got, err)
			}
			if err := j.RemoveRef(t.Context(), "kind", "a"); err != nil {
				t.Fatal(err)
			}
		}

		// Names of other kinds do not count, and one that was set is taken.
		err := errors.Join(
			j.SetRef(t.Context(), "kind", Ref{Name: "a"}),
			j.AddRef(t.Context(), "other", Ref{Name: "a"}, "s"),
		)
		if err != nil {
			t.Fatal(err)
		}
		if err := add(1); !errors.Is(err, ErrExists) {
			t.Errorf("got error %v, want ErrExists", err)
		}

		// It is about a session that is there.
		if _, err := j.Delete(t.Context(), "deleted", time.Time{}); err != nil {
			t.Fatal(err)
		}
		for _, uid := range []abi.SessionID{"deleted", "unknown", ""} {
			if err := j.AddRef(t.Context(), "kind", Ref{Name: "b"}, uid); !errors.Is(err, ErrNotFound) {
				t.Errorf("about %q: got error %v, want ErrNotFound", uid, err)
			}
		}
		if err := j.AddRef(t.Context(), "kind", Ref{}, "s"); err == nil {
			t.Error("added an empty name")
		}
	})
}

func TestRefsOutlive(t *testing.T) {
	dir := t.TempDir()
	want := Ref{Name: "kept", Digest: abi.DigestOf(nil), Note: []byte("n")}
	j, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	gone := want
	gone.Name = "gone"
	err = errors.Join(
		j.SetRef(t.Context(), "h", want), j.SetRef(t.Context(), "h", gone), j.RemoveRef(t.Context(), "h", "gone"), j.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Refs("h"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	got, err := openIn(t, dir).Refs("h")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Ref{want}, got); diff != "" {
		t.Error(diff)
	}
}

func TestCorruptRef(t *testing.T) {
	store := newMemory()
	j := journalOn(t, store)
	b := new(Batch)
	b.Put(Entry{refKey("h", "a"), []byte("short")})
	if err := store.Commit(b); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Ref("h", "a"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Ref: %v", err)
	}
	if _, err := j.Refs("h"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Refs: %v", err)
	}
}

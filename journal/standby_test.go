package journal

import (
	"errors"
	"testing"
)

// TestStandby has a store wait for room, and for nobody to read it: badger would
// cut the files that are being read.
func TestStandby(t *testing.T) {
	dir := t.TempDir()
	store, err := openBadger(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, store, "a", "1")
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	room := false
	s, err := openStandby(newSpace(dir, 0), ErrFull, func() (*badgerStorage, error) {
		if !room {
			return nil, ErrFull
		}
		return openBadger(dir, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	b := new(Batch)
	b.Put(Entry{[]byte("b"), []byte("2")})
	view := s.View()
	for range 2 {
		if err := s.Commit(b); !errors.Is(err, ErrFull) {
			t.Errorf("it was written: %v", err)
		}
		if got := keysIn(t, view.Scan(nil, []byte{0xff}, false)); got != "a " {
			t.Errorf("it has %q", got)
		}
		room = true // but it is being read
	}
	view.Close()
	if err := s.Commit(b); err != nil {
		t.Error(err)
	}
	view = s.View()
	if got := keysIn(t, view.Scan(nil, []byte{0xff}, false)); got != "a b " {
		t.Errorf("it has %q", got)
	}
	view.Close()
	if err := errors.Join(s.readOnly(), s.Close()); err != nil {
		t.Error(err)
	}
}

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// untended opens a journal that merges nothing before it is closed, however long
// that takes.
func untended(t *testing.T, dir string) *Journal {
	t.Helper()
	store, err := openUntended(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	return journalOn(t, store)
}

// crowd makes a journal of count tables, each with a session of its own.
func crowd(t *testing.T, dir string, count int) {
	t.Helper()
	for n := range count {
		j := untended(t, dir)
		create(t, j, uidOf(n), "p", "")
		extend(t, j, uidOf(n), 20)
		closeJournal(t, j)
	}
}

// hurtKey damages the key of a record of one session, and gives the table and a
// function that mends it.
func hurtKey(t *testing.T, dir string, n int) (string, func()) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// In front of a record's value stands what its key has beyond the block's
		// first one, in front of that how long this is.
		line := fmt.Appendf(nil, `"seq":"%d"`, 7)
		if i := bytes.Index(b, line); i >= 0 && bytes.Contains(b, []byte(uidOf(n))) {
			start := bytes.LastIndex(b[:i], []byte(lineOpen)) - recordHeader - 16
			hurt := bytes.Clone(b)
			for k := start - 8; k < start; k++ {
				hurt[k] ^= 0xff
			}
			rewrite(t, name, hurt)
			return name, func() { rewrite(t, name, b) }
		}
	}
	t.Fatalf("no table has session %d", n)
	return "", nil
}

// TestDamagedKey damages what badger's compactions trust. Where closing would run
// one, it is found first: the other sessions go on, and nothing is merged, in this
// process and the next, until it is mended.
func TestDamagedKey(t *testing.T) {
	dir := t.TempDir()
	crowd(t, dir, maxLevelZero)
	victim := 3
	name, mend := hurtKey(t, dir, victim)
	for opening := range 3 {
		j := openAt(t, dir)
		if err := j.Damage(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Fatalf("opening %d: damage %v, want ErrCorrupt and %q", opening, err, name)
		}
		for n := range maxLevelZero {
			if _, _, err := j.Verify(t.Context(), uidOf(n), VerifyOptions{}); (err != nil) != (n == victim) {
				t.Errorf("opening %d: session %d: %v", opening, n, err)
			}
		}
		uid := uidOf(100 + opening)
		create(t, j, uid, "p", "")
		extend(t, j, uid, 3)
		closeJournal(t, j)
	}
	mend()
	j := untended(t, dir)
	if err := j.Damage(); err != nil {
		t.Errorf("once it is mended: %v", err)
	}
	closeJournal(t, j) // and merges
	if names, err := filepath.Glob(filepath.Join(dir, "*.sst")); err != nil || len(names) > 2 {
		t.Errorf("tables %v, %v", names, err)
	}
	j = openAt(t, dir)
	defer closeJournal(t, j)
	for n := range maxLevelZero {
		if _, _, err := j.Verify(t.Context(), uidOf(n), VerifyOptions{}); err != nil {
			t.Errorf("session %d: %v", n, err)
		}
	}
}

// TestCorrupted holds what badger panics with to one line, as errors have.
func TestCorrupted(t *testing.T) {
	read := func() (err error) {
		defer corrupted(&err, debug.SetPanicOnFault(true))
		panic("==== Recovered====\nTable ID: 26\n\nBlock ID: 5\n")
	}
	const want = "corrupt: a file of the store cannot be read: ==== Recovered==== Table ID: 26 Block ID: 5"
	if err := read(); !errors.Is(err, ErrCorrupt) || err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

// tables counts the tables of a level.
func (s *badgerStorage) tablesOn(level int) int {
	s.use.RLock()
	defer s.use.RUnlock()
	return s.db.Levels()[level].NumTables
}

// TestDamagedKey_Open is TestDamagedKey for compactions of a process that has the
// store open for long.
func TestDamagedKey_Open(t *testing.T) {
	const count = 6
	dir := t.TempDir()
	crowd(t, dir, count)
	_, mend := hurtKey(t, dir, 2)
	j := openAt(t, dir)
	for j.Damage() == nil {
		time.Sleep(tendPoll)
	}
	if err := j.Damage(); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	if n := j.store.(*badgerStorage).tablesOn(0); n != count {
		t.Errorf("%d tables of %d are left", n, count)
	}
	closeJournal(t, j)
	mend()

	j = openAt(t, dir)
	defer closeJournal(t, j)
	for j.store.(*badgerStorage).tablesOn(0) >= count {
		extend(t, j, uidOf(1), 1) // while the store is opened anew
	}
	for n := range count {
		if _, _, err := j.Verify(t.Context(), uidOf(n), VerifyOptions{}); err != nil {
			t.Errorf("session %d: %v", n, err)
		}
	}
	if err := j.Damage(); err != nil {
		t.Error(err)
	}
}

// TestReopen_Views: a store is not opened anew under those who read it, and they
// do not wait for that.
func TestReopen_Views(t *testing.T) {
	dir := t.TempDir()
	crowd(t, dir, 2)
	j := openAt(t, dir)
	store := j.store.(*badgerStorage)
	view := store.View()
	reopened := make(chan bool)
	go func() { reopened <- store.reopen() }()
	for range 3 {
		extend(t, j, uidOf(1), 1)
		select {
		case <-reopened:
			t.Fatal("it was opened anew while it was read")
		case <-time.After(2 * tendPoll):
		}
	}
	view.Close()
	if !<-reopened || store.db.Opts().NumCompactors == 0 {
		t.Error("it was not opened anew")
	}
	extend(t, j, uidOf(1), 1)
	if n, _, err := j.Verify(t.Context(), uidOf(1), VerifyOptions{}); n != 24 || err != nil {
		t.Errorf("%d records, %v", n, err)
	}
	closeJournal(t, j)
}

// TestReopen_Fails: what cannot be opened anew gives errors, and ends in order.
func TestReopen_Fails(t *testing.T) {
	dir := t.TempDir()
	crowd(t, dir, 2)
	j := openAt(t, dir)
	store := j.store.(*badgerStorage)
	key := filepath.Join(dir, "KEYREGISTRY")
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(key, 0o700); err != nil {
		t.Fatal(err)
	}
	if !store.reopen() {
		t.Error("it is tried again")
	}
	if _, err := j.Session(uidOf(1)); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("reading: %v", err)
	}
	if _, err := j.Create(t.Context(), Session{UID: "new"}); err == nil {
		t.Error("it was written")
	}
	if _, err := j.Room(); err == nil {
		t.Error("it has room")
	}
	closeJournal(t, j)
	if err := errors.Join(os.Remove(key), os.Rename(key+".away", key)); err != nil {
		t.Fatal(err)
	}
	j = openAt(t, dir)
	defer closeJournal(t, j)
	if n, _, err := j.Verify(t.Context(), uidOf(1), VerifyOptions{}); n != 20 || err != nil {
		t.Errorf("%d records, %v", n, err)
	}
}

// TestUnreadableDisk cuts a table that is mapped, so that reading it faults as it
// does where a disk cannot read a sector: that is an error, and does not end the process.
func TestUnreadableDisk(t *testing.T) {
	for name, open := range map[string]func(*testing.T, string) *Journal{"badger": openAt, "files": readingOnly} {
		t.Run(name, func(t *testing.T) {
			d := makeOnDisk(t)
			table := d.tables(t)[0]
			whole, err := os.ReadFile(table)
			if err != nil {
				t.Fatal(err)
			}
			j := open(t, d.dir)
			if err := os.Truncate(table, 8192); err != nil {
				t.Fatal(err)
			}
			failed := 0
			for _, s := range d.sessions {
				if err := s.check(t, j); errors.Is(err, ErrCorrupt) {
					failed++
				} else if err != nil {
					t.Error(err)
				}
			}
			if failed == 0 {
				t.Error("nothing was read from what is not there")
			}
			rewrite(t, table, whole)
			closeJournal(t, j)
		})
	}
}

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
)

// onDisk is a closed journal of three sessions, each with records, images and a
// blob of its own, all of it in tables.
type onDisk struct {
	dir      string
	sessions []diskSession
}

type diskSession struct {
	uid   abi.SessionID
	head  Head
	root  abi.Digest
	blob  abi.Digest
	lines []string // every record's
	page  []byte   // a page that no other session has
}

func makeOnDisk(t *testing.T) onDisk {
	t.Helper()
	d := onDisk{dir: t.TempDir()}
	j := openAt(t, d.dir)
	defer closeJournal(t, j)
	golden := newImage(t, j, nil, pagesOf(300).spec(every(300)...))
	for i := range 3 {
		s := diskSession{uid: abi.SessionID(fmt.Sprintf("sess-%d", i)), page: randomBytes(abi.PageSize)}
		if _, err := j.Create(t.Context(), Session{UID: s.uid}); err != nil {
			t.Fatal(err)
		}
		m := pagesOf(300)
		spec := m.spec(17)
		spec.Read = func(_ uint32, dst []byte) error { copy(dst, s.page); return nil }
		image := newImage(t, j, golden, spec)
		blob := randomBytes(3000)
		s.root, s.blob = image.Root(), abi.DigestOf(blob)
		for k := range 20 {
			event := fmt.Sprintf(`{"n":%d,"text":"%x"}`, k, randomBytes(40))
			records, err := j.Append(t.Context(), s.uid, Append{
				Head: s.head, Events: [][]byte{[]byte(event)}, Image: image, Blobs: [][]byte{blob}, Summary: s.root[:],
			})
			if err != nil {
				t.Fatal(err)
			}
			s.head = Head{Seq: records[0].Seq, Hash: records[0].Hash}
			s.lines = append(s.lines, string(records[0].Line))
		}
		d.sessions = append(d.sessions, s)
	}
	return d
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + rand.N(255))
	}
	return b
}

// check reads all that a session has. What is read without an error is what was
// written, though a damaged key can hide the newest of it.
func (s *diskSession) check(t *testing.T, j *Journal) error {
	t.Helper()
	if _, _, err := j.Verify(t.Context(), s.uid, VerifyOptions{}); err != nil {
		return err
	}
	for r, err := range j.Read(s.uid, 1, 0) {
		if err != nil {
			return err
		}
		if string(r.Line) != s.lines[r.Seq-1] {
			t.Fatalf("session %s, record %d is another one: %s", s.uid, r.Seq, r.Line)
		}
	}
	if _, err := j.Blob(s.blob); err != nil {
		return err
	}
	return readAll(j, s.root)
}

// tables are the names of the journal's table files.
func (d onDisk) tables(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(d.dir, "*.sst"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no tables in %s: %v", d.dir, err)
	}
	return names
}

// flip changes one bit of what is found once in the journal's tables, and gives
// a function that puts it back.
func (d onDisk) flip(t *testing.T, what []byte) func() {
	t.Helper()
	for _, name := range d.tables(t) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(b, what); i >= 0 {
			damaged := bytes.Clone(b)
			damaged[i+len(what)/2] ^= 1
			rewrite(t, name, damaged)
			return func() { rewrite(t, name, b) }
		}
	}
	t.Fatalf("%.20q… is not in the tables", what)
	return nil
}

func rewrite(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCorruptDisk damages a page and a record in the files themselves. Each is
// named, and only its own session is affected.
func TestCorruptDisk(t *testing.T) {
	d := makeOnDisk(t)
	victim := d.sessions[1]
	for name, tt := range map[string]struct {
		bytes []byte
		want  string
	}{
		"page":   {victim.page, "page 17, " + hashPage(victim.page).String()},
		"record": {[]byte(victim.lines[7]), "session sess-1: record 8"},
	} {
		t.Run(name, func(t *testing.T) {
			restore := d.flip(t, tt.bytes)
			defer restore()
			j := openAt(t, d.dir)
			defer closeJournal(t, j)
			for i, s := range d.sessions {
				err := s.check(t, j)
				if i != 1 && err != nil {
					t.Errorf("session %d: %v", i, err)
				}
				if i == 1 && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("the damaged session: %v, want ErrCorrupt and %q", err, tt.want)
				}
			}
		})
	}
}

// TestCorruptDisk_Anywhere flips random bits of the tables. Whatever they hit, the
// process goes on, and what can be read is right.
func TestCorruptDisk_Anywhere(t *testing.T) {
	d := makeOnDisk(t)
	trials := 100
	if testing.Short() {
		trials = 10
	}
	refused, noticed := 0, 0
	for range trials {
		name := d.tables(t)[0]
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		damaged := bytes.Clone(whole)
		at := rand.N(len(damaged))
		damaged[at] ^= 1 << rand.N(8)
		t.Logf("%s at %d of %d", filepath.Base(name), at, len(whole))
		rewrite(t, name, damaged)
		j, err := Open(d.dir, Options{FreeReserve: -1})
		if err != nil {
			refused++
			t.Log(err)
		} else {
			for _, s := range d.sessions {
				if err := s.check(t, j); err != nil {
					noticed++
					t.Log(err)
				}
			}
			closeJournal(t, j)
		}
		rewrite(t, name, whole)
	}
	t.Logf("%d flips: %d kept the journal from opening, %d sessions were affected", trials, refused, noticed)
	if noticed < trials {
		t.Errorf("only %d sessions noticed: the flips do not hit what is read", noticed)
	}
}

// TestLargeRecords: a record is stored whole or refused for good; none goes to the
// value log, whose failing sync badger does not report.
func TestLargeRecords(t *testing.T) {
	dir := t.TempDir()
	j := openAt(t, dir)
	defer closeJournal(t, j)
	if _, err := j.Create(t.Context(), Session{UID: "s"}); err != nil {
		t.Fatal(err)
	}
	event := func(size int) [][]byte {
		return [][]byte{fmt.Appendf(nil, `{"text":"%s"}`, bytes.Repeat([]byte("x"), size))}
	}
	if _, err := j.Append(t.Context(), "s", Append{Events: event(maxInline)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a record of 1 MiB: %v, want ErrTooLarge", err)
	}
	if _, err := j.Append(t.Context(), "s", Append{Events: event(maxInline - 1000)}); err != nil {
		t.Error(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.vlog"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("value logs %v, %v", logs, err)
	}
	log, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	const header = 20
	if len(bytes.TrimRight(log, "\x00")) > header {
		t.Errorf("%s is not empty", logs[0])
	}
}

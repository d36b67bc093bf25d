package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

// onBoth runs a test on a journal of each kind.
func onBoth(t *testing.T, test func(t *testing.T, j *Journal)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { test(t, journalOn(t, newMemory())) })
	t.Run("badger", func(t *testing.T) { test(t, openIn(t, t.TempDir())) })
}

// openIn opens the journal in dir until the test ends.
func openIn(t testing.TB, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func create(t testing.TB, j *Journal, uid abi.SessionID, project, name string) Session {
	t.Helper()
	s, err := j.Create(t.Context(), Session{UID: uid, Project: project, Name: name, Created: epoch})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// event is an encoded event, canonical, that says text.
func event(text string) []byte {
	return fmt.Appendf(nil, `{"message":{"parts":[{"text":{"text":%q}}]}}`, text)
}

// extend appends n records to the session's head and returns the new one.
func extend(t testing.TB, j *Journal, uid abi.SessionID, n int) Head {
	t.Helper()
	s, err := j.Session(uid)
	if err != nil {
		t.Fatal(err)
	}
	a := Append{Head: s.Head, Fence: s.Head.Fence, Summary: s.Summary}
	for i := range n {
		a.Events = append(a.Events, event(fmt.Sprintf("%s %d", uid, int(s.Head.Seq)+1+i)))
	}
	records, err := j.Append(t.Context(), uid, a)
	if err != nil {
		t.Fatal(err)
	}
	last := records[len(records)-1]
	return Head{Seq: last.Seq, Hash: last.Hash, Fence: last.Fence}
}

func fork(t testing.TB, j *Journal, parent abi.SessionID, at abi.Seq, uids ...abi.SessionID) []Session {
	t.Helper()
	var children []ForkChild
	for _, uid := range uids {
		children = append(children, ForkChild{UID: uid, Event: event("fork " + string(uid)), Summary: []byte(uid)})
	}
	sessions, err := j.Fork(t.Context(), parent, at, epoch, children)
	if err != nil {
		t.Fatal(err)
	}
	return sessions
}

func collectRecords(t testing.TB, seq iter.Seq2[Record, error]) []Record {
	t.Helper()
	var all []Record
	for r, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func seqsOf(records []Record) (seqs []abi.Seq) {
	for _, r := range records {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

// texts are the events' texts, which say who wrote them.
func textsOf(records []Record) (texts []string) {
	for _, r := range records {
		_, rest, _ := strings.Cut(string(r.Line), `{"text":"`)
		text, _, _ := strings.Cut(rest, `"`)
		texts = append(texts, text)
	}
	return texts
}

func TestCreate(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		want := Session{
			UID: "sess-1", Project: "p", Name: "n", Created: epoch,
			Meta: []byte("meta"), Summary: []byte("summary"),
		}
		given := want
		given.Created = epoch.Add(999 * time.Nanosecond).In(time.FixedZone("", 3600))
		given.Head = Head{Seq: 7}
		before := j.Commits()
		got, err := j.Create(t.Context(), given)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if n := j.Commits() - before; n != 1 {
			t.Errorf("%d commits, want 1", n)
		}
		if got, err = j.Session("sess-1"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if records := collectRecords(t, j.Read("sess-1", 0, 0)); len(records) != 0 {
			t.Errorf("a new session has %d records", len(records))
		}
		for _, tt := range []struct {
			name string
			s    Session
			want error
		}{
			{"uid taken", Session{UID: "sess-1", Project: "q", Created: epoch}, ErrExists},
			{"name taken", Session{UID: "sess-2", Project: "p", Name: "n", Created: epoch}, ErrExists},
			{"name free in another project", Session{UID: "sess-2", Project: "q", Name: "n", Created: epoch}, nil},
			{"no name never clashes", Session{UID: "sess-3", Project: "p", Created: epoch}, nil},
			{"nor again", Session{UID: "sess-4", Project: "p", Created: epoch}, nil},
			{"too large", Session{UID: "sess-5", Meta: make([]byte, 4<<20), Created: epoch}, ErrTooLarge},
		} {
			if _, err := j.Create(t.Context(), tt.s); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
		}
		for _, s := range []Session{
			{},
			{UID: "a b"},
			{UID: "a\x00"},
			{UID: abi.SessionID(strings.Repeat("u", maxUID+1))},
			{UID: "ok", Project: strings.Repeat("p", maxName+1)},
			{UID: "ok", Name: strings.Repeat("n", maxName+1)},
		} {
			if _, err := j.Create(t.Context(), s); err == nil {
				t.Errorf("created %q %q %q", s.UID, s.Project, s.Name)
			}
		}
	})
}

func TestFind(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "sess-aa1", "p", "one")
		create(t, j, "sess-aa2", "q", "one")
		create(t, j, "sess-ab1", "p", "")
		for _, tt := range []struct {
			project, name string
			want          abi.SessionID
			err           error
		}{
			{"p", "one", "sess-aa1", nil},
			{"q", "one", "sess-aa2", nil},
			{"p", "on", "", ErrNotFound},
			{"", "one", "", ErrNotFound},
			{"p", "", "", ErrNotFound},
			{"p", strings.Repeat("n", 300), "", ErrNotFound},
		} {
			got, err := j.FindName(tt.project, tt.name)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("FindName(%q, %q) = %q, %v", tt.project, tt.name, got, err)
			}
		}
		for _, tt := range []struct {
			prefix string
			limit  int
			want   []abi.SessionID
		}{
			{"sess-aa", 9, []abi.SessionID{"sess-aa1", "sess-aa2"}},
			{"sess-aa1", 9, []abi.SessionID{"sess-aa1"}},
			{"sess-", 2, []abi.SessionID{"sess-aa1", "sess-aa2"}},
			{"", 9, []abi.SessionID{"sess-aa1", "sess-aa2", "sess-ab1"}},
			{"sess-b", 9, nil},
		} {
			got, err := j.FindPrefix(tt.prefix, tt.limit)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("FindPrefix(%q, %d): %v %s", tt.prefix, tt.limit, err, diff)
			}
		}
		if _, err := j.Session("sess-a"); !errors.Is(err, ErrNotFound) {
			t.Errorf("a session by a prefix of its uid: %v", err)
		}
	})
}

// TestList walks pages while newer sessions appear: what was there is seen once.
func TestList(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		at := func(uid abi.SessionID, project string, d time.Duration) {
			if _, err := j.Create(t.Context(), Session{UID: uid, Project: project, Created: epoch.Add(d)}); err != nil {
				t.Fatal(err)
			}
		}
		at("c", "p", 0)
		at("b", "p", 0)
		at("new", "p", time.Hour)
		at("old", "p", -time.Hour)
		at("ancient", "p", -100*365*24*time.Hour) // before 1970
		at("other", "pp", 0)
		var got []abi.SessionID
		token := ""
		for {
			page, err := j.List("p", token, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page.Sessions {
				got = append(got, s.UID)
			}
			if token = page.Next; token == "" {
				break
			}
			at(abi.SessionID(fmt.Sprintf("later-%d", len(got))), "p", 2*time.Hour)
		}
		if diff := cmp.Diff([]abi.SessionID{"new", "b", "c", "old", "ancient"}, got); diff != "" {
			t.Error(diff)
		}
		for _, token := range []string{"!", "AAAA", "AAAAAAAAAAA", "a b", strings.Repeat("A", 999)} {
			if _, err := j.List("p", token, 2); !errors.Is(err, ErrToken) {
				t.Errorf("token %q: %v", token, err)
			}
		}
		if page, err := j.List("nobody's", "", 2); err != nil || len(page.Sessions) != 0 || page.Next != "" {
			t.Errorf("an empty project: %v, %v", page, err)
		}
		if _, err := j.List("p", "", 0); err == nil {
			t.Error("a page of none")
		}
	})
}

func TestAppendAndRead(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		create(t, j, "s0", "p", "") // a uid that begins with the other's
		extend(t, j, "s0", 3)
		blob := []byte("a blob")
		before := j.Commits()
		first, err := j.Append(t.Context(), "s", Append{
			Fence: 3, Events: [][]byte{event("1"), event("2")}, Blobs: [][]byte{blob}, Summary: []byte("x"),
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := j.Commits() - before; n != 1 {
			t.Errorf("%d commits, want 1", n)
		}
		head := Head{Seq: 2, Hash: first[1].Hash}
		second, err := j.Append(t.Context(), "s", Append{Head: head, Fence: 4, Events: [][]byte{event("3")}, Summary: []byte("y")})
		if err != nil {
			t.Fatal(err)
		}
		want := append(first, second...)
		for i, r := range want {
			prev := abi.Digest{}
			if i > 0 {
				prev = want[i-1].Hash
			}
			line := EncodeLine(event(fmt.Sprint(i+1)), prev, abi.Seq(i+1))
			expect := Record{Seq: abi.Seq(i + 1), Fence: 3 + abi.Fence(i/2), Line: line, Hash: abi.DigestOf(line), Prev: prev}
			if diff := cmp.Diff(expect, r); diff != "" {
				t.Errorf("record %d: %s", i+1, diff)
			}
		}
		s, err := j.Session("s")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Head{Seq: 3, Hash: want[2].Hash, Fence: 4}, s.Head); diff != "" || string(s.Summary) != "y" {
			t.Errorf("head: %s, summary %q", diff, s.Summary)
		}
		if got, err := j.Blob(abi.DigestOf(blob)); err != nil || !bytes.Equal(got, blob) {
			t.Errorf("blob: %q, %v", got, err)
		}
		for _, tt := range []struct {
			from, to abi.Seq
			want     []Record
		}{
			{0, 0, want},
			{-5, 99, want},
			{2, 0, want[1:]},
			{2, 2, want[1:2]},
			{1, 2, want[:2]},
			{3, 2, nil},
			{4, 0, nil},
			{4, 4, nil},
		} {
			if diff := cmp.Diff(tt.want, collectRecords(t, j.Read("s", tt.from, tt.to))); diff != "" {
				t.Errorf("Read(%d, %d): %s", tt.from, tt.to, diff)
			}
			high := tt.to
			if tt.from == 4 {
				continue // from above the head means the head there
			}
			back := collectRecords(t, j.ReadReverse("s", high, tt.from))
			slices.Reverse(back)
			if diff := cmp.Diff(tt.want, back); diff != "" {
				t.Errorf("ReadReverse(%d, %d): %s", high, tt.from, diff)
			}
		}
		for _, err := range j.Read("nobody", 0, 0) {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("Read of no session: %v", err)
			}
		}
		if n, verified, err := j.Verify(t.Context(), "s", VerifyOptions{Strict: true}); n != 3 || verified != s.Head || err != nil {
			t.Errorf("Verify: %d, %v, %v", n, verified, err)
		}
	})
}

func TestReadStopsWhenAskedTo(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		extend(t, j, "s", 5)
		var got []abi.Seq
		for r, err := range j.Read("s", 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Seq == 2 {
				extend(t, j, "s", 5) // not part of the state being read
			}
			got = append(got, r.Seq)
		}
		if diff := cmp.Diff([]abi.Seq{1, 2, 3, 4, 5}, got); diff != "" {
			t.Error(diff)
		}
		for range j.ReadReverse("s", 0, 0) {
			break
		}
	})
}

// TestI7_AStaleHeadOrFenceIsRefused appends with what another writer's append
// made stale.
func TestI7_AStaleHeadOrFenceIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		stale := extend(t, j, "s", 2)
		fresh, err := j.Append(t.Context(), "s", Append{Head: stale, Fence: 5, Events: [][]byte{event("taken over")}})
		if err != nil {
			t.Fatal(err)
		}
		head := Head{Seq: 3, Hash: fresh[0].Hash, Fence: 5}
		for _, tt := range []struct {
			name string
			a    Append
			want error
		}{
			{"stale head", Append{Head: stale, Fence: 5}, ErrConflict},
			{"stale fence", Append{Head: head, Fence: 4}, ErrFenced},
			{"both", Append{Head: stale, Fence: 0}, ErrFenced},
			{"another chain's hash", Append{Head: Head{Seq: 3, Hash: stale.Hash}, Fence: 5}, ErrConflict},
			{"from the start", Append{Fence: 5}, ErrConflict},
			{"ahead of the head", Append{Head: Head{Seq: 4, Hash: head.Hash}, Fence: 5}, ErrConflict},
		} {
			tt.a.Events = [][]byte{event("zombie")}
			if _, err := j.Append(t.Context(), "s", tt.a); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
		}
		if _, err := j.Append(t.Context(), "t", Append{Events: [][]byte{event("x")}}); !errors.Is(err, ErrNotFound) {
			t.Errorf("no session: %v", err)
		}
		if n, got, err := j.Verify(t.Context(), "s", VerifyOptions{}); n != 3 || got != head || err != nil {
			t.Errorf("after the refusals: %d records, %v, %v", n, got, err)
		}
	})
}

func TestAppendRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		large := event(strings.Repeat("x", 3<<20))
		for _, tt := range []struct {
			name   string
			events [][]byte
			want   error
		}{
			{"an empty event", [][]byte{{}}, nil},
			{"an event of two lines", [][]byte{[]byte("{\n}")}, nil},
			{"an array", [][]byte{[]byte("[]")}, nil},
			{"too much", [][]byte{large}, ErrTooLarge},
		} {
			_, err := j.Append(t.Context(), "s", Append{Events: tt.events})
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		extend(t, j, "s", 1) // the session goes on
	})
}

func TestBlobs(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		for _, size := range []int{0, 1, blobChunk - 1, blobChunk, blobChunk + 1, 3*blobChunk + 7, 5 << 20} {
			b := bytes.Repeat([]byte{byte(size), 'x', 7}, size/3+1)[:size]
			if has, err := j.HasBlob(abi.DigestOf(b)); has || err != nil {
				t.Fatalf("%d bytes: there already: %v", size, err)
			}
			d, err := j.PutBlob(t.Context(), b)
			if err != nil || d != abi.DigestOf(b) {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if has, err := j.HasBlob(d); !has || err != nil {
				t.Errorf("%d bytes: not there: %v", size, err)
			}
			if got, err := j.Blob(d); err != nil || !bytes.Equal(got, b) {
				t.Errorf("%d bytes: got %d bytes, %v", size, len(got), err)
			}
			before := j.Commits()
			if _, err := j.PutBlob(t.Context(), b); err != nil || j.Commits() != before {
				t.Errorf("%d bytes: stored again: %v", size, err)
			}
		}
		if _, err := j.Blob(abi.DigestOf([]byte("nobody's"))); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

// TestForksOfForks reads children of children through their segments.
func TestForksOfForks(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "root", "p", "")
		extend(t, j, "root", 4)
		fork(t, j, "root", 3, "a")      // a 4
		extend(t, j, "a", 2)            // a 5, 6
		fork(t, j, "a", 5, "b")         // b 6
		extend(t, j, "b", 1)            // b 7
		fork(t, j, "b", 2, "c")         // c 3: before b, and before a
		fork(t, j, "b", 4, "d")         // d 5: at a's first record
		extend(t, j, "root", 3)         // none of theirs
		fork(t, j, "d", 5, "e")         // at d's own FORK
		fork(t, j, "root", 7, "newest") // at the head
		for _, tt := range []struct {
			uid  abi.SessionID
			want []string
		}{
			{"root", []string{"root 1", "root 2", "root 3", "root 4", "root 5", "root 6", "root 7"}},
			{"a", []string{"root 1", "root 2", "root 3", "fork a", "a 5", "a 6"}},
			{"b", []string{"root 1", "root 2", "root 3", "fork a", "a 5", "fork b", "b 7"}},
			{"c", []string{"root 1", "root 2", "fork c"}},
			{"d", []string{"root 1", "root 2", "root 3", "fork a", "fork d"}},
			{"e", []string{"root 1", "root 2", "root 3", "fork a", "fork d", "fork e"}},
			{"newest", []string{"root 1", "root 2", "root 3", "root 4", "root 5", "root 6", "root 7", "fork newest"}},
		} {
			records := collectRecords(t, j.Read(tt.uid, 0, 0))
			if diff := cmp.Diff(tt.want, textsOf(records)); diff != "" {
				t.Errorf("%s: %s", tt.uid, diff)
			}
			back := collectRecords(t, j.ReadReverse(tt.uid, 0, 0))
			slices.Reverse(back)
			if diff := cmp.Diff(records, back); diff != "" {
				t.Errorf("%s, backwards: %s", tt.uid, diff)
			}
			for _, r := range records {
				if diff := cmp.Diff([]Record{r}, collectRecords(t, j.Read(tt.uid, r.Seq, r.Seq))); diff != "" {
					t.Errorf("%s, record %d alone: %s", tt.uid, r.Seq, diff)
				}
			}
			if n, _, err := j.Verify(t.Context(), tt.uid, VerifyOptions{Strict: true}); err != nil || int(n) != len(tt.want) {
				t.Errorf("%s: verified %d, %v", tt.uid, n, err)
			}
		}
		middle := collectRecords(t, j.Read("b", 3, 6))
		if diff := cmp.Diff([]abi.Seq{3, 4, 5, 6}, seqsOf(middle)); diff != "" {
			t.Error(diff)
		}
		d, err := j.Session("d")
		if err != nil || d.Parent != "b" || d.At != 4 || d.Project != "p" || string(d.Summary) != "d" {
			t.Errorf("d: %+v, %v", d, err)
		}
	})
}

func TestFork(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "taken")
		parent := extend(t, j, "s", 1000)
		children := make([]ForkChild, 128)
		for i := range children {
			children[i] = ForkChild{UID: abi.SessionID(fmt.Sprintf("child-%03d", i)), Name: fmt.Sprintf("n%d", i), Event: event("f")}
		}
		before := j.Commits()
		sessions, err := j.Fork(t.Context(), "s", 1000, epoch, children)
		if err != nil {
			t.Fatal(err)
		}
		if n := j.Commits() - before; n != 1 {
			t.Errorf("%d commits for 128 children, want 1", n)
		}
		for i, s := range sessions {
			stored, err := j.Session(s.UID)
			if diff := cmp.Diff(s, stored); diff != "" || err != nil {
				t.Fatalf("child %d: %v %s", i, err, diff)
			}
		}
		if s, err := j.Session("s"); err != nil || s.Head != parent {
			t.Errorf("the parent: %v, %v", s.Head, err)
		}
		child := func(uid abi.SessionID, name string) ForkChild {
			return ForkChild{UID: uid, Name: name, Event: event("f")}
		}
		for _, tt := range []struct {
			name     string
			parent   abi.SessionID
			at       abi.Seq
			children []ForkChild
			want     error
		}{
			{"no parent", "nobody", 1, []ForkChild{child("x", "")}, ErrNotFound},
			{"at nothing", "s", 0, []ForkChild{child("x", "")}, ErrNotFound},
			{"beyond the head", "s", 1001, []ForkChild{child("x", "")}, ErrNotFound},
			{"no children", "s", 1, nil, nil},
			{"uid taken", "s", 1, []ForkChild{child("x", ""), child("child-000", "")}, ErrExists},
			{"name taken", "s", 1, []ForkChild{child("x", ""), child("y", "taken")}, ErrExists},
			{"one uid twice", "s", 1, []ForkChild{child("x", ""), child("x", "")}, ErrExists},
			{"one name twice", "s", 1, []ForkChild{child("x", "z"), child("y", "z")}, ErrExists},
			{"too much", "s", 1, []ForkChild{{UID: "x", Event: event("f"), Meta: make([]byte, 3<<20)}}, ErrTooLarge},
			{"no event", "s", 1, []ForkChild{{UID: "x"}}, nil},
		} {
			_, err := j.Fork(t.Context(), tt.parent, tt.at, epoch, tt.children)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
		}
		if _, err := j.Session("x"); !errors.Is(err, ErrNotFound) {
			t.Errorf("a refused fork left a child: %v", err)
		}
		if fork(t, j, "s", 1, "x"); t.Failed() { // so it is free
			return
		}
	})
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, j, "s", "p", "n")
	head := extend(t, j, "s", 3)
	fork(t, j, "s", 2, "child")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if _, err := j.Append(context.Background(), "s", Append{Head: head, Events: [][]byte{event("x")}}); !errors.Is(err, ErrClosed) {
		t.Errorf("append to a closed journal: %v", err)
	}
	j = openIn(t, dir)
	if n, got, err := j.Verify(t.Context(), "s", VerifyOptions{Strict: true}); n != 3 || got != head || err != nil {
		t.Errorf("%d, %v, %v", n, got, err)
	}
	if extend(t, j, "s", 1).Seq != 4 || extend(t, j, "child", 1).Seq != 4 {
		t.Error("appends after reopening")
	}
}

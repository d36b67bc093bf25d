package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// narrow is a Storage with small limits, so that small batches are split.
type narrow struct{ Storage }

func (narrow) Limits() Limits { return Limits{Size: 8 << 10, Ahead: 16 << 10} }

// pair drives a journal on badger and one in memory with the same operations.
type pair struct {
	t *rapid.T
	// journals are the one on badger, the one in memory.
	journals [2]*Journal
	heads    map[abi.SessionID]Head // of all sessions, as last seen
	deleted  map[abi.SessionID]bool
	uids     []abi.SessionID
	blobs    [][]byte
	clock    time.Time
}

// both runs an operation on both journals, and wants it to end the same way. It
// reports whether it succeeded.
func both[T any](p *pair, op string, f func(j *Journal) (T, error)) (T, bool) {
	p.t.Helper()
	want, wantErr := f(p.journals[0])
	got, gotErr := f(p.journals[1])
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Fatalf("%s: badger, then memory: %s", op, diff)
	}
	if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
		p.t.Fatalf("%s: badger: %v, memory: %v", op, wantErr, gotErr)
	}
	for _, surprise := range []error{ErrPoisoned, ErrCorrupt, ErrFull} {
		if errors.Is(gotErr, surprise) {
			p.t.Fatalf("%s: %v", op, gotErr)
		}
	}
	return got, gotErr == nil
}

func (p *pair) uid(label string) abi.SessionID {
	if len(p.uids) > 0 && rapid.IntRange(0, 9).Draw(p.t, label+" exists") > 0 {
		return rapid.SampledFrom(p.uids).Draw(p.t, label)
	}
	return abi.SessionID("s" + rapid.StringMatching(`[a-c]{1,3}`).Draw(p.t, label))
}

func anyProject(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "p", "pq"}).Draw(t, "project")
}

func (p *pair) added(s Session) {
	p.uids = append(p.uids, s.UID)
	p.heads[s.UID] = s.Head
}

func (p *pair) Create(t *rapid.T) {
	s := Session{
		UID:     p.uid("uid"),
		Project: anyProject(t),
		Name:    rapid.SampledFrom([]string{"", "", "n", "m"}).Draw(t, "name"),
		Created: p.clock,
		Meta:    rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "meta"),
	}
	p.clock = p.clock.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "passes")) * time.Second)
	if s, ok := both(p, "create", func(j *Journal) (Session, error) { return j.Create(context.Background(), s) }); ok {
		p.added(s)
	}
}

func (p *pair) Append(t *rapid.T) {
	uid := p.uid("uid")
	a := Append{Head: p.heads[uid], Fence: p.heads[uid].Fence}
	a.Fence += abi.Fence(rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(t, "fence"))
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		a.Head.Seq--
	}
	for range rapid.IntRange(1, 4).Draw(t, "events") {
		a.Events = append(a.Events, event(rapid.StringOfN(rapid.RuneFrom([]rune("ab\u2028é")), 0, 3000, -1).Draw(t, "text")))
	}
	for range rapid.IntRange(0, 3).Draw(t, "blobs") {
		b := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "blob")
		a.Blobs = append(a.Blobs, bytes.Repeat(b, rapid.IntRange(0, 200).Draw(t, "times")))
	}
	a.Summary = rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "summary")
	records, ok := both(p, "append", func(j *Journal) ([]Record, error) { return j.Append(context.Background(), uid, a) })
	if ok {
		last := records[len(records)-1]
		p.heads[uid] = Head{Seq: last.Seq, Hash: last.Hash, Fence: last.Fence}
		p.blobs = append(p.blobs, a.Blobs...)
	}
}

func (p *pair) Fork(t *rapid.T) {
	parent := p.uid("parent")
	at := abi.Seq(rapid.IntRange(0, int(p.heads[parent].Seq)+1).Draw(t, "at"))
	var children []ForkChild
	for range rapid.IntRange(1, 3).Draw(t, "children") {
		children = append(children, ForkChild{
			UID:   abi.SessionID("s" + rapid.StringMatching(`[a-z]{3}`).Draw(t, "child")),
			Name:  rapid.SampledFrom([]string{"", "n", "x"}).Draw(t, "name"),
			Event: event(rapid.String().Draw(t, "text")),
		})
	}
	sessions, ok := both(p, "fork", func(j *Journal) ([]Session, error) {
		return j.Fork(context.Background(), parent, at, p.clock, children)
	})
	if ok {
		for _, s := range sessions {
			p.added(s)
		}
	}
}

func (p *pair) Delete(t *rapid.T) {
	uid := p.uid("uid")
	s, ok := both(p, "delete", func(j *Journal) (Session, error) { return j.Delete(context.Background(), uid, p.clock) })
	if ok && (!s.IsDeleted() || p.deleted[uid]) {
		t.Fatalf("delete %s, deleted before: %t: %+v", uid, p.deleted[uid], s)
	}
	p.deleted[uid] = p.deleted[uid] || ok
}

// Restore imports what is kept of a session as the session itself, or what it may
// have been before it grew.
func (p *pair) Restore(t *rapid.T) {
	uid := p.uid("uid")
	records, _ := gather(p.journals[0].Read(uid, 0, 0))
	older := rapid.IntRange(0, 4).Draw(t, "older") == 0
	if older && len(records) > 0 {
		records = records[:len(records)-1]
	}
	s, ok := both(p, "restore", func(j *Journal) (Session, error) {
		s, err := j.Session(uid)
		if err != nil {
			return s, err
		}
		s.Head = Head{}
		if n := len(records); n > 0 {
			s.Head = Head{Seq: records[n-1].Seq, Hash: records[n-1].Hash}
		}
		s.Deleted, s.Kept = time.Time{}, 0
		im, err := j.Import(s)
		if err != nil {
			return Session{}, err
		}
		defer im.Close()
		for _, r := range records {
			if _, err := im.Record(context.Background(), r.Fence, r.Line); err != nil {
				return Session{}, err
			}
		}
		return im.Commit(context.Background(), s.Summary)
	})
	if ok {
		p.deleted[uid] = false
		p.heads[uid] = s.Head
	}
}

func (p *pair) Read(t *rapid.T) {
	uid := p.uid("uid")
	top := int(p.heads[uid].Seq) + 2
	from := abi.Seq(rapid.IntRange(-1, top).Draw(t, "from"))
	to := abi.Seq(rapid.IntRange(-1, top).Draw(t, "to"))
	for name, read := range map[string]func(j *Journal) ([]Record, error){
		"read":         func(j *Journal) ([]Record, error) { return gather(j.Read(uid, from, to)) },
		"read reverse": func(j *Journal) ([]Record, error) { return gather(j.ReadReverse(uid, from, to)) },
	} {
		both(p, name, read)
	}
}

func gather(seq func(func(Record, error) bool)) (all []Record, err error) {
	for r, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

func (p *pair) List(t *rapid.T) {
	in, limit := anyProject(t), rapid.IntRange(1, 4).Draw(t, "limit")
	listed := 0
	for token := ""; ; {
		page, _ := both(p, "list", func(j *Journal) (ListPage, error) { return j.List(in, token, limit) })
		listed += len(page.Sessions)
		if token = page.Next; token == "" {
			break
		}
	}
	if listed > len(p.uids) {
		t.Fatalf("listed %d of %d sessions", listed, len(p.uids))
	}
}

func (p *pair) Find(t *rapid.T) {
	in, name := anyProject(t), rapid.SampledFrom([]string{"", "n", "m", "x"}).Draw(t, "name")
	both(p, "find name", func(j *Journal) (abi.SessionID, error) { return j.FindName(in, name) })
	prefix := string(p.uid("prefix"))
	prefix = prefix[:rapid.IntRange(0, len(prefix)).Draw(t, "length")]
	both(p, "find prefix", func(j *Journal) ([]abi.SessionID, error) { return j.FindPrefix(prefix, 5) })
}

func (p *pair) Blob(t *rapid.T) {
	b := rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "blob")
	if len(p.blobs) > 0 && rapid.Bool().Draw(t, "stored") {
		b = rapid.SampledFrom(p.blobs).Draw(t, "which")
		got, ok := both(p, "blob", func(j *Journal) ([]byte, error) { return j.Blob(abi.DigestOf(b)) })
		if !ok || !bytes.Equal(got, b) {
			t.Fatalf("a stored blob: %v", ok)
		}
	}
	both(p, "has blob", func(j *Journal) (bool, error) { return j.HasBlob(abi.DigestOf(b)) })
}

func (p *pair) Ref(t *rapid.T) {
	kind := rapid.SampledFrom([]string{"", "k", "kn"}).Draw(t, "kind")
	name := rapid.SampledFrom([]string{"", "n", "nk", "m"}).Draw(t, "name")
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		note := rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "note")
		both(p, "set ref", func(j *Journal) (struct{}, error) {
			return struct{}{}, j.SetRef(context.Background(), kind, Ref{Name: name, Digest: abi.DigestOf(note), Note: note})
		})
	case 1:
		about := p.uid("about")
		both(p, "add ref", func(j *Journal) (struct{}, error) {
			return struct{}{}, j.AddRef(context.Background(), kind, Ref{Name: name}, about)
		})
	case 2:
		both(p, "remove ref", func(j *Journal) (struct{}, error) {
			return struct{}{}, j.RemoveRef(context.Background(), kind, name)
		})
	default:
		both(p, "ref", func(j *Journal) (Ref, error) { return j.Ref(kind, name) })
		both(p, "refs", func(j *Journal) ([]Ref, error) { return j.Refs(kind) })
	}
}

// check compares what can be seen of every session.
func (p *pair) check(t *rapid.T) {
	for _, uid := range p.uids {
		s, ok := both(p, "session", func(j *Journal) (Session, error) { return j.Session(uid) })
		if !ok || s.Head != p.heads[uid] || s.IsDeleted() != p.deleted[uid] {
			t.Fatalf("session %s: head %v, deleted %t, want %v, %t", uid, s.Head, s.IsDeleted(), p.heads[uid], p.deleted[uid])
		}
		both(p, "verify", func(j *Journal) (Head, error) {
			n, head, err := j.Verify(context.Background(), uid, VerifyOptions{})
			if err != nil || n != int64(s.Head.Seq) {
				t.Fatalf("verify %s: %d records of %d, %v", uid, n, s.Head.Seq, err)
			}
			return head, nil
		})
	}
	both(p, "commits", func(j *Journal) (uint64, error) { return j.Commits(), nil })
}

// TestBothStoresAgree drives a journal on badger and one in memory by the same
// random operations and compares everything that can be observed.
func TestBothStoresAgree(t *testing.T) {
	disk, err := openBadger(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	rapid.Check(t, func(rt *rapid.T) {
		if err := disk.db.DropAll(); err != nil {
			rt.Fatal(err)
		}
		p := &pair{t: rt, heads: map[abi.SessionID]Head{}, deleted: map[abi.SessionID]bool{}, clock: epoch}
		for i, store := range []Storage{unclosed{narrow{disk}}, narrow{newMemory()}} {
			j, err := New(store, Options{})
			if err != nil {
				rt.Fatal(err)
			}
			defer j.Close()
			p.journals[i] = j
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create":  p.Create,
			"append":  p.Append,
			"fork":    p.Fork,
			"delete":  p.Delete,
			"restore": p.Restore,
			"read":    p.Read,
			"list":    p.List,
			"find":    p.Find,
			"blob":    p.Blob,
			"ref":     p.Ref,
		})
		p.check(rt)
	})
}

// unclosed is a Storage that outlives its journals.
type unclosed struct{ Storage }

func (unclosed) Close() error { return nil }

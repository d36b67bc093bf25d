package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

func remove(t testing.TB, j *Journal, uid abi.SessionID) Session {
	t.Helper()
	s, err := j.Delete(t.Context(), uid, epoch.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A deleted session is nowhere to be found by who does not know its uid, takes no
// append, and frees its name; its children do not notice.
func TestDelete(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		ctx := t.Context()
		create(t, j, "s1", "p", "name")
		create(t, j, "s2", "p", "other")
		head := extend(t, j, "s1", 5)
		fork(t, j, "s1", 3, "c")
		want, err := j.Session("s1")
		if err != nil {
			t.Fatal(err)
		}
		inherited := collectRecords(t, j.Read("c", 1, 0))

		got := remove(t, j, "s1")
		want.Deleted, want.Kept = epoch.Add(time.Hour).Truncate(time.Microsecond), 5
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("deleted session (-want +got):\n%s", diff)
		}
		for s, err := range j.Sessions() {
			if err != nil || s.IsDeleted() != (s.UID == "s1") {
				t.Errorf("session %s: deleted %t, %v", s.UID, s.IsDeleted(), err)
			}
		}
		for s, err := range j.Deleted() {
			if diff := cmp.Diff(want, s); diff != "" || err != nil {
				t.Errorf("deleted sessions (-want +got): %v\n%s", err, diff)
			}
		}
		if _, err := j.FindName("p", "name"); !errors.Is(err, ErrNotFound) {
			t.Errorf("its name: %v, want ErrNotFound", err)
		}
		if uids, err := j.FindPrefix("s", 5); err != nil || cmp.Diff([]abi.SessionID{"s2"}, uids) != "" {
			t.Errorf("sessions that begin with s: %v, %v, want s2", uids, err)
		}
		page, err := j.List("p", "", 10)
		if err != nil || len(page.Sessions) != 2 {
			t.Errorf("listed %d sessions, %v, want c and s2", len(page.Sessions), err)
		}
		for name, err := range map[string]error{
			"an append":          second(j.Append(ctx, "s1", Append{Head: head, Fence: head.Fence, Events: [][]byte{event("x")}})),
			"another delete":     second(j.Delete(ctx, "s1", epoch)),
			"a delete of no one": second(j.Delete(ctx, "s3", epoch)),
		} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %v, want ErrNotFound", name, err)
			}
		}
		if _, err := j.Create(ctx, Session{UID: "s1", Project: "p", Created: epoch}); !errors.Is(err, ErrExists) {
			t.Errorf("another session with its uid: %v, want ErrExists", err)
		}
		create(t, j, "s4", "p", "name")

		if diff := cmp.Diff(inherited, collectRecords(t, j.Read("c", 1, 0))); diff != "" {
			t.Errorf("records of its child (-before +after):\n%s", diff)
		}
		fork(t, j, "c", 2, "cc")
		fork(t, j, "s1", 5, "late")
		for _, uid := range []abi.SessionID{"c", "cc", "late", "s1"} {
			if _, _, err := j.Verify(ctx, uid, VerifyOptions{}); err != nil {
				t.Error(err)
			}
		}
		extend(t, j, "c", 1)
	})
}

func second[T any](_ T, err error) error { return err }

// largest is a Storage that remembers the size of the largest batch.
type largest struct {
	Storage
	size int
}

func (l *largest) Commit(b *Batch) error {
	l.size = max(l.size, b.Size()+b.AheadSize())
	return l.Storage.Commit(b)
}

// However long its history is, a session is deleted by one commit, and a small one.
func TestDelete_OneSmallCommit(t *testing.T) {
	store := &largest{Storage: newMemory()}
	j := journalOn(t, store)
	create(t, j, "s", "p", "name")
	for range 20 {
		extend(t, j, "s", 500)
	}
	before := j.Commits()
	store.size = 0
	remove(t, j, "s")
	if n := j.Commits() - before; n != 1 || store.size > 1<<10 {
		t.Errorf("%d commits, the largest of %d bytes", n, store.size)
	}
}

// Deletes and appends at once: each append is there before the delete or refused,
// and what the delete says is kept is there.
func TestDelete_Concurrent(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		for i := range 20 {
			uid := abi.SessionID(fmt.Sprint("s", i, "."))
			create(t, j, uid, "p", "name")
			var last abi.Seq
			done := make(chan error)
			go func() {
				var head Head
				for {
					records, err := j.Append(t.Context(), uid, Append{Head: head, Events: [][]byte{event("x")}})
					if err != nil {
						done <- err
						return
					}
					last = records[0].Seq
					head = Head{Seq: last, Hash: records[0].Hash}
				}
			}()
			s := remove(t, j, uid)
			if err := <-done; !errors.Is(err, ErrNotFound) {
				t.Fatalf("an append to the deleted session: %v, want ErrNotFound", err)
			}
			records := collectRecords(t, j.Read(uid, 1, 0))
			if s.Kept != last || s.Head.Seq != last || len(records) != int(last) {
				t.Fatalf("kept up to %d, head %d, %d records; the last append was %d", s.Kept, s.Head.Seq, len(records), last)
			}
			comesBack(t, j, s, records)
			remove(t, j, uid)
			if n, err := j.FindPrefix(string(uid), 9); err != nil || len(n) != 0 {
				t.Fatalf("still there: %v, %v", n, err)
			}
		}
	})
}

// comesBack imports the records as session s, which was deleted.
func comesBack(t testing.TB, j *Journal, s Session, records []Record) {
	t.Helper()
	if err := bringBack(t, j, s, records); err != nil {
		t.Fatal(err)
	}
}

func bringBack(t testing.TB, j *Journal, s Session, records []Record) error {
	t.Helper()
	s.Deleted, s.Kept, s.Head = time.Time{}, 0, Head{}
	if n := len(records); n > 0 {
		s.Head = Head{Seq: records[n-1].Seq, Hash: records[n-1].Hash}
	}
	im, err := j.Import(s)
	if err != nil {
		return err
	}
	defer im.Close()
	for _, r := range records {
		if _, err := im.Record(t.Context(), r.Fence, r.Line); err != nil {
			return err
		}
	}
	got, err := im.Commit(t.Context(), s.Summary)
	if err == nil && (got.IsDeleted() || got.Head != s.Head) {
		t.Errorf("came back as %+v, want %+v", got, s)
	}
	return err
}

// A deleted session comes back from a backup, whole and its own again, if the
// backup has the records that are kept; nobody else notices either way.
func TestImport_OfADeletedSession(t *testing.T) {
	longer := journalOn(t, newMemory())
	create(t, longer, "root", "p", "")
	extend(t, longer, "root", 9)
	all := collectRecords(t, longer.Read("root", 1, 0))
	forged := journalOn(t, newMemory())
	create(t, forged, "root", "p", "")
	extend(t, forged, "root", 1)
	if _, err := forged.Append(t.Context(), "root", Append{
		Head: headOf(t, forged, "root"), Events: [][]byte{event("forged"), event("2"), event("3"), event("4"), event("5")},
	}); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name    string
		records []Record
		want    error
	}{
		{"as it was", all[:5], nil},
		{"with what came later elsewhere", all, nil},
		{"an older one", all[:4], ErrKept},
		{"another one", collectRecords(t, forged.Read("root", 1, 0)), ErrKept},
		{"nothing", nil, ErrKept},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, j *Journal) {
				s := create(t, j, "root", "p", "name")
				extend(t, j, "root", 5)
				fork(t, j, "root", 4, "child")
				extend(t, j, "child", 2)
				remove(t, j, "root")
				create(t, j, "taken", "p", "name")
				if err := bringBack(t, j, s, tt.records); tt.want == nil && !errors.Is(err, ErrExists) {
					t.Fatalf("with a name that is taken: %v, want ErrExists", err)
				}
				remove(t, j, "taken")
				if err := bringBack(t, j, s, tt.records); !errors.Is(err, tt.want) {
					t.Fatalf("%v, want %v", err, tt.want)
				}
				if _, _, err := j.Verify(t.Context(), "child", VerifyOptions{Strict: true}); err != nil {
					t.Error(err)
				}
				got, err := j.Session("root")
				if err != nil {
					t.Fatal(err)
				}
				if got.IsDeleted() != (tt.want != nil) {
					t.Fatalf("deleted: %t", got.IsDeleted())
				}
				if tt.want != nil {
					return
				}
				if uid, err := j.FindName("p", "name"); err != nil || uid != "root" {
					t.Errorf("its name: %q, %v", uid, err)
				}
				extend(t, j, "root", 2)
				n, _, err := j.Verify(t.Context(), "root", VerifyOptions{})
				if err != nil || n != int64(len(tt.records))+2 {
					t.Errorf("%d records, %v", n, err)
				}
				remove(t, j, "root")
			})
		})
	}
}

func headOf(t testing.TB, j *Journal, uid abi.SessionID) Head {
	t.Helper()
	s, err := j.Session(uid)
	if err != nil {
		t.Fatal(err)
	}
	return s.Head
}

// A fork that was deleted and comes back has all of its records itself.
func TestImport_OfADeletedFork(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "root", "p", "")
		extend(t, j, "root", 3)
		s := fork(t, j, "root", 2, "child")[0]
		extend(t, j, "child", 2)
		fork(t, j, "child", 4, "grandchild")
		records := collectRecords(t, j.Read("child", 1, 0))
		remove(t, j, "child")
		remove(t, j, "root")
		comesBack(t, j, s, records)
		if diff := cmp.Diff(records, collectRecords(t, j.Read("child", 1, 0))); diff != "" {
			t.Errorf("records (-before +after):\n%s", diff)
		}
		extend(t, j, "child", 1)
		for _, uid := range []abi.SessionID{"child", "grandchild"} {
			if _, _, err := j.Verify(t.Context(), uid, VerifyOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
}

// A store of version 1 is read as it is, and is one of the newest version, which
// older programs refuse, from the first delete on.
func TestFormat_Version1(t *testing.T) {
	store := newMemory()
	j := journalOn(t, keepOpen{store})
	create(t, j, "s", "p", "")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	b := new(Batch)
	b.Put(Entry{[]byte{kindFormat}, binary.BigEndian.AppendUint32(nil, 1)})
	if err := store.Commit(b); err != nil {
		t.Fatal(err)
	}
	j = journalOn(t, keepOpen{store})
	extend(t, j, "s", 1)
	version := func() uint32 {
		row, err := j.get([]byte{kindFormat})
		if err != nil {
			t.Fatal(err)
		}
		return binary.BigEndian.Uint32(row)
	}
	if v := version(); v != 1 {
		t.Errorf("version %d after an append, want 1", v)
	}
	remove(t, j, "s")
	if v := version(); v != formatVersion {
		t.Errorf("version %d after a delete, want %d", v, formatVersion)
	}
}

// On a disk that is too full for an append a session can still be deleted, and what
// only it needed goes: that is how room is made. An append that comes with a delete
// has no more room than alone.
func TestDelete_OnAFullDisk(t *testing.T) {
	store, err := openBadger(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	free := int64(1 << 40)
	store.space.free = func(string) (int64, error) { return free, nil }
	j := journalOn(t, store)
	for _, uid := range []abi.SessionID{"s", "left"} {
		create(t, j, uid, "p", "")
		extend(t, j, uid, 3)
	}
	free = 1 << 30
	if _, err := j.PutBlob(t.Context(), []byte("blob")); !errors.Is(err, ErrFull) {
		t.Fatalf("a put: %v, want ErrFull", err)
	}
	done := make(chan error)
	go func() {
		_, err := j.Append(t.Context(), "left", Append{Head: headOf(t, j, "left"), Events: [][]byte{event("x")}})
		done <- err
	}()
	remove(t, j, "s")
	if err := <-done; !errors.Is(err, ErrFull) {
		t.Errorf("an append: %v, want ErrFull", err)
	}
	if c := collect(t, j); c.Sessions != 1 || c.Records != 3 {
		t.Errorf("collected %+v", c)
	}
	free = 1
	if _, err := j.Delete(t.Context(), "left", epoch); !errors.Is(err, ErrFull) {
		t.Errorf("a delete without any room: %v, want ErrFull", err)
	}
}

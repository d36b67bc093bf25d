package journal

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

// importOf begins to import a copy of session uid of from, as the session as.
func importOf(t testing.TB, to, from *Journal, uid abi.SessionID) (*Import, []Record) {
	t.Helper()
	s, err := from.Session(uid)
	if err != nil {
		t.Fatal(err)
	}
	im, err := to.Import(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(im.Close)
	return im, collectRecords(t, from.Read(uid, 1, 0))
}

// source has a root session, a fork of it, and a fork of that one.
func source(t testing.TB) *Journal {
	t.Helper()
	j := journalOn(t, newMemory())
	create(t, j, "root", "p", "the root")
	extend(t, j, "root", 5)
	fork(t, j, "root", 3, "child")
	extend(t, j, "child", 3)
	fork(t, j, "child", 5, "grandchild")
	extend(t, j, "grandchild", 2)
	return j
}

func TestImport(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		ctx := t.Context()
		from := source(t)
		for _, uid := range []abi.SessionID{"grandchild", "root"} {
			im, records := importOf(t, j, from, uid)
			blob := []byte("blob of " + uid)
			if err := im.PutBlob(ctx, blob); err != nil {
				t.Fatal(err)
			}
			for _, want := range records {
				got, err := im.Record(ctx, want.Fence, want.Line)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("record (-want +got):\n%s", diff)
				}
			}
			if b, err := im.Blob(abi.DigestOf(blob)); err != nil || string(b) != string(blob) {
				t.Errorf("the blob: %q, %v", b, err)
			}
			if _, err := j.Session(uid); !errors.Is(err, ErrNotFound) {
				t.Errorf("before Commit: %v, want ErrNotFound", err)
			}
			got, err := im.Commit(ctx, []byte("sum"))
			if err != nil {
				t.Fatal(err)
			}
			im.Close()
			want, err := from.Session(uid)
			if err != nil {
				t.Fatal(err)
			}
			want.Summary = []byte("sum")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("session (-want +got):\n%s", diff)
			}
			if stored, err := j.Session(uid); err != nil || cmp.Diff(want, stored) != "" {
				t.Errorf("stored: %v (-want +got):\n%s", err, cmp.Diff(want, stored))
			}
			if diff := cmp.Diff(records, collectRecords(t, j.Read(uid, 1, 0))); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if n, head, err := j.Verify(ctx, uid, VerifyOptions{Strict: true}); err != nil || n != int64(want.Head.Seq) || head != want.Head {
				t.Errorf("verify: %d records, %v, %v", n, head, err)
			}
		}
		if uid, err := j.FindName("p", "the root"); uid != "root" {
			t.Errorf("name: %q, %v", uid, err)
		}
		// It is a session like any other: it grows, and it forks at any record.
		head := extend(t, j, "grandchild", 1)
		fork(t, j, "grandchild", 4, "early")
		fork(t, j, "grandchild", head.Seq, "late")
		for _, uid := range []abi.SessionID{"grandchild", "early", "late"} {
			if _, _, err := j.Verify(ctx, uid, VerifyOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestImport_Empty(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		from := journalOn(t, newMemory())
		want := create(t, from, "empty", "p", "")
		im, _ := importOf(t, j, from, "empty")
		got, err := im.Commit(t.Context(), want.Summary)
		if err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(want, got))
		}
	})
}

// A second import of the same changes nothing; of anything else it is refused.
func TestImport_Again(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		ctx := t.Context()
		from := source(t)
		load := func() (Session, error) {
			im, records := importOf(t, j, from, "child")
			defer im.Close()
			for _, r := range records {
				if _, err := im.Record(ctx, r.Fence, r.Line); err != nil {
					return Session{}, err
				}
			}
			return im.Commit(ctx, []byte(fmt.Sprint("present ", im.Present())))
		}
		first, err := load()
		if err != nil {
			t.Fatal(err)
		}
		again, err := load()
		if err != nil || string(again.Summary) != "present false" {
			t.Errorf("again: %v, summary %q", err, again.Summary)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("again (-first +second):\n%s", diff)
		}

		s, err := from.Session("child")
		if err != nil {
			t.Fatal(err)
		}
		extend(t, j, "child", 1)
		if _, err := j.Import(s); !errors.Is(err, ErrExists) {
			t.Errorf("with another head: %v, want ErrExists", err)
		}
	})
}

func TestImport_Refused(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		ctx := t.Context()
		from := source(t)
		create(t, j, "other", "p", "the root")

		t.Run("twice at a time", func(t *testing.T) {
			im, _ := importOf(t, j, from, "child")
			if _, err := j.Import(Session{UID: "child", Project: "p"}); !errors.Is(err, ErrExists) {
				t.Errorf("got %v, want ErrExists", err)
			}
			im.Close()
			im, _ = importOf(t, j, from, "child")
			im.Close()
		})
		t.Run("name taken", func(t *testing.T) {
			im, records := importOf(t, j, from, "root")
			for _, r := range records {
				if _, err := im.Record(ctx, r.Fence, r.Line); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := im.Commit(ctx, nil); !errors.Is(err, ErrExists) {
				t.Errorf("got %v, want ErrExists", err)
			}
		})
		t.Run("made meanwhile", func(t *testing.T) {
			im, records := importOf(t, j, from, "grandchild")
			for _, r := range records {
				if _, err := im.Record(ctx, r.Fence, r.Line); err != nil {
					t.Fatal(err)
				}
			}
			create(t, j, "grandchild", "p", "")
			mine := extend(t, j, "grandchild", 2)
			if _, err := im.Commit(ctx, nil); !errors.Is(err, ErrExists) {
				t.Errorf("got %v, want ErrExists", err)
			}
			if _, head, err := j.Verify(ctx, "grandchild", VerifyOptions{}); err != nil || head != mine {
				t.Errorf("the other one: %v, %v", head, err)
			}
		})
		for _, tt := range []struct {
			name   string
			change func([]Record) []Record
		}{
			{"cut", func(r []Record) []Record { return r[:len(r)-1] }},
			{"removed", func(r []Record) []Record { return append(r[:2:2], r[3:]...) }},
			{"swapped", func(r []Record) []Record { r[1], r[2] = r[2], r[1]; return r }},
			{"edited", func(r []Record) []Record {
				r[2].Line = EncodeLine(event("edited"), r[2].Prev, r[2].Seq)
				return r
			}},
			{"edited at the end", func(r []Record) []Record {
				last := len(r) - 1
				r[last].Line = EncodeLine(event("edited"), r[last].Prev, r[last].Seq)
				return r
			}},
			{"no line", func(r []Record) []Record { r[0].Line = []byte("{}"); return r }},
			{"two lines", func(r []Record) []Record {
				r[0].Line = EncodeLine([]byte("{\n}"), abi.Digest{}, 1)
				return r
			}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				im, records := importOf(t, j, from, "child")
				defer im.Close()
				var err error
				for _, r := range tt.change(records) {
					if _, err = im.Record(ctx, r.Fence, r.Line); err != nil {
						break
					}
				}
				if err == nil {
					_, err = im.Commit(ctx, nil)
				}
				var broken *Broken
				if !errors.As(err, &broken) {
					t.Errorf("got %v, want a *Broken", err)
				}
				if _, err := j.Session("child"); !errors.Is(err, ErrNotFound) {
					t.Errorf("the session: %v, want ErrNotFound", err)
				}
			})
		}
	})
}

// diesAt is a Storage that commits so many batches and then none.
type diesAt struct {
	Storage
	left int
}

var errDied = errors.New("died")

func (d *diesAt) Commit(b *Batch) error {
	if d.left == 0 {
		return errDied
	}
	d.left--
	return d.Storage.Commit(b)
}

// A crash at every commit of an import leaves nothing that anybody sees, and the
// next import goes through whatever the one before left.
func TestImport_Crash(t *testing.T) {
	for _, kind := range []string{"memory", "badger"} {
		t.Run(kind, func(t *testing.T) {
			ctx := t.Context()
			from := journalOn(t, newMemory())
			create(t, from, "s", "p", "name")
			big := event(strings.Repeat("x", 300<<10))
			for range 12 { // more than two batches of records
				extend(t, from, "s", 1)
				s, err := from.Session("s")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := from.Append(ctx, "s", Append{Head: s.Head, Events: [][]byte{big}}); err != nil {
					t.Fatal(err)
				}
			}
			var store Storage = newMemory()
			if kind == "badger" {
				b, err := openBadger(t.TempDir(), -1)
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				store = b
			}
			// The journals on store do not own it.
			open := func(commits int) *Journal {
				j, err := New(&diesAt{Storage: keepOpen{store}, left: commits}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				return j
			}
			load := func(j *Journal) error {
				im, records := importOf(t, j, from, "s")
				defer im.Close()
				for _, r := range records {
					if err := im.PutBlob(ctx, r.Line); err != nil {
						return err
					}
					if _, err := im.Record(ctx, r.Fence, r.Line); err != nil {
						return err
					}
				}
				_, err := im.Commit(ctx, nil)
				return err
			}
			first := open(1) // makes the store
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			for commits := 0; ; commits++ {
				j := open(commits)
				err := load(j)
				if closeErr := j.Close(); closeErr != nil {
					t.Fatal(closeErr)
				}
				j = open(0)
				if err == nil {
					if n, _, err := j.Verify(ctx, "s", VerifyOptions{}); err != nil || n != 24 {
						t.Errorf("%d records, %v", n, err)
					}
					if commits < 4 {
						t.Errorf("the import took %d commits: too few to show anything", commits)
					}
					j.Close()
					return
				}
				if !errors.Is(err, errDied) {
					t.Fatal(err)
				}
				if _, err := j.Session("s"); !errors.Is(err, ErrNotFound) {
					t.Errorf("after %d commits the session is there: %v", commits, err)
				}
				if _, err := j.FindName("p", "name"); !errors.Is(err, ErrNotFound) {
					t.Errorf("after %d commits its name is there: %v", commits, err)
				}
				page, err := j.List("p", "", 10)
				if err != nil || len(page.Sessions) > 0 {
					t.Errorf("after %d commits List has %v, %v", commits, page, err)
				}
				j.Close()
			}
		})
	}
}

// keepOpen is a Storage that outlives its journals.
type keepOpen struct{ Storage }

func (keepOpen) Close() error { return nil }

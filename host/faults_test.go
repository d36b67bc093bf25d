package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// faulty is a Storage that a test spoils.
type faulty struct {
	journal.Storage
	// commit, if set, may refuse a batch, or say what became of it.
	commit atomic.Pointer[func(*journal.Batch) error]
	// rot, if set, is what a key's value has become.
	rot atomic.Pointer[func(key, value []byte) []byte]
}

// Commit implements journal.Storage.
func (f *faulty) Commit(b *journal.Batch) error {
	if refuse := f.commit.Load(); refuse != nil {
		if err := (*refuse)(b); err != nil {
			return err
		}
	}
	return f.Storage.Commit(b)
}

// View implements journal.Storage.
func (f *faulty) View() journal.View { return faultyView{f.Storage.View(), f} }

type faultyView struct {
	journal.View
	faulty *faulty
}

// Get implements journal.View.
func (v faultyView) Get(key []byte) ([]byte, error) {
	value, err := v.View.Get(key)
	if rot := v.faulty.rot.Load(); rot != nil && err == nil {
		value = (*rot)(key, value)
	}
	return value, err
}

// Scan implements journal.View.
func (v faultyView) Scan(from, to []byte, reverse bool) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		for e, err := range v.View.Scan(from, to, reverse) {
			if rot := v.faulty.rot.Load(); rot != nil && err == nil {
				e.Value = (*rot)(e.Key, e.Value)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// spoil puts a faulty Storage under a rig.
func (r *rig) spoil() *faulty {
	r.t.Helper()
	f := &faulty{Storage: journal.NewMemory()}
	r.reopen(f)
	return f
}

// reopen closes the journal and opens one on s, as a restart does.
func (r *rig) reopen(s journal.Storage) {
	r.t.Helper()
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
	store, err := journal.New(s, journal.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.store = store
}

// failAt refuses the n-th commit from now and all behind it, until the test lets
// go.
func (f *faulty) failAt(n int, err error) (letGo func()) {
	fail := func(*journal.Batch) error {
		if n--; n < 0 {
			return err
		}
		return nil
	}
	f.commit.Store(&fail)
	return func() { f.commit.Store(nil) }
}

// S3: a disk that fills at any commit of a turn costs that turn its run and
// nothing else. What was acknowledged stays; the session is as before or
// interrupted, and goes on when there is room again.
func TestS3_FullDiskAtEachCommit(t *testing.T) {
	for n := range 3 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t)
			f := r.spoil()
			r.open()
			s, other := r.createFrom(tally()), r.createFrom(tally())
			r.exec(s.UID, "one")
			before := mustGet(t, r, s.UID)
			letGo := f.failAt(n, journal.ErrFull)
			var shown []abi.Seq
			_, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("two"), Observe: func(u host.Update) {
				if u.Record != nil {
					shown = append(shown, u.Record.Seq)
				}
			}})
			if n == 2 { // a turn with one effect has two commits
				if err != nil {
					t.Fatal(err)
				}
				letGo()
				return
			}
			if !errors.Is(err, journal.ErrFull) {
				t.Fatalf("got %v", err)
			}
			after := mustGet(t, r, s.UID)
			if want := before.Head.Seq + abi.Seq(len(shown)); after.Head.Seq != want {
				t.Errorf("%d records were shown, the head went from %d to %d", len(shown), before.Head.Seq, after.Head.Seq)
			}
			// Reading goes on, writing is refused for everybody.
			r.verify(s.UID)
			if _, err := r.Exec(t.Context(), host.ExecRequest{Session: other.UID, Inputs: say("x")}); !errors.Is(err, journal.ErrFull) {
				t.Errorf("another session on the full disk: %v", err)
			}
			letGo()
			r.exec(other.UID, "x")
			if n == 0 {
				if after.State != host.ExecCompleted || after.Head != before.Head {
					t.Fatalf("after a turn of which nothing was written: %+v", after)
				}
				r.exec(s.UID, "two")
			} else {
				if after.State != host.ExecInterrupted {
					t.Fatalf("state %s", after.State)
				}
				if _, err := r.Resume(t.Context(), s.UID, nil); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.exec(s.UID, "three"); got[1] != "0003" {
				t.Errorf("put out %q", got)
			}
			if v := r.verify(s.UID); v.Reexecuted != 3 {
				t.Errorf("verified %+v", v)
			}
		})
	}
}

// A failed sync leaves open what was written: the host must not go on, nor say
// that it knows. Opened again, whichever it was, the session goes on.
func TestS3_PoisonedJournal(t *testing.T) {
	for _, written := range []bool{false, true} {
		for n := range 2 {
			t.Run(fmt.Sprintf("commit %d, written %t", n, written), func(t *testing.T) {
				r := newRig(t)
				f := r.spoil()
				r.open()
				s := r.createFrom(tally())
				r.exec(s.UID, "one")
				torn := errors.New("fsync: input/output error")
				left := n
				fail := func(b *journal.Batch) error {
					if left--; left >= 0 {
						return nil
					}
					if written {
						written = false
						if err := f.Storage.Commit(b); err != nil {
							return err
						}
					}
					return torn
				}
				wrote := written
				f.commit.Store(&fail)
				var shown abi.Seq
				_, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("two"), Observe: func(u host.Update) {
					if u.Record != nil {
						shown = u.Record.Seq
					}
				}})
				if !errors.Is(err, journal.ErrPoisoned) || !errors.Is(err, torn) {
					t.Fatalf("got %v", err)
				}
				f.commit.Store(nil)
				// The disk works again, the journal does not believe it.
				if _, err := r.Create(t.Context(), host.CreateRequest{Harness: tally()}); !errors.Is(err, journal.ErrPoisoned) {
					t.Errorf("create on a poisoned journal: %v", err)
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				r.reopen(f)
				r.open()
				got := mustGet(t, r, s.UID)
				if got.Head.Seq < shown {
					t.Errorf("seq %d was shown, the head is %d", shown, got.Head.Seq)
				}
				want := map[bool]host.ExecState{true: host.ExecInterrupted, false: host.ExecCompleted}[(n == 0) == wrote]
				if got.State != want {
					t.Errorf("state %s, want %s", got.State, want)
				}
				if got.State == host.ExecInterrupted {
					if _, err := r.Resume(t.Context(), s.UID, nil); err != nil {
						t.Fatal(err)
					}
				}
				r.exec(s.UID, "last")
				r.verify(s.UID)
			})
		}
	}
}

// A row that rots concerns the session it belongs to: that one is told, by name,
// and the others go on.
func TestS3_RotConcernsOneSession(t *testing.T) {
	for _, tt := range []struct {
		name string
		// key is the row that rots.
		key func(s host.Session, page abi.Digest) []byte
		// exec: the next turn finds it; verify finds the others. says is how it is named.
		exec bool
		says string
	}{
		{"record", func(s host.Session, _ abi.Digest) []byte {
			return append([]byte("r"+string(s.UID)+"\x00"), 0, 0, 0, 0, 0, 0, 0, 6)
		}, false, "record 6"},
		{"image", func(s host.Session, _ abi.Digest) []byte { return append([]byte("i"), s.Root[:]...) }, true, "image"},
		{"page", func(_ host.Session, page abi.Digest) []byte { return append([]byte("p"), page[:]...) }, true, "page 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			f := r.spoil()
			r.open()
			s, other := r.createFrom(tally()), r.createFrom(tally())
			for _, uid := range []abi.SessionID{s.UID, other.UID} {
				r.exec(uid, "one")
				r.exec(uid, "two")
			}
			before := mustGet(t, r, s.UID)
			rotten := tt.key(before, r.page(before.Root, 1)) // the page with the turn's randomness
			seen := false
			rot := func(key, value []byte) []byte {
				if bytes.Equal(key, rotten) {
					seen = true
					value = slices.Clone(value)
					value[len(value)/2] ^= 0x20
				}
				return value
			}
			f.rot.Store(&rot)
			r.open() // a new host has nothing in memory
			check := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), string(s.UID)) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if tt.exec {
				_, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("three")})
				check("the next turn", err)
			} else {
				_, err := r.Verify(t.Context(), host.VerifyRequest{Session: s.UID})
				check("verify", err)
			}
			if diff := cmp.Diff(stored(before), stored(mustGet(t, r, s.UID))); diff != "" || !seen {
				t.Errorf("the row was read: %t; the session changed: %s", seen, diff)
			}
			if got := r.exec(other.UID, "three"); got[1] != "0003" {
				t.Errorf("the other session puts out %q", got)
			}
			r.verify(other.UID)
			// What rots and comes back was never given up.
			f.rot.Store(nil)
			r.open()
			r.exec(s.UID, "three")
			r.verify(s.UID)
		})
	}
}

// page is the digest of a page's leaf.
func (r *rig) page(root abi.Digest, index uint32) abi.Digest {
	r.t.Helper()
	im, err := r.store.LoadImage(root)
	if err != nil {
		r.t.Fatal(err)
	}
	leaf := make([]byte, 1+abi.PageSize)
	if err := r.store.ReadPage(im, index, leaf[1:]); err != nil {
		r.t.Fatal(err)
	}
	return abi.DigestOf(leaf)
}

// M4: whenever an END of a harness that holds memory is durable, so is all that
// its root names, whichever commit the host does not survive; the END of a turn
// that failed, and of a session's first, too.
func TestM4_RootsAreThereBetweenCommits(t *testing.T) {
	r := newRig(t)
	f := r.spoil()
	r.open()
	sessions := []host.Session{r.createFrom(tally()), r.createFrom(cell{run: "unreachable"}.harness("trap"))}
	check := func(*journal.Batch) error {
		for _, s := range sessions {
			if err := r.readRoots(s.UID); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	f.commit.Store(&check)
	for range 2 {
		for _, s := range sessions {
			if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("x")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.commit.Store(nil)
	_ = check(nil)
	for _, s := range sessions {
		if got := mustGet(t, r, s.UID); got.Turns != 2 {
			t.Errorf("%d turns ended", got.Turns)
		}
	}
}

// readRoots reads every page that an END of the session names.
func (r *rig) readRoots(uid abi.SessionID) error {
	page := make([]byte, abi.PageSize)
	for rec, err := range r.Replay(context.Background(), uid, 0, 0) {
		if err != nil {
			return err
		}
		if rec.Event.Kind != abi.EventEnd {
			continue
		}
		im, err := r.store.LoadImage(rec.Event.Cell.Root)
		if err != nil {
			return fmt.Errorf("seq %d: %w", rec.Seq, err)
		}
		for i := range uint32(im.Size() / abi.PageSize) {
			if err := r.store.ReadPage(im, i, page); err != nil {
				return fmt.Errorf("seq %d: %w", rec.Seq, err)
			}
		}
	}
	return nil
}

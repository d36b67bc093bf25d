package journal

import (
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentcell/agentcell/sdk/abi"
)

func TestSessions(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		var want []Session
		for i, project := range []string{"b", "a", "b"} {
			want = append(want, create(t, j, abi.SessionID(fmt.Sprint("s", i)), project, ""))
		}
		want[1].Head = extend(t, j, "s1", 3)
		var got []Session
		for s, err := range j.Sessions() {
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 {
				create(t, j, "s9", "a", "") // too late for this walk
			}
			got = append(got, s)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		for range j.Sessions() {
			break
		}
	})
}

// S3: what is broken of one session keeps no other one from being found.
func TestS3_SessionsBehindABrokenOne(t *testing.T) {
	store := newMemory()
	j := journalOn(t, store)
	for i := range 5 {
		create(t, j, abi.SessionID(fmt.Sprint("s", i)), "p", "")
	}
	for key, value := range map[string][]byte{
		string(metaKey("s1")): {metaVersion, 0xff},
		string(headKey("s3")): {1, 2, 3},
	} {
		b := &Batch{}
		b.Put(Entry{[]byte(key), value})
		if err := store.Commit(b); err != nil {
			t.Fatal(err)
		}
	}
	read := func(walk iter.Seq2[Session, error]) map[abi.SessionID]bool {
		got := map[abi.SessionID]bool{}
		for s, err := range walk {
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			got[s.UID] = err == nil
		}
		return got
	}
	if diff := cmp.Diff(map[abi.SessionID]bool{"s0": true, "s1": false, "s2": true, "s3": false, "s4": true}, read(j.Sessions())); diff != "" {
		t.Errorf("read (-want +got)\n%s", diff)
	}
	// s1 has its head.
	if diff := cmp.Diff(map[abi.SessionID]bool{"s0": true, "s1": true, "s2": true, "s3": false, "s4": true}, read(j.Heads())); diff != "" {
		t.Errorf("heads (-want +got)\n%s", diff)
	}
}

// Heads are those of sessions, also while others are written.
func TestHeads(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		for i := range 3 {
			uid := abi.SessionID(fmt.Sprint("s", i))
			create(t, j, uid, "p", "")
			extend(t, j, uid, i+1)
		}
		fork(t, j, "s0", 1, "t")
		n := 0
		for got, err := range j.Heads() {
			if n++; n == 1 {
				create(t, j, "z", "p", "")
			}
			want, wantErr := j.Session(got.UID)
			if err != nil || wantErr != nil {
				t.Fatal(err, wantErr)
			}
			want = Session{UID: want.UID, Head: want.Head, Summary: want.Summary}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		}
		if n != 4 {
			t.Errorf("%d heads", n)
		}
	})
}

package host_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

func save(t *testing.T, r *rig, req host.SaveRequest) host.Snapshot {
	t.Helper()
	s, err := r.Save(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func snapshots(t *testing.T, r *rig, project string) []host.Snapshot {
	t.Helper()
	all, err := r.Snapshots(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func fromSnapshot(t *testing.T, r *rig, name string) host.Session {
	t.Helper()
	s, err := r.CreateFromSnapshot(t.Context(), host.FromSnapshotRequest{Snapshot: name, Labels: map[string]string{"from": name}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// hashes are the hashes of a session's record, by seq from 1.
func hashes(t *testing.T, r *rig, uid abi.SessionID) []abi.Digest {
	t.Helper()
	all := []abi.Digest{{}}
	for _, line := range r.transcript(uid) {
		all = append(all, abi.DigestOf([]byte(line)))
	}
	return all
}

// A snapshot stands for one point whatever its session does next, in another host
// too; what is made from it is a fork there, proven like any other.
func TestSnapshots(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	r := newRig(t)
	r.now = func() time.Time { return at }
	r.open()
	s := r.create("steps")
	r.exec(s.UID, "output x; model y")
	first := mustGet(t, r, s.UID)
	record := hashes(t, r, s.UID)
	commits := r.store.Commits()
	want := host.Snapshot{
		Project: "default", Name: "one", Session: s.UID, At: first.Head.Seq, Hash: first.Head.Hash,
		Root: first.Root, Turns: 1, Harness: "steps", Module: s.Module, Saved: at,
	}
	if diff := cmp.Diff(want, save(t, r, host.SaveRequest{Session: s.UID, Name: "one"})); diff != "" {
		t.Error(diff)
	}
	if n := r.store.Commits() - commits; n != 1 {
		t.Errorf("a snapshot took %d commits", n)
	}
	if diff := cmp.Diff(record, hashes(t, r, s.UID)); diff != "" {
		t.Errorf("the record changed: %s", diff)
	}
	r.exec(s.UID, "output z")
	second := want
	second.Name, second.Turns = "a-second", 2
	now := mustGet(t, r, s.UID)
	second.At, second.Hash, second.Root = now.Head.Seq, now.Head.Hash, now.Root
	if diff := cmp.Diff(second, save(t, r, host.SaveRequest{Session: s.UID, Name: second.Name})); diff != "" {
		t.Error(diff)
	}

	// In another host, and of its project alone.
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.open()
	if diff := cmp.Diff([]host.Snapshot{second, want}, snapshots(t, r, "")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]host.Snapshot(nil), snapshots(t, r, "default2")); diff != "" {
		t.Error(diff)
	}
	got, err := r.Snapshot(t.Context(), "", "one")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	child := fromSnapshot(t, r, "one")
	if child.Parent != s.UID || child.ForkSeq != first.Head.Seq || child.Turns != 1 || child.Root != first.Root || child.Labels["from"] != "one" {
		t.Errorf("child %+v", child)
	}
	if got := r.exec(child.UID, "count"); got[0] != "2" {
		t.Errorf("a session from the first snapshot counts %s", got[0])
	}
	if got := r.exec(fromSnapshot(t, r, second.Name).UID, "count"); got[0] != "3" {
		t.Errorf("a session from the second snapshot counts %s", got[0])
	}
	r.verify(child.UID)

	// Away with a name; what came from it stays.
	if err := r.RemoveSnapshot(t.Context(), "", "one"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]host.Snapshot{second}, snapshots(t, r, "default")); diff != "" {
		t.Error(diff)
	}
	if got := r.exec(child.UID, "count"); got[0] != "3" {
		t.Errorf("after rm it counts %s", got[0])
	}
	save(t, r, host.SaveRequest{Session: child.UID, Name: "one"})
}

// Any point that can be forked can be saved: at each of a record, a session from
// the snapshot is what a fork there is.
func TestSnapshotEverywhere(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "output before")
	r.exec(s.UID, "model one; output two; rand; clock; count")
	saved := 0
	for at := abi.Seq(1); at <= mustGet(t, r, s.UID).Head.Seq; at++ {
		children, forkErr := r.Fork(t.Context(), host.ForkRequest{Session: s.UID, At: at})
		name := fmt.Sprintf("at-%d", at)
		got, err := r.Save(t.Context(), host.SaveRequest{Session: s.UID, At: at, Name: name})
		if forkErr != nil {
			if cause := errors.Unwrap(forkErr); err == nil || errors.Unwrap(err).Error() != cause.Error() {
				t.Errorf("save at %d: %v, fork: %v", at, err, forkErr)
			}
			continue
		}
		if err != nil {
			t.Errorf("save at %d: %v", at, err)
			continue
		}
		saved++
		child := fromSnapshot(t, r, name)
		fork := children[0]
		if child.State != fork.State || child.Root != fork.Root || child.Turns != fork.Turns || child.Execution != fork.Execution {
			t.Errorf("at %d: %+v from the snapshot, %+v from the fork", at, child, fork)
		}
		if open := fork.State == host.ExecInterrupted; got.Open != open || got.Root != fork.Root || got.Turns != fork.Turns {
			t.Errorf("at %d: the snapshot %+v of a fork that is %s", at, got, fork.State)
		} else if open {
			r.resume(child.UID)
		}
		r.verify(child.UID)
	}
	all := snapshots(t, r, "")
	if len(all) != saved || saved < 8 {
		t.Errorf("%d of %d snapshots are there", len(all), saved)
	}
	// Nor does it take the session.
	if _, err := r.Delete(t.Context(), s.UID, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, snapshots(t, r, "")); diff != "" {
		t.Error(diff)
	}
	for _, saved := range all {
		child := fromSnapshot(t, r, saved.Name)
		if saved.Open {
			r.resume(child.UID)
		}
		r.exec(child.UID, "output after")
		r.verify(child.UID)
	}
}

// A turn that is open is not part of what is saved, unless it is asked for.
func TestSnapshotOfOpenTurn(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	if _, err := r.Save(t.Context(), host.SaveRequest{Session: s.UID, Name: "none"}); !errors.Is(err, host.ErrConflict) {
		t.Errorf("a session without a turn: got error %v, want ErrConflict", err)
	}
	r.exec(s.UID, "output x")
	closed := mustGet(t, r, s.UID)
	inside := fork(t, r, host.ForkRequest{Session: s.UID, At: closed.Head.Seq - 1})[0]
	if inside.State != host.ExecInterrupted {
		t.Fatalf("a fork inside a turn is %s", inside.State)
	}
	open := save(t, r, host.SaveRequest{Session: inside.UID, At: inside.Head.Seq, Name: "open"})
	if !open.Open || open.Turns != 0 {
		t.Errorf("%+v", open)
	}
	if _, err := r.Save(t.Context(), host.SaveRequest{Session: inside.UID, Name: "closed"}); !errors.Is(err, host.ErrConflict) {
		t.Errorf("a session without a closed point: got error %v, want ErrConflict", err)
	}
	r.resume(fromSnapshot(t, r, "open").UID)
	if got := mustGet(t, r, inside.UID); got.State != host.ExecInterrupted {
		t.Errorf("the session that was saved is %s", got.State)
	}
}

// A name is never taken from what it stands for: of all who save at once under one
// name, one does.
func TestSnapshotNames(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "output x")
	r.exec(s.UID, "output y")
	var ends []abi.Seq
	for rec, err := range r.Replay(t.Context(), s.UID, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Event.Kind == abi.EventEnd {
			ends = append(ends, rec.Seq)
		}
	}
	const rivals = 8
	won := make([]host.Snapshot, rivals)
	errs := make([]error, rivals)
	var all sync.WaitGroup
	for i := range rivals {
		all.Go(func() {
			won[i], errs[i] = r.Save(t.Context(), host.SaveRequest{Session: s.UID, At: ends[i%len(ends)], Name: "rival"})
		})
	}
	all.Wait()
	winner := slices.Index(errs, nil)
	if winner < 0 {
		t.Fatal(errs)
	}
	for i, err := range errs {
		if i != winner && !errors.Is(err, host.ErrExists) {
			t.Errorf("got error %v, want ErrExists", err)
		}
	}
	if diff := cmp.Diff([]host.Snapshot{won[winner]}, snapshots(t, r, "")); diff != "" {
		t.Error(diff)
	}

	before := r.store.Commits()
	for _, bad := range []struct {
		req  host.SaveRequest
		want error
	}{
		{host.SaveRequest{Session: s.UID}, host.ErrInvalid},
		{host.SaveRequest{Session: s.UID, Name: "a/b"}, host.ErrInvalid},
		{host.SaveRequest{Session: s.UID, Name: "sess-1"}, host.ErrInvalid},
		{host.SaveRequest{Session: s.UID, Name: "n", At: -1}, host.ErrInvalid},
		{host.SaveRequest{Session: s.UID, Name: "n", At: 2}, host.ErrMidTurn},
		{host.SaveRequest{Session: s.UID, Name: "n", At: 1000}, host.ErrNotFound},
		{host.SaveRequest{Session: "sess-none", Name: "n"}, host.ErrNotFound},
		{host.SaveRequest{Session: s.UID, Name: "rival"}, host.ErrExists},
	} {
		if _, err := r.Save(t.Context(), bad.req); !errors.Is(err, bad.want) {
			t.Errorf("save %+v: got error %v, want %v", bad.req, err, bad.want)
		}
	}
	long := strings.Repeat("n", 300)
	for _, bad := range []struct {
		req  host.FromSnapshotRequest
		want error
	}{
		{host.FromSnapshotRequest{Snapshot: "none"}, host.ErrNotFound},
		{host.FromSnapshotRequest{Snapshot: ""}, host.ErrNotFound},
		{host.FromSnapshotRequest{Snapshot: long}, host.ErrNotFound},
		{host.FromSnapshotRequest{Snapshot: "rival", Project: "other"}, host.ErrNotFound},
		{host.FromSnapshotRequest{Snapshot: "rival", Name: "a/b"}, host.ErrInvalid},
		{host.FromSnapshotRequest{Snapshot: "rival", Labels: map[string]string{"a b": ""}}, host.ErrInvalid},
	} {
		if _, err := r.CreateFromSnapshot(t.Context(), bad.req); !errors.Is(err, bad.want) {
			t.Errorf("create from %+v: got error %v, want %v", bad.req, err, bad.want)
		}
	}
	for _, err := range []error{r.RemoveSnapshot(t.Context(), "", "none"), r.RemoveSnapshot(t.Context(), "other", "rival")} {
		if !errors.Is(err, host.ErrNotFound) {
			t.Errorf("remove: got error %v, want ErrNotFound", err)
		}
	}
	if n := r.store.Commits() - before; n != 0 {
		t.Errorf("%d commits for what was refused", n)
	}
	named := host.FromSnapshotRequest{Snapshot: "rival", Name: "rival"}
	if s, err := r.CreateFromSnapshot(t.Context(), named); err != nil || s.Name != "rival" {
		t.Errorf("a session of the snapshot's name: %+v, %v", s, err)
	}
	if _, err := r.CreateFromSnapshot(t.Context(), named); !errors.Is(err, host.ErrExists) {
		t.Errorf("the same again: got error %v, want ErrExists", err)
	}
}

// An imported session has the image of its head alone. Saving an earlier point
// makes the one that is needed there, for good.
func TestSnapshotOfImported(t *testing.T) {
	here := newRig(t).open()
	s := here.create("steps")
	here.exec(s.UID, "output x")
	end := mustGet(t, here, s.UID)
	here.exec(s.UID, "output y")
	file := here.export(s.UID)

	there := newRig(t).open()
	there.load(file)
	if _, err := there.store.LoadImage(end.Root); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("the image of seq %d: %v, want ErrNotFound", end.Head.Seq, err)
	}
	saved := save(t, there, host.SaveRequest{Session: s.UID, At: end.Head.Seq, Name: "earlier"})
	if saved.Root != end.Root {
		t.Errorf("the root is %s, want %s", saved.Root.Short(), end.Root.Short())
	}
	if _, err := there.store.LoadImage(end.Root); err != nil {
		t.Error(err)
	}
	if _, err := there.Delete(t.Context(), s.UID, false); err != nil {
		t.Fatal(err)
	}
	child := fromSnapshot(t, there, "earlier")
	if got := there.exec(child.UID, "count"); got[0] != "1" {
		t.Errorf("it counts %s", got[0])
	}
	there.verify(child.UID)
}

// A name that stands for another record than it did, or for nothing that can be
// read, is said to be broken and makes nothing.
func TestCorruptSnapshot(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "output x")
	save(t, r, host.SaveRequest{Session: s.UID, Name: "good"})
	ref, err := r.store.Ref("snapshot", "default/good")
	if err != nil {
		t.Fatal(err)
	}
	ref.Name, ref.Digest = "default/moved", abi.DigestOf(nil)
	if err := r.store.SetRef(t.Context(), "snapshot", ref); err != nil {
		t.Fatal(err)
	}
	_, err = r.CreateFromSnapshot(t.Context(), host.FromSnapshotRequest{Snapshot: "moved", Name: "n"})
	if !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("got error %v, want ErrCorrupt", err)
	}
	if _, err := r.Resolve(t.Context(), "", "n"); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("the session is there: %v", err)
	}
	if err := r.store.SetRef(t.Context(), "snapshot", journal.Ref{Name: "default/torn", Note: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Snapshots(t.Context(), ""); err == nil {
		t.Error("a torn snapshot was listed")
	}
	if err := r.RemoveSnapshot(t.Context(), "", "torn"); err != nil {
		t.Error(err)
	}
}

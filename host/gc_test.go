package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

func (r *rig) collect() journal.Collected {
	r.t.Helper()
	c, err := r.Collect(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) delete(uid abi.SessionID) {
	r.t.Helper()
	if _, err := r.Delete(context.Background(), uid, true); err != nil {
		r.t.Fatal(err)
	}
}

// has reports whether the store has a blob, and an image.
func (r *rig) has(blob, image abi.Digest) (bool, bool) {
	r.t.Helper()
	stored, err := r.store.HasBlob(blob)
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = r.store.LoadImage(image)
	if err != nil && !errors.Is(err, journal.ErrNotFound) {
		r.t.Fatal(err)
	}
	return stored, err == nil
}

// What a fork, a snapshot, and a pushed harness need of a deleted session stays,
// proven like anything else; when the last one goes so does everything.
func TestM5_Collect(t *testing.T) {
	r := newRig(t).open()
	ctx := t.Context()
	s := r.create("counter")
	r.exec(s.UID, "1")
	first := mustGet(t, r, s.UID)
	save(t, r, host.SaveRequest{Session: s.UID, Name: "first"})
	r.exec(s.UID, "2")
	second := mustGet(t, r, s.UID)
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	r.exec(s.UID, "3")
	third := mustGet(t, r, s.UID)
	chats := r.create("chat")
	r.exec(chats.UID, "hello")
	r.exec(chats.UID, "hello again")

	if c := r.collect(); c.Bytes != 0 {
		t.Errorf("collected although everything is needed: %+v", c)
	}
	r.delete(s.UID)
	c := r.collect()
	if c.Sessions != 0 || c.Records != int64(third.Head.Seq-second.Head.Seq) || c.Images != 1 || c.Pages == 0 {
		t.Errorf("collected %+v, want the records and the image of the last turn", c)
	}
	if _, there := r.has(s.Module, third.Root); there {
		t.Error("the last image is still there")
	}
	r.exec(child.UID, "10")
	r.verify(child.UID)
	r.verify(chats.UID)

	r.delete(child.UID)
	if c := r.collect(); c.Sessions != 1 {
		t.Errorf("collected %+v, want the child to go", c)
	}
	if module, image := r.has(s.Module, first.Root); !module || !image {
		t.Errorf("of what was saved: module %t, image %t", module, image)
	}
	again := fromSnapshot(t, r, "first")
	r.exec(again.UID, "20")
	r.verify(again.UID)
	r.delete(again.UID)
	if err := r.RemoveSnapshot(ctx, "", "first"); err != nil {
		t.Fatal(err)
	}
	if c := r.collect(); c.Sessions != 2 {
		t.Errorf("collected %+v, want what the snapshot held", c)
	}
	r.exec(chats.UID, "once more")
	r.verify(chats.UID)
	if module, image := r.has(s.Module, first.Root); module || image {
		t.Errorf("nobody needs them: module %t, image %t", module, image)
	}

	pushed, err := r.PushHarness(ctx, host.Harness{Name: "mine", Code: harness(t, "chat").Code})
	if err != nil {
		t.Fatal(err)
	}
	r.delete(chats.UID)
	if c := r.collect(); c.Sessions != 1 || c.Blobs == 0 {
		t.Errorf("collected %+v", c)
	}
	if module, _ := r.has(pushed.Module, abi.Digest{}); !module {
		t.Error("the pushed harness is gone")
	}
	if err := r.RemoveHarness(ctx, "mine"); err != nil {
		t.Fatal(err)
	}
	if c := r.collect(); c.Blobs != 1 {
		t.Errorf("collected %+v, want the module", c)
	}
	for s := range r.store.Sessions() {
		t.Errorf("left: %+v", s)
	}
}

// Usage says who needs how much, what goes with whom, and for whom deleted sessions
// are kept.
func TestUsage(t *testing.T) {
	r := newRig(t).open()
	s := r.create("counter")
	r.exec(s.UID, "1")
	save(t, r, host.SaveRequest{Session: s.UID, Name: "first"})
	r.exec(s.UID, "2")
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	r.exec(child.UID, "3")
	other := r.create("chat")
	r.exec(other.UID, "hello")
	r.delete(s.UID)

	u, err := r.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]host.Keeper{}
	for _, k := range u.Keepers {
		name := map[abi.SessionID]string{child.UID: "child", other.UID: "other"}[k.Session.UID]
		if k.Snapshot != "" {
			name = k.Project + "/" + k.Snapshot
		}
		got[name] = k
	}
	heads := map[string]abi.Seq{
		"child": mustGet(t, r, child.UID).Head.Seq, "other": mustGet(t, r, other.UID).Head.Seq, "default/first": child.ForkSeq - 4,
	}
	if len(got) != len(heads) {
		t.Fatalf("told of %v", got)
	}
	for name, head := range heads {
		if k := got[name]; k.Total.Records != int64(head) || k.Total.Bytes() < k.Own.Bytes() || k.Total.Blobs == 0 {
			t.Errorf("%s: %+v, want %d records", name, k, head)
		}
	}
	if k := got["child"]; k.Own.Records != int64(heads["child"]-heads["default/first"]) || k.Own.Images != 2 || k.Own.Blobs != 0 {
		t.Errorf("the child's own: %+v", k.Own)
	}
	if k := got["default/first"]; k.Own != (journal.Amount{}) {
		t.Errorf("the child needs what the snapshot does: %+v", k.Own)
	}
	if len(u.Deleted) != 1 || u.Deleted[0].Session.Compute != host.ComputeTerminated || len(u.Deleted[0].For) != 2 {
		t.Errorf("deleted: %+v", u.Deleted)
	}
	r.delete(child.UID)
	if u, err = r.Usage(t.Context()); err != nil || u.Garbage != got["child"].Own {
		t.Errorf("garbage without the child: %+v, want what was its own, %+v; %v", u.Garbage, got["child"].Own, err)
	}
}

// Turns run, sessions fork, are saved, deleted and made from what was saved, while
// Collect runs again and again: what is left is whole.
func TestM5_CollectBesideTurns(t *testing.T) {
	r := newRig(t).open()
	const lanes, rounds = 3, 12
	errs := make([]error, lanes)
	left := make([][]abi.SessionID, lanes)
	var all sync.WaitGroup
	for lane := range lanes {
		code := harness(t, []string{"counter", "chat", "counter"}[lane])
		all.Go(func() { left[lane], errs[lane] = churn(r, code, fmt.Sprint("lane", lane), rounds) })
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	for going := true; going; {
		r.collect()
		select {
		case <-done:
			going = false
		default:
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	r.collect()
	for _, uids := range left {
		for _, uid := range uids {
			r.exec(uid, "5")
			r.verify(uid)
		}
	}
}

// churn makes sessions and deletes most of them; it gives those that are left.
func churn(r *rig, code host.Harness, name string, rounds int) (left []abi.SessionID, err error) {
	ctx := context.Background()
	for round := range rounds {
		s, err := r.Create(ctx, host.CreateRequest{Harness: code})
		if err != nil {
			return nil, err
		}
		for turn := range 2 {
			// Few different inputs: the lanes come to the same images and blobs.
			if _, err := r.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: say(fmt.Sprint(round%3 + turn))}); err != nil {
				return nil, err
			}
		}
		saved := fmt.Sprint(name, round)
		if _, err := r.Save(ctx, host.SaveRequest{Session: s.UID, Name: saved}); err != nil {
			return nil, err
		}
		children, err := r.Fork(ctx, host.ForkRequest{Session: s.UID})
		if err != nil {
			return nil, err
		}
		if _, err := r.Delete(ctx, s.UID, false); err != nil {
			return nil, err
		}
		made, err := r.CreateFromSnapshot(ctx, host.FromSnapshotRequest{Snapshot: saved})
		if err != nil {
			return nil, err
		}
		if err := r.RemoveSnapshot(ctx, "", saved); err != nil {
			return nil, err
		}
		if round%4 == 0 {
			left = append(left, made.UID)
			continue
		}
		for _, uid := range []abi.SessionID{made.UID, children[0].UID} {
			if _, err := r.Delete(ctx, uid, false); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

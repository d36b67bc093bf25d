package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

func fork(t *testing.T, r *rig, req host.ForkRequest) []host.Session {
	t.Helper()
	children, err := r.Fork(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return children
}

// M3: children, parent and siblings never see each other's writes; a fork at any
// past END begins from that END's memory.
func TestM3_Forks(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	var ends []abi.Seq
	for range 3 {
		r.exec(s.UID, "output x; model y")
		ends = append(ends, mustGet(t, r, s.UID).Head.Seq)
	}
	before := mustGet(t, r, s.UID)
	commits := r.store.Commits()
	children := fork(t, r, host.ForkRequest{Session: s.UID, Count: 3, Names: []string{"a", "b", "c"}})
	if got := r.store.Commits() - commits; got != 1 {
		t.Errorf("three children took %d commits", got)
	}
	for i, c := range children {
		if c.Parent != s.UID || c.ForkSeq != ends[2] || c.Turns != 3 || c.Head.Seq != ends[2]+1 {
			t.Errorf("child %+v", c)
		}
		r.exec(c.UID, strings.Repeat("output z; ", i)+"output last")
		if got, want := r.exec(c.UID, "count"), fmt.Sprint(6+i+1); got[0] != want {
			t.Errorf("child %d counts %s, want %s", i, got[0], want)
		}
	}
	early := fork(t, r, host.ForkRequest{Session: s.UID, At: ends[0]})[0]
	if got := r.exec(early.UID, "count"); got[0] != "2" {
		t.Errorf("the child of the first END counts %s", got[0])
	}
	if early.Turns != 1 || early.ForkSeq != ends[0] {
		t.Errorf("child %+v", early)
	}
	grandchild := fork(t, r, host.ForkRequest{Session: early.UID})[0]
	if got := r.exec(grandchild.UID, "count"); got[0] != "3" {
		t.Errorf("the grandchild counts %s", got[0])
	}
	if diff := cmp.Diff(stored(before), stored(mustGet(t, r, s.UID))); diff != "" {
		t.Errorf("the parent changed: %s", diff)
	}
	for _, uid := range []abi.SessionID{s.UID, children[2].UID, early.UID, grandchild.UID} {
		r.verify(uid)
	}
	// A FORK at the head is a closed point, also of a child that never ran.
	again := fork(t, r, host.ForkRequest{Session: fork(t, r, host.ForkRequest{Session: s.UID})[0].UID})[0]
	if got := r.exec(again.UID, "count"); got[0] != "6" {
		t.Errorf("the child of a child that never ran counts %s", got[0])
	}
}

// M6: no two children and no two turns draw the same random numbers.
func TestM6_RandomStreams(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	seen := map[string]bool{}
	draw := func(uid abi.SessionID) {
		for _, out := range r.exec(uid, "rand; rand") {
			if seen[out] {
				t.Errorf("%s was drawn before", out)
			}
			seen[out] = true
		}
	}
	draw(s.UID)
	draw(s.UID)
	for _, c := range fork(t, r, host.ForkRequest{Session: s.UID, Count: 128}) {
		draw(c.UID)
	}
	// Nor do children of one open turn, behind what they share.
	r.exec(s.UID, "model x; rand; rand")
	at := mustGet(t, r, s.UID).Head.Seq - 3 // the model's answer
	for _, c := range fork(t, r, host.ForkRequest{Session: s.UID, At: at, Count: 128}) {
		for _, out := range r.resume(c.UID) {
			if seen[out] {
				t.Errorf("%s was drawn before", out)
			}
			seen[out] = true
		}
		if c.State != host.ExecInterrupted {
			t.Errorf("a child of a turn is %s", c.State)
		}
	}
}

// A fork inside a turn, at every record of it: the child runs the turn over the
// record it shares, goes on live, and is proven like any other session. The
// parent is not touched.
func TestForkInsideTurn(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "output before")
	r.exec(s.UID, "model one; output two; history; data; model three; rand; clock; count")
	parent := r.transcript(s.UID)
	head := mustGet(t, r, s.UID).Head.Seq
	start := abi.Seq(6)
	for at := start + 1; at < head; at++ {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			child := fork(t, r, host.ForkRequest{Session: s.UID, At: at})[0]
			if child.State != host.ExecInterrupted || child.ForkSeq != at || child.Turns != 1 {
				t.Errorf("child %+v", child)
			}
			if _, err := r.Exec(t.Context(), host.ExecRequest{Session: child.UID, Inputs: say("output x")}); !errors.Is(err, host.ErrOpenTurn) {
				t.Errorf("input while the turn is open: %v", err)
			}
			r.verify(child.UID)
			// A child of a child that has not run is in the same place.
			grandchild := fork(t, r, host.ForkRequest{Session: child.UID, At: at + 1})[0]
			r.resume(child.UID)
			r.resume(grandchild.UID)
			for _, uid := range []abi.SessionID{child.UID, grandchild.UID} {
				if diff := cmp.Diff(parent[:at], r.transcript(uid)[:at]); diff != "" {
					t.Errorf("the shared record (-parent +child)\n%s", diff)
				}
				if got := mustGet(t, r, uid); got.State != host.ExecCompleted || got.Turns != 2 {
					t.Errorf("after it ran: %+v", got)
				}
				if v := r.verify(uid); v.Reexecuted != 2 {
					t.Errorf("verified %+v", v)
				}
				if got := r.exec(uid, "count"); got[0] != "9" {
					t.Errorf("counts %s", got[0])
				}
			}
		})
	}
	if diff := cmp.Diff(parent, r.transcript(s.UID)); diff != "" {
		t.Errorf("the parent changed\n%s", diff)
	}
	for _, at := range []abi.Seq{2, 6} {
		if _, err := r.Fork(t.Context(), host.ForkRequest{Session: s.UID, At: at}); !errors.Is(err, host.ErrMidTurn) {
			t.Errorf("seq %d: %v", at, err)
		}
	}
}

// A child of a session's creation has had no turn: it begins from the golden image, is
// proven, travels, and is as good a parent as others.
func TestForkOfTheCreation(t *testing.T) {
	for _, name := range []string{"steps", "echo"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).open()
			s := r.create(name)
			r.exec(s.UID, "output one")
			child := fork(t, r, host.ForkRequest{Session: s.UID, At: 1})[0]
			if child.State != host.ExecPending || child.Turns != 0 || child.Head.Seq != 2 || child.Closed != 2 {
				t.Errorf("child %+v", child)
			}
			r.exec(child.UID, "output two")
			grandchild := fork(t, r, host.ForkRequest{Session: child.UID, At: 2})[0]
			r.exec(grandchild.UID, "output three")
			if _, err := r.Delete(t.Context(), s.UID, false); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Collect(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, uid := range []abi.SessionID{child.UID, grandchild.UID} {
				if v := r.verify(uid); v.Reexecuted != 1 {
					t.Errorf("verified %+v", v)
				}
				var file bytes.Buffer
				if _, err := r.Export(t.Context(), uid, &file); err != nil {
					t.Fatal(err)
				}
				other := newRig(t).open()
				if _, err := other.Import(t.Context(), &file, host.ImportRequest{}); err != nil {
					t.Fatal(err)
				}
				other.exec(uid, "output four")
				if v := other.verify(uid); v.Reexecuted != 2 {
					t.Errorf("elsewhere verified %+v", v)
				}
			}
		})
	}
}

// agent_cloned runs in the first new turn of a child, once if that completes,
// and is part of its re-execution.
func TestCloned(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "model one; clones")
	check := func(uid abi.SessionID, want string) {
		t.Helper()
		if got := r.exec(uid, "clones"); got[0] != want {
			t.Errorf("cloned %s times, want %s", got[0], want)
		}
	}
	check(s.UID, "0")
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	// A turn that fails leaves no trace in memory, so the next is told again.
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: child.UID, Inputs: say("fail")}); err != nil {
		t.Fatal(err)
	}
	check(child.UID, "1")
	check(child.UID, "1")
	grandchild := fork(t, r, host.ForkRequest{Session: child.UID})[0]
	check(grandchild.UID, "2")
	// The turn that a child takes over is not a new one.
	inside := fork(t, r, host.ForkRequest{Session: s.UID, At: 5})[0]
	if got := r.resume(inside.UID); got[0] != "0" {
		t.Errorf("cloned %s times in the turn it was forked in", got[0])
	}
	check(inside.UID, "1")
	// Nor is one that its parent had just been cloned for.
	again := fork(t, r, host.ForkRequest{Session: child.UID})[0]
	r.exec(again.UID, "model x; clones")
	twice := fork(t, r, host.ForkRequest{Session: again.UID, At: mustGet(t, r, again.UID).Head.Seq - 2})[0]
	if got := r.resume(twice.UID); got[0] != "2" {
		t.Errorf("cloned %s times, want 2", got[0])
	}
	check(twice.UID, "3")
	for _, uid := range []abi.SessionID{s.UID, child.UID, grandchild.UID, inside.UID, again.UID, twice.UID} {
		r.verify(uid)
	}
}

func TestForkRefusals(t *testing.T) {
	r := newRig(t).open()
	s := r.create("echo")
	if _, err := r.Fork(t.Context(), host.ForkRequest{Session: s.UID}); !errors.Is(err, host.ErrConflict) {
		t.Errorf("a session without turns: %v", err)
	}
	r.exec(s.UID, "hi")
	fork(t, r, host.ForkRequest{Session: s.UID, Names: []string{"taken"}})
	before := len(list(t, r))
	for name, tt := range map[string]struct {
		req  host.ForkRequest
		want error
	}{
		"unknown session": {host.ForkRequest{Session: "sess-none"}, host.ErrNotFound},
		"in an opening":   {host.ForkRequest{Session: s.UID, At: 2}, host.ErrMidTurn},
		"behind the head": {host.ForkRequest{Session: s.UID, At: 99}, host.ErrNotFound},
		"negative":        {host.ForkRequest{Session: s.UID, At: -1}, host.ErrInvalid},
		"too many":        {host.ForkRequest{Session: s.UID, Count: 129}, host.ErrInvalid},
		"few names":       {host.ForkRequest{Session: s.UID, Count: 2, Names: []string{"one"}}, host.ErrInvalid},
		"same name":       {host.ForkRequest{Session: s.UID, Count: 2, Names: []string{"one", "one"}}, host.ErrInvalid},
		"taken name":      {host.ForkRequest{Session: s.UID, Count: 2, Names: []string{"new", "taken"}}, host.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := r.Fork(t.Context(), tt.req); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
	if after := len(list(t, r)); after != before {
		t.Errorf("refused forks left %d sessions", after-before)
	}
}

func list(t *testing.T, r *rig) []host.Session {
	t.Helper()
	page, err := r.List(t.Context(), host.ListRequest{Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	return page.Sessions
}

// A parent may be running: the fork takes its last closed point.
func TestForkOfRunningParent(t *testing.T) {
	r := newRig(t)
	called, release := make(chan struct{}, 1), make(chan struct{})
	first := true
	r.models["echo"] = providerFunc(func(ctx context.Context, req model.Request, _ func(model.Delta)) (model.Result, error) {
		if !first {
			called <- struct{}{}
			<-release
		}
		first = false
		return model.Result{Message: abi.Text("", "ok")}, nil
	})
	r.open()
	s := r.create("steps")
	r.exec(s.UID, "model a")
	end := mustGet(t, r, s.UID).Head.Seq
	done := make(chan error, 1)
	go func() {
		_, err := r.Exec(context.Background(), host.ExecRequest{Session: s.UID, Inputs: say("model b")})
		done <- err
	}()
	<-called
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	if child.ForkSeq != end || child.State != host.ExecCompleted {
		t.Errorf("child %+v", child)
	}
	if got := r.exec(child.UID, "count"); got[0] != "1" {
		t.Errorf("the child counts %s", got[0])
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.verify(s.UID)
	r.verify(child.UID)
}

// Forks cost the same however much memory the parent has: one commit, and nothing
// that is read or written of an image but that it is there. A child's pages are read
// when it runs.
func TestForkReadsNoPage(t *testing.T) {
	r := newRig(t)
	f := r.spoil()
	r.open()
	s := r.create("notebook")
	r.exec(s.UID, "fill 4")
	if err := r.Close(); err != nil { // and with it all that it had in memory
		t.Fatal(err)
	}
	r.open()
	reads, puts := map[byte]int{}, map[byte]int{}
	var mu sync.Mutex // of reads: the journal's writer reads too
	read := func(key, value []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		reads[key[0]]++
		return value
	}
	commits := 0
	commit := func(b *journal.Batch) error {
		commits++
		for _, e := range slices.Concat(b.Ahead, b.Puts) {
			puts[e.Key[0]]++
		}
		return nil
	}
	f.rot.Store(&read)
	f.commit.Store(&commit)
	children := fork(t, r, host.ForkRequest{Session: s.UID, Count: host.MaxForkCount})
	f.rot.Store(nil)
	f.commit.Store(nil)
	// By the first byte of its key a row is a session's, a record, or an image's own:
	// docs/journal.md.
	for kind, n := range puts {
		if !strings.ContainsRune("mhcr", rune(kind)) || n != len(children) {
			t.Errorf("%d rows of kind %q were put", n, kind)
		}
	}
	for kind, n := range reads {
		if !strings.ContainsRune("mhcri", rune(kind)) || kind == 'i' && n > 1 {
			t.Errorf("%d rows of kind %q were read", n, kind)
		}
	}
	if commits != 1 {
		t.Errorf("%d commits", commits)
	}
	var more atomic.Int64 // trees are read side by side
	read = func(key, value []byte) []byte {
		if reads[key[0]] == 0 {
			more.Add(1)
		}
		return value
	}
	f.rot.Store(&read)
	r.exec(children[0].UID, "sum")
	f.rot.Store(nil)
	if more.Load() == 0 {
		t.Error("a child that runs has read nothing more either")
	}
}

// Of all forks with one key, one makes children.
func TestForkKey(t *testing.T) {
	r := newRig(t).open()
	parent := r.create("echo")
	r.exec(parent.UID, "one")
	req := host.ForkRequest{Session: parent.UID, Count: 2, Labels: map[string]string{"try": "a"}, Key: "k"}
	first := fork(t, r, req)
	r.exec(parent.UID, "two") // the point by default is another one now
	r.exec(first[0].UID, "mine")
	again := fork(t, r, req)
	if again[0].Head.Seq <= first[0].Head.Seq {
		t.Errorf("a child as it was: %+v", again[0])
	}
	for i := range first {
		if again[i].UID != first[i].UID || again[i].ForkSeq != first[i].ForkSeq {
			t.Errorf("child %d: got %s at %d, want %s at %d", i, again[i].UID, again[i].ForkSeq, first[i].UID, first[i].ForkSeq)
		}
	}
	other := req
	other.Key = "l"
	if c := fork(t, r, other); c[0].UID == first[0].UID || c[0].ForkSeq == first[0].ForkSeq {
		t.Errorf("another key gave %+v", c[0])
	}
	elsewhere := req
	elsewhere.Session = first[0].UID
	if c := fork(t, r, elsewhere); c[0].UID == first[0].UID {
		t.Errorf("the key of another session gave %+v", c[0])
	}
	for name, change := range map[string]func(*host.ForkRequest){
		"fewer":  func(r *host.ForkRequest) { r.Count = 1 },
		"more":   func(r *host.ForkRequest) { r.Count = host.MaxForkCount },
		"point":  func(r *host.ForkRequest) { r.At = first[0].ForkSeq + 1 },
		"names":  func(r *host.ForkRequest) { r.Names = []string{"a", "b"} },
		"labels": func(r *host.ForkRequest) { r.Labels = nil },
		"model":  func(r *host.ForkRequest) { r.Model = "echo" },
	} {
		changed := req
		change(&changed)
		if _, err := r.Fork(t.Context(), changed); !errors.Is(err, host.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := req
	long.Key = strings.Repeat("k", host.MaxKeyBytes+1)
	if _, err := r.Fork(t.Context(), long); !errors.Is(err, host.ErrInvalid) {
		t.Errorf("a long key: %v", err)
	}
	for _, c := range first {
		if _, err := r.Host.Delete(t.Context(), c.UID, false); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Fork(t.Context(), req); !errors.Is(err, host.ErrConflict) {
			t.Errorf("after a child was deleted: %v", err)
		}
	}
	// Side by side.
	req.Key = "side by side"
	uids := make([]abi.SessionID, 4)
	var wg sync.WaitGroup
	for i := range uids {
		wg.Go(func() {
			children, err := r.Fork(t.Context(), req)
			if err != nil {
				t.Error(err)
				return
			}
			uids[i] = children[0].UID
		})
	}
	wg.Wait()
	if len(slices.Compact(slices.Clone(uids))) != 1 {
		t.Errorf("children of one key: %v", uids)
	}
}

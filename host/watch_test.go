package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// seen gathers what a watch shows, and ends it when that is enough.
type seen struct {
	lines  map[abi.SessionID][]string
	seqs   map[abi.SessionID][]abi.Seq
	ends   int // of turns
	enough func(*seen) bool
}

// watch watches until there is enough, or to the end of a watch that has one.
func (s *seen) watch(h *rig, ctx context.Context, req host.WatchRequest) error {
	if s.lines == nil {
		s.lines, s.seqs = map[abi.SessionID][]string{}, map[abi.SessionID][]abi.Seq{}
	}
	for r, err := range h.Watch(ctx, req) {
		if err != nil {
			return err
		}
		s.lines[r.Session] = append(s.lines[r.Session], string(r.Line))
		s.seqs[r.Session] = append(s.seqs[r.Session], r.Seq)
		if r.Event.Kind == abi.EventEnd {
			s.ends++
		}
		if s.enough != nil && s.enough(s) {
			break
		}
	}
	return nil
}

// present is what a watch of what is there shows.
func (r *rig) present(req host.WatchRequest) *seen {
	r.t.Helper()
	req.Present = true
	s := new(seen)
	if err := s.watch(r, context.Background(), req); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// seqs are the numbers from from to to.
func seqs(from, to abi.Seq) []abi.Seq {
	var all []abi.Seq
	for seq := from; seq <= to; seq++ {
		all = append(all, seq)
	}
	return all
}

// Who watches sees every record once and in order, whoever commits it: turns that
// run side by side, decisions, forks and rests, of sessions that were there and of
// those that come.
func TestWatch(t *testing.T) {
	r := newRig(t)
	r.tools = new(toolbox).tools()
	r.open()
	const sessions, turns = 4, 5
	first := r.create("steps")
	r.exec(first.UID, "output before")
	all, one := new(seen), new(seen)
	// The last thing that happens is the end of a turn of a session of its own.
	last := r.create("steps")
	done := func(s *seen) bool { return len(s.lines[last.UID]) > 0 && s.ends == 2+sessions*turns }
	all.enough, one.enough = done, func(s *seen) bool { return s.ends == 1+turns }

	var watching, running sync.WaitGroup
	watching.Go(func() {
		if err := all.watch(r, t.Context(), host.WatchRequest{}); err != nil {
			t.Error(err)
		}
	})
	watching.Go(func() {
		if err := one.watch(r, t.Context(), host.WatchRequest{Session: first.UID}); err != nil {
			t.Error(err)
		}
	})
	uids := []abi.SessionID{first.UID, r.create("steps").UID, r.create("steps").UID, fork(t, r, host.ForkRequest{Session: first.UID})[0].UID}
	for _, uid := range uids {
		running.Go(func() {
			for i := range turns {
				if _, err := r.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say(fmt.Sprintf("output %d; model x; tools a:args b:args", i))}); err != nil {
					t.Error(err)
				}
			}
			if _, err := r.Suspend(t.Context(), uid); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	r.exec(last.UID, "output last")
	watching.Wait()

	for _, uid := range append(uids, last.UID) {
		s := mustGet(t, r, uid)
		if diff := cmp.Diff(r.transcript(uid)[s.ForkSeq:], all.lines[uid]); diff != "" {
			t.Errorf("session %s (-record +watch):\n%s", uid, diff)
		}
	}
	end := len(one.lines[first.UID])
	if diff := cmp.Diff(map[abi.SessionID][]string{first.UID: r.transcript(first.UID)[:end]}, one.lines); diff != "" {
		t.Errorf("the one session (-record +watch):\n%s", diff)
	}
}

// A watcher that does not look holds no turn, and misses nothing for it.
func TestWatchSlow(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "output first")
	stuck, goOn := make(chan bool), make(chan bool)
	slow := new(seen)
	slow.enough = func(got *seen) bool {
		if len(got.lines[s.UID]) == 1 {
			close(stuck)
			<-goOn
		}
		return got.ends == 3
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := slow.watch(r, t.Context(), host.WatchRequest{}); err != nil {
			t.Error(err)
		}
	})
	<-stuck
	for range 2 { // more than a watch reads at a time
		r.exec(s.UID, "usage 1"+repeated("; usage 1", 300))
	}
	close(goOn)
	watching.Wait()
	if diff := cmp.Diff(r.transcript(s.UID), slow.lines[s.UID]); diff != "" {
		t.Errorf("(-record +watch):\n%s", diff)
	}
}

func repeated(text string, n int) string {
	var all string
	for range n {
		all += text
	}
	return all
}

// I6: a record that is on its way to the disk is shown to nobody.
func TestI6_WatchShowsWhatIsDurable(t *testing.T) {
	r := newRig(t)
	disk := r.spoil()
	r.open()
	s := r.create("steps")
	r.exec(s.UID, "output first")
	durable := mustGet(t, r, s.UID).Head.Seq

	writing, goOn := make(chan bool), make(chan bool)
	var once sync.Once
	hold := func(*journal.Batch) error {
		once.Do(func() { close(writing) })
		<-goOn
		return nil
	}
	disk.commit.Store(&hold)
	var running sync.WaitGroup
	running.Go(func() {
		if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("output second")}); err != nil {
			t.Error(err)
		}
	})
	<-writing
	if diff := cmp.Diff(seqs(1, durable), r.present(host.WatchRequest{}).seqs[s.UID]); diff != "" {
		t.Errorf("while a turn is written (-want +got):\n%s", diff)
	}
	close(goOn)
	running.Wait()
	if diff := cmp.Diff(seqs(1, mustGet(t, r, s.UID).Head.Seq), r.present(host.WatchRequest{}).seqs[s.UID]); diff != "" {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
}

// Where a watch begins, and which sessions it shows.
func TestWatchRequest(t *testing.T) {
	r := newRig(t).open()
	parent := r.create("steps")
	r.exec(parent.UID, "output x")
	at := mustGet(t, r, parent.UID).Head.Seq
	child := fork(t, r, host.ForkRequest{Session: parent.UID})[0]
	r.exec(child.UID, "output y")
	other, err := r.Create(t.Context(), host.CreateRequest{Project: "other", Harness: harness(t, "steps")})
	if err != nil {
		t.Fatal(err)
	}
	r.exec(other.UID, "output z")
	idle := r.create("steps")
	head := func(s host.Session) abi.Seq { return mustGet(t, r, s.UID).Head.Seq }

	type shown = map[abi.SessionID][]abi.Seq
	for _, test := range []struct {
		name string
		req  host.WatchRequest
		want shown
	}{
		{"everything", host.WatchRequest{}, shown{
			parent.UID: seqs(1, at), child.UID: seqs(at+1, head(child)), other.UID: seqs(1, head(other)),
		}},
		{"a project", host.WatchRequest{Project: "other"}, shown{other.UID: seqs(1, head(other))}},
		{"from a seq", host.WatchRequest{From: at, Project: host.DefaultProject}, shown{
			parent.UID: {at}, child.UID: seqs(at+1, head(child)),
		}},
		{"a fork with what it inherited", host.WatchRequest{Session: child.UID}, shown{child.UID: seqs(1, head(child))}},
		{"behind the head", host.WatchRequest{Session: child.UID, From: 1000}, shown{}},
		{"a session that has not run", host.WatchRequest{Session: idle.UID}, shown{}},
		{"after an earlier watch", host.WatchRequest{
			Project: host.DefaultProject, From: 2, After: map[abi.SessionID]abi.Seq{parent.UID: at - 1, child.UID: head(child)},
		}, shown{parent.UID: {at}}},
	} {
		if diff := cmp.Diff(test.want, shown(r.present(test.req).seqs)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}

	// A fork whose parent is gone shows what it inherited.
	if _, err := r.Delete(t.Context(), parent.UID, false); err != nil {
		t.Fatal(err)
	}
	want := shown{child.UID: seqs(1, head(child))}
	if diff := cmp.Diff(want, shown(r.present(host.WatchRequest{Project: host.DefaultProject}).seqs)); diff != "" {
		t.Errorf("without the parent (-want +got):\n%s", diff)
	}
}

// How a watch ends.
func TestWatchEnds(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "output x")

	for _, test := range []struct {
		name string
		req  host.WatchRequest
		end  func(stop context.CancelCauseFunc) // what ends it, once it has shown what is there
		want error
	}{
		{"unknown", host.WatchRequest{Session: "sess-no"}, nil, host.ErrNotFound},
		{"below the first", host.WatchRequest{From: -1}, nil, host.ErrInvalid},
		{"given up", host.WatchRequest{}, func(stop context.CancelCauseFunc) { stop(errStop) }, errStop},
		{"deleted", host.WatchRequest{Session: s.UID}, func(context.CancelCauseFunc) {
			if _, err := r.Delete(context.Background(), s.UID, false); err != nil {
				t.Error(err)
			}
		}, host.ErrNotFound},
		{"closed", host.WatchRequest{}, func(context.CancelCauseFunc) {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}, host.ErrClosed},
		{"closed before", host.WatchRequest{}, nil, host.ErrClosed},
	} {
		if test.name == "closed" { // of the deleted one nothing is shown
			r.exec(r.create("steps").UID, "output y")
		}
		ctx, stop := context.WithCancelCause(t.Context())
		got := new(seen)
		var ending sync.WaitGroup
		got.enough = func(s *seen) bool {
			if s.ends == 1 && test.end != nil {
				ending.Go(func() { test.end(stop) })
			}
			return false
		}
		if err := got.watch(r, ctx, test.req); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		ending.Wait()
		stop(nil)
	}
}

var errStop = errors.New("enough")

// Many sessions are shown by age, each as it was.
func TestWatchOrder(t *testing.T) {
	r := newRig(t).open()
	var want, got []abi.SessionID
	for range 5 {
		s := r.create("steps")
		r.exec(s.UID, "output x")
		want = append(want, s.UID)
	}
	for rec, err := range r.Watch(t.Context(), host.WatchRequest{Present: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(got, rec.Session) {
			got = append(got, rec.Session)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// S3: a session that cannot be read is watched by nobody, and the others are.
func TestS3_WatchWithoutTheUnreadable(t *testing.T) {
	r := newRig(t)
	disk := r.spoil()
	r.open()
	bad, good := r.create("steps"), r.create("steps")
	r.exec(bad.UID, "output x")
	r.exec(good.UID, "output y")
	key := append([]byte("r"+string(bad.UID)+"\x00"), 0, 0, 0, 0, 0, 0, 0, 3)
	rot := func(k, value []byte) []byte {
		if bytes.Equal(k, key) {
			return nil
		}
		return value
	}
	disk.rot.Store(&rot)
	want := map[abi.SessionID][]string{good.UID: r.transcript(good.UID)}
	if diff := cmp.Diff(want, r.present(host.WatchRequest{}).lines); diff != "" {
		t.Errorf("all sessions (-want +got):\n%s", diff)
	}
	got := new(seen)
	err := got.watch(r, t.Context(), host.WatchRequest{Session: bad.UID, Present: true})
	if !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("the session itself: %v", err)
	}
}

// BenchmarkWatch is what watchers cost the turns that they follow, on a journal in
// memory.
func BenchmarkWatch(b *testing.B) {
	for _, watchers := range []int{0, 1, 16} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			r := newRig(b).open()
			s := r.create("echo")
			ctx, stop := context.WithCancelCause(b.Context())
			var watching sync.WaitGroup
			for range watchers {
				watching.Go(func() {
					if err := new(seen).watch(r, ctx, host.WatchRequest{}); !errors.Is(err, errStop) {
						b.Error(err)
					}
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				r.exec(s.UID, "hello")
			}
			stop(errStop)
			watching.Wait()
		})
	}
}

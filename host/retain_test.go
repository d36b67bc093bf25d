package host_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/echo"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// retaining makes a session of a small harness that keeps images as r says.
func (r *rig) retaining(keep host.Retention) host.Session {
	r.t.Helper()
	r.retention = keep
	return r.createFrom(tally())
}

// counts runs a turn of such a session, and is what it counts to.
func (r *rig) counts(uid abi.SessionID) string {
	r.t.Helper()
	out := r.exec(uid, "on")
	return out[len(out)-1]
}

// turn is how a turn of a session ended.
type turn struct {
	at    abi.Seq
	turn  int64
	root  abi.Digest
	owner abi.SessionID // under which it is recorded
}

// ends are the ends of the turns of a session.
func (r *rig) ends(uid abi.SessionID) []turn {
	r.t.Helper()
	var all []turn
	owner := abi.SessionID("")
	for rec, err := range r.Replay(context.Background(), uid, 0, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		switch e := rec.Event; {
		case e.Kind == abi.EventLifecycle:
			owner = e.Cell.UID
		case e.Kind == abi.EventEnd:
			all = append(all, turn{rec.Seq, int64(e.Cell.Turn), e.Cell.Root, owner})
		}
	}
	return all
}

// images tells which of the turns have their image stored.
func (r *rig) images(all []turn) []int64 {
	r.t.Helper()
	var there []int64
	for _, e := range all {
		if _, ok := r.has(abi.Digest{}, e.root); ok {
			there = append(there, e.turn)
		}
	}
	return there
}

func TestRetention(t *testing.T) {
	tests := []struct {
		keep  host.Retention
		turns int
		want  []int64
	}{
		{host.Retention{}, 20, []int64{13, 14, 15, 16, 17, 18, 19, 20}},
		{host.Retention{}, 27, []int64{16, 20, 21, 22, 23, 24, 25, 26, 27}},
		{host.Retention{Last: 1}, 5, []int64{5}},
		{host.Retention{Last: 3}, 5, []int64{3, 4, 5}},
		{host.Retention{Every: 4}, 10, []int64{4, 8, 10}},
		{host.Retention{Last: 2, Every: 3}, 7, []int64{3, 6, 7}},
		{host.Retention{Every: 1}, 10, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{host.Retention{Last: 100}, 4, []int64{1, 2, 3, 4}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("last=%d,every=%d of %d", tt.keep.Last, tt.keep.Every, tt.turns), func(t *testing.T) {
			r := newRig(t).open()
			s := r.retaining(tt.keep)
			for n := range tt.turns {
				r.exec(s.UID, fmt.Sprint(n))
			}
			u, err := r.Usage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c := r.collect()
			if got := r.images(r.ends(s.UID)); !slices.Equal(got, tt.want) {
				t.Errorf("the images of turns %v are there, want %v", got, tt.want)
			}
			if want := int64(tt.turns - len(tt.want)); c.Images != want || u.Garbage.Images != want || u.Garbage.Pages != c.Pages {
				t.Errorf("collected %+v, announced %+v, want %d images", c, u.Garbage, want)
			}
			if c := r.collect(); c.Bytes != 0 {
				t.Errorf("collected once more: %+v", c)
			}
			if v := r.verify(s.UID); v.Images != int64(len(tt.want)) {
				t.Errorf("verify read %d images, want %d", v.Images, len(tt.want))
			}
			if got := mustGet(t, r, s.UID).Retention; got != tt.keep {
				t.Errorf("it keeps %+v, want %+v", got, tt.keep)
			}
		})
	}
	r := newRig(t).open()
	_, err := r.Create(t.Context(), host.CreateRequest{Harness: tally(), Retention: host.Retention{Last: -1}})
	if !errors.Is(err, host.ErrInvalid) {
		t.Errorf("a retention of -1: %v", err)
	}
}

// A turn that failed is one of the last, and its image is that of the turn before.
func TestRetention_FailedTurns(t *testing.T) {
	r := newRig(t).open()
	s := r.retaining(host.Retention{Last: 1})
	r.exec(s.UID, "one")
	root := mustGet(t, r, s.UID).Root
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: say("x")}); err == nil {
			r.collect()
		}
	}
	r.collect()
	if _, there := r.has(abi.Digest{}, root); !there {
		t.Fatal("the image that the next turn begins from is gone")
	}
	r.exec(s.UID, "two")
	r.collect()
	if _, there := r.has(abi.Digest{}, root); there {
		t.Error("the image of a turn before the last one is there")
	}
	r.verify(s.UID)
}

// Whatever sessions, forks, snapshots and deletes there are: what Collect leaves is
// what the policies say and what somebody still begins from, and no more; each point
// that could be forked before can be after, and has the memory it had (M2, I1).
func TestRetention_Trees(t *testing.T) {
	rebuilt := 0
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &grove{t: t, rig: newRig(t), rng: rand.New(rand.NewPCG(seed, 7)), all: map[abi.SessionID]grown{}, saved: map[string]host.Snapshot{}}
			w.models["echo"] = &counted{Provider: echo.Provider{}}
			w.open()
			for range 70 {
				w.step()
			}
			w.check()
			rebuilt += w.rebuilt
		})
	}
	if rebuilt < 10 {
		t.Errorf("%d images had to be rebuilt: the test shows nothing", rebuilt)
	}
}

// grove are sessions that grow from one another.
type grove struct {
	*rig
	t       *testing.T
	rng     *rand.Rand
	all     map[abi.SessionID]grown
	live    []abi.SessionID
	saved   map[string]host.Snapshot
	names   int
	rebuilt int
}

// grown is what is known of a session, also when it was deleted.
type grown struct {
	keep host.Retention
	ends []turn
}

func (g *grove) any() abi.SessionID { return g.live[g.rng.IntN(len(g.live))] }

func (g *grove) add(s host.Session) {
	g.live = append(g.live, s.UID)
	g.note(s.UID)
}

func (g *grove) note(uid abi.SessionID) {
	g.all[uid] = grown{mustGet(g.t, g.rig, uid).Retention, g.ends(uid)}
}

func (g *grove) step() {
	switch n := g.rng.IntN(20); {
	case len(g.live) == 0 || n == 0:
		keeps := []host.Retention{{}, {Last: 1}, {Last: 2, Every: 3}, {Every: 1}, {Every: 5}}
		g.add(g.retaining(keeps[g.rng.IntN(len(keeps))]))
	case n < 11:
		uid := g.any()
		for range 1 + g.rng.IntN(3) {
			g.exec(uid, "on")
		}
		g.note(uid)
	case n < 14:
		if uid := g.any(); len(g.all[uid].ends) > 0 {
			for _, c := range fork(g.t, g.rig, host.ForkRequest{Session: uid, At: g.past(uid).at, Count: 1 + g.rng.IntN(2)}) {
				g.add(c)
			}
		}
	case n < 15:
		if uid := g.any(); len(g.all[uid].ends) > 0 {
			g.names++
			name := fmt.Sprint("point-", g.names)
			g.saved[name] = save(g.t, g.rig, host.SaveRequest{Session: uid, Name: name, At: g.past(uid).at})
		}
	case n < 16:
		if name := g.snapshot(); name != "" {
			g.add(fromSnapshot(g.t, g.rig, name))
		}
	case n < 17:
		i := g.rng.IntN(len(g.live))
		g.delete(g.live[i])
		g.live = slices.Delete(g.live, i, i+1)
	case n < 18:
		if name := g.snapshot(); name != "" {
			if err := g.RemoveSnapshot(g.t.Context(), "", name); err != nil {
				g.t.Fatal(err)
			}
			delete(g.saved, name)
		}
	default:
		g.check()
	}
}

// snapshot is the name of one, empty if there is none.
func (g *grove) snapshot() string {
	if len(g.saved) == 0 {
		return ""
	}
	return slices.Sorted(maps.Keys(g.saved))[g.rng.IntN(len(g.saved))]
}

// past is a past turn of a session.
func (g *grove) past(uid abi.SessionID) turn {
	ends := g.all[uid].ends
	return ends[g.rng.IntN(len(ends))]
}

// check collects, and compares what is there with what has to be.
func (g *grove) check() {
	g.t.Helper()
	want := map[abi.Digest]bool{}
	judge := func(ends []turn) {
		for _, e := range ends {
			owner := g.all[e.owner]
			turns := int64(0)
			if n := len(owner.ends); n > 0 {
				turns = owner.ends[n-1].turn
			}
			keep := owner.keep.OrDefault()
			if e.turn > turns-int64(max(keep.Last, 1)) || keep.Every > 0 && e.turn%int64(keep.Every) == 0 {
				want[e.root] = true
			}
		}
	}
	for _, uid := range g.live {
		judge(g.all[uid].ends)
		if root := mustGet(g.t, g.rig, uid).Root; len(g.all[uid].ends) > 0 {
			want[root] = true
		}
	}
	for _, s := range g.saved {
		ends := g.all[s.Session].ends
		judge(ends[:s.Turns])
		want[s.Root] = true
	}
	g.collect()
	for _, s := range g.all {
		for _, e := range s.ends {
			if _, there := g.has(abi.Digest{}, e.root); there != want[e.root] {
				g.t.Errorf("the image of turn %d of %s, seq %d: there %t, want %t", e.turn, e.owner, e.at, there, want[e.root])
			}
		}
	}
	if c := g.collect(); c.Bytes != 0 {
		g.t.Errorf("collected once more: %+v", c)
	}
	calls := g.ProviderCalls()
	var children []abi.SessionID
	for _, uid := range g.live {
		if len(g.all[uid].ends) == 0 {
			continue
		}
		e := g.past(uid)
		c := fork(g.t, g.rig, host.ForkRequest{Session: uid, At: e.at})[0]
		if _, there := g.has(abi.Digest{}, e.root); !there || c.Root != e.root {
			g.t.Errorf("a fork at turn %d begins from %s, there %t, want %s", e.turn, c.Root.Short(), there, e.root.Short())
		}
		if !want[e.root] {
			g.rebuilt++
		}
		children = append(children, c.UID)
	}
	if got := g.ProviderCalls() - calls; got != 0 {
		g.t.Errorf("I1: forking called the model %d times", got)
	}
	for _, uid := range children {
		g.exec(uid, "mine")
		g.verify(uid)
		g.delete(uid)
	}
	g.collect()
}

// The image that an open turn begins from is there, however little is kept, and a
// child that owns the turn has it when its parent is gone.
func TestRetention_OpenTurns(t *testing.T) {
	r := newRig(t).open()
	s := r.retaining(host.Retention{Last: 1})
	r.exec(s.UID, "one")
	r.exec(s.UID, "two")
	fault, _ := dropAt(4)
	r.SetFault(fault)
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("three")}); !errors.Is(err, errDropped) {
		t.Fatal(err)
	}
	r.SetFault(nil)
	r.open()
	open := mustGet(t, r, s.UID)
	if open.State != host.ExecInterrupted {
		t.Fatalf("it is %s", open.State)
	}
	child := fork(t, r, host.ForkRequest{Session: s.UID, At: open.Head.Seq})[0]
	r.collect()
	r.delete(s.UID)
	r.collect()
	r.resume(child.UID)
	r.verify(child.UID)
	r.collect()
	first := r.ends(child.UID)[0]
	if _, there := r.has(abi.Digest{}, first.root); there {
		t.Error("the image of the first turn is there")
	}
	again := fork(t, r, host.ForkRequest{Session: child.UID, At: first.at})[0]
	if got := r.counts(again.UID); got != "0002" {
		t.Errorf("a child of turn 1 counts %s", got)
	}
	r.verify(again.UID)
}

// M4, M5: a process that is killed while it collects, and its sessions keep one image,
// loses nothing: each session verifies and goes on, each of its points can be forked,
// and the next Collect leaves what has to be there.
func TestM4_KillRetaining(t *testing.T) {
	dir := t.TempDir()
	rebuilt := 0
	for range 4 {
		killChild(t, dir, time.Duration(rand.IntN(300))*time.Millisecond, collectEnv+"=1")
		r := newRig(t)
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
		r.reopenDir(dir)
		r.rebuilding = func(host.Rebuild) { rebuilt++ }
		r.open()
		for _, s := range list(t, r) {
			if s.State == host.ExecInterrupted {
				r.resume(s.UID)
			}
			r.verify(s.UID)
			ends := r.ends(s.UID)
			if len(ends) == 0 {
				continue
			}
			e := ends[rand.IntN(len(ends))]
			c := fork(t, r, host.ForkRequest{Session: s.UID, At: e.at})[0]
			if got, want := r.counts(c.UID), fmt.Sprintf("%04d", e.turn+1); c.Root != e.root || got != want {
				t.Errorf("a child of turn %d begins from %s and counts %s", e.turn, c.Root.Short(), got)
			}
			r.verify(c.UID)
			r.delete(c.UID)
		}
		r.collect()
		if c := r.collect(); c.Bytes != 0 {
			t.Errorf("collected once more: %+v", c)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if rebuilt == 0 {
		t.Error("nothing had to be rebuilt: the test shows nothing")
	}
}

// unlike is a runtime that is a little unlike the one it is.
type unlike struct {
	runtimes.Restorer
	rewriter int32 // more than it has
	once     bool  // a turn cannot be run again
	clock    int64 // of images, beyond what it is
}

// Capabilities implements runtimes.Runtime.
func (u *unlike) Capabilities() runtimes.Capabilities {
	c := u.Restorer.Capabilities()
	c.Reexecutable = !u.once
	return c
}

// Describe implements runtimes.Runtime.
func (u *unlike) Describe(ctx context.Context, m runtimes.Module) (runtimes.Description, error) {
	d, err := u.Restorer.Describe(ctx, m)
	d.Rewriter += u.rewriter
	return d, err
}

// Create implements runtimes.Runtime.
func (u *unlike) Create(ctx context.Context, m runtimes.Module) (runtimes.Incarnation, error) {
	in, err := u.Restorer.Create(ctx, m)
	return u.wrap(in, err)
}

// Restore implements runtimes.Restorer.
func (u *unlike) Restore(ctx context.Context, m runtimes.Module, img runtimes.Image) (runtimes.Incarnation, error) {
	in, err := u.Restorer.Restore(ctx, m, img)
	return u.wrap(in, err)
}

func (u *unlike) wrap(in runtimes.Incarnation, err error) (runtimes.Incarnation, error) {
	if err != nil || u.clock == 0 {
		return in, err
	}
	return ahead{in.(runtimes.Snapshotter), u.clock}, nil
}

// ahead is an incarnation whose clock is ahead.
type ahead struct {
	runtimes.Snapshotter
	clock int64
}

// Snapshot implements runtimes.Snapshotter.
func (a ahead) Snapshot(ctx context.Context) (runtimes.Image, error) {
	img, err := a.Snapshotter.Snapshot(ctx)
	img.Clock += a.clock
	return img, err
}

// Images that this host could not rebuild stay, whatever the policy: of turns of a
// runtime that cannot run them again, under another rewriter, of a module that does
// not load here.
func TestRetention_WhatCannotBeRebuilt(t *testing.T) {
	all := []int64{1, 2, 3, 4, 5}
	tests := []struct {
		name string
		ran  func(u *unlike) // as the first three turns were run
		here func(r *rig, u *unlike)
		want []int64
	}{
		{"as ever", func(*unlike) {}, func(*rig, *unlike) {}, []int64{5}},
		{"cannot run again", func(u *unlike) { u.once = true }, func(*rig, *unlike) {}, all},
		{"another rewriter", func(u *unlike) { u.rewriter = 1 }, func(_ *rig, u *unlike) { u.rewriter = 0 }, []int64{1, 2, 3, 5}},
		{"another engine", func(*unlike) {}, func(r *rig, _ *unlike) { r.runtimes = []runtimes.Runtime{stranger{engine(r.t, false)}} }, all},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			u := &unlike{Restorer: engine(t, false)}
			tt.ran(u)
			r.runtimes = []runtimes.Runtime{u}
			r.open()
			s := r.retaining(host.Retention{Last: 1})
			for range 3 {
				r.exec(s.UID, "on")
			}
			if tt.name == "another engine" {
				r.exec(s.UID, "on")
				r.exec(s.UID, "on")
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			tt.here(r, u)
			r.open()
			if tt.name != "another engine" {
				r.exec(s.UID, "on")
				r.exec(s.UID, "on")
			}
			r.collect()
			ends := r.ends(s.UID)
			if got := r.images(ends); !slices.Equal(got, tt.want) {
				t.Errorf("the images of turns %v are there, want %v", got, tt.want)
			}
			if tt.name == "another engine" {
				return // which runs no turn of it
			}
			for _, e := range ends {
				if c := fork(t, r, host.ForkRequest{Session: s.UID, At: e.at})[0]; c.Root != e.root {
					t.Errorf("a fork at turn %d begins from %s, want %s", e.turn, c.Root.Short(), e.root.Short())
				}
			}
		})
	}
}

// stranger is a runtime on which a fresh cell is in another state.
type stranger struct{ runtimes.Restorer }

// Describe implements runtimes.Runtime.
func (s stranger) Describe(ctx context.Context, m runtimes.Module) (runtimes.Description, error) {
	d, err := s.Restorer.Describe(ctx, m)
	d.Golden.Clock++
	return d, err
}

// An image that the turns do not lead to is an error that says where, and nothing is
// forked from it; one whose rebuilding is given up leaves nothing either.
func TestRebuild_Refused(t *testing.T) {
	r := newRig(t)
	u := &unlike{Restorer: engine(t, false)}
	r.runtimes = []runtimes.Runtime{u}
	r.open()
	s := r.retaining(host.Retention{Last: 1})
	for range 3 {
		r.exec(s.UID, "on")
	}
	r.collect()
	ends := r.ends(s.UID)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.open()
	refused := func(ctx context.Context, want error) {
		t.Helper()
		_, err := r.Fork(ctx, host.ForkRequest{Session: s.UID, At: ends[1].at})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if _, there := r.has(abi.Digest{}, ends[1].root); there {
			t.Error("the image is stored")
		}
	}
	u.clock = 1
	refused(t.Context(), host.ErrDivergence)
	u.clock = 0
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	r.Host = nil
	r.rebuilding = func(host.Rebuild) { cancel(gone) }
	r.open()
	refused(ctx, gone)
	var told []host.Rebuild
	r.rebuilding = func(b host.Rebuild) { told = append(told, b) }
	r.open()
	fork(t, r, host.ForkRequest{Session: s.UID, At: ends[1].at})
	fork(t, r, host.ForkRequest{Session: s.UID, At: ends[1].at})
	if diff := cmp.Diff([]host.Rebuild{{Session: s.UID, At: ends[1].at, Turns: 2}}, told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// An image that is not there, for whatever reason, keeps no turn from running that
// begins from it.
func TestRebuild_BaseOfATurn(t *testing.T) {
	r := newRig(t)
	f := r.spoil()
	r.open()
	s := r.retaining(host.Retention{})
	for range 3 {
		r.exec(s.UID, "on")
	}
	root := mustGet(t, r, s.UID).Root
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.reopen(f.Storage)
	f.lose(t, 'i', root)
	r.open()
	if got := r.counts(s.UID); got != "0004" {
		t.Errorf("it counts %s", got)
	}
	r.verify(s.UID)
}

// A fork at a turn whose image is gone waits for no turn of the session, and disturbs
// none.
func TestRebuild_BesideATurn(t *testing.T) {
	r := newRig(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	r.models["slow"] = providerFunc(func(ctx context.Context, req model.Request, deltas func(model.Delta)) (model.Result, error) {
		close(asked)
		<-answer
		return echo.Provider{}.Complete(ctx, req, deltas)
	})
	r.open()
	s := r.retaining(host.Retention{Last: 1})
	for range 4 {
		r.exec(s.UID, "on")
	}
	r.collect()
	done := r.start(host.ExecRequest{Session: s.UID, Inputs: say("on"), Model: "slow"})
	<-asked
	for _, e := range r.ends(s.UID) {
		c := fork(t, r, host.ForkRequest{Session: s.UID, At: e.at})[0]
		if got, want := r.counts(c.UID), fmt.Sprintf("%04d", e.turn+1); got != want {
			t.Errorf("a child of turn %d counts %s", e.turn, got)
		}
	}
	r.collect()
	close(answer)
	if end := <-done; end.err != nil || end.State != abi.StateCompleted {
		t.Errorf("the turn ended %s: %v", end.State, end.err)
	}
	r.verify(s.UID)
}

// Everything is as ever in a conversation of which only the last image is kept, and
// all else taken away after each turn: also when the host dies anywhere in it.
func TestEquivalence_Retained(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles big modules")
	}
	for i, c := range conversations() {
		if c.harness == "steps" && i%5 > 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			want := converse(t, c, nil, engine(t, false), 0)
			c.keep = host.Retention{Last: 1}
			for point := 0; point <= want.points; point += 3 {
				got := converse(t, c, nil, engine(t, false), point)
				if diff := cmp.Diff(want.transcript, got.transcript); diff != "" {
					t.Errorf("dropped at %d (-everything is kept +one image is)\n%s", point, diff)
				}
			}
		})
	}
}

// A child of any record of a session of which one image is kept goes on like one of
// which all are.
func TestEquivalence_RetainedForks(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles big modules")
	}
	for i, c := range conversations() {
		if c.harness != "steps" || i%5 > 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c = c.same()
			c.keep = host.Retention{Last: 1}
			f := newForkedSession(t, c)
			for _, at := range f.points(t) {
				t.Run(fmt.Sprint(at), func(t *testing.T) {
					f.collect()
					f.check(t, fork(t, f.rig, host.ForkRequest{Session: f.session.UID, At: at})[0])
				})
			}
		})
	}
}

// points are where the session can be forked: at the ends of its turns and inside.
func (f *forkedSession) points(t *testing.T) []abi.Seq {
	t.Helper()
	points := map[abi.Seq]bool{f.session.Head.Seq: true}
	for rec, err := range f.Replay(t.Context(), f.session.UID, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e := rec.Event; e.Kind == abi.EventEnd || e.Kind == abi.EventOutput {
			points[rec.Seq] = true
		}
	}
	return slices.Sorted(maps.Keys(points))
}

// lose takes the row of a digest away behind the journal's back; rot spoils it.
func (f *faulty) lose(t *testing.T, kind byte, d abi.Digest) {
	t.Helper()
	var b journal.Batch
	b.Delete(append([]byte{kind}, d[:]...))
	if err := f.Storage.Commit(&b); err != nil {
		t.Fatal(err)
	}
}

func (f *faulty) overwrite(t *testing.T, kind byte, d abi.Digest, value []byte) {
	t.Helper()
	var b journal.Batch
	b.Put(journal.Entry{Key: append([]byte{kind}, d[:]...), Value: value})
	if err := f.Storage.Commit(&b); err != nil {
		t.Fatal(err)
	}
}

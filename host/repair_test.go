package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// wreck is a session whose images a test spoils: of turn 2 and of turns 4 to 6, the
// last of which has a fork.
type wreck struct {
	*rig
	t           *testing.T
	faulty      *faulty
	uid, child  abi.SessionID
	ends        []turn
	other       abi.SessionID
	unlike      *unlike
	transcripts [][]string
}

func newWreck(t *testing.T) *wreck {
	t.Helper()
	w := &wreck{rig: newRig(t), t: t, unlike: &unlike{Restorer: engine(t, false)}}
	w.runtimes = []runtimes.Runtime{w.unlike}
	w.faulty = w.spoil()
	w.open()
	w.uid = w.retaining(host.Retention{Last: 3, Every: 2}).UID
	w.other = w.retaining(host.Retention{}).UID
	for range 6 {
		w.exec(w.uid, "on")
	}
	w.exec(w.other, "on")
	w.child = fork(t, w.rig, host.ForkRequest{Session: w.uid})[0].UID
	w.collect()
	w.ends = w.rig.ends(w.uid)
	if got := w.images(w.ends); !slices.Equal(got, []int64{2, 4, 5, 6}) {
		t.Fatalf("the images of turns %v are there", got)
	}
	for _, uid := range []abi.SessionID{w.uid, w.child, w.other} {
		w.transcripts = append(w.transcripts, w.transcript(uid))
	}
	return w
}

// restart opens the store anew, so that nothing of it is in memory.
func (w *wreck) restart() {
	w.t.Helper()
	if err := w.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.reopen(w.faulty)
	w.open()
}

// row names a row of the image of a turn: its own, that of the only node of its tree,
// or that of a page, which is another one after each turn.
func (w *wreck) row(kind byte, turn int, page uint32) abi.Digest {
	root := w.ends[turn-1].root
	switch kind {
	case 'i':
		return root
	case 'p':
		return w.page(root, page)
	}
	node := []byte{1}
	for i := range uint32(16) {
		d := w.page(root, i)
		node = append(node, d[:]...)
	}
	return abi.DigestOf(node)
}

// whole checks that everything is as it was.
func (w *wreck) whole() {
	w.t.Helper()
	for i, uid := range []abi.SessionID{w.uid, w.child, w.other} {
		if got := w.transcript(uid); !slices.Equal(got, w.transcripts[i]) {
			w.t.Errorf("the record of %s is another one", uid)
		}
		w.verify(uid)
		w.exec(uid, "on")
		w.verify(uid)
	}
	for _, e := range w.ends {
		if c := fork(w.t, w.rig, host.ForkRequest{Session: w.uid, At: e.at})[0]; c.Root != e.root {
			w.t.Errorf("a fork at turn %d begins from %s", e.turn, c.Root.Short())
		}
	}
}

// What is missing or damaged of an image keeps from running who begins from it, and
// nobody else, and is said by name; verify finds it; Repair writes it again from the
// record, without a call (I1), also for those who share it.
func TestRepair(t *testing.T) {
	spoiled := []byte("rotten")
	type damage struct {
		kind byte
		turn int
		page uint32
		with []byte // nil: it is gone
	}
	tests := []struct {
		name   string
		damage []damage
		runs   bool  // the session does, because its last image is whole
		images []int // turns of the images that are damaged
		rows   []int // written for each
		again  []int // turns run again for each
		says   string
	}{
		{"a page", []damage{{'p', 6, 1, spoiled}}, false, []int{6}, []int{1}, []int{1}, "page 1, "},
		{"a page that is gone", []damage{{'p', 6, 1, nil}}, false, []int{6}, []int{1}, []int{1}, "page 1, "},
		{"a page of its size", []damage{{'p', 6, 1, bytes.Repeat([]byte{7}, abi.PageSize)}}, false, []int{6}, []int{1}, []int{1}, "page 1, "},
		{"a node", []damage{{'t', 6, 0, spoiled}}, false, []int{6}, []int{1}, []int{1}, "node "},
		{"a node that is gone", []damage{{'t', 6, 0, nil}}, false, []int{6}, []int{1}, []int{1}, "node "},
		{"an image's row", []damage{{'i', 6, 0, spoiled}}, false, []int{6}, []int{1}, []int{1}, "image "},
		{"several of one", []damage{{'i', 6, 0, spoiled}, {'t', 6, 0, nil}, {'p', 6, 1, spoiled}}, false, []int{6}, []int{3}, []int{1}, "image "},
		{"an old one", []damage{{'p', 4, 1, spoiled}}, true, []int{4}, []int{1}, []int{2}, "page 1, "},
		{"all", []damage{
			{'p', 2, 1, nil},
			{'t', 4, 0, spoiled},
			{'i', 5, 0, spoiled},
			{'p', 6, 1, spoiled},
		}, false, []int{2, 4, 5, 6}, []int{1, 1, 1, 1}, []int{2, 2, 1, 1}, "page 1, "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWreck(t)
			rows := make([]abi.Digest, len(tt.damage))
			for i, d := range tt.damage {
				rows[i] = w.row(d.kind, d.turn, d.page)
			}
			for i, d := range tt.damage {
				if d.with == nil {
					w.faulty.lose(t, d.kind, rows[i])
				} else {
					w.faulty.overwrite(t, d.kind, rows[i], d.with)
				}
			}
			w.restart()
			for _, uid := range []abi.SessionID{w.uid, w.child} {
				if !tt.runs {
					w.refused(uid, tt.says)
				}
				_, err := w.Verify(t.Context(), host.VerifyRequest{Session: uid, Reexecute: true})
				if !isDamage(err, tt.says) {
					t.Errorf("verify: %v", err)
				}
			}
			w.verify(w.other)
			dry := w.repair(true)
			if dry.Left() < len(tt.images) || !slices.Contains(turns(dry), tt.images[0]) {
				t.Errorf("a dry run finds %v", turns(dry))
			}
			got := w.repair(false)
			if !slices.Equal(turns(got), tt.images) || got.Left() != 0 || got.ProviderCalls != 0 || got.Images != 4 {
				t.Fatalf("it repaired %v of %d, %d left, %d provider calls", turns(got), got.Images, got.Left(), got.ProviderCalls)
			}
			for i, d := range got.Damaged {
				if d.Rows != tt.rows[i] || d.Turns != tt.again[i] || d.Root != w.ends[tt.images[i]-1].root {
					t.Errorf("of turn %d it wrote %d rows from %d turns, want %d from %d", d.Turn, d.Rows, d.Turns, tt.rows[i], tt.again[i])
				}
			}
			if again := w.repair(false); len(again.Damaged) != 0 {
				t.Errorf("something was left: %+v", again)
			}
			w.whole()
		})
	}
}

// refused checks that a session does not run and says why.
func (w *wreck) refused(uid abi.SessionID, says string) {
	w.t.Helper()
	_, err := w.Exec(w.t.Context(), host.ExecRequest{Session: uid, Inputs: say("on")})
	if !isDamage(err, says) || !strings.Contains(err.Error(), string(uid)) {
		w.t.Errorf("exec: %v", err)
	}
}

func isDamage(err error, says string) bool {
	var damage *host.ImageDamage
	return errors.As(err, &damage) && errors.Is(err, journal.ErrCorrupt) && strings.Contains(err.Error(), says)
}

func (w *wreck) repair(dry bool) host.Repair {
	w.t.Helper()
	r, err := w.Repair(w.t.Context(), host.RepairRequest{Session: w.uid, DryRun: dry})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// turns are those whose images were damaged.
func turns(r host.Repair) (all []int) {
	for _, d := range r.Damaged {
		all = append(all, int(d.Turn))
	}
	return all
}

// What the record does not lead to is left as it is and said, and what is behind the
// next whole image is repaired.
func TestRepair_WhatCannotBe(t *testing.T) {
	tests := []struct {
		name string
		here func(u *unlike)
		want error
	}{
		{"another rewriter", func(u *unlike) { u.rewriter = 1 }, host.ErrPlacement},
		{"turns cannot be run again", func(u *unlike) { u.once = true }, host.ErrPlacement},
		{"they lead elsewhere", func(u *unlike) { u.clock = 1 }, host.ErrDivergence},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWreck(t)
			for _, n := range []int{2, 4, 6} {
				w.faulty.overwrite(t, 'p', w.row('p', n, 1), []byte("rotten"))
			}
			tt.here(w.unlike)
			w.restart()
			r := w.repair(false)
			if r.Left() != 3 || len(r.Damaged) != 3 {
				t.Fatalf("%d of %d are left", r.Left(), len(r.Damaged))
			}
			for _, d := range r.Damaged {
				if !errors.Is(d.Err, tt.want) || d.Rows != 0 {
					t.Errorf("turn %d: %d rows, %v", d.Turn, d.Rows, d.Err)
				}
			}
			*w.unlike = unlike{Restorer: w.unlike.Restorer}
			w.restart()
			if r := w.repair(false); r.Left() != 0 {
				t.Errorf("%d are left where it can be done", r.Left())
			}
			w.whole()
		})
	}
}

// A disk that fills, a process that dies and a person who has had enough leave nothing
// worse than before, at whichever commit; the next Repair does the rest.
func TestRepair_Interrupted(t *testing.T) {
	for n := range 4 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := newWreck(t)
			for _, r := range []struct {
				kind byte
				turn int
			}{{'p', 2}, {'t', 4}, {'i', 5}, {'p', 6}} {
				w.faulty.overwrite(t, r.kind, w.row(r.kind, r.turn, 1), []byte("rotten"))
			}
			w.restart()
			letGo := w.faulty.failAt(n, journal.ErrFull)
			r, err := w.Repair(t.Context(), host.RepairRequest{Session: w.uid})
			if !errors.Is(err, journal.ErrFull) || len(r.Damaged)-r.Left() != n {
				t.Errorf("%d were repaired: %v", len(r.Damaged)-r.Left(), err)
			}
			letGo()
			w.restart()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := w.Repair(ctx, host.RepairRequest{Session: w.uid}); !errors.Is(err, context.Canceled) {
				t.Errorf("canceled: %v", err)
			}
			if r := w.repair(false); len(r.Damaged) != 4-n || r.Left() != 0 {
				t.Errorf("it found %d damaged, %d are left", len(r.Damaged), r.Left())
			}
			w.whole()
		})
	}
}

// A page that all images share is damaged in the first, and whole for all once that is
// repaired; those that no turn has changed are had from the module.
func TestRepair_GoldenPages(t *testing.T) {
	r := newRig(t)
	f := r.spoil()
	r.open()
	s := r.create("counter")
	r.exec(s.UID, "1")
	r.exec(s.UID, "2")
	golden := r.page(mustGet(t, r, s.UID).Root, 30)
	f.overwrite(t, 'p', golden, []byte("rotten"))
	got, err := r.Repair(t.Context(), host.RepairRequest{Session: s.UID})
	if err != nil || got.Left() != 0 || len(got.Damaged) != 1 || got.Damaged[0].Rows != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	r.exec(s.UID, "3")
	r.verify(s.UID)
}

// Images are rebuilt, and repaired, over upgrades: each turn with the module it ran.
func TestRepair_Upgrades(t *testing.T) {
	r := newRig(t)
	f := r.spoil()
	r.retention = host.Retention{Last: 1}
	r.open()
	s, points := upgradedTwice(t, r)
	if c := r.collect(); c.Images == 0 {
		t.Error("nothing was dropped")
	}
	check := func() {
		t.Helper()
		for _, p := range points {
			c := fork(t, r, host.ForkRequest{Session: s.UID, At: p.at})[0]
			if got := r.counts(c.UID); got != p.counts {
				t.Errorf("a fork at seq %d counts %s, want %s", p.at, got, p.counts)
			}
			r.verify(c.UID)
			r.delete(c.UID)
		}
		r.collect()
	}
	check()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	f.clear(t, 'p')
	r.reopen(f)
	r.open()
	got, err := r.Repair(t.Context(), host.RepairRequest{Session: s.UID})
	if err != nil || got.Left() != 0 || len(got.Damaged) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	check()
	r.verify(s.UID)
}

// clear takes all rows of a kind away behind the journal's back.
func (f *faulty) clear(t *testing.T, kind byte) {
	t.Helper()
	var b journal.Batch
	view := f.Storage.View()
	for e, err := range view.Scan([]byte{kind}, []byte{kind + 1}, false) {
		if err != nil {
			t.Fatal(err)
		}
		b.Delete(slices.Clone(e.Key))
	}
	view.Close()
	if err := f.Storage.Commit(&b); err != nil {
		t.Fatal(err)
	}
}

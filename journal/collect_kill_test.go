package journal

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// collecting collects again and again while two others write, until the process is
// killed. Sessions of earlier children are gone on with.
func (c *child) collecting() error {
	failed := make(chan error)
	for _, half := range []string{"a", "b"} {
		w := newWorld(c.j, c.run+half+".", rand.IntN)
		for s, err := range c.j.Sessions() {
			if err != nil {
				return err
			}
			if !s.IsDeleted() && s.UID[len(c.run)] == half[0] {
				w.mine = append(w.mine, s.UID)
			}
		}
		w.say = c.say
		go func() {
			for {
				if err := w.step(); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	go func() {
		for {
			if _, err := c.j.Collect(context.Background(), testNamer(c.j)); err != nil {
				failed <- err
				return
			}
			c.say(ack{Ready: true})
		}
	}()
	return <-failed
}

// TestM4_KillCollect kills children that collect and write at random moments, all of
// them in one directory. Each time all that was acknowledged is there, and whole;
// what is left over goes with the next Collect.
func TestM4_KillCollect(t *testing.T) {
	runs := 24
	if testing.Short() {
		runs = 8
	}
	dir := t.TempDir()
	acked := map[abi.SessionID]ack{}
	deleted := map[abi.SessionID]bool{} // or about to be
	collections := 0
	hear := func(a ack) {
		switch {
		case a.Ready:
			collections++
		case a.Begin:
			deleted[a.Session] = true
		default:
			acked[a.Session] = a
		}
	}
	for run := range runs {
		p := startChild(t, nil, "collect", dir, string(rune('A'+run%26))+string(rune('A'+run/26)))
		p.next()
		for n, whole := rand.N(60), collections; n > 0 || run%3 == 0 && collections == whole; n-- {
			hear(p.next())
		}
		time.Sleep(rand.N(20 * time.Millisecond))
		for _, a := range p.kill() {
			hear(a)
		}
		j := openAt(t, dir)
		checkM4(t, j.store)
		for uid, a := range acked {
			if deleted[uid] {
				continue
			}
			s, err := j.Session(uid)
			if err != nil || s.IsDeleted() || s.Head.Seq < a.Seq {
				t.Fatalf("session %s, acknowledged up to %d: %+v, %v", uid, a.Seq, s, err)
			}
			for r, err := range j.Read(uid, a.Seq, a.Seq) {
				if err != nil || r.Hash != a.Hash {
					t.Fatalf("session %s, record %d: %v, %v", uid, a.Seq, r, err)
				}
			}
		}
		verifyAll(t, j)
		reachable(t, j, false)
		if run%10 == 9 {
			collect(t, j)
			checkM5(t, j)
		}
		closeJournal(t, j)
	}
	t.Logf("%d children killed, %d collections, %d sessions with acknowledged records, %d of them deleted", runs, collections, len(acked), len(deleted))
	if collections < runs/3 {
		t.Errorf("only %d collections were completed: too few to show anything", collections)
	}
}

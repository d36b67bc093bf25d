package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// litter puts so many blobs into the store that nobody needs, of a megabyte each.
func litter(t *testing.T, j *journal.Journal, megabytes int) {
	t.Helper()
	for i := range megabytes {
		blob := make([]byte, 1<<20)
		copy(blob, fmt.Sprint(t.Name(), j.Commits(), i))
		if _, err := j.PutBlob(context.Background(), blob); err != nil {
			t.Fatal(err)
		}
	}
}

// collections counts what the host has said of them.
func (l *logged) collections() int { return strings.Count(l.String(), "msg=collected") }

// collecting is a sleeper that collects by itself, and what it logs.
func collecting(t *testing.T) (*sleeper, *logged) {
	s, log := newSleeper(t), new(logged)
	s.cfg = func(c *host.Config) {
		c.AutoCollect, c.Log = true, slog.New(slog.NewTextHandler(log, nil))
	}
	return s, log
}

func last(t *testing.T, j *journal.Journal) host.Collection {
	t.Helper()
	c, _, err := host.LastCollection(j)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A host collects by itself when there may be enough to give back, wherever that
// comes from, and never in its first minute. What it knows of the last time outlives
// it, and what others wrote meanwhile counts.
func TestAutoCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := collecting(t)
		s.start(true)
		uid := s.session()
		litter(t, s.store, 40)
		time.Sleep(time.Hour)
		if n := log.collections(); n != 0 {
			t.Fatalf("%d collections for 40 MB", n)
		}
		litter(t, s.store, 40)
		s.restart(true)
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if n := log.collections(); n != 0 {
			t.Fatalf("%d collections in the first minute", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if c := last(t, s.store); c.Blobs != 80 || c.After > 1<<20 || !c.Begun.Equal(bubbleEpoch.Add(time.Hour+time.Minute)) {
			t.Errorf("the last collection: %+v", c)
		}
		s.restart(true)
		if _, err := s.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say("*")}); err != nil { // something is written
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := log.collections(); n != 1 {
			t.Errorf("%d collections, want none without garbage", n)
		}
		litter(t, s.store, 80)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := log.collections(); n != 2 {
			t.Errorf("%d collections, want one more", n)
		}
	})
}

// While turns run a collection waits for a better moment, but not for ever; it then
// goes on beside them, and fails none.
func TestAutoCollect_BesideTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := collecting(t)
		s.models["echo"] = providerFunc(func(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Result, error) {
			select {
			case <-time.After(250 * time.Second):
			case <-ctx.Done():
			}
			return model.Result{Message: abi.Text(abi.RoleAssistant, "ok")}, ctx.Err()
		})
		s.start(true)
		uid := s.session()
		litter(t, s.store, 80)
		turns := make(chan error, 1)
		go func() {
			var err error
			for range 4 {
				e, failed := s.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say("*")})
				if failed == nil && e.State != abi.StateCompleted {
					failed = fmt.Errorf("a turn ended %s: %v", e.State, e.Err)
				}
				err = errors.Join(err, failed)
			}
			turns <- err
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := log.collections(); n != 0 {
			t.Errorf("%d collections beside turns after 10 minutes", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := log.collections(); n != 1 {
			t.Errorf("%d collections beside turns after 11 minutes, want 1", n)
		}
		if err := <-turns; err != nil {
			t.Error(err)
		}
	})
}

// What keeps a collection from ending is logged and tried again less and less often,
// and is no trouble of any turn.
func TestAutoCollect_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := collecting(t)
		s.start(true)
		uid := s.session()
		broken, err := s.store.Create(t.Context(), journal.Session{UID: "sess-broken", Project: "p", Created: bubbleEpoch, Meta: []byte("?")})
		if err != nil {
			t.Fatal(err)
		}
		litter(t, s.store, 80)
		failures := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := strings.Count(log.String(), "not everything is collected"); got != want {
				t.Errorf("after %s: %d failures logged, want %d", time.Since(bubbleEpoch), got, want)
			}
		}
		time.Sleep(time.Minute)
		failures(1)
		time.Sleep(10 * time.Minute)
		failures(2)
		time.Sleep(20 * time.Minute)
		failures(3)
		time.Sleep(30 * 24 * time.Hour)
		failures(3 + 6 + 28) // after 40 minutes to 21 hours, then daily
		e, err := s.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: say("*")})
		if err != nil || e.State != abi.StateCompleted {
			t.Errorf("a turn: %+v, %v", e, err)
		}
		if _, err := s.store.Delete(t.Context(), broken.UID, bubbleEpoch); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if n := log.collections(); n != 1 {
			t.Errorf("%d collections once nothing is in the way", n)
		}
	})
}

// Close ends a collection at once, wherever it waits.
func TestAutoCollect_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := collecting(t)
		s.start(true)
		litter(t, s.store, 80)
		release := s.store.Hold() // for which a collection waits
		defer release()
		time.Sleep(time.Hour)
		s.restart(true)
		if since := time.Since(bubbleEpoch); since != time.Hour || log.collections() != 0 {
			t.Errorf("closed after %s; logged\n%s", since, log)
		}
	})
}

// Whether it pays takes no walk: what the store has grown by counts, and what
// deleted sessions had in memory.
func TestCollectPays(t *testing.T) {
	r := newRig(t).open()
	pays := func(want bool) {
		t.Helper()
		if got, err := r.CollectPays(); got != want || err != nil {
			t.Errorf("pays: %t, %v, want %t", got, err, want)
		}
	}
	pays(false)
	s := r.create("notebook")
	r.exec(s.UID, "fill 50")
	r.exec(s.UID, "fill 50")
	pays(true) // for all that can be told
	r.collect()
	pays(false)
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	r.delete(child.UID)
	pays(false)
	r.delete(s.UID)
	pays(true)
	c := r.collect()
	pays(false)
	if got := last(t, r.store); got.Collected != c {
		t.Errorf("the last collection was %+v, not %+v", got.Collected, c)
	}
}

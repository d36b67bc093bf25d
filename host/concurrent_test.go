package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/testdata/asks"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/runtimes/inproc"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// M3, S3: 64 sessions at once, on badger and with the background flush, forked
// and verified while they run, are 64 sessions one by one.
func TestM3_ManySessionsAtOnce(t *testing.T) {
	dir := t.TempDir() // removed after the rig has closed its store
	r := newRig(t)
	store, err := journal.Open(dir, journal.Options{FreeReserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	r.store, r.flush = store, 0
	r.open()
	const turns = 3
	ctx := t.Context()
	turn := func(uid abi.SessionID, want int) error {
		var out []string
		_, err := r.Exec(ctx, host.ExecRequest{Session: uid, Inputs: say("x"), Observe: func(u host.Update) {
			if u.Record != nil && u.Record.Event.Kind == abi.EventOutput {
				out = append(out, u.Record.Event.Message.Text())
			}
		}})
		if diff := cmp.Diff([]string{"echo:how much is it?", fmt.Sprintf("%04d", want)}, out); err == nil && diff != "" {
			err = fmt.Errorf("session %s, turn %d puts out (-want +got): %s", uid, want, diff)
		}
		return err
	}
	session := func() error {
		s, err := r.Create(ctx, host.CreateRequest{Harness: tally()})
		if err != nil {
			return err
		}
		var others sync.WaitGroup
		defer others.Wait()
		for n := range turns {
			if err := turn(s.UID, n+1); err != nil {
				return err
			}
			// While the next turn runs:
			others.Go(func() {
				if _, err := r.Verify(ctx, host.VerifyRequest{Session: s.UID, Reexecute: true}); err != nil {
					t.Error(err)
				}
			})
			others.Go(func() {
				children, err := r.Fork(ctx, host.ForkRequest{Session: s.UID})
				if err != nil {
					t.Error(err)
					return
				}
				if err := turn(children[0].UID, int(children[0].Turns)+1); err != nil {
					t.Error(err)
				}
			})
		}
		return nil
	}
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if err := session(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	roots := map[abi.Digest]bool{}
	count := 0
	for token := ""; ; {
		page, err := r.List(ctx, host.ListRequest{Limit: 500, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sessions {
			roots[s.Root] = true
			if v := r.verify(s.UID); v.Reexecuted != s.Turns {
				t.Errorf("verified %+v, %d turns", v, s.Turns)
			}
			count++
		}
		if token = page.Next; token == "" {
			break
		}
	}
	// M6: randomness is in the root, so no two are the same.
	if want := 64 * (1 + turns); count != want || len(roots) != want {
		t.Errorf("%d sessions with %d roots, want %d", count, len(roots), want)
	}
}

// S3: Close in the midst of turns leaves each session whole and resumable.
func TestS3_CloseDuringTurns(t *testing.T) {
	r := newRig(t)
	r.flush = 0
	r.open()
	var sessions []host.Session
	for range 16 {
		sessions = append(sessions, r.createFrom(tally()))
	}
	for range 3 {
		h := r.Host
		var started, all sync.WaitGroup
		for _, s := range sessions {
			started.Add(1)
			all.Go(func() {
				once := sync.OnceFunc(started.Done)
				defer once()
				for open := false; ; open = false {
					req := host.ExecRequest{Session: s.UID, Observe: func(host.Update) { once() }}
					got, err := h.Get(context.Background(), s.UID)
					if open = got.State == host.ExecInterrupted; !open {
						req.Inputs = say("x")
					}
					if err == nil {
						_, err = h.Exec(context.Background(), req)
					}
					if errors.Is(err, host.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		started.Wait()
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		r.open()
		for _, s := range sessions {
			r.verify(s.UID)
		}
	}
}

// P2: a harness from one source gives one transcript on every runtime that can
// hold it; times, ids and the cell object are a runtime's own.
func TestP2_TranscriptsAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a big module")
	}
	native := inproc.New(map[string]func() sdk.Harness{"asks": func() sdk.Harness { return asks.Harness{} }})
	run := func(rt runtimes.Runtime) (lines []string) {
		r := newRig(t)
		r.models["echo"] = scripted(t, `{"text":"one","usage":{"output_tokens":3}}`, `{"error":"away"}`, `{"text":"three"}`)
		r.runtimes = []runtimes.Runtime{rt}
		r.open()
		s, err := r.Create(t.Context(), host.CreateRequest{Harness: built(t, "asks", "./testdata/asks/cell"), Config: []byte("configured")})
		if err != nil {
			t.Fatal(err)
		}
		if s.Runtime != rt.Capabilities().Runtime {
			t.Fatalf("placed on %q", s.Runtime)
		}
		for _, input := range []string{"ask", "ask data use", "history fail", "history config ask empty", "panic", "last"} {
			if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say(input)}); err != nil {
				t.Fatal(err)
			}
		}
		for rec, err := range r.Replay(t.Context(), s.UID, 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			e := *rec.Event
			e.Time, e.ExecutionID, e.Cell = abi.Time{}, "", nil
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprint(rec.Seq, string(line)))
		}
		r.verify(s.UID)
		return lines
	}
	if diff := cmp.Diff(run(engine(t, false)), run(native)); diff != "" {
		t.Errorf("(-wasm +inproc)\n%s", diff)
	}
}

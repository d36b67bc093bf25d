package host_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/echo"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	runtime "github.com/agentcell/agentcell/runtimes/wasm"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm"
)

// childEnv makes the test binary a process that runs turns on the journal in the
// directory it names, until it is killed; collectEnv one that collects meanwhile, and
// whose sessions keep one image.
const (
	childEnv   = "AGENTCELL_TEST_HOST_CHILD"
	collectEnv = "AGENTCELL_TEST_HOST_COLLECT"
)

// childSessions is how many sessions a child runs at once.
const childSessions = 4

// shown is what a child writes when it is shown a record.
type shown struct {
	Session abi.SessionID
	Seq     abi.Seq
	Hash    abi.Digest
}

// runChild recovers what is open and runs turn after turn, in several sessions,
// and forks now and then.
func runChild(dir string) error {
	store, err := journal.Open(dir, journal.Options{FreeReserve: -1, LockWait: 10 * time.Second})
	if err != nil {
		return err
	}
	h, err := tallyHost(store)
	if err != nil {
		return err
	}
	ctx := context.Background()
	page, err := h.List(ctx, host.ListRequest{Limit: 100})
	if err != nil {
		return err
	}
	sessions := page.Sessions
	slices.SortStableFunc(sessions, func(a, b host.Session) int {
		return strings.Compare(string(b.State), string(a.State)) // INTERRUPTED before COMPLETED
	})
	sessions = sessions[:min(len(sessions), childSessions)]
	collects := os.Getenv(collectEnv) != ""
	req := host.CreateRequest{Harness: tally()}
	if collects {
		req.Retention.Last = 1
	}
	for len(sessions) < childSessions {
		s, err := h.Create(ctx, req)
		if err != nil {
			return err
		}
		sessions = append(sessions, s)
	}
	failed := make(chan error)
	for _, s := range sessions {
		go func() { failed <- runSession(ctx, h, s) }()
	}
	for collects {
		if _, err := h.Collect(ctx); err != nil {
			return err
		}
	}
	return <-failed
}

func runSession(ctx context.Context, h *host.Host, s host.Session) error {
	show := func(u host.Update) {
		if u.Record != nil {
			line, err := json.Marshal(shown{s.UID, u.Record.Seq, u.Record.ContentHash})
			if err == nil {
				_, err = os.Stdout.Write(append(line, '\n')) // a pipe takes it whole
			}
			if err != nil {
				panic(err)
			}
		}
	}
	open := s.State == host.ExecInterrupted
	for n := 1; ; n++ {
		req := host.ExecRequest{Session: s.UID, Observe: show}
		if !open {
			req.Inputs = say(fmt.Sprint("turn ", n))
		}
		open = false
		end, err := h.Exec(ctx, req)
		if err != nil || end.State != abi.StateCompleted {
			return fmt.Errorf("%s %v: %w", end.State, end.Err, err)
		}
		if n%5 == 0 {
			if _, err := h.Fork(ctx, host.ForkRequest{Session: s.UID, Count: 2}); err != nil {
				return err
			}
		}
	}
}

// tallyHost is a host as edge makes one, with a model that takes a moment.
func tallyHost(store *journal.Journal) (*host.Host, error) {
	e, err := wasm.New(wasm.Config{})
	if err != nil {
		return nil, err
	}
	slow := providerFunc(func(ctx context.Context, req model.Request, deltas func(model.Delta)) (model.Result, error) {
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		return echo.Provider{}.Complete(ctx, req, deltas)
	})
	return host.New(host.Config{
		Journal: store, Runtimes: []runtimes.Runtime{runtime.New(e)},
		Models: map[string]model.Provider{"echo": slow}, DefaultModel: "echo", Paused: true,
	})
}

// I6, M4, S3: a process that is killed while it runs turns in several sessions
// loses nothing that it showed. Every session verifies and re-executes, what was
// open is recovered by the next process, and so on for many kills.
func TestI6_Kill(t *testing.T) {
	// Each round is on a store of its own: every kill checks all there is, and
	// that grows.
	const kills = 6
	rounds := 1
	if os.Getenv("AGENTCELL_SOAK") != "" {
		rounds = 10
	}
	interrupted := 0
	for range rounds {
		dir := t.TempDir()
		records := map[abi.SessionID]map[abi.Seq]abi.Digest{}
		for n := range kills {
			for _, s := range killChild(t, dir, time.Duration(rand.IntN(150))*time.Millisecond) {
				if records[s.Session] == nil {
					records[s.Session] = map[abi.Seq]abi.Digest{}
				}
				records[s.Session][s.Seq] = s.Hash
			}
			interrupted += checkKilled(t, dir, records, n == kills-1)
		}
	}
	if interrupted == 0 {
		t.Error("no kill interrupted a turn; the test shows nothing")
	}
}

// killChild runs a child, kills it some time after it has shown its first
// records, and gives what it has shown.
func killChild(t *testing.T, dir string, after time.Duration, env ...string) (said []shown) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+dir), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { _ = cmd.Process.Kill() })
	defer kill()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var s shown
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			break // the last line may be cut
		}
		if said = append(said, s); len(said) == 1 {
			time.AfterFunc(after, kill)
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != -1 {
		t.Fatalf("the child ended by itself with code %d\n%s", code, &stderr)
	}
	return said
}

// checkKilled opens what a killed child left, checks it, and counts the turns
// that it finds open; it recovers them if it is to.
func checkKilled(t *testing.T, dir string, records map[abi.SessionID]map[abi.Seq]abi.Digest, recovers bool) (open int) {
	t.Helper()
	store, err := journal.Open(dir, journal.Options{FreeReserve: -1, LockWait: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	r.store = store
	r.open()
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	for token := ""; ; {
		page, err := r.List(t.Context(), host.ListRequest{Limit: 100, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sessions {
			if s.State == host.ExecInterrupted {
				open++
				if recovers {
					if _, err := r.Resume(t.Context(), s.UID, nil); err != nil {
						t.Error(err)
					}
				}
			}
			r.verify(s.UID)
			if err := r.readRoots(s.UID); err != nil {
				t.Error(err)
			}
			missing := records[s.UID]
			stored := map[abi.Seq]abi.Digest{}
			for rec, err := range r.Replay(t.Context(), s.UID, 0, 0) {
				if err != nil {
					t.Fatal(err)
				}
				stored[rec.Seq] = rec.ContentHash
			}
			for seq, hash := range missing {
				if stored[seq] != hash {
					t.Errorf("session %s, seq %d was shown as %s and is %s", s.UID, seq, hash.Short(), stored[seq].Short())
				}
			}
		}
		if token = page.Next; token == "" {
			return open
		}
	}
}

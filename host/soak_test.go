package host_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// soak runs random sessions on one store in a process that is killed again and
// again, and holds what the store then has against what the world and the clients
// saw.
//
// All choices come from the seed; what the scheduler and the clock do does not, so
// a seed makes a run alike and not the same.
type soak struct {
	t      *testing.T
	run    soakRun
	lines  int // a process may say at most so many before it is killed
	ledger *ledger
}

// TestSoak is a few rounds of it; with AGENTCELL_SOAK, which is how long it takes
// (make soak), the real thing. AGENTCELL_SOAK_SEED chooses the seed, and
// AGENTCELL_SOAK_DIR where the store is and stays.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles big modules")
	}
	long := soakDuration(t)
	s := newSoak(t, long > 0)
	began := time.Now()
	for s.run.Round = 1; s.run.Round <= soakRounds || time.Since(began) < long; s.run.Round++ {
		s.round()
		if t.Failed() {
			t.Fatalf("seed %d, round %d, store %s\n%s", s.run.Seed, s.run.Round, s.run.Dir, s.ledger)
		}
	}
	s.end()
	t.Logf("seed %d, %s, %d rounds\n%s", s.run.Seed, time.Since(began).Round(time.Second), s.run.Round-1, s.ledger)
	if s.ledger.figures["turns COMPLETED"] == 0 {
		t.Error("no turn completed; the test shows nothing")
	}
}

// soakRounds is the least of rounds.
const soakRounds = 6

func soakDuration(t *testing.T) time.Duration {
	switch text := os.Getenv("AGENTCELL_SOAK"); text {
	case "":
		return 0
	case "1":
		return 10 * time.Minute
	default:
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal("AGENTCELL_SOAK: ", err)
		}
		return d
	}
}

func newSoak(t *testing.T, long bool) *soak {
	s := &soak{t: t, lines: 300}
	s.run = soakRun{Dir: os.Getenv("AGENTCELL_SOAK_DIR"), Seed: 1, Sessions: 40, Harnesses: map[string]string{}}
	if s.run.Dir == "" {
		s.run.Dir = t.TempDir()
	}
	if long {
		s.lines, s.run.Seed, s.run.Sessions = 500, rand.Uint64(), 400
	}
	if text := os.Getenv("AGENTCELL_SOAK_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal("AGENTCELL_SOAK_SEED: ", err)
		}
		s.run.Seed = seed
	}
	s.ledger = newLedger(func(uid abi.SessionID, seq abi.Seq, format string, args ...any) {
		t.Helper()
		t.Errorf("seed %d, round %d, session %s, seq %d: %s", s.run.Seed, s.run.Round, uid, seq, fmt.Sprintf(format, args...))
	})
	modules := t.TempDir()
	for _, name := range []string{"steps", "chat"} {
		h := harness(t, name)
		path := filepath.Join(modules, name+".wasm")
		if err := os.WriteFile(path, h.Code, 0o600); err != nil {
			t.Fatal(err)
		}
		s.run.Harnesses[name] = path
	}
	s.run.Cache = compileCache(t)
	return s
}

// round lets a process run until it is killed, or closes, and looks at what it has
// left.
func (s *soak) round() {
	s.t.Helper()
	dice := world{seed: s.run.Seed}.dice("round", s.run.Round)
	s.run.Live = dice.IntN(3) == 0
	s.run.Retries = slices.SortedFunc(maps.Values(s.ledger.retries), func(a, b retry) int { return strings.Compare(a.Key, b.Key) })
	s.ledger.figures["requests made again"] += len(s.run.Retries)
	spec, err := json.Marshal(s.run)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), soakEnv+"="+string(spec))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { _ = cmd.Process.Kill() })
	defer kill()
	stop, closes := kill, false
	// It may say so many lines, and then goes with the next of one kind: mostly
	// while a call is under way.
	after, with := 1+dice.IntN(s.lines), []string{"", saidCalled, saidCalled, saidAsked, saidRecord, saidDecided}[dice.IntN(6)]
	switch dice.IntN(10) {
	case 0: // it closes as a host should
		stop, closes = sync.OnceFunc(func() { _ = stdin.Close() }), true
	case 1: // while it opens the store, or soon after
		early := time.AfterFunc(time.Duration(dice.IntN(200))*time.Millisecond, kill)
		defer early.Stop()
	}
	lines := bufio.NewScanner(stdout)
	for n := 1; lines.Scan(); n++ {
		var line said
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			break // the last line may be cut
		}
		s.ledger.hear(line)
		if n >= after && (with == "" || with == line.Kind || n >= 2*after+100) {
			stop()
		}
	}
	_ = stdin.Close()
	_ = cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); {
	case closes && code == 0:
		s.ledger.figures["processes closed"]++
	case code == -1:
		s.ledger.figures["processes killed"]++
	default:
		s.t.Errorf("the process ended with code %d\n%s", code, &stderr)
	}
	s.look(dice)
}

// look reads what a process has left: everything that is new, and proves some of
// it.
func (s *soak) look(dice *rand.Rand) {
	s.t.Helper()
	h, done := s.open()
	defer done()
	there := map[abi.SessionID]bool{}
	for session, err := range everySession(s.t.Context(), h) {
		if err != nil {
			s.t.Fatal(err)
		}
		there[session.UID] = true
		s.ledger.read(s.t.Context(), h, session)
		if session.State == host.ExecInterrupted || session.State == host.ExecAwaiting {
			s.ledger.figures["sessions found "+string(session.State)]++
		}
		if dice.IntN(20) == 0 {
			s.prove(h, session)
		}
	}
	for name := range s.ledger.snapshots {
		if _, err := h.Snapshot(s.t.Context(), "", name); err != nil {
			s.ledger.wrong("", 0, "I6: snapshot %s: %v", name, err)
		}
	}
	for uid, a := range s.ledger.sessions {
		switch {
		case there[uid] && a.deleted:
			s.ledger.wrong(uid, 0, "I6: it was deleted, and is there")
		case !there[uid] && !a.doomed:
			s.ledger.wrong(uid, 0, "I6: it is gone")
		}
	}
	s.ledger.settle()
}

// open opens the store in this process.
func (s *soak) open() (h *host.Host, done func()) {
	s.t.Helper()
	store, err := journal.Open(s.run.Dir, journal.Options{FreeReserve: -1, LockWait: 10 * time.Second})
	if err != nil {
		s.t.Fatalf("seed %d, round %d: %v", s.run.Seed, s.run.Round, err)
	}
	var mu sync.Mutex
	w := world{seed: s.run.Seed, say: func(line said) {
		mu.Lock()
		defer mu.Unlock()
		s.ledger.hear(line)
	}}
	if h, err = host.New(soakConfig(store, []runtimes.Runtime{engine(s.t, false)}, w)); err != nil {
		s.t.Fatal(err)
	}
	return h, func() {
		if err := errors.Join(h.Close(), store.Close()); err != nil {
			s.t.Error(err)
		}
	}
}

// end brings every session to the end of its turn, and proves them all.
func (s *soak) end() {
	s.t.Helper()
	h, done := s.open()
	defer done()
	var all []abi.SessionID
	for session, err := range everySession(s.t.Context(), h) {
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, session.UID)
		s.ledger.read(s.t.Context(), h, session)
		if session.State == host.ExecInterrupted || session.State == host.ExecAwaiting {
			if err := bringToEnd(s.t.Context(), h, session.UID); err != nil {
				s.ledger.wrong(session.UID, session.Head.Seq, "go on with an open turn: %v", err)
			}
		}
	}
	roots := map[abi.Digest]bool{}
	for _, uid := range all {
		session, err := h.Get(s.t.Context(), uid)
		if err != nil {
			s.t.Fatal(err)
		}
		s.ledger.read(s.t.Context(), h, session)
		s.ledger.close(s.t.Context(), h, uid)
		v := s.prove(h, session)
		roots[session.Root] = true
		for what, n := range map[string]int64{
			"sessions verified at the end": 1, "records verified": v.Records,
			"turns re-executed to their root": v.Reexecuted, "turns re-executed as a prefix": v.Prefix,
		} {
			s.ledger.figures[what] += int(n)
		}
	}
	s.ledger.settle()
	s.ledger.figures["different roots at the end"] = len(roots)
	s.thin(h, all)
}

// thin deletes every second session and collects what nobody needs. The others are
// as they were, whoever their parents are.
func (s *soak) thin(h *host.Host, all []abi.SessionID) {
	s.t.Helper()
	ctx := s.t.Context()
	for i, uid := range all {
		if i%2 == 0 {
			if _, err := h.Delete(ctx, uid, false); err != nil {
				s.ledger.wrong(uid, 0, "%v", err)
			}
		}
	}
	c, err := h.Collect(ctx)
	if err != nil || len(all) > 1 && c.Records == 0 {
		s.ledger.wrong("", 0, "collected %+v: %v", c, err)
	}
	for session, err := range everySession(ctx, h) {
		if err != nil {
			s.t.Fatal(err)
		}
		s.ledger.read(ctx, h, session)
		s.prove(h, session)
	}
}

// bringToEnd goes on with an open turn until it has ended, whatever it waits for.
func bringToEnd(ctx context.Context, h *host.Host, uid abi.SessionID) error {
	for {
		e, err := h.Exec(ctx, host.ExecRequest{Session: uid})
		if err != nil || e.State != "" {
			return err
		}
		for _, w := range e.Waiting {
			switch {
			case w.Settled:
			case w.Signal != "":
				_, err = h.Signal(ctx, uid, w.Signal, nil)
			case w.Tool != "":
				_, err = h.Decide(ctx, host.DecideRequest{Session: uid, CallID: w.CallID, Approved: true})
			default:
				err = pause(ctx, time.Until(w.Until.Time))
			}
			if err != nil {
				return err
			}
		}
	}
}

// prove verifies a session.
func (s *soak) prove(h *host.Host, session host.Session) (v host.Verification) {
	s.t.Helper()
	v, err := h.Verify(context.Background(), host.VerifyRequest{Session: session.UID, Reexecute: true, Strict: true})
	switch {
	case err != nil:
		s.ledger.wrong(session.UID, session.Head.Seq, "verify: %v", err)
	case v.ProviderCalls != 0 || v.ChainOnly != 0:
		s.ledger.wrong(session.UID, session.Head.Seq, "I1: verified as %+v", v)
	}
	return v
}

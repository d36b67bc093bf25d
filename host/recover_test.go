package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/runtimes/inproc"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// naps is a harness that does what its input says, word by word:
//
//	N        wait until N seconds after the epoch of the test
//	~NAME    wait for the signal NAME
//	!TOOL    call the tool
//	*        ask the model
type naps struct{}

func (naps) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{ID: "naps", Capabilities: &abi.Capabilities{Resumability: abi.StatelessReplay}}
}

func (naps) Run(ctx context.Context, t *sdk.Turn) error {
	for word := range strings.FieldsSeq(t.Inputs()[0].Text()) {
		var (
			seconds int
			err     error
		)
		switch {
		case word == "*":
			_, err = t.Model(ctx, abi.ModelCall{Messages: []abi.Message{abi.Text(abi.RoleUser, "x")}})
		case word[0] == '~':
			_, err = t.Wait(ctx, time.Time{}, word[1:])
		case word[0] == '!':
			_, err = t.CallTools(ctx, abi.ToolCall{ID: "c", Tool: word[1:]})
		default:
			if _, err = fmt.Sscan(word, &seconds); err == nil {
				_, err = t.Wait(ctx, bubbleEpoch.Add(time.Duration(seconds)*time.Second), "")
			}
		}
		if err != nil {
			return err
		}
	}
	return t.OutputText(ctx, "awake")
}

// bubbleEpoch is when time begins in a synctest bubble.
var bubbleEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// sleeper is a rig in a bubble: time stands still there while anything runs, and
// goes on when all waits.
type sleeper struct {
	*rig
	cfg func(*host.Config)

	mu   sync.Mutex
	told []host.Recovery // to Recovered
}

func newSleeper(t *testing.T) *sleeper {
	s := &sleeper{rig: &rig{
		t: t, store: journal.OpenMemory(),
		runtimes: []runtimes.Runtime{inproc.New(map[string]func() sdk.Harness{"naps": func() sdk.Harness { return naps{} }})},
		models: map[string]model.Provider{"echo": providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
			return model.Result{Message: abi.Text(abi.RoleAssistant, "ok")}, nil
		})},
	}}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), s.store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start makes a host on the store, as a process that starts does.
func (s *sleeper) start(paused bool) {
	s.t.Helper()
	cfg := host.Config{
		Journal: s.store, Runtimes: s.runtimes, Models: s.models, DefaultModel: "echo", FlushDelay: -1, Tools: s.tools,
		Paused: paused, Recovered: s.tell,
	}
	if s.cfg != nil {
		s.cfg(&cfg)
	}
	h, err := host.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Host = h
}

func (s *sleeper) restart(paused bool) {
	s.t.Helper()
	if err := s.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.start(paused)
}

func (s *sleeper) tell(r host.Recovery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, r)
}

// heard takes what Recovered was told since it was last asked, when all is still.
func (s *sleeper) heard() []host.Recovery {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.told
	s.told = nil
	return told
}

func (s *sleeper) session() abi.SessionID {
	s.t.Helper()
	return s.createFrom(host.Harness{Name: "naps", Code: []byte("naps")}).UID
}

// states are those of sessions, when all is still.
func (s *sleeper) states(uids ...abi.SessionID) string {
	s.t.Helper()
	synctest.Wait()
	var out []string
	for _, uid := range uids {
		got, err := s.Get(context.Background(), uid)
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, strings.ToLower(string(got.State)))
	}
	return strings.Join(out, " ")
}

// want compares the states of sessions.
func (s *sleeper) want(states string, uids ...abi.SessionID) {
	s.t.Helper()
	if got := s.states(uids...); got != states {
		s.t.Errorf("after %s: %s, want %s", time.Since(bubbleEpoch), got, states)
	}
}

// leave runs turns that are under way when the host is closed.
func (s *sleeper) leave(uids ...abi.SessionID) {
	s.t.Helper()
	answers := s.models["echo"]
	s.models["echo"] = hanging
	s.restart(true)
	for _, uid := range uids {
		go s.Exec(context.Background(), host.ExecRequest{Session: uid, Inputs: say("*")})
	}
	synctest.Wait()
	s.models["echo"] = answers
	s.restart(true)
	s.want(strings.TrimSpace(strings.Repeat("interrupted ", len(uids))), uids...)
}

// hanging is a model that never answers.
var hanging = providerFunc(func(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Result, error) {
	<-ctx.Done()
	return model.Result{}, ctx.Err()
})

// Timers fire in the host that parked the turn, by themselves and in their order;
// a turn that parks again is taken up again.
func TestTimersFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper(t)
		s.start(false)
		late, soon, twice, never := s.session(), s.session(), s.session(), s.session()
		s.park(late, "86400")
		s.park(soon, "60")
		s.park(twice, "30 90")
		s.park(never, "~signal")
		time.Sleep(59 * time.Second)
		s.want("awaiting awaiting awaiting awaiting", late, soon, twice, never)
		time.Sleep(time.Second)
		s.want("awaiting completed awaiting awaiting", late, soon, twice, never)
		time.Sleep(30 * time.Second)
		s.want("awaiting completed completed awaiting", late, soon, twice, never)
		time.Sleep(48 * time.Hour)
		s.want("completed completed completed awaiting", late, soon, twice, never)
		var told []string
		for _, r := range s.heard() {
			if r.Err != nil || r.Execution.ID == "" || r.Session != r.Execution.Session.UID {
				t.Errorf("told %+v", r)
			}
			told = append(told, fmt.Sprint(string(r.Session), " ", r.Execution.State))
		}
		if diff := cmp.Diff([]string{
			string(twice) + " ", string(soon) + " COMPLETED", string(twice) + " COMPLETED", string(late) + " COMPLETED",
		}, told); diff != "" {
			t.Errorf("told (-want +got)\n%s", diff)
		}
		// A decision is somebody's, and so is what follows.
		if _, err := s.Signal(t.Context(), never, "signal", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		s.want("interrupted", never)
		s.restart(false)
		s.want("completed", never) // by now, whoever it was is gone
	})
}

// A timer is in the record: it fires after a restart, late if need be, and in each
// fork of the turn.
func TestTimersFireAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper(t)
		s.start(true)
		overdue, early := s.session(), s.session()
		s.park(overdue, "60")
		s.park(early, "7200")
		child := fork(t, s.rig, host.ForkRequest{Session: early, At: mustGet(t, s.rig, early).Head.Seq})[0].UID
		time.Sleep(time.Hour)
		// Paused, nothing fires.
		s.want("interrupted awaiting awaiting", overdue, early, child)
		s.restart(false)
		s.want("completed awaiting awaiting", overdue, early, child)
		grandchild := fork(t, s.rig, host.ForkRequest{Session: child, At: mustGet(t, s.rig, child).Head.Seq})[0].UID
		time.Sleep(time.Hour - time.Second)
		s.want("awaiting awaiting awaiting", early, child, grandchild)
		time.Sleep(time.Second)
		s.want("completed completed completed", early, child, grandchild)
	})
}

// A timer is gone with what waited for it: the turn, or the session.
func TestTimersOfWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper(t)
		s.start(false)
		deleted, canceled, anew := s.session(), s.session(), s.session()
		for _, uid := range []abi.SessionID{deleted, canceled, anew} {
			s.park(uid, "60")
		}
		if _, err := s.Delete(t.Context(), deleted, true); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Cancel(t.Context(), canceled); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Exec(t.Context(), host.ExecRequest{Session: anew, Inputs: say("120"), Abandon: true}); err != nil || len(e.Waiting) != 1 {
			t.Fatalf("%+v, %v", e, err)
		}
		time.Sleep(90 * time.Second)
		s.want("canceled awaiting", canceled, anew)
		if told := s.heard(); len(told) != 0 {
			t.Errorf("told %+v", told)
		}
		time.Sleep(30 * time.Second)
		s.want("canceled completed", canceled, anew)
		s.restart(false)
		s.want("canceled completed", canceled, anew)
		if told := s.heard(); len(told) != 1 || told[0].Session != anew {
			t.Errorf("told %+v", told)
		}
	})
}

// Paused, a host runs nothing, however long it waits, until it is released.
func TestPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper(t)
		s.start(true)
		left, parked := s.session(), s.session()
		s.leave(left)
		s.park(parked, "60")
		time.Sleep(1000 * time.Hour)
		s.want("interrupted interrupted", left, parked)
		if n := s.ProviderCalls(); n != 0 {
			t.Errorf("a paused host made %d calls", n)
		}
		later := s.session()
		s.park(later, "4000000")
		s.Release()
		s.Release()
		s.want("completed completed awaiting", left, parked, later)
		time.Sleep(1000 * time.Hour)
		s.want("completed", later)
		if n := len(s.heard()); n != 3 {
			t.Errorf("told of %d turns", n)
		}
	})
}

// A thousand turns that a process has left, and a thousand timers that are due at
// one moment, are run a few at a time.
func TestS2_RecoveryIsBounded(t *testing.T) {
	const sessions, parallel = 1000, 3
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper(t)
		var running, most, calls atomic.Int64
		s.models["echo"] = providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
			calls.Add(1)
			n := running.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Second)
			running.Add(-1)
			return model.Result{Message: abi.Text(abi.RoleAssistant, "ok")}, nil
		})
		s.cfg = func(c *host.Config) { c.RecoverParallel = parallel }
		s.start(true)
		var uids []abi.SessionID
		for range sessions {
			uids = append(uids, s.session())
		}
		s.leave(uids[:sessions/2]...)
		for _, uid := range uids[sessions/2:] {
			s.park(uid, "1 *")
		}
		calls.Store(0)
		time.Sleep(2 * time.Second)
		s.Release()
		synctest.Wait()
		if n := running.Load(); n != parallel {
			t.Errorf("%d turns run, want %d", n, parallel)
		}
		time.Sleep(time.Second * (sessions/parallel + 1))
		s.want(strings.TrimSpace(strings.Repeat("completed ", sessions)), uids...)
		if most.Load() != parallel || calls.Load() != sessions {
			t.Errorf("at most %d turns ran at once, want %d; %d calls, want %d", most.Load(), parallel, calls.Load(), sessions)
		}
	})
}

// S3: sessions that cannot be recovered here are reported once and left alone, and
// keep no other one from its turn.
func TestS3_PoisonAmongGoodSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper(t)
		storage := &faulty{Storage: journal.NewMemory()}
		s.reopen(storage)
		s.cfg = func(c *host.Config) { c.RecoverParallel = 1 }
		box := new(toolbox)
		s.models["other"] = s.models["echo"]
		s.start(true)
		good := []abi.SessionID{s.session(), s.session(), s.session(), s.session()}
		noModel, noTool, noSummary, noRecord := s.session(), s.session(), s.session(), s.session()
		noModule := s.createFrom(host.Harness{Name: "naps", Code: []byte("other naps")}).UID
		s.leave(append(good, noModule, noSummary, noRecord)...)
		s.models["other"] = hanging
		s.restart(true)
		go s.Exec(context.Background(), host.ExecRequest{Session: noModel, Inputs: say("*"), Model: "other"})
		synctest.Wait()
		s.tools = box.tools()
		s.restart(true)
		s.park(noTool, "!drop")
		s.decide(noTool, "", true)
		before := map[abi.SessionID]journal.Head{}
		bad := []abi.SessionID{noModel, noTool, noModule, noSummary, noRecord}
		for _, uid := range bad {
			before[uid] = mustGet(t, s.rig, uid).Head
		}
		delete(s.models, "other")
		s.tools = nil
		rot := func(key, value []byte) []byte {
			has := func(uid abi.SessionID) bool { return bytes.Contains(key, []byte(uid)) }
			switch {
			case has(noSummary):
				return bytes.ReplaceAll(value, []byte(`"open":`), []byte(`open:`))
			case has(noModule):
				return bytes.ReplaceAll(value, []byte(`"harness":"naps"`), []byte(`"harness":"gone"`))
			case has(noRecord):
				return bytes.ReplaceAll(value, []byte(`EVENT_INPUT`), []byte(`EVENT_OTHER`))
			}
			return value
		}
		storage.rot.Store(&rot)
		s.restart(false)
		s.want("completed completed completed completed", good...)
		told := map[abi.SessionID]error{}
		for _, r := range s.heard() {
			if _, again := told[r.Session]; again || !r.Next.IsZero() {
				t.Errorf("told again, or promised: %+v", r)
			}
			told[r.Session] = r.Err
		}
		if len(told) != len(good)+len(bad) {
			t.Errorf("told of %d sessions", len(told))
		}
		for uid, want := range map[abi.SessionID]error{noModel: host.ErrNotFound, noTool: host.ErrNotFound} {
			if !errors.Is(told[uid], want) {
				t.Errorf("%s: %v, want %v", uid, told[uid], want)
			}
		}
		time.Sleep(1000 * time.Hour)
		if again := s.heard(); len(again) != 0 {
			t.Errorf("tried again: %+v", again)
		}
		storage.rot.Store(nil)
		for _, uid := range bad {
			if told[uid] == nil {
				t.Errorf("%s was run", uid)
			}
			if got := mustGet(t, s.rig, uid); got.Head != before[uid] || got.State != host.ExecInterrupted {
				t.Errorf("%s was touched: %+v", uid, got)
			}
		}
		// Where nothing is missing, they go on.
		s.models["other"], s.tools = s.models["echo"], box.tools()
		s.restart(false)
		s.want("completed completed completed completed completed", bad...)
	})
}

// failing is a runtime that cannot run a turn as long as err is set.
type failing struct {
	runtimes.Runtime
	err   atomic.Pointer[error]
	tries atomic.Int64
}

// Create implements runtimes.Runtime.
func (f *failing) Create(ctx context.Context, m runtimes.Module) (runtimes.Incarnation, error) {
	if err := f.err.Load(); err != nil {
		f.tries.Add(1)
		return nil, *err
	}
	return f.Runtime.Create(ctx, m)
}

// What the host is short of passes: a turn is tried again, less and less often, for
// as long as that takes. What fails in some other way again and again is given up.
func TestRecoveryBacksOff(t *testing.T) {
	for name, tt := range map[string]struct {
		err   error
		tries int64 // in a day
		want  string
	}{
		// 1, 2, 4 … 256 s, and then every 300 s
		"shortage": {fmt.Errorf("restore: %w", runtimes.ErrShortage), 10 + (24*3600-511)/300, "completed"},
		"failure":  {errors.New("no idea"), 10, "interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSleeper(t)
				short := &failing{Runtime: s.runtimes[0]}
				s.runtimes[0] = short
				s.start(true)
				uid, other := s.session(), s.session()
				s.leave(uid)
				short.err.Store(&tt.err)
				s.Release()
				synctest.Wait()
				if got := s.heard(); len(got) != 1 || !errors.Is(got[0].Err, tt.err) || time.Until(got[0].Next) != time.Second {
					t.Errorf("told %+v", got)
				}
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if got := short.tries.Load(); got != tt.tries {
					t.Errorf("tried %d times, want %d", got, tt.tries)
				}
				if got := s.heard(); int64(len(got)) != tt.tries-1 || got[len(got)-1].Next.IsZero() == (tt.want == "completed") {
					t.Errorf("told %d times, at last %+v", len(got), got[len(got)-1])
				}
				short.err.Store(nil)
				s.park(other, "90000") // one that is in trouble stands in nobody's way
				time.Sleep(time.Hour)
				s.want(tt.want+" completed", uid, other)
			})
		})
	}
}

// A session that somebody uses is theirs, also when they leave its turn open.
func TestRecoveryLeavesABusySession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper(t)
		s.start(false)
		uid := s.session()
		s.park(uid, "60 *")
		time.Sleep(59 * time.Second)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		answer := make(chan struct{})
		s.models["echo"] = providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) {
			<-answer
			return model.Result{Message: abi.Text(abi.RoleAssistant, "ok")}, nil
		})
		s.start(true)
		time.Sleep(time.Second)
		var e host.Execution
		var err error
		go func() { e, err = s.Resume(context.Background(), uid, nil) }()
		synctest.Wait()
		s.Release() // which finds the turn open and due
		time.Sleep(5 * time.Minute)
		s.want("running", uid)
		if told := s.heard(); len(told) != 0 {
			t.Errorf("told %+v", told)
		}
		var told []host.Recovery
		if err := s.Recover(t.Context(), host.RecoverRequest{Report: func(r host.Recovery) { told = append(told, r) }}); err != nil {
			t.Error(err)
		}
		if len(told) != 1 || !errors.Is(told[0].Err, host.ErrBusy) || !told[0].Next.IsZero() {
			t.Errorf("told %+v", told)
		}
		close(answer)
		s.want("completed", uid)
		if err != nil || e.State != abi.StateCompleted || s.ProviderCalls() != 1 {
			t.Errorf("%+v, %v after %d calls", e, err, s.ProviderCalls())
		}
		time.Sleep(time.Hour)
		if told := s.heard(); len(told) != 0 {
			t.Errorf("told %+v", told)
		}
	})
}

// Close and the end of Recover's context leave turns open: nothing that nobody
// asked to cancel is CANCELED. No goroutine stays: the bubble would not end.
func TestRecoveryStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper(t)
		s.start(true)
		uids := []abi.SessionID{s.session(), s.session(), s.session(), s.session(), s.session(), s.session()}
		s.leave(uids...)
		s.models["echo"] = hanging
		s.restart(false)
		four := func() {
			t.Helper()
			states := s.states(uids...)
			if strings.Count(states, "running") != 4 || strings.Count(states, "interrupted") != 2 {
				t.Errorf("%s, want 4 running", states)
			}
		}
		four()
		s.restart(true)
		all := strings.TrimSpace(strings.Repeat("interrupted ", len(uids)))
		s.want(all, uids...)

		stop := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 2)
		left := 0
		go func() {
			ended <- s.Recover(ctx, host.RecoverRequest{Parallel: 2, Report: func(r host.Recovery) {
				if errors.Is(r.Err, host.ErrClosed) {
					left++
				}
			}})
		}()
		synctest.Wait()
		go func() { ended <- s.Recover(t.Context(), host.RecoverRequest{Parallel: 2, Follow: true}) }()
		four()
		cancel(stop)
		if err := <-ended; !errors.Is(err, stop) || left != 2 {
			t.Errorf("got %v and left %d turns", err, left)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, host.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if err := s.Recover(t.Context(), host.RecoverRequest{}); !errors.Is(err, host.ErrClosed) {
			t.Errorf("on a closed host: %v", err)
		}
		s.start(true)
		s.want(all, uids...)
		if err := s.Recover(t.Context(), host.RecoverRequest{Parallel: -1}); !errors.Is(err, host.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

// Recover tries each turn once and returns: those of a project, and forks that
// nobody has begun if that is wanted.
func TestRecoverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper(t)
		s.start(true)
		here, parked, idle := s.session(), s.session(), s.session()
		other, err := s.Create(t.Context(), host.CreateRequest{Project: "other", Harness: host.Harness{Name: "naps", Code: []byte("naps")}})
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := other.UID
		s.park(parked, "86400")
		s.leave(here, elsewhere)
		child := fork(t, s.rig, host.ForkRequest{Session: here, At: mustGet(t, s.rig, here).Head.Seq})[0].UID
		s.want("interrupted", child)
		uids := []abi.SessionID{here, elsewhere, parked, child, idle}

		var told []host.Recovery
		report := func(r host.Recovery) { told = append(told, r) }
		if err := s.Recover(t.Context(), host.RecoverRequest{Project: host.DefaultProject, Report: report}); err != nil {
			t.Fatal(err)
		}
		s.want("completed interrupted awaiting interrupted pending", uids...)
		if len(told) != 1 || told[0].Session != here {
			t.Errorf("told %+v", told)
		}
		if err := s.Recover(t.Context(), host.RecoverRequest{Forks: true, Report: report}); err != nil {
			t.Fatal(err)
		}
		s.want("completed completed awaiting completed pending", uids...)
		if err := s.Recover(t.Context(), host.RecoverRequest{Forks: true, Report: report}); err != nil || len(told) != 3 {
			t.Errorf("%v, told %+v", err, told)
		}
	})
}

// A clock that is set, or a machine that slept, is noticed in a minute.
func TestTimersFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper(t)
		var set atomic.Int64
		s.cfg = func(c *host.Config) {
			c.Now = func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
		}
		s.start(false)
		ahead, back := s.session(), s.session()
		s.park(ahead, "86400")
		set.Store(int64(24 * time.Hour))
		time.Sleep(time.Minute)
		s.want("completed", ahead)
		s.park(back, "86520") // in a minute
		set.Store(0)
		time.Sleep(time.Hour)
		s.want("awaiting", back)
		time.Sleep(24 * time.Hour)
		s.want("completed", back)
	})
}

// Wherever its host died, a turn is finished by the next one that starts, and is
// what it would have been.
func TestRecoveryFromEachCrashPoint(t *testing.T) {
	for point, open := range map[string]bool{"committed": true, "answered": true, "ending": true, "ended": false} {
		t.Run(point, func(t *testing.T) {
			r := newRig(t).open()
			s := r.createFrom(tally())
			r.exec(s.UID, "one")
			r.drop(s.UID, "two", point)
			var told []host.Recovery
			if err := r.Recover(t.Context(), host.RecoverRequest{Report: func(e host.Recovery) { told = append(told, e) }}); err != nil {
				t.Fatal(err)
			}
			got := mustGet(t, r, s.UID)
			if got.State != host.ExecCompleted || (len(told) == 1) != open {
				t.Errorf("%s, told %+v", got.State, told)
			}
			if v := r.verify(s.UID); v.Reexecuted != got.Turns {
				t.Errorf("verified %+v, %d turns", v, got.Turns)
			}
			if out := r.exec(s.UID, "three"); out[len(out)-1] != fmt.Sprintf("%04d", got.Turns+1) {
				t.Errorf("put out %q after %d turns", out, got.Turns)
			}
		})
	}
}

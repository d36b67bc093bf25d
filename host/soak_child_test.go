package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	runtime "github.com/agentcell/agentcell/runtimes/wasm"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm"
)

// soakEnv makes the test binary a process that is soaked: its value is a soakRun.
const soakEnv = "AGENTCELL_TEST_SOAK_CHILD"

// soakRun is what one process of a soak is told.
type soakRun struct {
	Dir, Cache string
	Harnesses  map[string]string // file by name
	Seed       uint64
	Round      int
	Sessions   int  // how many there may be
	Live       bool // the host recovers turns and fires timers by itself
	// Retries are the requests that earlier processes took and did not answer.
	Retries []retry
}

// retry is a request with a key. It runs once, however often it is made.
type retry struct {
	Session abi.SessionID
	Key     string
	Input   string
}

// said is a line that a soaked process writes: of what reached the world before
// anything is done there, and of what a client was told once it was told.
type said struct {
	Kind    string
	Session abi.SessionID `json:",omitempty"`

	// Of a record: Hash is that of the line as it was shown.
	Seq  abi.Seq    `json:",omitempty"`
	Hash abi.Digest `json:",omitzero"`

	Mark    string `json:",omitempty"` // of a model call
	Attempt int    `json:",omitempty"`

	Call     string `json:",omitempty"` // of a tool call, or the name of a signal
	Key      string `json:",omitempty"`
	Tool     string `json:",omitempty"`
	Approved bool   `json:",omitempty"`

	Children []abi.SessionID `json:",omitempty"`
	Text     string          `json:",omitempty"`
}

// The kinds of lines.
const (
	saidReady   = "ready"   // the store is open
	saidFailed  = "failed"  // something went wrong: Text says what
	saidRecord  = "record"  // a client was shown a record
	saidSent    = "sent"    // a client makes a request with a Key and the input Text
	saidEnded   = "ended"   // … was told how a turn ended: Text
	saidCreated = "created" // … that a session was made
	saidForked  = "forked"  // … that Children were
	saidDecided = "decided" // … that a decision was taken
	saidSignal  = "signal"  // … that a signal was
	saidSaved   = "saved"   // … that there is a snapshot Key, and a client removes one
	saidRemoves = "removes"
	saidDeletes = "deletes" // a client deletes a session, … was told that it is deleted
	saidDeleted = "deleted"
	saidReturns = "returns" // … brings it back from a file, … was told that it is back
	saidBack    = "back"
	saidDone    = "done"   // … that Text was done
	saidAsked   = "asked"  // the model was called
	saidCalled  = "called" // a tool was called
)

// soaked is a process that is soaked.
type soaked struct {
	soakRun
	*host.Host
	world    world
	runtimes []runtimes.Runtime

	out sync.Mutex

	mu   sync.Mutex
	all  []abi.SessionID
	busy map[abi.SessionID]bool // somebody of this process works on it
	gone map[abi.SessionID]bool // it was deleted, or is just being deleted
}

// runSoaked runs random sessions until it is killed, or its standard input ends.
func runSoaked(spec string) error {
	s := &soaked{busy: map[abi.SessionID]bool{}, gone: map[abi.SessionID]bool{}}
	if err := json.Unmarshal([]byte(spec), &s.soakRun); err != nil {
		return err
	}
	s.world = world{seed: s.Seed, say: s.say}
	store, err := journal.Open(s.Dir, journal.Options{FreeReserve: -1, LockWait: 10 * time.Second})
	if err != nil {
		return err
	}
	if err := s.open(store); err != nil {
		return err
	}
	s.say(said{Kind: saidReady})
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var workers sync.WaitGroup
	failed := make(chan error, 1+soakWorkers)
	if err := s.retry(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, host.ErrClosed) {
		failed <- err
		stop()
	}
	for n := range soakWorkers {
		workers.Go(func() {
			if err := s.work(ctx, n); err != nil && !errors.Is(err, host.ErrClosed) {
				failed <- err
				stop()
			}
		})
	}
	// Closing in the midst of turns is one of the ways to go.
	<-ctx.Done()
	err = s.Close()
	workers.Wait()
	select {
	case why := <-failed:
		s.say(said{Kind: saidFailed, Text: why.Error()})
		err = errors.Join(why, err)
	default:
	}
	return errors.Join(err, store.Close())
}

const soakWorkers = 5

// say writes a line in one write.
func (s *soaked) say(line said) {
	b, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	s.out.Lock()
	defer s.out.Unlock()
	if _, err := os.Stdout.Write(append(b, '\n')); err != nil {
		os.Exit(1) // nobody is there any more
	}
}

func (s *soaked) open(store *journal.Journal) error {
	e, err := wasm.New(wasm.Config{CacheDir: s.Cache})
	if err != nil {
		return err
	}
	s.runtimes = []runtimes.Runtime{runtime.New(e)}
	cfg := soakConfig(store, s.runtimes, s.world)
	cfg.Recovered = s.recovered
	s.Host, err = host.New(cfg)
	if err != nil {
		return err
	}
	for session, err := range everySession(context.Background(), s.Host) {
		if err != nil {
			return err
		}
		s.all = append(s.all, session.UID)
		if session.State == host.ExecRunning || session.Compute == host.ComputeLive || session.Compute == host.ComputeWarm {
			return fmt.Errorf("session %s is %s and %s in a process that has run nothing", session.UID, session.State, session.Compute)
		}
	}
	if s.Live {
		s.Release()
	}
	return nil
}

// recovered is told of the turns that the host took up by itself.
func (s *soaked) recovered(r host.Recovery) {
	switch {
	case r.Err == nil:
		s.say(said{Kind: saidDone, Session: r.Session, Text: "turns taken up by the host itself"})
	case errors.Is(r.Err, host.ErrClosed), errors.Is(r.Err, context.Canceled): // by a worker, before it began
	default:
		s.say(said{Kind: saidFailed, Session: r.Session, Text: "recovery: " + r.Err.Error()})
	}
}

// raced reports whether an error is what comes of a turn that the host has taken up
// meanwhile.
func (s *soaked) raced(err error) bool {
	return s.Live && slices.ContainsFunc([]error{
		host.ErrBusy, host.ErrConflict, host.ErrNothingOpen, host.ErrOpenTurn, host.ErrNotFound,
	}, func(known error) bool { return errors.Is(err, known) })
}

// soakConfig is a host of a soak: short of time, so that what hangs ends.
func soakConfig(store *journal.Journal, rt []runtimes.Runtime, w world) host.Config {
	return host.Config{
		Journal: store, Runtimes: rt,
		Models: map[string]model.Provider{"world": w}, DefaultModel: "world", Tools: w.tools(),
		Deadline: 400 * time.Millisecond, CallTimeout: 150 * time.Millisecond, Paused: true,
	}
}

// everySession is all sessions of a host.
func everySession(ctx context.Context, h *host.Host) func(func(host.Session, error) bool) {
	return func(yield func(host.Session, error) bool) {
		for token := ""; ; {
			page, err := h.List(ctx, host.ListRequest{Limit: 500, Token: token})
			if err != nil {
				yield(host.Session{}, err)
				return
			}
			for _, s := range page.Sessions {
				if !yield(s, nil) {
					return
				}
			}
			if token = page.Next; token == "" {
				return
			}
		}
	}
}

// work does one random thing after another, to a session that no other worker has
// meanwhile: what it may be refused is known, and anything else is a failure.
func (s *soaked) work(ctx context.Context, n int) error {
	dice := s.world.dice("worker", s.Round, n)
	over := ctx.Done()
	ctx = context.WithoutCancel(ctx) // only the host's end ends what it does
	for turn := 0; ; turn++ {
		select {
		case <-over:
			return nil
		default:
		}
		uid, done := s.take(dice)
		if uid == "" {
			if err := s.create(ctx, dice); err != nil {
				return err
			}
			continue
		}
		var err error
		if n == 0 {
			done()
			if err = s.lookOn(ctx, uid, dice); s.isGone(uid) {
				err = nil // whatever it saw of it
			}
		} else {
			err = s.step(ctx, uid, fmt.Sprintf("%d.%d.%d", s.Round, n, turn), dice)
			done()
			if s.raced(err) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("session %s: %w", uid, err)
		}
	}
}

// take chooses a session; an empty one stands for a new one.
func (s *soaked) take(dice *rand.Rand) (uid abi.SessionID, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) < soakWorkers || len(s.all) < s.Sessions && dice.IntN(25) == 0 {
		return "", nil
	}
	for {
		uid = s.all[dice.IntN(len(s.all))]
		if !s.busy[uid] {
			break
		}
		// There are at least as many sessions as workers.
	}
	s.busy[uid] = true
	return uid, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, uid)
	}
}

func (s *soaked) add(uids ...abi.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, uids...)
}

// remove takes a session from those that are worked on.
func (s *soaked) remove(uid abi.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[uid] = true
	s.all = slices.DeleteFunc(s.all, func(other abi.SessionID) bool { return other == uid })
}

func (s *soaked) isGone(uid abi.SessionID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[uid]
}

func (s *soaked) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) >= s.Sessions
}

func (s *soaked) create(ctx context.Context, dice *rand.Rand) error {
	name := "steps"
	if dice.IntN(4) == 0 {
		name = "chat"
	}
	code, err := os.ReadFile(s.Harnesses[name])
	if err != nil {
		return err
	}
	session, err := s.Create(ctx, host.CreateRequest{Harness: host.Harness{Name: name, Code: code}})
	if err != nil {
		return err
	}
	s.say(said{Kind: saidCreated, Session: session.UID})
	s.add(session.UID)
	return nil
}

// step does one thing to a session.
func (s *soaked) step(ctx context.Context, uid abi.SessionID, id string, dice *rand.Rand) error {
	session, err := s.Get(ctx, uid)
	if err != nil {
		return err
	}
	closed := session.State != host.ExecAwaiting && session.State != host.ExecInterrupted
	switch n := dice.IntN(100); {
	case n < 8 && !s.full():
		return s.fork(ctx, session, dice)
	case n < 11:
		return s.check(ctx, session)
	case n < 13 && session.Head.Seq > 0 && (closed || !s.Live):
		return s.carry(ctx, session)
	case n < 18:
		return s.snapshot(ctx, session, id, dice)
	case n < 20 && session.Head.Seq > 0 && closed:
		return s.rest(ctx, session, dice)
	case n < 21 || n < 27 && s.full():
		return s.drop(ctx, session, dice)
	}
	switch session.State {
	case host.ExecAwaiting:
		return s.parked(ctx, session, id, dice)
	case host.ExecInterrupted:
		return s.interrupted(ctx, session, id, dice)
	case host.ExecRunning:
		if s.Live {
			return nil // by the host itself
		}
		return errors.New("it is running, and nobody runs it")
	}
	if dice.IntN(3) == 0 {
		return s.keyed(ctx, retry{uid, id, s.input(session, id, dice)}, dice)
	}
	return s.exec(ctx, host.ExecRequest{Session: uid, Inputs: s.inputs(session, id, dice), Wait: dice.IntN(2) == 0}, dice)
}

func (s *soaked) input(session host.Session, id string, dice *rand.Rand) string {
	if session.Harness == "chat" {
		return "q-" + id
	}
	return s.world.input(id, dice)
}

func (s *soaked) inputs(session host.Session, id string, dice *rand.Rand) []abi.Message {
	return say(s.input(session, id, dice))
}

// exec runs a turn, to its end, until it parks, or until its caller has lost
// patience in one of two ways.
func (s *soaked) exec(ctx context.Context, req host.ExecRequest, dice *rand.Rand) error {
	_, err := s.turn(ctx, req, dice)
	return err
}

func (s *soaked) turn(ctx context.Context, req host.ExecRequest, dice *rand.Rand) (host.Execution, error) {
	req.Observe = func(u host.Update) {
		if u.Record != nil {
			s.say(said{Kind: saidRecord, Session: req.Session, Seq: u.Record.Seq, Hash: abi.DigestOf(u.Record.Line)})
		}
	}
	req.Wait = req.Wait || s.Live
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var canceled sync.WaitGroup
	var cancelErr error
	patience := time.Duration(dice.IntN(30)) * time.Millisecond
	switch dice.IntN(16) {
	case 0:
		impatient := time.AfterFunc(patience, stop)
		defer impatient.Stop()
	case 1:
		canceled.Go(func() {
			_ = pause(ctx, patience)
			_, cancelErr = s.Cancel(context.WithoutCancel(ctx), req.Session)
		})
	}
	end, err := s.Exec(ctx, req)
	stop()
	canceled.Wait()
	if cancelErr != nil && !errors.Is(cancelErr, host.ErrNothingOpen) {
		return end, cancelErr
	}
	if errors.Is(err, context.Canceled) {
		end.State, err = "before it began", nil // who lost patience lost it early
	}
	if err != nil {
		return end, err
	}
	text := string(end.State)
	if len(end.Waiting) > 0 {
		text = "PARKED"
	}
	s.say(said{Kind: saidEnded, Session: req.Session, Key: req.Key, Text: text})
	return end, nil
}

// keyed makes a request that is made again should this process not live to answer
// it, and sometimes if it does.
func (s *soaked) keyed(ctx context.Context, r retry, dice *rand.Rand) error {
	s.say(said{Kind: saidSent, Session: r.Session, Key: r.Key, Text: r.Input})
	req := host.ExecRequest{Session: r.Session, Key: r.Key, Inputs: say(r.Input)}
	end, err := s.turn(ctx, req, dice)
	if err != nil || end.ID == "" || len(end.Waiting) > 0 || dice.IntN(3) > 0 {
		return err
	}
	again, err := s.turn(ctx, req, dice)
	if err == nil && again.ID != "" && (!again.Repeated || again.ID != end.ID || again.State != end.State) {
		err = fmt.Errorf("the request with key %s ended as %s %s, and when it was repeated as %s %s", r.Key, end.ID, end.State, again.ID, again.State)
	}
	return err
}

// retry makes the requests again that earlier processes did not answer.
func (s *soaked) retry(ctx context.Context) error {
	for _, r := range s.Retries {
		_, err := s.turn(ctx, host.ExecRequest{Session: r.Session, Key: r.Key, Inputs: say(r.Input)}, s.world.dice("retry", s.Round, r.Key))
		if errors.Is(err, host.ErrOpenTurn) { // another one's
			s.say(said{Kind: saidEnded, Session: r.Session, Key: r.Key, Text: "refused"})
			continue
		}
		if err != nil {
			return fmt.Errorf("session %s: key %s: %w", r.Session, r.Key, err)
		}
	}
	return nil
}

// lookOn does what may be done to any session at any time, whoever runs it.
func (s *soaked) lookOn(ctx context.Context, uid abi.SessionID, dice *rand.Rand) error {
	session, err := s.Get(ctx, uid)
	if err != nil {
		return err
	}
	switch n := dice.IntN(100); {
	case n < 40 && !s.full():
		return s.fork(ctx, session, dice)
	case n < 50:
		return s.check(ctx, session)
	case n < 52:
		c, err := s.Collect(ctx)
		if err == nil {
			s.say(said{Kind: saidDone, Text: "collections"})
			s.say(said{Kind: saidDone, Text: "rows collected", Attempt: int(c.Sessions + c.Records + c.Blobs + c.Images + c.Pages)})
		}
		return err
	}
	return pause(ctx, latency(dice))
}

// interrupted deals with a turn that an earlier process has left.
func (s *soaked) interrupted(ctx context.Context, session host.Session, id string, dice *rand.Rand) error {
	req := host.ExecRequest{Session: session.UID}
	switch dice.IntN(8) {
	case 0:
		return s.refused(ctx, session, id, dice)
	case 1:
		req.Abandon, req.Inputs = true, s.inputs(session, id, dice)
	case 2:
		req.Abandon = true
	}
	return s.exec(ctx, req, dice)
}

// refused gives a session input that must be refused, since a turn is open.
func (s *soaked) refused(ctx context.Context, session host.Session, id string, dice *rand.Rand) error {
	if s.Live {
		return nil // the turn may be over by now
	}
	_, err := s.Exec(ctx, host.ExecRequest{Session: session.UID, Inputs: s.inputs(session, id, dice)})
	if !errors.Is(err, host.ErrOpenTurn) {
		return fmt.Errorf("input while it is %s: %w", session.State, err)
	}
	return nil
}

// parked settles what a turn waits for, or does what must be refused, or gives it
// up.
func (s *soaked) parked(ctx context.Context, session host.Session, id string, dice *rand.Rand) error {
	switch dice.IntN(12) {
	case 0:
		return s.refused(ctx, session, id, dice)
	case 1:
		return s.exec(ctx, host.ExecRequest{Session: session.UID, Abandon: true}, dice)
	case 2: // it parks again
		return s.exec(ctx, host.ExecRequest{Session: session.UID}, dice)
	}
	for _, w := range session.Waiting {
		if w.Settled {
			continue
		}
		if err := s.settle(ctx, session.UID, w, dice); err != nil {
			return err
		}
		if dice.IntN(3) == 0 {
			break // the others later
		}
	}
	if dice.IntN(4) == 0 {
		return nil
	}
	return s.exec(ctx, host.ExecRequest{Session: session.UID}, dice)
}

func (s *soaked) settle(ctx context.Context, uid abi.SessionID, w host.Waiting, dice *rand.Rand) error {
	switch {
	case w.Signal != "":
		_, err := s.Signal(ctx, uid, w.Signal, []byte(`{"because":"told"}`))
		if err == nil {
			s.say(said{Kind: saidSignal, Session: uid, Call: w.CallID})
		}
		return err
	case w.Tool == "":
		return nil // a time, which comes by itself
	}
	req := host.DecideRequest{Session: uid, CallID: w.CallID, Approved: dice.IntN(3) > 0}
	if _, err := s.Decide(ctx, req); err != nil {
		return err
	}
	s.say(said{Kind: saidDecided, Session: uid, Call: w.CallID, Approved: req.Approved})
	if dice.IntN(2) == 0 { // the same again changes nothing, the opposite is refused
		if _, err := s.Decide(ctx, req); err != nil {
			return fmt.Errorf("the same decision again: %w", err)
		}
		req.Approved = !req.Approved
		if _, err := s.Decide(ctx, req); !errors.Is(err, host.ErrConflict) {
			return fmt.Errorf("the opposite decision: %w", err)
		}
	}
	return nil
}

// fork makes children at the last closed point, at the head, or anywhere. What it
// grows from may be running.
func (s *soaked) fork(ctx context.Context, session host.Session, dice *rand.Rand) error {
	req := host.ForkRequest{Session: session.UID, Count: 1 + dice.IntN(3)}
	switch dice.IntN(3) {
	case 0:
		req.At = session.Head.Seq
	case 1:
		req.At = abi.Seq(dice.Int64N(int64(session.Head.Seq) + 1))
	}
	children, err := s.Fork(ctx, req)
	switch {
	case errors.Is(err, host.ErrMidTurn): // in the opening of a turn
		return nil
	case errors.Is(err, host.ErrConflict) && session.Closed == 0:
		return nil
	case err != nil:
		return fmt.Errorf("fork at %d: %w", req.At, err)
	}
	uids := make([]abi.SessionID, len(children))
	for i, c := range children {
		uids[i] = c.UID
	}
	s.say(said{Kind: saidForked, Session: session.UID, Children: uids})
	s.add(uids...)
	return nil
}

// snapshot gives a point of a session a name, makes a session from one that there
// is, or removes one.
func (s *soaked) snapshot(ctx context.Context, session host.Session, id string, dice *rand.Rand) error {
	saved, err := s.Snapshots(ctx, "")
	if err != nil {
		return err
	}
	if len(saved) > 0 && dice.IntN(3) > 0 {
		name := saved[dice.IntN(len(saved))].Name
		if dice.IntN(3) == 0 {
			s.say(said{Kind: saidRemoves, Key: name})
			err = s.RemoveSnapshot(ctx, "", name)
		} else if !s.full() {
			var child host.Session
			if child, err = s.CreateFromSnapshot(ctx, host.FromSnapshotRequest{Snapshot: name}); err == nil {
				s.say(said{Kind: saidForked, Children: []abi.SessionID{child.UID}, Text: "from a snapshot"})
				s.add(child.UID)
			}
		}
		if errors.Is(err, host.ErrNotFound) { // another worker has removed it
			return nil
		}
		return err
	}
	if session.Closed == 0 {
		return nil
	}
	if _, err := s.Save(ctx, host.SaveRequest{Session: session.UID, Name: "at-" + id}); err != nil {
		return err
	}
	s.say(said{Kind: saidSaved, Key: "at-" + id})
	return nil
}

// rest suspends a session, and may wake it.
func (s *soaked) rest(ctx context.Context, session host.Session, dice *rand.Rand) error {
	session, err := s.Suspend(ctx, session.UID)
	if err != nil {
		return err
	}
	if !session.Suspended || session.Compute != host.ComputeCold {
		return fmt.Errorf("suspended, it is %+v", session)
	}
	s.say(said{Kind: saidDone, Session: session.UID, Text: "suspend"})
	if dice.IntN(2) > 0 {
		return nil
	}
	if session, err = s.Wake(ctx, session.UID); err == nil && session.Suspended {
		err = errors.New("it was woken and is suspended")
	}
	return err
}

// drop deletes a session, and may bring it back from a file.
func (s *soaked) drop(ctx context.Context, session host.Session, dice *rand.Rand) error {
	uid := session.UID
	var file bytes.Buffer
	force := session.State == host.ExecInterrupted || session.State == host.ExecAwaiting
	back := !force && session.Head.Seq > 0 && dice.IntN(4) == 0
	if back {
		if _, err := s.Export(ctx, uid, &file); err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	if force && !s.Live {
		if _, err := s.Delete(ctx, uid, false); !errors.Is(err, host.ErrOpenTurn) {
			return fmt.Errorf("delete while it is %s: %w", session.State, err)
		}
	}
	s.remove(uid)
	s.say(said{Kind: saidDeletes, Session: uid})
	if _, err := s.Delete(ctx, uid, force); err != nil {
		return err
	}
	s.say(said{Kind: saidDeleted, Session: uid})
	if _, err := s.Get(ctx, uid); !errors.Is(err, host.ErrNotFound) {
		return fmt.Errorf("deleted, it is found: %w", err)
	}
	if !back {
		return nil
	}
	s.say(said{Kind: saidReturns, Session: uid})
	p, err := s.Import(ctx, &file, host.ImportRequest{})
	if err != nil {
		return fmt.Errorf("import what was deleted: %w", err)
	}
	if p.Session.Head != session.Head {
		return fmt.Errorf("it is back as %+v", p.Session)
	}
	s.say(said{Kind: saidBack, Session: uid})
	s.add(uid)
	return nil
}

// check proves a session as it stands.
func (s *soaked) check(ctx context.Context, session host.Session) error {
	if _, err := s.Verify(ctx, host.VerifyRequest{Session: session.UID, Reexecute: true, Strict: true}); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	s.say(said{Kind: saidDone, Session: session.UID, Text: "verify"})
	return nil
}

// carry takes a session to another machine and proves it there.
func (s *soaked) carry(ctx context.Context, session host.Session) error {
	var file bytes.Buffer
	if _, err := s.Export(ctx, session.UID, &file); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	store := journal.OpenMemory()
	defer store.Close()
	there, err := host.New(soakConfig(store, s.runtimes, s.world))
	if err != nil {
		return err
	}
	defer there.Close()
	p, err := there.Import(ctx, bytes.NewReader(file.Bytes()), host.ImportRequest{})
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if p.Session.Head != session.Head || !slices.EqualFunc(p.Session.Waiting, session.Waiting, func(a, b host.Waiting) bool { return a.CallID == b.CallID }) {
		return fmt.Errorf("imported as %+v, want %+v", p.Session, session)
	}
	if _, err := there.Verify(ctx, host.VerifyRequest{Session: session.UID, Reexecute: true, Strict: true}); err != nil {
		return fmt.Errorf("verify an imported session: %w", err)
	}
	s.say(said{Kind: saidDone, Session: session.UID, Text: "import"})
	return nil
}

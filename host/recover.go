package host

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// DefaultRecoverParallel is how many turns a host takes up by itself at once. It
// bounds the memory that takes: each has one cell.
const DefaultRecoverParallel = 4

// When a turn that could not be run is tried again.
const (
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	// maxTries is after how many failures in a row a turn is left to the next
	// start. What the host is short of does not count: that passes.
	maxTries = 10
	// busyDelay is when to look again at a session that is in use.
	busyDelay = 10 * time.Second
)

// maxNap is how long a follower sleeps at most while something is due later. Timers do not run while a machine
// sleeps and do not see its clock being set: a due time is noticed this late.
const maxNap = time.Minute

// errLeft is the cause by which Recover drops the turns that it runs.
var errLeft = fmt.Errorf("recovery stopped: %w", ErrClosed)

// RecoverRequest says what Recover takes up.
type RecoverRequest struct {
	// Project is that of the sessions; empty means those of all projects.
	Project string
	// Forks takes up forks inside a turn that nobody has run yet, too.
	Forks bool
	// Parallel is how many turns run at once; 0 means Config.RecoverParallel.
	Parallel int
	// Follow goes on: Recover then takes up parked turns as their times come,
	// tries again what could not be run, and returns only when ctx ends.
	Follow bool
	// Report, if set, is told of each turn that was taken up, by one call at a time.
	// A slow one holds up others.
	Report func(Recovery)
}

// Recovery is what became of a turn that was taken up.
type Recovery struct {
	Session abi.SessionID
	// Execution is how the turn ended, or what it is parked for now.
	Execution Execution
	// Err is why it did neither: ErrClosed if it was left open because the host or
	// the Recover ended. It is tried again at Next; if that is zero, not by this
	// Recover.
	Err  error
	Next time.Time
}

// Recover takes up all open turns that can go on without anybody: those that a
// process has left, those whose decision or signal is recorded, and those whose
// time has come. Each is run as by Exec without input; the oldest come first. A
// session that is in use is left to whoever uses it, and looked at again later or,
// without Follow, reported as ErrBusy.
//
// A turn that cannot be run here (its model or tool is missing, its module or
// record is broken) is reported and left alone, and no other one waits for it.
//
// Without Follow, Recover tries each turn once and returns nil when it is through.
// Ending ctx does not cancel the turns that run: they are left open, to be taken up
// again. Recover then returns ctx's cause, or ErrClosed after Close.
func (h *Host) Recover(ctx context.Context, req RecoverRequest) error {
	r, err := h.follow(req)
	if err == nil {
		err = r.run(ctx)
	}
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	return nil
}

// Release lets a host that was made Paused recover turns and fire timers by
// itself, in the background. On one that does, it does nothing.
func (h *Host) Release() {
	h.released.Do(func() {
		r, err := h.follow(RecoverRequest{Follow: true, Report: h.cfg.Recovered})
		if err == nil {
			go r.run(h.ctx) // until Close, which is all that it can report
		}
	})
}

// recovery is one Recover. Its queue holds hints: whether a turn can be taken up is
// read from the store when it is its turn.
type recovery struct {
	host *Host
	req  RecoverRequest
	wake chan struct{} // something below changed

	reporting sync.Mutex // held over each Report

	mu      sync.Mutex // guards what follows
	tasks   map[abi.SessionID]*task
	queue   taskQueue // those of tasks that do not run
	running int
	walked  bool  // the store was searched,
	err     error // as far as that went
}

// task is a session to take up.
type task struct {
	session abi.SessionID
	due     time.Time
	tries   int // that failed in a row
	index   int // in the queue
	runs    bool
	// again is set while it runs, if its turn, or a later one, has parked until due.
	again bool
}

// follow makes a recovery that hears of the turns that park from now on.
func (h *Host) follow(req RecoverRequest) (*recovery, error) {
	if req.Parallel < 0 {
		return nil, fmt.Errorf("%w: %d turns at once", ErrInvalid, req.Parallel)
	}
	if req.Parallel == 0 {
		req.Parallel = h.cfg.RecoverParallel
	}
	r := &recovery{host: h, req: req, wake: make(chan struct{}, 1), tasks: map[abi.SessionID]*task{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	h.recoveries[r] = struct{}{}
	h.turns.Add(1)
	return r, nil
}

// arm tells whoever recovers when a parked turn can go on by itself.
func (h *Host) arm(uid abi.SessionID, waiting []Waiting) {
	due, ok := dueTime(waiting)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.recoveries {
		r.parked(uid, due)
	}
}

// Nudge lets those who follow (Recover) take up a session's open turn, if it can go on: they
// look for such turns when they begin, and do not hear of what was decided since.
func (h *Host) Nudge(uid abi.SessionID) {
	if r, err := h.row(uid); err == nil {
		h.arm(uid, r.sum.Waiting)
	}
}

// dueTime is when something that a turn waits for is over by itself: the zero time
// if something is settled. ok is false if all of it takes somebody.
func dueTime(waiting []Waiting) (due time.Time, ok bool) {
	for _, w := range waiting {
		switch {
		case w.Settled:
			return time.Time{}, true
		case !w.Until.IsZero() && (!ok || w.Until.Before(due)):
			due, ok = w.Until.Time, true
		}
	}
	return due, ok
}

// due is when the open turn of a session can be taken up; ok is false if there is
// none, or it is not for this recovery.
func (r *recovery) due(head journal.Head, sum summary) (due time.Time, ok bool) {
	switch {
	case sum.Open == 0:
		return time.Time{}, false
	case sum.Forked == head.Seq && !r.req.Forks:
		// Nobody has left this turn: whoever made the fork has not begun yet. But
		// a time that it waits for comes without anybody.
		due, ok = dueTime(sum.Waiting)
		return due, ok && !due.IsZero()
	case len(sum.Waiting) > 0:
		return dueTime(sum.Waiting)
	}
	due = sum.Updated.Time
	if now := r.host.cfg.Now(); due.After(now) {
		due = now // the clock was set back
	}
	return due, true
}

// run takes up turns until there are none, or for a follower until ctx ends.
func (r *recovery) run(ctx context.Context) error {
	h := r.host
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(h.ctx, func() { cancel(ErrClosed) })()
	// What ends ctx would cancel the turns; this leaves them.
	turns, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { leave(errLeft) })()

	var workers sync.WaitGroup
	defer func() {
		cancel(nil)
		workers.Wait()
		leave(nil)
		h.mu.Lock()
		delete(h.recoveries, r)
		h.mu.Unlock()
		h.turns.Done()
	}()
	workers.Go(func() { r.walk(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		t, nap, done := r.next()
		switch {
		case t != nil:
			workers.Go(func() { r.attempt(turns, t) })
			continue
		case done:
			return r.err
		}
		timer.Reset(nap)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.wake:
		}
	}
	return context.Cause(ctx)
}

// next takes what is due from the queue, if there is room to run it. Else it tells
// how long nothing will be, unless something changes; or that all is done.
func (r *recovery) next() (t *task, nap time.Duration, done bool) {
	now := r.host.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	nap = math.MaxInt64
	if r.running < r.req.Parallel && len(r.queue) > 0 {
		if !r.queue[0].due.After(now) {
			t = heap.Pop(&r.queue).(*task)
			t.runs = true
			r.running++
			return t, 0, false
		}
		nap = max(time.Millisecond, min(r.queue[0].due.Sub(now), maxNap))
	}
	return nil, nap, r.walked && r.running == 0 && !r.req.Follow
}

// walk searches the store for turns to take up. A session that cannot be read keeps
// no other one from being found.
func (r *recovery) walk(ctx context.Context) {
	var err error
	for tries := 0; ; tries++ {
		if err = r.walkOnce(ctx); err == nil || ctx.Err() != nil || !r.req.Follow {
			break
		}
		r.host.log.Error("search for interrupted turns", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(backoff(tries)):
		}
	}
	r.mu.Lock()
	r.walked, r.err = true, err
	r.mu.Unlock()
	r.stir()
}

func (r *recovery) walkOnce(ctx context.Context) error {
	found := 0
	for s, err := range r.host.journal.Heads() {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && s.UID == "":
			return err
		}
		var sum summary
		if err == nil {
			sum, err = decodeSummary(s)
		}
		if err != nil {
			r.unreadable(s.UID, err)
			continue
		}
		if due, ok := r.due(s.Head, sum); ok {
			found++
			r.add(s.UID, due)
		}
	}
	if found > 0 {
		r.host.log.Info("open turns found", "sessions", found)
	}
	return nil
}

// unreadable reports a session of which not even the head can be read.
func (r *recovery) unreadable(uid abi.SessionID, err error) {
	r.host.log.Error("session cannot be recovered", "session", uid, "error", err)
	r.report(Recovery{Session: uid, Err: err})
}

// add queues a session that the walk has found, unless it is known already.
func (r *recovery) add(uid abi.SessionID, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks[uid] == nil {
		r.push(&task{session: uid, due: due})
	}
}

// parked queues a session whose turn has parked.
func (r *recovery) parked(uid abi.SessionID, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch t := r.tasks[uid]; {
	case t == nil:
		r.push(&task{session: uid, due: due})
	case t.runs:
		t.due, t.again = due, true
	default:
		t.due, t.tries = due, 0
		heap.Fix(&r.queue, t.index)
		r.stir()
	}
}

// push queues a task. The caller holds mu.
func (r *recovery) push(t *task) {
	r.tasks[t.session] = t
	heap.Push(&r.queue, t)
	r.stir()
}

// stir makes run look again.
func (r *recovery) stir() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// attempt runs the turn of a session once.
func (r *recovery) attempt(ctx context.Context, t *task) {
	h := r.host
	s, err := h.row(t.session)
	if errors.Is(err, ErrNotFound) {
		r.drop(t) // deleted
		return
	}
	if err == nil {
		due, ok := r.due(s.Head, s.sum)
		switch {
		case !ok || r.req.Project != "" && r.req.Project != s.Project:
			r.drop(t) // somebody else has ended it, or parked it; or it is not wanted
			return
		case due.After(h.cfg.Now()):
			r.retake(t, due)
			return
		}
		var e Execution
		e, err = h.Exec(ctx, ExecRequest{Session: t.session})
		if err == nil {
			r.ran(t, e)
			return
		}
	}
	r.failed(ctx, t, err)
}

// ran is told of a turn that has ended, or is parked again.
func (r *recovery) ran(t *task, e Execution) {
	r.host.log.Info("turn recovered", "session", t.session, "execution", e.ID, "state", e.Session.State)
	r.report(Recovery{Session: t.session, Execution: e})
	t.tries = 0
	if due, ok := dueTime(e.Waiting); ok && e.State == "" {
		r.retake(t, due)
		return
	}
	r.drop(t)
}

// failed is told of a turn that could not be run to an end.
func (r *recovery) failed(ctx context.Context, t *task, err error) {
	log := r.host.log.With("session", t.session, "error", discreet(err))
	var next time.Time
	switch {
	case errors.Is(err, ErrNothingOpen):
		r.drop(t) // somebody was faster
		return
	case ctx.Err() != nil || errors.Is(err, ErrClosed):
		r.report(Recovery{Session: t.session, Err: errLeft})
		r.drop(t)
		return
	case errors.Is(err, ErrBusy) && r.req.Follow:
		// It is theirs. Should they leave the turn open, it is there again.
		r.retake(t, r.host.cfg.Now().Add(busyDelay))
		return
	case errors.Is(err, ErrBusy):
		r.report(Recovery{Session: t.session, Err: err})
		r.drop(t)
		return
	case r.req.Follow && !lasting(err):
		next = r.retry(t, err)
	}
	if next.IsZero() {
		log.Error("turn not recovered: left to the next start, or to whoever resumes it")
	} else {
		log.Warn("turn not recovered", "tries", t.tries, "next", next)
	}
	r.report(Recovery{Session: t.session, Err: err, Next: next})
	if next.IsZero() {
		r.drop(t)
	} else {
		r.retake(t, next)
	}
}

// retry counts a failure and is when to try again, zero for never.
func (r *recovery) retry(t *task, err error) time.Time {
	wait := backoff(t.tries)
	t.tries++
	if t.tries >= maxTries && !errors.Is(err, runtimes.ErrShortage) && !errors.Is(err, journal.ErrFull) {
		return time.Time{}
	}
	return r.host.cfg.Now().Add(wait)
}

func backoff(tries int) time.Duration {
	return min(firstBackoff<<min(tries, 16), maxBackoff)
}

// lasting reports whether an error is there for as long as this host is.
func lasting(err error) bool {
	for _, sentinel := range []error{
		ErrNotFound, ErrInvalid, ErrPlacement, ErrDivergence, runtimes.ErrModule,
		journal.ErrCorrupt, journal.ErrPoisoned, journal.ErrFormat, journal.ErrReadOnly,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

func (r *recovery) report(done Recovery) {
	if r.req.Report == nil {
		return
	}
	r.reporting.Lock()
	defer r.reporting.Unlock()
	r.req.Report(done)
}

// drop forgets a task that has run, unless its session has parked anew.
func (r *recovery) drop(t *task) { r.settle(t, time.Time{}, false) }

// retake queues a task that has run, for due or for when its session has parked
// anew.
func (r *recovery) retake(t *task, due time.Time) { r.settle(t, due, true) }

func (r *recovery) settle(t *task, due time.Time, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	if t.again {
		due, again = t.due, true
	}
	if again {
		r.push(&task{session: t.session, due: due, tries: t.tries})
		return
	}
	delete(r.tasks, t.session)
	r.stir()
}

// taskQueue is a heap of tasks, the one due first on top.
type taskQueue []*task

// Len implements heap.Interface.
func (q taskQueue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q taskQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap implements heap.Interface.
func (q taskQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *taskQueue) Push(t any) {
	t.(*task).index = len(*q)
	*q = append(*q, t.(*task))
}

// Pop implements heap.Interface.
func (q *taskQueue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return t
}

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// execution is one run of one turn. It is the Port of its incarnation: it does
// what the turn machine says, in the order it says it.
type execution struct {
	host     *Host
	uid      abi.SessionID
	session  meta
	module   *module
	base     *journal.Image // nil where the runtime has no images
	machine  *turn.Machine
	spec     turn.Opening
	seed     []byte // of EXECUTION_START
	cloned   bool
	started  abi.Time // of EXECUTION_START
	startSeq abi.Seq
	recovers bool
	pages    int // that the turn has changed, once it completed
	fence    abi.Fence
	stream   *stream
	key      string        // of the request that began the turn, until it is durable
	calls    time.Duration // that a call of a model or tool may take
	watch    *stopwatch    // of the deadline
	burnt    uint64        // fuel that the run used, where it did not end by itself
	calling  calling       // what the calls under way may use

	// elsewhere has results for a turn that is run again, nil for another one.
	elsewhere *elsewhere

	// cancel ends the turn; nil for what is no turn. done is closed once ended and
	// endErr are how that came out.
	cancel context.CancelCauseFunc
	done   chan struct{}
	ended  Execution
	endErr error
	// canceling: an open turn is abandoned because it was canceled.
	canceling bool

	// appending is held over each append, so that they follow one another.
	appending sync.Mutex
	sealed    bool // under appending: no more appends

	mu     sync.Mutex // guards what follows
	purse  purse
	head   journal.Head
	sum    summary
	staged []turn.Staged
	bytes  int       // of what is staged, blobs too
	since  time.Time // when the oldest of staged was staged
	timer  *time.Timer
	err    error // why nothing more can be appended
}

func newExecution(h *Host, uid abi.SessionID) *execution {
	return &execution{host: h, uid: uid, done: make(chan struct{})}
}

// finished tells those who wait for the turn how it came out.
func (x *execution) finished(end Execution, err error) {
	x.ended, x.endErr = end, err
	close(x.done)
}

var _ runtimes.Port = (*execution)(nil)

// errSealed refuses an append after the end of the turn.
var errSealed = errors.New("the turn has ended")

func (x *execution) now() abi.Time { return abi.NewTime(x.host.cfg.Now()) }

// logged tells the operator what the harness logs.
func (x *execution) logged(ctx context.Context, text []byte) {
	x.host.log.Debug("harness log", "session", x.uid, "execution", x.spec.Execution, "bytes", len(text))
	level := slog.LevelInfo
	if recorded, _ := x.machine.Front(); recorded != nil {
		level = slog.LevelDebug // it ran to here before
	}
	if log := x.host.cfg.HarnessLog; log.Enabled(ctx, level) {
		log.Log(ctx, level, "harness", "session", x.uid, "execution", x.spec.Execution, "text", string(text))
	}
}

// Call serves one outward call of the harness.
func (x *execution) Call(ctx context.Context, op abi.Op, request []byte) (runtimes.Response, error) {
	if op == abi.OpLog {
		x.logged(ctx, request)
	}
	ready, err := x.machine.Call(op, request, x.now())
	var done chan toolDone // of tool calls under way
	results := 0           // bytes of theirs so far
	for {
		if err != nil {
			return runtimes.Response{}, asDivergence(err)
		}
		if err := x.act(ready); err != nil {
			if errors.Is(err, ErrBudget) {
				x.machine.Withheld(ready.Tools)
			}
			return runtimes.Response{}, err
		}
		switch {
		case ready.Effect != nil:
			answer, callErr := x.perform(ctx, ready.Effect)
			if callErr != nil {
				return runtimes.Response{}, callErr
			}
			x.settleCall(x.calling.aside, x.took(ready.Effect, answer))
			if err := x.fault("answered"); err != nil {
				return runtimes.Response{}, err
			}
			ready, err = x.machine.Completed(answer, x.now())
		case ready.History != nil:
			return x.history(ctx, ready.History)
		case ready.Park != nil:
			return runtimes.Response{}, errParked
		case ready.Refused != nil:
			return runtimes.Response{}, &unrecordedCall{*ready.Refused, x.elsewhere.NoLiveTools}
		case ready.Reply != nil:
			return response(ready.Reply), nil
		default:
			if done == nil {
				done = make(chan toolDone, abi.MaxToolCalls)
			}
			x.callTools(ctx, ready.Tools, done)
			x.watch.pause()
			select {
			case <-ctx.Done():
				return runtimes.Response{}, context.Cause(ctx)
			case d := <-done:
				x.watch.resume()
				if ctx.Err() != nil {
					return runtimes.Response{}, context.Cause(ctx)
				}
				x.toolDone()
				if err := x.fault("answered"); err != nil {
					return runtimes.Response{}, err
				}
				if results += d.size; results > maxResultsBytes {
					results -= d.size
					d.outcome = turn.ToolOutcome{Err: fmt.Errorf("it gave %d bytes, at most %d are taken of all calls of one request", d.size, maxResultsBytes)}
				}
				ready, err = x.machine.ToolDone(d.id, d.outcome, x.now())
			}
		}
	}
}

// response is a reply of the turn machine as a runtime takes it.
func response(r *turn.Reply) runtimes.Response {
	out := runtimes.Response{Status: r.Status, Body: r.Body, Now: r.Now.Time}
	if r.Seed != nil {
		out.Seed = new([32]byte)
		copy(out.Seed[:], r.Seed)
	}
	return out
}

// asDivergence marks the machine's divergence with the host's sentinel.
func asDivergence(err error) error {
	var d *turn.Divergence
	if errors.As(err, &d) {
		return fmt.Errorf("%w: %w", ErrDivergence, err)
	}
	return err
}

// act stages and commits as the machine says.
func (x *execution) act(ready turn.Ready) error {
	if ready.Note != "" {
		x.host.log.Debug("request refused", "session", x.uid, "execution", x.spec.Execution, "detail", ready.Note)
	}
	if len(ready.Stage) > 0 {
		x.stage(ready.Stage)
		if err := x.fault("staged"); err != nil {
			return err
		}
	}
	aside, err := x.aside(ready)
	if err != nil {
		return err
	}
	if ready.Commit || aside != (Amounts{}) || x.heavy() {
		c := commitment{reserve: aside}
		if ready.Park != nil {
			x.endSpending(0, false)
			c.closing = func(s *summary, _ journal.Head) { s.Waiting = waitingOf(ready.Park) }
		}
		if err := x.commit(c); err != nil {
			return err
		}
		return x.fault("committed")
	}
	x.armFlush()
	return nil
}

// stage adds records to what the next append takes.
func (x *execution) stage(staged []turn.Staged) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.staged) == 0 {
		x.since = time.Now()
	}
	x.staged = append(x.staged, staged...)
	for _, s := range staged {
		x.sum.Updated = later(x.sum.Updated, s.Event.Time)
		x.bytes += s.Size()
	}
}

// maxStagedBytes bounds the records that wait for a commit: one append takes only
// so much.
const maxStagedBytes = 1 << 20

// heavy reports whether so much is staged that it must be committed now.
func (x *execution) heavy() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.bytes > maxStagedBytes
}

// commitment is what a commit makes durable beside what is staged.
type commitment struct {
	last    []turn.Staged
	image   *journal.Image               // without which last cannot become durable
	closing func(*summary, journal.Head) // sees the summary, if it is set
	reserve Amounts                      // is set aside, or nothing is written
}

// commit makes what is staged durable, and c with it. It returns when that is done;
// the client sees the records only then (I6). After ErrBudget all is staged as it was.
func (x *execution) commit(c commitment) error {
	x.appending.Lock()
	defer x.appending.Unlock()
	x.mu.Lock()
	if x.err == nil && !x.sealed {
		if err := x.purse.reserve(c.reserve); err != nil {
			x.mu.Unlock()
			return err
		}
	}
	kept, bytes := x.staged, x.bytes
	staged := append(slices.Clip(kept), c.last...)
	x.staged, x.bytes = nil, 0
	head, sum, purse, err := x.head, x.sum, x.purse, x.err
	x.mu.Unlock()
	switch {
	case err != nil:
		return err
	case x.sealed:
		return errSealed
	case len(staged) == 0 && c.reserve == (Amounts{}):
		return nil
	}
	a := journal.Append{Head: head, Fence: x.fence, Image: c.image, Charges: purse.charges(c.reserve)}
	sum.Used, sum.Held = purse.used, purse.held
	if x.key != "" {
		a.Marks = []journal.Mark{{Name: x.key, Seq: x.startSeq}}
	}
	for _, s := range staged {
		a.Events = append(a.Events, s.Encoded)
		a.Blobs = append(a.Blobs, s.Blobs...)
		sum.Updated = later(sum.Updated, s.Event.Time)
	}
	if c.closing != nil {
		c.closing(&sum, journal.Head{Seq: head.Seq + abi.Seq(len(staged))})
	}
	a.Summary = mustJSON(sum)
	// An append that is under way is never left: what it did must be known.
	records, err := x.host.journal.Append(context.Background(), x.uid, a)
	x.mu.Lock()
	defer x.mu.Unlock()
	var spent *journal.SpentError
	if errors.As(err, &spent) {
		x.purse.unreserve(c.reserve)
		x.staged, x.bytes = append(slices.Clip(kept), x.staged...), x.bytes+bytes
		return treeOver(spent)
	}
	if err != nil {
		x.err = asConflict(err)
		return x.err
	}
	x.purse.charged(purse)
	x.head.Fence = x.fence
	if n := len(records); n > 0 {
		x.head.Seq, x.head.Hash = records[n-1].Seq, records[n-1].Hash
	}
	x.sum, x.key = sum, ""
	x.stream.records(records, staged)
	x.host.watches.committed(x.uid)
	return nil
}

// armFlush sees to it that what is staged becomes durable soon although nothing
// waits for it: as soon as the journal's writer is idle, at the latest after the
// flush delay. It waits a little first, so that a turn that is about to commit
// anyway does not have to queue behind its own flush.
func (x *execution) armFlush() {
	delay := x.host.cfg.FlushDelay
	if delay < 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.staged) == 0 || x.timer != nil {
		return
	}
	x.timer = time.AfterFunc(delay/10, x.flush)
}

func (x *execution) flush() {
	x.mu.Lock()
	x.timer = nil
	waiting, since, err := len(x.staged) > 0, x.since, x.err
	x.mu.Unlock()
	if !waiting || err != nil {
		return
	}
	delay := x.host.cfg.FlushDelay
	if time.Since(since) < delay && !x.host.journal.Idle() {
		x.armFlush()
		return
	}
	if err := x.commit(commitment{}); err != nil && !errors.Is(err, errSealed) {
		x.host.log.Warn("background flush", "session", x.uid, "error", err)
	}
}

// parkedFor is what the turn waits for.
func (x *execution) parkedFor() []Waiting {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sum.Waiting
}

// seal ends all appending, and waits for one that is under way.
func (x *execution) seal() {
	x.mu.Lock()
	if x.timer != nil {
		x.timer.Stop()
	}
	x.mu.Unlock()
	x.appending.Lock()
	x.sealed = true
	x.appending.Unlock()
}

// failed reports whether nothing more can be appended.
func (x *execution) failed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err != nil
}

// giveUp leaves the turn open, with what it has done made durable where that is
// still possible: a paid answer is not lost.
func (x *execution) giveUp(cause error) error {
	if !x.failed() {
		x.endSpending(0, false)
		if err := x.commit(commitment{}); err != nil {
			x.host.log.Warn("flush of an interrupted turn", "session", x.uid, "error", err)
		}
	}
	x.host.log.Warn("turn interrupted", "session", x.uid, "execution", x.spec.Execution, "error", discreet(cause))
	return cause
}

// discreet is an error as the log may hold it (S4): of a divergence, where it is,
// and not the two texts that differ.
func discreet(err error) error {
	var d *turn.Divergence
	if errors.As(err, &d) {
		return fmt.Errorf("%w at seq %d", ErrDivergence, d.Seq)
	}
	return err
}

// finish ends the turn: its END becomes durable with all that is staged and with
// the image, if any, that the next turn begins from (M4), and only then is it
// shown.
func (x *execution) finish(end turn.End, image *journal.Image) (Execution, error) {
	ready, err := x.machine.Finish(end, x.now())
	if err != nil {
		return Execution{}, x.giveUp(asDivergence(err))
	}
	if err := x.fault("ending"); err != nil {
		return Execution{}, err
	}
	last := ready.Stage[len(ready.Stage)-1].Event
	if image == nil && x.module.desc.Harness.HoldsMemory() {
		image = x.base // of a first turn that failed the golden one, not stored yet
	}
	x.endSpending(max(end.Fuel, x.burnt), true)
	err = x.commit(commitment{last: ready.Stage, image: image, closing: func(s *summary, head journal.Head) {
		s.Open, s.Closed, s.Waiting = 0, head.Seq, nil
		s.State, s.Reason = last.End.State, last.Cell.Reason
		s.Turns, s.ModelCalls = int64(last.Cell.Turn), int64(last.Cell.ModelCalls)
		if image != nil {
			s.Root = last.Cell.Root
		}
		if x.cloned && x.startSeq > s.Forked && last.End.State == abi.StateCompleted {
			s.Forked = 0
		}
	}})
	if err != nil {
		return Execution{}, x.giveUp(err)
	}
	if image != nil {
		x.host.images.put(image)
	}
	if err := x.fault("ended"); err != nil {
		return Execution{}, err
	}
	x.host.log.Info("turn ended", "session", x.uid, "execution", x.spec.Execution,
		"state", last.End.State, "reason", last.Cell.Reason, "fuel", end.Fuel)
	return Execution{
		ID: x.spec.Execution, State: last.End.State, Reason: last.Cell.Reason,
		Err: last.End.Error, Root: last.Cell.Root, Fuel: end.Fuel, Pages: x.pages,
	}, nil
}

// fault is where a test lets the process die: nothing is appended after it.
func (x *execution) fault(point string) error {
	if x.host.fault == nil {
		return nil
	}
	err := x.host.fault(point)
	if err != nil {
		x.mu.Lock()
		x.err = err
		x.mu.Unlock()
	}
	return err
}

// maxAnswerBytes bounds what a provider may answer.
const maxAnswerBytes = 8 << 20

// perform makes a model call. A failure of the provider is an answer; an error
// means that the turn is over.
func (x *execution) perform(ctx context.Context, effect *turn.Effect) (turn.Answer, error) {
	provider := x.host.cfg.provider(effect.Call.Model)
	if provider == nil {
		x.calling.free = true
		err := x.host.knowsModel(effect.Call.Model)
		return turn.Answer{Err: &abi.Error{Code: abi.CodeNotFound, Description: err.Error()}}, nil
	}
	x.host.providerCalls.Add(1)
	x.watch.pause()
	defer x.watch.resume()
	request := model.Request{
		Session: x.uid, Index: effect.Index, Attempt: effect.Attempt, Call: effect.Call,
		MaxOutputTokens: x.calling.output, Again: x.anew(),
	}
	result, err := within(ctx, x.callTime(), fmt.Sprintf("model %q", effect.Call.Model), func(ctx context.Context) (model.Result, error) {
		return provider.Complete(ctx, request, func(d model.Delta) {
			if ctx.Err() == nil {
				x.stream.delta(Delta{
					Session: x.uid, Execution: x.spec.Execution,
					Attempt: d.Attempt, Text: d.Text, Reset: d.Reset, Done: d.Done,
				})
			}
		})
	})
	if ctx.Err() != nil {
		return turn.Answer{}, context.Cause(ctx)
	}
	var stopped *notAgainError
	if errors.As(err, &stopped) {
		return turn.Answer{}, stopped.error
	}
	var failure *model.Error
	x.calling.free = errors.As(err, &failure) && failure.Free
	return answer(effect, result, err), nil
}

// answer is a provider's outcome as it is recorded.
func answer(effect *turn.Effect, r model.Result, err error) turn.Answer {
	if err != nil {
		code := abi.CodeUnavailable
		var failure *model.Error
		switch {
		case errors.Is(err, errCallTimeout):
			code = abi.CodeDeadlineExceeded
		case errors.As(err, &failure):
			code = failure.Code
		}
		return turn.Answer{Err: &abi.Error{Code: code, Description: err.Error()}}
	}
	switch n, err := messageBytes(r.Message); {
	case err != nil:
		return turn.Answer{Err: &abi.Error{
			Code: abi.CodeInternal, Description: fmt.Sprintf("model %q gave no valid message: %v", effect.Call.Model, err),
		}}
	case n > maxAnswerBytes:
		return turn.Answer{Err: &abi.Error{
			Code:        abi.CodeResourceExhausted,
			Description: fmt.Sprintf("model %q answered %d bytes, at most %d are taken", effect.Call.Model, n, maxAnswerBytes),
		}}
	}
	return turn.Answer{Message: r.Message, Usage: r.Usage}
}

// messageBytes is the size of a message; it fails if the message has JSON that
// is none.
func messageBytes(m abi.Message) (int, error) {
	b, err := json.Marshal(m)
	return len(b), err
}

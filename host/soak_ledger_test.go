package host_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// ledger is kept outside of the process that is killed: what the world and the
// clients saw, and what the store had after each kill. It finds where they do not
// agree.
type ledger struct {
	sessions map[abi.SessionID]*account
	// round is what was said since the last kill.
	round struct {
		asked  map[[2]string]int // model calls by session and mark
		called map[[2]string]int // tool calls by session and key
		lines  []said
	}
	retries   map[string]retry // requests without answer, by key
	snapshots map[string]bool
	figures   map[string]int
	wrong     func(uid abi.SessionID, seq abi.Seq, format string, args ...any)
}

// account is what is known of one session.
type account struct {
	hashes   []abi.Digest           // of its records, from seq 1, as they were in the store
	shown    map[abi.Seq]abi.Digest // … and as they were shown
	prompts  map[string]bool        // marks of its model calls
	answered map[string]abi.Seq     // marks of those that have an answer
	last     string                 // mark of the last model call
	tools    map[string]*toolUse    // by call id
	keys     map[string]*toolUse
	begun    map[string]abi.Seq // keys of its turns
	signals  int                // that are in its record, …
	past     int                // … of those its parent's
	told     int                // … and that a client was told of
	deleted  bool               // a client was told so
	doomed   bool               // a client deletes it, which is not known to have failed or to be undone
	own      abi.Seq            // its FORK, if it has one: records before it are its parent's
}

// toolUse is what is known of one tool call of a session.
type toolUse struct {
	tool     string
	gated    bool
	approved []abi.Seq // decisions
	denied   bool
	result   abi.Seq
	calls    int // that reached the tool
}

func newLedger(wrong func(abi.SessionID, abi.Seq, string, ...any)) *ledger {
	l := &ledger{
		sessions: map[abi.SessionID]*account{}, retries: map[string]retry{}, snapshots: map[string]bool{},
		figures: map[string]int{}, wrong: wrong,
	}
	l.next()
	return l
}

// next begins a round.
func (l *ledger) next() {
	l.round.asked, l.round.called, l.round.lines = map[[2]string]int{}, map[[2]string]int{}, nil
}

func (l *ledger) account(uid abi.SessionID) *account {
	a := l.sessions[uid]
	if a == nil {
		a = &account{
			shown: map[abi.Seq]abi.Digest{}, prompts: map[string]bool{}, answered: map[string]abi.Seq{},
			tools: map[string]*toolUse{}, keys: map[string]*toolUse{}, begun: map[string]abi.Seq{},
		}
		l.sessions[uid] = a
	}
	return a
}

// hear takes a line that the process said, in the order it said them.
func (l *ledger) hear(line said) {
	l.round.lines = append(l.round.lines, line)
	switch line.Kind {
	case saidFailed:
		l.wrong(line.Session, 0, "the process: %s", line.Text)
	case saidRecord:
		l.figures["records shown"]++
		a := l.account(line.Session)
		if was, ok := a.shown[line.Seq]; ok && was != line.Hash {
			l.wrong(line.Session, line.Seq, "I6: shown as %s and as %s", was.Short(), line.Hash.Short())
		}
		a.shown[line.Seq] = line.Hash
	case saidCreated:
		l.figures["sessions created"]++
		l.account(line.Session)
	case saidForked:
		l.figures[strings.TrimSpace("children forked "+line.Text)] += len(line.Children)
		for _, uid := range line.Children {
			l.account(uid)
		}
	case saidSent:
		l.retries[line.Key] = retry{line.Session, line.Key, line.Text}
	case saidEnded:
		l.figures["turns "+line.Text]++
		delete(l.retries, line.Key)
	case saidSaved:
		l.figures["snapshots"]++
		l.snapshots[line.Key] = true
	case saidRemoves:
		delete(l.snapshots, line.Key)
	case saidDeletes:
		l.account(line.Session).doomed = true
		maps.DeleteFunc(l.retries, func(_ string, r retry) bool { return r.Session == line.Session })
	case saidDeleted:
		l.figures["sessions deleted"]++
		l.account(line.Session).deleted = true
	case saidReturns:
		l.account(line.Session).deleted = false
	case saidBack:
		l.figures["sessions back from a file"]++
		l.account(line.Session).doomed = false
	case saidDecided:
		l.figures["decisions"]++
	case saidSignal:
		l.figures["signals"]++
		l.account(line.Session).told++
	case saidDone:
		l.figures[line.Text] += max(line.Attempt, 1)
	case saidAsked:
		l.asked(line)
	case saidCalled:
		l.called(line)
	}
}

// asked: the model was called.
func (l *ledger) asked(line said) {
	l.figures["model calls"]++
	key := [2]string{string(line.Session), line.Mark}
	l.round.asked[key]++
	if n := l.round.asked[key]; n > 1 {
		l.wrong(line.Session, 0, "I1: one process made the model call %s %d times", line.Mark, n)
	}
	if line.Attempt > 0 {
		l.figures["model calls made once more"]++
	}
	if seq, ok := l.account(line.Session).answered[line.Mark]; ok {
		l.wrong(line.Session, seq, "I1: the model call %s was made again, and its answer is recorded", line.Mark)
	}
}

// called: a tool was.
func (l *ledger) called(line said) {
	l.figures["tool calls"]++
	key := [2]string{string(line.Session), line.Key}
	l.round.called[key]++
	if n := l.round.called[key]; n > 1 {
		l.wrong(line.Session, 0, "I1: one process made the call %s of %s %d times", line.Call, line.Tool, n)
	}
	if use := l.account(line.Session).keys[line.Key]; use != nil && use.result != 0 {
		l.wrong(line.Session, use.result, "I1: the call %s of %s was made again, and its result is recorded", line.Call, line.Tool)
	}
}

// read takes what the store has of a session, from the first record that is new.
func (l *ledger) read(ctx context.Context, h *host.Host, s host.Session) {
	a := l.account(s.UID)
	if s.Head.Seq < abi.Seq(len(a.hashes)) {
		l.wrong(s.UID, s.Head.Seq, "I6: it had %d records", len(a.hashes))
		return
	}
	if s.Head.Seq == abi.Seq(len(a.hashes)) {
		return
	}
	for rec, err := range h.Replay(ctx, s.UID, abi.Seq(len(a.hashes))+1, 0) {
		if err != nil {
			l.wrong(s.UID, abi.Seq(len(a.hashes))+1, "read: %v", err)
			return
		}
		a.hashes = append(a.hashes, abi.DigestOf(rec.Line))
		if err := a.record(ctx, h, s.UID, rec); err != nil {
			l.wrong(s.UID, rec.Seq, "%v", err)
		}
	}
}

// record takes a record that is new.
func (a *account) record(ctx context.Context, h *host.Host, uid abi.SessionID, rec host.Record) error {
	e := rec.Event
	answers := e.Cell != nil && e.Cell.CallID != ""
	switch {
	case e.Kind == abi.EventModelCall:
		call, err := h.Prompt(ctx, uid, rec.Seq)
		if err != nil {
			return err
		}
		a.last = mark(call.Messages[len(call.Messages)-1].Text())
		a.prompts[a.last] = true
	case answers && (e.Kind == abi.EventOutput || e.Kind == abi.EventError):
		a.answered[a.last] = rec.Seq
	case e.Kind == abi.EventExecutionStart && e.Cell.Key != "":
		if seq := a.begun[e.Cell.Key]; seq != 0 {
			return fmt.Errorf("the request with key %s has begun a turn at seq %d, and another one", e.Cell.Key, seq)
		}
		a.begun[e.Cell.Key] = rec.Seq
	case e.Kind == abi.EventToolCall:
		use := &toolUse{tool: e.Tool.Tool, gated: e.Tool.Mediation == abi.MediationRequiresApproval}
		a.tools[e.Tool.ID], a.keys[e.Tool.IdempotencyKey] = use, use
	case e.Kind == abi.EventApprovalResult && e.ApprovalResult.Approved:
		use := a.tools[e.ApprovalResult.ToolCallID]
		use.approved = append(use.approved, rec.Seq)
	case e.Kind == abi.EventApprovalResult:
		a.tools[e.ApprovalResult.ToolCallID].denied = true
	case e.Kind == abi.EventToolResult && a.tools[e.Result.ID] != nil:
		a.tools[e.Result.ID].result = rec.Seq
	case e.Kind == abi.EventSignal && e.Cell.Signal != "":
		a.signals++
	case e.Kind == abi.EventLifecycle && e.Lifecycle.Kind == abi.LifecycleFork:
		a.own, a.past = rec.Seq, a.signals
		clear(a.begun)
	}
	return nil
}

// settle holds what was said in the round against the record as it now is.
func (l *ledger) settle() {
	for _, line := range l.round.lines {
		if line.Session == "" {
			continue
		}
		a := l.account(line.Session)
		if a.doomed {
			continue
		}
		switch line.Kind {
		case saidAsked:
			if !a.prompts[line.Mark] {
				l.wrong(line.Session, 0, "I3: the model call %s left without a durable intent", line.Mark)
			}
			if seq := a.answered[line.Mark]; seq != 0 && seq < a.own {
				l.wrong(line.Session, seq, "I1: a child made the model call %s again, and its parent has the answer", line.Mark)
			}
		case saidRecord:
			l.compare(line.Session, a, line.Seq, line.Hash)
		case saidCalled:
			l.settleCall(a, line)
		case saidDecided:
			use := a.tools[line.Call]
			if use == nil || line.Approved && len(use.approved) == 0 || !line.Approved && !use.denied {
				l.wrong(line.Session, 0, "I6: the decision on %s that a client was told of is gone", line.Call)
			}
		case saidSignal:
			if n := a.signals - a.past; a.told > n {
				l.wrong(line.Session, 0, "I6: a client was told of %d signals, %d are there", a.told, n)
			}
		}
	}
	l.next()
}

// settleCall: a call that reached a tool has its intent, and was made no more often
// than its tool's rule lets it.
func (l *ledger) settleCall(a *account, line said) {
	use := a.keys[line.Key]
	if use == nil {
		l.wrong(line.Session, 0, "I3: the call %s of %s left without a durable intent", line.Call, line.Tool)
		return
	}
	if use.result != 0 && use.result < a.own {
		l.wrong(line.Session, use.result, "I1: a child made the call %s of %s again, and its parent has the result", line.Call, line.Tool)
	}
	use.calls++
	rule := worldTools[use.tool]
	may := 1 + len(use.approved)
	if use.gated {
		may--
	}
	switch {
	case use.gated && len(use.approved) == 0:
		l.wrong(line.Session, 0, "the call %s of %s was made without approval", line.Call, line.Tool)
	case rule.onCrash == abi.OnCrashUnknown && use.calls > 1:
		l.wrong(line.Session, 0, "I3: the call %s of %s, which is not safe to repeat, was made %d times", line.Call, line.Tool, use.calls)
	case rule.onCrash == abi.OnCrashAsk && use.calls > may:
		l.wrong(line.Session, 0, "I3: the call %s of %s was made %d times, and approved %d times", line.Call, line.Tool, use.calls, len(use.approved))
	case use.calls > 1:
		l.figures["tool calls made once more"]++
	}
}

// compare holds a record that was shown against the one that the store has.
func (l *ledger) compare(uid abi.SessionID, a *account, seq abi.Seq, hash abi.Digest) {
	switch {
	case seq > abi.Seq(len(a.hashes)):
		l.wrong(uid, seq, "I6: it was shown and is gone; %d records are there", len(a.hashes))
	case a.hashes[seq-1] != hash:
		l.wrong(uid, seq, "I6: it was shown as %s and is %s", hash.Short(), a.hashes[seq-1].Short())
	}
}

// close reads all of a session's record once more, and holds all that was ever
// shown of it against that.
func (l *ledger) close(ctx context.Context, h *host.Host, uid abi.SessionID) {
	a := l.account(uid)
	for rec, err := range h.Replay(ctx, uid, 0, 0) {
		if err != nil {
			l.wrong(uid, rec.Seq, "read: %v", err)
			return
		}
		if hash := abi.DigestOf(rec.Line); rec.Seq > abi.Seq(len(a.hashes)) || a.hashes[rec.Seq-1] != hash {
			l.wrong(uid, rec.Seq, "I6: it is %s, and was another one", hash.Short())
		}
	}
	for seq, hash := range a.shown {
		l.compare(uid, a, seq, hash)
	}
}

// String gives the figures, one a line.
func (l *ledger) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(l.figures)) {
		fmt.Fprintf(&b, "%8d %s\n", l.figures[name], name)
	}
	return b.String()
}

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// errUnrecorded is the cause of a rerun's turn that asked for a call of a tool that has
// no recorded result and may not be made, or cannot.
var errUnrecorded = errors.New("no recorded result")

// unrecordedCall is that call.
type unrecordedCall struct {
	call  abi.ToolCall
	never bool // no call is made by this rerun, whatever tools are here
}

func (e *unrecordedCall) Error() string {
	why := "that tool is not on this host"
	if e.never {
		why = "this rerun calls no tool"
	}
	return fmt.Sprintf("tool %q with arguments %s: %v is left for it, and %s", e.call.Tool, orEmpty(e.call.Args), errUnrecorded, why)
}

func (e *unrecordedCall) Unwrap() error { return errUnrecorded }

func orEmpty(args abi.Struct) string {
	if len(args) == 0 {
		return "{}"
	}
	return string(args)
}

// elsewhere has the results that a turn which is run again is given in place of calls:
// those of the session of which it is a rerun.
type elsewhere struct {
	host *Host
	again
	// results has, of equal calls in their order, the seq of each one's result, 0 where
	// there is none.
	results map[abi.Digest][]abi.Seq
	// asked counts equal calls of the branch, and places has, by id, which one of its
	// equals each call is that stands in the record of the turn at hand.
	asked  map[abi.Digest]int
	places map[string]int
}

// recordedCall is a TOOL_CALL, and where its result is, 0 if it has none.
type recordedCall struct {
	key       abi.Digest
	id        string
	execution abi.ExecutionID
	result    abi.Seq
	failed    abi.Time // of a result that a turn's end may have written
}

// equalCalls is what equal calls have alike: the name and the arguments, however they
// are written.
func equalCalls(c *abi.ToolCall) (abi.Digest, error) {
	form, err := abi.MarshalLossless(struct {
		Tool string     `json:"tool"`
		Args abi.Struct `json:"args,omitempty"`
	}{c.Tool, c.Args})
	return abi.DigestOf(form), err
}

// lookElsewhere lets a turn that is run again have results in place of calls.
func (x *execution) lookElsewhere(ctx context.Context, r row, start *abi.Event) (err error) {
	if !r.meta.Again.has(x.startSeq, start) || len(x.spec.Tools) == 0 {
		return nil
	}
	if x.elsewhere, err = x.host.elsewhere(ctx, r, start.ExecutionID); err == nil {
		x.spec.Elsewhere = x.elsewhere.find
	}
	return err
}

// elsewhere finds what a turn of a branch is given: of the session in the state that a
// names, and by the branch's own record, which says what of it is used up.
func (h *Host) elsewhere(ctx context.Context, r row, execution abi.ExecutionID) (*elsewhere, error) {
	a := r.meta.Again
	if _, err := h.row(a.Of); err != nil {
		return nil, fmt.Errorf("the turn is given results of a session that is not here: %w", err)
	}
	e := &elsewhere{host: h, again: *a, results: map[abi.Digest][]abi.Seq{}, asked: map[abi.Digest]int{}, places: map[string]int{}}
	theirs, err := h.toolCalls(ctx, a.Of, a, a.Until, func(abi.Seq, *abi.Event) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("calls of session %s: %w", a.Of, err)
	}
	for _, c := range theirs {
		e.results[c.key] = append(e.results[c.key], c.result)
	}
	own, err := h.toolCalls(ctx, r.UID, a, r.Head.Seq, a.has)
	if err != nil {
		return nil, err
	}
	for _, c := range own {
		if c.execution == execution {
			e.places[c.id] = e.asked[c.key]
		}
		e.asked[c.key]++
	}
	return e, nil
}

// toolCalls are the calls of tools that a session's turns asked for in the records that a
// is about, up to last, but for those that had their results at the fork: these are in the
// records of both. What only the end of a turn said of a call is no result.
func (h *Host) toolCalls(ctx context.Context, uid abi.SessionID, a *again, last abi.Seq, of func(abi.Seq, *abi.Event) bool) ([]recordedCall, error) {
	var calls []recordedCall
	counts := false
	open := 0        // the first of the turn at hand
	var newest []int // whose results the newest records are
	for rec, err := range h.journal.Read(uid, a.first(), last) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if !tellsOfCall(rec.Line) {
			newest = nil
			continue
		}
		e, _, err := h.decode(rec)
		if err != nil {
			return nil, err
		}
		if e.Kind == abi.EventEnd {
			unread(calls, newest, e)
		}
		if e.Kind != abi.EventToolResult {
			newest = nil
		}
		switch {
		case e.Kind == abi.EventExecutionStart:
			counts, open = of(rec.Seq, e), len(calls)
		case !counts:
		case e.Kind == abi.EventToolCall && e.Tool != nil:
			key, err := equalCalls(e.Tool)
			if err != nil {
				return nil, fmt.Errorf("seq %d: %w", rec.Seq, err)
			}
			calls = append(calls, recordedCall{key: key, id: e.Tool.ID, execution: e.ExecutionID})
		case e.Kind == abi.EventToolResult && e.Result != nil:
			for i := len(calls) - 1; i >= open; i-- {
				if calls[i].id != e.Result.ID {
					continue
				}
				if rec.Seq <= a.At {
					calls = append(calls[:i], calls[i+1:]...)
					break
				}
				calls[i].result = rec.Seq
				if e.Cell == nil && e.Result.IsError && e.Result.Code == abi.ToolExecutorError {
					calls[i].failed = e.Time
				}
				newest = append(newest, i)
				break
			}
		}
	}
	return calls, nil
}

// unread takes back, of the results that stand right before a turn's end, those that the
// end wrote itself: of calls that were not made, or cut off. They are failures, in one
// commit with the end and of its time, and no harness has read them.
func unread(calls []recordedCall, newest []int, end *abi.Event) {
	if end.Cell == nil || end.Cell.Class != abi.ClassExternal {
		return
	}
	for _, i := range newest {
		if c := &calls[i]; !c.failed.IsZero() && c.failed.Equal(end.Time.Time) {
			c.result = 0
		}
	}
}

// tellsOfCall reports whether a line may be a record that toolCalls looks for, by the
// line's own text.
func tellsOfCall(line []byte) bool {
	for _, kind := range []abi.EventKind{abi.EventToolCall, abi.EventToolResult, abi.EventExecutionStart, abi.EventEnd} {
		if bytes.Contains(line, []byte(kind)) {
			return true
		}
	}
	return false
}

// find is the turn machine's Elsewhere.
func (e *elsewhere) find(call abi.ToolCall) (*turn.Found, bool, error) {
	key, err := equalCalls(&call)
	if err != nil {
		return nil, false, err
	}
	place, ok := e.places[call.ID]
	if !ok {
		place = e.asked[key]
		e.asked[key]++
	}
	if place < len(e.results[key]) && e.results[key][place] != 0 {
		found, err := e.read(e.results[key][place])
		return found, false, err
	}
	if e.NoLiveTools {
		return nil, false, nil
	}
	_, err = e.host.tool(e.host.ctx, call.Tool)
	return nil, !errors.Is(err, ErrNotFound), nil // of any other error the call will tell
}

// read is the result at a seq of the other session.
func (e *elsewhere) read(seq abi.Seq) (*turn.Found, error) {
	event, err := e.record(seq)
	if err != nil {
		return nil, err
	}
	if event.Result == nil {
		return nil, fmt.Errorf("seq %d of session %s: no %s where one must be: %w", seq, e.Of, abi.EventToolResult, journal.ErrCorrupt)
	}
	found := &turn.Found{Result: *event.Result, Session: e.Of, Seq: seq}
	if event.Cell != nil && event.Cell.Source != "" { // what it names is not in that record
		found.Args = event.Cell.Args
		return found, nil
	}
	for _, named := range []abi.Seq{found.Result.ApprovalDecisionSeq, found.Result.ApprovalRequestSeq} {
		if named == 0 || found.Args != nil {
			continue
		}
		event, err := e.record(named)
		if err != nil {
			return nil, err
		}
		if event.Cell != nil {
			found.Args = event.Cell.Args
		}
	}
	return found, nil
}

// record is the event at a seq of the other session.
func (e *elsewhere) record(seq abi.Seq) (*abi.Event, error) {
	for rec, err := range e.host.read(e.Of, seq, seq) {
		return rec.Event, err
	}
	return nil, fmt.Errorf("seq %d of session %s: %w", seq, e.Of, journal.ErrCorrupt)
}

// granted are the tools of a new turn. One that runs another one again has those that that
// one had, so that the model is told of the same ones, whether they are here or not. What is
// said of a tool today decides how it is called.
func (x *execution) granted(ctx context.Context, again *Record) ([]abi.ToolGrant, error) {
	if again == nil {
		return x.host.grants(ctx, x.session)
	}
	grants, err := x.host.readGrants(again.Event.Cell.Tools)
	for i := range grants {
		t, err := x.host.tool(ctx, grants[i].Name)
		if err != nil {
			continue // it is missed when it is called
		}
		now := t.Grant()
		if grants[i].OnCrash = now.OnCrash; now.Mediation == abi.MediationRequiresApproval {
			grants[i].Mediation = now.Mediation
		}
	}
	return grants, err
}

// unrecorded ends a turn for such a call. That it asked for it is recorded before.
func (x *execution) unrecorded(call *unrecordedCall) (Execution, error) {
	return x.finish(turn.End{
		Reason: abi.ReasonUnrecorded, Err: &abi.Error{Code: abi.CodeFailedPrecondition, Description: call.Error()},
	}, nil)
}

package turn

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/sdk/abi"
)

// ToolEffect is a tool call to perform. Its outcome goes to Machine.ToolDone.
type ToolEffect struct {
	Call abi.ToolCall
}

// ToolOutcome is what a tool call came to: a result without id, or Err.
type ToolOutcome struct {
	Result abi.ToolResult
	Err    error
}

// Waiting is what a parked turn waits for: a decision on a tool call, or a time
// or signal.
type Waiting struct {
	// CallID is the tool call's id, or that of the wait.
	CallID string
	// Call, with its arguments as they are now, and Gate are set for an approval.
	Call *abi.ToolCall
	Gate *Gate
	// Until is when the wait, or the request for approval, is over by itself; Signal is
	// that of a wait.
	Until  abi.Time
	Signal string
}

// toolCall is one call of a batch.
type toolCall struct {
	call  abi.ToolCall
	grant abi.ToolGrant

	gated     bool // people decide
	recovered bool // it may have been under way when an earlier run ended
	running   bool

	judged bool    // by the policy
	terms  Verdict // of the next request
	gate   Gate

	result   *abi.ToolResult
	recorded bool // the result is in the record, or staged

	sought bool   // another record was asked for the result
	found  *Found // and has it
}

// actual is the call with the arguments that it has now.
func (c *toolCall) actual() abi.ToolCall {
	call := c.call
	if args := c.gate.Edited(); args != nil {
		call.Args = args
	}
	return call
}

// idHash stands for the id of a tool call: a turn remembers all of its ids.
type idHash = abi.Digest

func (m *Machine) toolCall(request []byte, now abi.Time) (Ready, error) {
	var req abi.ToolCallRequest
	if err := decode(request, &req); err != nil {
		return malformed(err), nil
	}
	if n := len(req.Calls); n == 0 || n > abi.MaxToolCalls {
		return malformed(fmt.Errorf("%d calls: want 1 to %d", n, abi.MaxToolCalls)), nil
	}
	batch, staged, refusal := m.intents(req.Calls, m.stamp(now))
	if refusal.Reply != nil {
		return refusal, nil
	}
	var fresh []Staged
	for i := range staged {
		recorded, err := m.serve(&staged[i])
		if err != nil {
			return Ready{}, err
		}
		batch[i].recovered = recorded && !batch[i].gated
		if !recorded {
			fresh = append(fresh, staged[i])
		}
	}
	for _, c := range batch {
		m.toolIDs[abi.DigestOf([]byte(c.call.ID))] = true
	}
	m.batch = batch
	return m.advance(Ready{Stage: fresh}, now)
}

// intents checks the calls of a request and makes their TOOL_CALL records. A
// request that is not granted as a whole is refused as a whole.
func (m *Machine) intents(calls []abi.ToolCall, at abi.Time) ([]*toolCall, []Staged, Ready) {
	seen := map[string]bool{}
	batch := make([]*toolCall, len(calls))
	staged := make([]Staged, len(calls))
	for i, call := range calls {
		grant, ok := m.opening.Tools[call.Tool]
		switch {
		case !ok:
			return nil, nil, refuse(fmt.Sprintf("call %d: that tool is not granted to this turn", i+1))
		case call.ID == "" || seen[call.ID] || m.toolIDs[abi.DigestOf([]byte(call.ID))]:
			return nil, nil, malformed(fmt.Errorf("call %d: its id must be one that no other call of the turn has", i+1))
		case len(call.ID) > abi.MaxNameBytes:
			return nil, nil, malformed(fmt.Errorf("call %d: its id has more than %d bytes", i+1, abi.MaxNameBytes))
		case call.IdempotencyKey == "":
			return nil, nil, malformed(fmt.Errorf("call %d: it has no idempotency key", i+1))
		case call.Mediation == abi.MediationInHarnessReported:
			return nil, nil, malformed(fmt.Errorf("call %d: what a harness does itself it reports", i+1))
		}
		seen[call.ID] = true
		// A harness may ask for a gate that its host does not; not the reverse.
		gated := grant.Mediation == abi.MediationRequiresApproval || call.Mediation == abi.MediationRequiresApproval
		call.Mediation = abi.MediationControllerMediated
		if gated {
			call.Mediation = abi.MediationRequiresApproval
		}
		var err error
		staged[i], err = Stage(&abi.Event{Kind: abi.EventToolCall, ExecutionID: m.opening.Execution, Time: at, Tool: &call})
		if err != nil {
			return nil, nil, invalid("the request cannot be recorded", err)
		}
		recorded, err := staged[i].Decoded()
		if err != nil {
			return nil, nil, invalid("the request cannot be recorded", err)
		}
		batch[i] = &toolCall{call: *recorded.Tool, grant: grant, gated: gated}
	}
	if used := m.effects + int32(len(calls)); used > m.opening.Limits.Effects {
		return nil, nil, m.spent()
	}
	m.effects += int32(len(calls))
	return batch, staged, Ready{}
}

// ToolDone takes the outcome of a tool call that was an effect.
func (m *Machine) ToolDone(id string, o ToolOutcome, now abi.Time) (Ready, error) {
	return m.unbroken(m.toolDone(id, o, now))
}

func (m *Machine) toolDone(id string, o ToolOutcome, now abi.Time) (Ready, error) {
	c := m.callOf(id)
	if c == nil || !c.running {
		return Ready{}, fmt.Errorf("turn: tool call %q is not under way", id)
	}
	c.running = false
	c.settle(o)
	var r Ready
	if err := m.recordResults(&r, now); err != nil {
		return Ready{}, err
	}
	for _, c := range m.batch {
		if c.running {
			return r, nil
		}
	}
	return m.advance(r, now)
}

func (m *Machine) callOf(id string) *toolCall {
	for _, c := range m.batch {
		if c.call.ID == id {
			return c
		}
	}
	return nil
}

// settle makes an outcome the call's result.
func (c *toolCall) settle(o ToolOutcome) {
	r := o.Result
	if o.Err != nil {
		e := clip(&abi.Error{Description: o.Err.Error()})
		r = abi.ToolResult{IsError: true, Error: e.Description, Code: abi.ToolExecutorError}
	}
	r.ID, r.Cell = c.call.ID, nil
	r.ApprovalRequestSeq, r.ApprovalDecisionSeq = c.gate.Request, c.gate.Decided
	c.result = &r
}

// recordResults stages the results that are settled and whose turn it is: results
// stand in the order of the calls, but for those that a person holds up.
func (m *Machine) recordResults(r *Ready, now abi.Time) error {
	for _, c := range m.batch {
		switch {
		case c.recorded:
			continue
		case c.result == nil && c.running:
			return nil
		case c.result == nil:
			continue
		}
		s, err := m.stageResult(c, m.stamp(now))
		if err != nil {
			return err
		}
		r.Stage = append(r.Stage, s)
		c.recorded = true
	}
	return nil
}

// stageResult makes a call's TOOL_RESULT. One that JSON cannot carry is recorded
// as the failure it is.
func (m *Machine) stageResult(c *toolCall, at abi.Time) (Staged, error) {
	event := func() *abi.Event {
		return &abi.Event{Kind: abi.EventToolResult, ExecutionID: m.opening.Execution, Time: at, Result: c.result, Cell: c.found.cell()}
	}
	s, err := Stage(event())
	if err != nil {
		c.settle(ToolOutcome{Err: fmt.Errorf("the tool's result cannot be recorded: %w", err)})
		c.found = nil
		if s, err = Stage(event()); err != nil {
			return Staged{}, err
		}
	}
	recorded, err := s.Decoded()
	if err != nil {
		return Staged{}, err
	}
	c.result = recorded.Result
	m.last = at
	return s, nil
}

// advance takes the batch as far as it goes: serves what is recorded, here or in
// another session, then lets run what may run, then asks for what a person must
// decide. It answers when all calls have results.
func (m *Machine) advance(r Ready, now abi.Time) (Ready, error) {
	m.serveBatch()
	if m.batchDone() {
		return m.replyTools(r)
	}
	if err := m.goesOn("the results of tool calls"); err != nil {
		return Ready{}, err
	}
	fresh := len(r.Stage) > 0
	refused, err := m.find()
	if err != nil {
		return Ready{}, err
	}
	if refused != nil {
		r.Refused = refused
		return r, m.recordResults(&r, now)
	}
	for _, c := range m.batch {
		if c.result == nil {
			if err := m.decide(c, &r, now); err != nil {
				return Ready{}, err
			}
		}
	}
	if len(r.Tools) == 0 {
		for _, c := range m.batch {
			if c.result == nil && c.gate.Approved() {
				if err := m.start(c, &r, now); err != nil {
					return Ready{}, err
				}
			}
		}
	}
	if err := m.recordResults(&r, now); err != nil {
		return Ready{}, err
	}
	switch {
	case len(r.Tools) > 0:
		// Intents, and starts of approved calls, are durable before their
		// effects (I3).
		r.Commit = r.Commit || fresh
		return r, nil
	case m.batchDone():
		return m.replyTools(r)
	}
	return m.ask(r, now)
}

func (m *Machine) batchDone() bool {
	for _, c := range m.batch {
		if c.result == nil {
			return false
		}
	}
	return true
}

// serveBatch takes the records that belong to the batch. They came from outside,
// so they are taken as they are.
func (m *Machine) serveBatch() {
	for m.front != nil {
		next := m.front
		e := next.Event
		switch {
		case e.Kind == abi.EventToolResult && e.Result != nil && m.callOf(e.Result.ID) != nil:
			c := m.callOf(e.Result.ID)
			c.result, c.recorded = e.Result, true
			c.takeFound(e)
		case e.Kind == abi.EventApprovalRequest && e.Approval != nil && m.callOf(e.Approval.ToolCallID) != nil:
			c := m.callOf(e.Approval.ToolCallID)
			c.gated, c.recovered = true, false
			c.gate.Take(next.Seq, e)
		case e.Kind == abi.EventApprovalResult && e.ApprovalResult != nil && m.callOf(e.ApprovalResult.ToolCallID) != nil:
			c := m.callOf(e.ApprovalResult.ToolCallID)
			c.gate.Take(next.Seq, e)
			c.recovered = c.recovered || c.gate.Approved() && byPolicy(e) // it started with that
		case e.Kind == abi.EventLifecycle && e.Lifecycle.Kind == abi.LifecycleResume && e.Cell != nil && m.callOf(e.Cell.CallID) != nil:
			m.callOf(e.Cell.CallID).recovered = true
		default:
			return
		}
		m.take()
	}
}

// goesOn checks that the run may go on live where something that comes from
// outside is wanted.
func (m *Machine) goesOn(wanted string) error {
	switch {
	case !m.recordEnds():
		next := m.front
		return &Divergence{
			Seq: next.Seq, Want: abi.DigestOf(next.Encoded),
			What: fmt.Sprintf("%s stands where %s must be", next.Event.Kind, wanted),
		}
	case m.mode == Check:
		return ErrRecordEnds
	}
	return nil
}

// run makes a call an effect.
func (c *toolCall) run(r *Ready) {
	c.running = true
	r.Tools = append(r.Tools, ToolEffect{Call: c.actual()})
}

// replyTools answers the request with the results, in the order of its calls. Of a
// call whose arguments people have edited the harness is told what they were.
func (m *Machine) replyTools(r Ready) (Ready, error) {
	var response abi.ToolCallResponse
	for _, c := range m.batch {
		result := *c.result
		if args := c.edited(); args != nil && !bytes.Equal(args, c.call.Args) {
			result.Cell = &abi.ResultCell{Args: args}
		}
		response.Results = append(response.Results, result)
	}
	m.batch = nil
	body, err := marshal(response)
	if err != nil {
		return Ready{}, err
	}
	r.Reply = &Reply{Body: body, Now: m.last, Seed: m.handOn()}
	return r, nil
}

// cutShort records of the calls that are under way when a turn is canceled, or
// passes its deadline, that nobody knows what became of them. One that is safe to
// repeat needs no word.
func (m *Machine) cutShort(r *Ready, now abi.Time) error {
	for _, c := range m.batch {
		if !c.running {
			continue
		}
		c.running = false
		if c.grant.OnCrash == abi.OnCrashRetry {
			continue
		}
		c.settle(ToolOutcome{Err: errors.New(outcomeCut)})
	}
	return m.recordResults(r, now)
}

// Withheld takes back calls that were to be made next, and for which the budget has
// nothing left: where the turn ends the record says that they were not made, but of
// those that an earlier run may have made.
func (m *Machine) Withheld(effects []ToolEffect) {
	for _, e := range effects {
		c := m.callOf(e.Call.ID)
		if c == nil || !c.running {
			continue
		}
		c.running = false
		why := notMade
		if c.recovered || c.gate.Again {
			why = outcomeUnknown
		}
		c.settle(ToolOutcome{Err: errors.New(why)})
	}
}

// report records the result of a tool that the harness ran itself.
func (m *Machine) report(request []byte, now abi.Time) (Ready, error) {
	result := new(abi.ToolResult)
	if err := decode(request, result); err != nil {
		return malformed(err), nil
	}
	switch {
	case result.ID == "":
		return malformed(errors.New("a report needs the id of its call")), nil
	case result.Code == abi.ToolApprovalDenied || result.ApprovalRequestSeq != 0 || result.ApprovalDecisionSeq != 0 || result.Cell != nil:
		return malformed(errors.New("a report cannot speak of approvals")), nil
	}
	return m.oneWay(&abi.Event{Kind: abi.EventToolResult, Result: result}, now)
}

// wait parks the turn until its time has come or its signal is there.
func (m *Machine) wait(request []byte, now abi.Time) (Ready, error) {
	var req abi.WaitRequest
	if err := decode(request, &req); err != nil {
		return malformed(err), nil
	}
	if req.Until.IsZero() && req.Signal == "" {
		return malformed(errors.New("wait for a time, a signal, or both")), nil
	}
	if len(req.Signal) > abi.MaxNameBytes {
		return malformed(fmt.Errorf("the signal's name has more than %d bytes", abi.MaxNameBytes)), nil
	}
	if r, ok := m.spend(); !ok {
		return r, nil
	}
	w := Waiting{CallID: fmt.Sprintf("call-%d", m.effects), Until: req.Until, Signal: req.Signal}
	staged, err := Stage(&abi.Event{
		Kind: abi.EventWait, ExecutionID: m.opening.Execution, Time: m.stamp(now),
		Cell: &abi.Cell{CallID: w.CallID, Until: w.Until, Signal: w.Signal},
	})
	if err != nil {
		m.effects--
		return invalid("the request cannot be recorded", err), nil
	}
	recorded, err := m.serve(&staged)
	if err != nil {
		return Ready{}, err
	}
	var r Ready
	if !recorded {
		r.Stage = []Staged{staged}
	} else if m.front != nil {
		if e := m.front.Event; e.Kind == abi.EventSignal && e.Cell != nil && e.Cell.CallID == w.CallID {
			signal := m.take()
			return m.replyWait(r, abi.WaitResponse{Signal: e.Cell.Signal, Payload: signal.Payload})
		}
	}
	if err := m.goesOn("the end of " + w.CallID); err != nil {
		return Ready{}, err
	}
	if w.Until.IsZero() || now.Before(w.Until.Time) {
		r.Commit, r.Park = true, []Waiting{w}
		return r, nil
	}
	at := m.stamp(now)
	fired, err := Stage(&abi.Event{
		Kind: abi.EventSignal, ExecutionID: m.opening.Execution, Time: at, Cell: &abi.Cell{CallID: w.CallID},
	})
	if err != nil {
		return Ready{}, err
	}
	m.last = at
	r.Stage = append(r.Stage, fired)
	return m.replyWait(r, abi.WaitResponse{})
}

func (m *Machine) replyWait(r Ready, response abi.WaitResponse) (Ready, error) {
	body, err := marshal(response)
	if err != nil {
		return Ready{}, err
	}
	r.Reply = &Reply{Body: body, Now: m.last, Seed: m.handOn()}
	return r, nil
}

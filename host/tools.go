package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// errParked gives a run up because its turn waits for a decision, a time or a
// signal. Nothing is held meanwhile: no instance, no goroutine, no memory.
var errParked = errors.New("the turn is parked")

// Waiting is what a parked turn waits for.
type Waiting struct {
	CallID string `json:"call_id"`
	// Tool and Reason are those of a call that a person must decide on.
	Tool   string `json:"tool,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Until and Signal are those of a wait, whichever comes first.
	Until  abi.Time `json:"until,omitzero"`
	Signal string   `json:"signal,omitempty"`
	// Settled: the decision or the signal is there, and the turn can go on.
	Settled bool `json:"settled,omitempty"`
}

func waitingOf(park []turn.Waiting) []Waiting {
	out := make([]Waiting, len(park))
	for i, p := range park {
		out[i] = Waiting{CallID: p.CallID, Reason: p.Reason, Until: p.Until, Signal: p.Signal}
		if p.Call != nil {
			out[i].Tool = p.Call.Tool
		}
	}
	return out
}

// parked reports whether running the turn would only park it again.
func parked(waiting []Waiting, now time.Time) bool {
	for _, w := range waiting {
		if w.Settled || !w.Until.IsZero() && !now.Before(w.Until.Time) {
			return false
		}
	}
	return len(waiting) > 0
}

// tools are those that this host has now, by name, and at least those of them that
// patterns name.
func (h *Host) tools(ctx context.Context, patterns []string) (map[string]tool.Tool, error) {
	if len(h.cfg.ToolSources) == 0 {
		return h.cfg.Tools, nil
	}
	all := make(map[string]tool.Tool)
	for _, s := range slices.Backward(h.cfg.ToolSources) {
		list, err := offered(ctx, s, patterns)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		for _, t := range list {
			if err := t.Check(); err != nil {
				return nil, err
			}
			all[t.Definition.Name] = t
		}
	}
	maps.Copy(all, h.cfg.Tools)
	return all, nil
}

// offered is what a source offers to those who are granted what patterns name.
func offered(ctx context.Context, s tool.Source, patterns []string) ([]tool.Tool, error) {
	if g, ok := s.(tool.Granter); ok && len(patterns) > 0 {
		return g.Granted(ctx, patterns)
	}
	return s.Tools(ctx)
}

// tool is the tool of that name, which a turn was granted. It is ErrNotFound if this host
// does not have it.
func (h *Host) tool(ctx context.Context, name string) (tool.Tool, error) {
	if t, ok := h.cfg.Tools[name]; ok {
		return t, nil
	}
	for _, s := range h.cfg.ToolSources {
		t, ok, err := find(ctx, s, name)
		if err == nil && ok {
			err = t.Check()
		}
		if err != nil {
			return tool.Tool{}, fmt.Errorf("tool %q: %w", name, err)
		}
		if ok {
			return t, nil
		}
	}
	return tool.Tool{}, fmt.Errorf("tool %q: %w on this host", name, ErrNotFound)
}

// find is the tool of that name which a source has.
func find(ctx context.Context, s tool.Source, name string) (tool.Tool, bool, error) {
	if f, ok := s.(tool.Finder); ok {
		return f.Tool(ctx, name)
	}
	list, err := s.Tools(ctx)
	if err != nil {
		return tool.Tool{}, false, err
	}
	i := slices.IndexFunc(list, func(t tool.Tool) bool { return t.Definition.Name == name })
	if i < 0 {
		return tool.Tool{}, false, nil
	}
	return list[i], true, nil
}

// grants are the tools that a turn of the session is granted, by name.
func (h *Host) grants(ctx context.Context, m meta) ([]abi.ToolGrant, error) {
	tools, err := h.tools(ctx, m.Grants)
	if err != nil {
		return nil, err
	}
	var grants []abi.ToolGrant
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		if granted(m.Grants, name) {
			grants = append(grants, tools[name].Grant())
		}
	}
	return grants, nil
}

// granted reports whether a tool is among those that patterns name.
func granted(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		match, err := path.Match(p, name) // the names of tools have no slash
		return match && err == nil
	})
}

// maxGrants bounds the patterns of a session's tools.
const maxGrants = 64

func checkGrants(patterns []string) error {
	if len(patterns) > maxGrants {
		return fmt.Errorf("%w: %d patterns of tools: a session takes at most %d", ErrInvalid, len(patterns), maxGrants)
	}
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" || len(p) > maxLabelBytes {
			return fmt.Errorf("%w: tools %.40q: want a name, or a pattern such as files.*", ErrInvalid, p)
		}
	}
	return nil
}

// grantList is the blob that EXECUTION_START names.
type grantList struct {
	Tools []abi.ToolGrant `json:"tools"`
}

// readGrants reads the tools that a turn was granted.
func (h *Host) readGrants(digest abi.Digest) ([]abi.ToolGrant, error) {
	if digest.IsZero() {
		return nil, nil
	}
	b, err := h.journal.Blob(digest)
	if err != nil {
		return nil, fmt.Errorf("granted tools: %w", err)
	}
	return parseGrants(b)
}

// parseGrants reads the blob: tools are shown to a harness as the record has
// them.
func parseGrants(b []byte) ([]abi.ToolGrant, error) {
	var list grantList
	if err := abi.UnmarshalLossless(b, &list); err != nil {
		return nil, fmt.Errorf("granted tools: %w", err)
	}
	return list.Tools, nil
}

func definitions(grants []abi.ToolGrant) []abi.ToolDefinition {
	var out []abi.ToolDefinition
	for _, g := range grants {
		out = append(out, g.ToolDefinition)
	}
	return out
}

func byName(grants []abi.ToolGrant) map[string]abi.ToolGrant {
	m := make(map[string]abi.ToolGrant, len(grants))
	for _, g := range grants {
		m[g.Name] = g
	}
	return m
}

// hasTools refuses a turn whose tools this host does not have: it must not record
// that as their failure.
func (h *Host) hasTools(ctx context.Context, grants []abi.ToolGrant) error {
	for _, g := range grants {
		if _, err := h.tool(ctx, g.Name); err != nil {
			return err
		}
	}
	return nil
}

// toolDone is the outcome of a tool call.
type toolDone struct {
	id      string
	outcome turn.ToolOutcome
	size    int // of the result
}

// maxResultsBytes bounds the results of the calls of one request together: the
// harness is given them in one answer.
const maxResultsBytes = 32 << 20

// callTools performs calls side by side.
func (x *execution) callTools(ctx context.Context, effects []turn.ToolEffect, done chan<- toolDone) {
	limit := x.callTime()
	for _, e := range effects {
		go func() {
			outcome, size := x.callTool(ctx, e.Call, limit)
			done <- toolDone{e.Call.ID, outcome, size}
		}()
	}
}

// callTool is the outcome of a call, and the size of its result.
func (x *execution) callTool(ctx context.Context, call abi.ToolCall, limit time.Duration) (turn.ToolOutcome, int) {
	result, size, err := x.host.performCall(ctx, tool.Call{Session: x.uid, Execution: x.spec.Execution, ToolCall: call}, limit)
	if err != nil {
		return turn.ToolOutcome{Err: err}, 0
	}
	return turn.ToolOutcome{Result: result}, size
}

// performCall makes a call, and tells the size of its result.
func (h *Host) performCall(ctx context.Context, call tool.Call, limit time.Duration) (abi.ToolResult, int, error) {
	result, err := within(ctx, limit, fmt.Sprintf("tool %q", call.Tool), func(ctx context.Context) (abi.ToolResult, error) {
		t, err := h.tool(ctx, call.Tool)
		if err != nil {
			return abi.ToolResult{}, err
		}
		return t.Executor.Call(ctx, call)
	})
	if err != nil {
		return abi.ToolResult{}, 0, err
	}
	b, err := json.Marshal(result)
	switch {
	case err != nil:
		return abi.ToolResult{}, 0, fmt.Errorf("tool %q gave no valid result: %w", call.Tool, err)
	case len(b) > maxAnswerBytes:
		return abi.ToolResult{}, 0, fmt.Errorf("tool %q gave %d bytes, at most %d are taken", call.Tool, len(b), maxAnswerBytes)
	}
	return result, len(b), nil
}

// Tools lists the tools that this host has now, by name.
func (h *Host) Tools(ctx context.Context) ([]tool.Tool, error) {
	all, err := h.tools(ctx, nil)
	if err != nil {
		return nil, err
	}
	list := make([]tool.Tool, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list, nil
}

// TryTool makes one call of a tool outside of any session, under the bounds of a turn's,
// with arguments that are a JSON object or empty. Nothing is recorded, and nobody is
// asked. A call that failed is an error. It wraps ErrNotFound for a tool that this host
// does not have, and ErrInvalid for arguments that cannot be.
func (h *Host) TryTool(ctx context.Context, name string, args abi.Struct) (abi.ToolResult, error) {
	args = bytes.TrimSpace(args)
	if len(args) > 0 {
		if _, err := abi.Canonical(args); err != nil || args[0] != '{' {
			return abi.ToolResult{}, fmt.Errorf("%w: arguments: want a JSON object", ErrInvalid)
		}
	}
	id, err := h.newExecutionID()
	if err != nil {
		return abi.ToolResult{}, err
	}
	call := abi.ToolCall{ID: "trial", Tool: name, Args: args, IdempotencyKey: string(id)}
	result, _, err := h.performCall(ctx, tool.Call{Execution: id, ToolCall: call}, h.cfg.CallTimeout)
	if err != nil {
		return abi.ToolResult{}, fmt.Errorf("call %s: %w", name, err)
	}
	return result, nil
}

// DecideRequest decides on a tool call that waits for it.
type DecideRequest struct {
	Session abi.SessionID
	// CallID may be empty if only one call of the session waits.
	CallID   string
	Approved bool
	Reason   string
	Actor    *abi.IdentityRef
}

// Decide records a person's decision on a tool call. The turn does not go on by
// itself: Resume it. The same decision again changes nothing; another one is
// ErrConflict.
func (h *Host) Decide(ctx context.Context, req DecideRequest) (Session, error) {
	s, err := h.decide(ctx, req)
	if err != nil {
		return Session{}, fmt.Errorf("decide: session %s: %w", req.Session, err)
	}
	return s, nil
}

func (h *Host) decide(ctx context.Context, req DecideRequest) (Session, error) {
	o, err := h.outside(ctx, req.Session)
	if err != nil {
		return Session{}, err
	}
	defer o.done()
	i, err := o.find(req.CallID, func(w Waiting) bool { return w.Tool != "" })
	if err != nil {
		return Session{}, err
	}
	id := o.r.sum.Waiting[i].CallID
	var request abi.Seq
	for rec, err := range h.journal.ReadReverse(req.Session, o.r.Head.Seq, o.r.sum.Open) {
		if err != nil {
			return Session{}, err
		}
		e, _, err := h.decode(rec)
		if err != nil {
			return Session{}, err
		}
		if e.ApprovalResult != nil && e.ApprovalResult.ToolCallID == id {
			if e.ApprovalResult.Approved != req.Approved || e.ApprovalResult.Reason != req.Reason {
				return Session{}, fmt.Errorf("%w: seq %d has another decision on call %q", ErrConflict, rec.Seq, id)
			}
			return h.show(o.r), nil
		}
		if e.Approval != nil && e.Approval.ToolCallID == id {
			request = rec.Seq
			break
		}
	}
	return o.append(ctx, i, nil, &abi.Event{
		Kind: abi.EventApprovalResult, Actor: req.Actor,
		ApprovalResult: &abi.ApprovalResult{ToolCallID: id, Approved: req.Approved, Reason: req.Reason, RequestSeq: request},
	})
}

// maxPayloadBytes bounds the payload of a signal.
const maxPayloadBytes = 1 << 20

// Signal ends a wait for the signal of that name; payload is JSON or empty. The
// turn does not go on by itself: Resume it. Nobody waiting for it is ErrConflict.
func (h *Host) Signal(ctx context.Context, uid abi.SessionID, name string, payload []byte) (Session, error) {
	s, err := h.signal(ctx, uid, name, payload)
	if err != nil {
		return Session{}, fmt.Errorf("signal %q: session %s: %w", name, uid, err)
	}
	return s, nil
}

func (h *Host) signal(ctx context.Context, uid abi.SessionID, name string, payload []byte) (Session, error) {
	payload = bytes.TrimSpace(payload)
	switch {
	case name == "":
		return Session{}, fmt.Errorf("%w: a signal needs a name", ErrInvalid)
	case len(payload) > maxPayloadBytes:
		return Session{}, fmt.Errorf("%w: the payload has %d bytes, at most %d are taken", ErrInvalid, len(payload), maxPayloadBytes)
	case len(payload) > 0:
		if _, err := abi.Canonical(payload); err != nil {
			return Session{}, fmt.Errorf("%w: payload: %w", ErrInvalid, err)
		}
	}
	o, err := h.outside(ctx, uid)
	if err != nil {
		return Session{}, err
	}
	defer o.done()
	i := slices.IndexFunc(o.r.sum.Waiting, func(w Waiting) bool { return w.Signal == name && !w.Settled })
	if i < 0 {
		return Session{}, fmt.Errorf("%w: it does not wait for that signal", ErrConflict)
	}
	cell := &abi.Cell{CallID: o.r.sum.Waiting[i].CallID, Signal: name}
	var blobs [][]byte
	if len(payload) > 0 {
		cell.Payload = abi.DigestOf(payload)
		blobs = [][]byte{payload}
	}
	return o.append(ctx, i, blobs, &abi.Event{Kind: abi.EventSignal, Cell: cell})
}

// outsider appends to a session from outside of its turns, while nobody runs one.
type outsider struct {
	x     *execution
	r     row
	image *journal.Image // that record saves, if set
}

func (h *Host) outside(ctx context.Context, uid abi.SessionID) (*outsider, error) {
	x := newExecution(h, uid)
	if err := h.claim(ctx, x, false); err != nil {
		return nil, err
	}
	r, err := h.row(uid)
	if err != nil {
		h.release(x)
		return nil, err
	}
	return &outsider{x: x, r: r}, nil
}

func (o *outsider) done() { o.x.host.release(o.x) }

// find is the index of what waits under an id, or of the only one if id is
// empty. One that is settled is found by its id.
func (o *outsider) find(id string, of func(Waiting) bool) (int, error) {
	found := -1
	for i, w := range o.r.sum.Waiting {
		switch {
		case !of(w) || id != "" && w.CallID != id || id == "" && w.Settled:
		case found >= 0:
			return 0, fmt.Errorf("%w: several calls wait: name one, such as %q", ErrInvalid, w.CallID)
		default:
			found = i
		}
	}
	switch {
	case found >= 0:
		return found, nil
	case id != "":
		return 0, fmt.Errorf("call %q: %w among those that wait", id, ErrNotFound)
	default:
		return 0, fmt.Errorf("%w: no call waits for a decision", ErrConflict)
	}
}

// append records what settles the i-th thing that the turn waits for.
func (o *outsider) append(ctx context.Context, i int, blobs [][]byte, e *abi.Event) (Session, error) {
	h, r := o.x.host, o.r
	e.ExecutionID = r.sum.Execution
	err := o.record(ctx, e, blobs, func(s *summary) {
		s.Waiting = slices.Clone(s.Waiting)
		s.Waiting[i].Settled = true
	})
	if err != nil {
		return Session{}, err
	}
	h.log.Info("turn can go on", "session", r.UID, "call", r.sum.Waiting[i].CallID)
	return h.sessionNow(r.UID)
}

// record appends an event, at its time if it has one, with which the session's
// summary changes.
func (o *outsider) record(ctx context.Context, e *abi.Event, blobs [][]byte, change func(*summary)) error {
	h, r := o.x.host, o.r
	e.SchemaVersion = abi.SchemaVersion
	if e.Time.IsZero() {
		e.Time = later(o.x.now(), r.sum.Updated)
	}
	encoded, body, err := abi.EncodeRecord(e)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if body != nil {
		blobs = append(blobs, body)
	}
	sum := r.sum
	sum.Updated = e.Time
	change(&sum)
	_, err = h.journal.Append(ctx, r.UID, journal.Append{
		Head: r.Head, Fence: r.Head.Fence + 1, Events: [][]byte{encoded}, Blobs: blobs, Image: o.image, Summary: mustJSON(sum),
	})
	if err != nil {
		return asConflict(err)
	}
	h.watches.committed(r.UID)
	return nil
}

// asConflict marks an append that another writer was faster than with the host's
// sentinel.
func asConflict(err error) error {
	if errors.Is(err, journal.ErrConflict) || errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

// sessionNow reads a session while it is claimed for something else than a turn.
func (h *Host) sessionNow(uid abi.SessionID) (Session, error) {
	r, err := h.row(uid)
	if err != nil {
		return Session{}, err
	}
	return h.state(r, false), nil
}

// PendingCall is a tool call that waits for a decision.
type PendingCall struct {
	Session abi.SessionID
	Seq     abi.Seq // of the request
	Call    abi.ToolCall
	Reason  string
	Since   time.Time
}

// Approvals lists the tool calls of a session that wait for a decision, with
// their full arguments.
func (h *Host) Approvals(ctx context.Context, uid abi.SessionID) ([]PendingCall, error) {
	r, err := h.row(uid)
	if err != nil {
		return nil, fmt.Errorf("approvals: %w", err)
	}
	var out []PendingCall
	for _, w := range r.sum.Waiting {
		if w.Tool != "" && !w.Settled {
			out = append(out, PendingCall{Session: uid, Reason: w.Reason, Call: abi.ToolCall{ID: w.CallID}})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	for rec, err := range h.journal.Read(uid, r.sum.Open, r.Head.Seq) {
		if err != nil {
			return nil, fmt.Errorf("approvals: %w", err)
		}
		e, _, err := h.decode(rec)
		if err != nil {
			return nil, fmt.Errorf("approvals: %w", err)
		}
		for i := range out {
			switch {
			case e.Tool != nil && e.Tool.ID == out[i].Call.ID:
				out[i].Call = *e.Tool
			case e.Approval != nil && e.Approval.ToolCallID == out[i].Call.ID:
				out[i].Seq, out[i].Since = rec.Seq, e.Time.Time
			}
		}
	}
	return out, nil
}

// waitings finds what a turn is parked for from its records, newest first.
type waitings struct {
	settled map[string]bool // decided or signaled
	over    map[string]bool // started, done, or listed
	closed  bool            // nothing older can be waiting
	list    []Waiting
}

func (w *waitings) before(e *abi.Event) {
	if w.over == nil {
		w.settled, w.over = map[string]bool{}, map[string]bool{}
	}
	add := func(n Waiting) {
		if !w.over[n.CallID] {
			n.Settled = w.settled[n.CallID]
			w.over[n.CallID] = true
			w.list = append(w.list, n)
		}
	}
	switch {
	case w.closed:
	case e.Kind == abi.EventLifecycle && e.Cell != nil:
		w.over[e.Cell.CallID] = true
	case e.Result != nil:
		w.over[e.Result.ID] = true
	case e.ApprovalResult != nil:
		w.settled[e.ApprovalResult.ToolCallID] = true
	case e.Approval != nil:
		add(Waiting{CallID: e.Approval.ToolCallID, Reason: e.Approval.Reason})
	case e.Tool != nil:
		for i := range w.list {
			if w.list[i].CallID == e.Tool.ID {
				w.list[i].Tool = e.Tool.Tool
			}
		}
	case e.Kind == abi.EventSignal && e.Cell != nil:
		w.settled[e.Cell.CallID] = true
	case e.Kind == abi.EventWait && e.Cell != nil && len(w.over) == 0:
		add(Waiting{CallID: e.Cell.CallID, Until: e.Cell.Until, Signal: e.Cell.Signal})
		w.closed = true
	default:
		w.closed = true
	}
}

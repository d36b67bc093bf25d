package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// DecideRequest decides on a tool call that waits for it.
type DecideRequest struct {
	Session abi.SessionID
	// CallID may be empty if only one call of the session waits.
	CallID   string
	Approved bool
	Reason   string
	// Actor is who decides, who must have a name where several people are to approve.
	// The host takes their word for it: whoever calls it knows them, or does not.
	Actor *abi.IdentityRef
	// Args, a JSON object, are other arguments for the call, if it is approved.
	Args abi.Struct `json:",omitempty"`
	// Request is the seq of the request that was looked at: a newer one is ErrConflict.
	// 0 stands for whichever there is.
	Request abi.Seq
}

// ErrExpired is the ErrConflict of a decision that comes after its request has expired.
var ErrExpired = errors.New("expired")

// MaxArgsBytes bounds edited arguments.
const MaxArgsBytes = 4 << 20

// PolicyPrincipal is who the record says has decided what a policy did: no person can
// decide under that name.
const PolicyPrincipal = turn.PolicyPrincipal

// Decide records a person's decision on a tool call. The turn does not go on by
// itself: Resume it.
//
// The same decision again changes nothing; another one is ErrConflict, and so is one
// that comes after the request has expired. Where several people must approve, a call is
// decided when so many have, or one has denied it: until then they may approve other
// arguments, which begins anew. What cannot be, and arguments that the policy denies,
// or the one under which people were asked, is ErrInvalid; so are other arguments where
// that one is not at hand.
func (h *Host) Decide(ctx context.Context, req DecideRequest) (Session, error) {
	s, err := h.decide(ctx, req)
	if err != nil {
		return Session{}, fmt.Errorf("decide: session %s: %w", req.Session, err)
	}
	return s, nil
}

func (h *Host) decide(ctx context.Context, req DecideRequest) (Session, error) {
	if err := checkDecide(&req); err != nil {
		return Session{}, err
	}
	o, err := h.outside(ctx, req.Session)
	if err != nil {
		return Session{}, err
	}
	defer o.done()
	i, err := o.find(req.CallID, func(w Waiting) bool { return w.Tool != "" })
	if err != nil {
		return Session{}, err
	}
	p, err := h.pending(o.r, o.r.sum.Waiting[i].CallID)
	if err != nil {
		return Session{}, err
	}
	e, err := p.decision(req)
	if err != nil {
		return Session{}, err
	}
	over, err := p.repeats(e)
	switch {
	case err != nil:
		return Session{}, err
	case over:
		return h.show(o.r), nil
	case req.Request != 0 && req.Request != p.gate.Request:
		return Session{}, fmt.Errorf("%w: call %q was asked about anew, at seq %d", ErrConflict, p.call.ID, p.gate.Request)
	case p.gate.Expired(o.x.now()):
		return Session{}, p.expired()
	case req.Approved && p.gate.Approvers > 1 && e.Actor == nil:
		return Session{}, fmt.Errorf("%w: %d people must approve call %q: say who you are", ErrInvalid, p.gate.Approvers, p.call.ID)
	case e.Cell != nil:
		if err := h.mayEdit(o.r, p, e.Cell.Args); err != nil {
			return Session{}, err
		}
	}
	p.gate.Take(o.r.Head.Seq+1, e)
	return o.append(ctx, i, waitingAt(p.call.ID, p.call.Tool, &p.gate), nil, e)
}

// checkDecide refuses what goes into no record.
func checkDecide(req *DecideRequest) error {
	req.Args = bytes.TrimSpace(req.Args)
	switch {
	case len(req.Args) > MaxArgsBytes:
		return fmt.Errorf("%w: edited arguments of %d bytes, at most %d are taken", ErrInvalid, len(req.Args), MaxArgsBytes)
	case len(req.Args) > 0 && req.Args[0] != '{':
		return fmt.Errorf("%w: edited arguments: want a JSON object", ErrInvalid)
	case len(req.Args) > 0 && !req.Approved:
		return fmt.Errorf("%w: edited arguments of a call that is denied", ErrInvalid)
	case req.Actor == nil:
		return nil
	case *req.Actor == abi.IdentityRef{}:
		req.Actor = nil
		return nil
	case strings.EqualFold(req.Actor.Principal, PolicyPrincipal):
		return fmt.Errorf("%w: %q stands for the policy: decide under another name", ErrInvalid, PolicyPrincipal)
	}
	for _, name := range []string{req.Actor.Principal, req.Actor.Issuer, req.Actor.Subject} {
		switch {
		case len(name) > abi.MaxNameBytes || !utf8.ValidString(name):
			return fmt.Errorf("%w: who decides: a name has at most %d bytes of UTF-8", ErrInvalid, abi.MaxNameBytes)
		case name != strings.TrimSpace(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
			// It would look like somebody else's.
			return fmt.Errorf("%w: who decides: %q begins or ends with a space, or has a character that nobody sees", ErrInvalid, name)
		}
	}
	return nil
}

// pendingCall is a call that people decide on, as the record has it.
type pendingCall struct {
	call abi.ToolCall // as the harness asked for it
	gate turn.Gate
}

// asked are the arguments that the request is about.
func (p *pendingCall) asked() abi.Struct {
	if p.gate.Args != nil {
		return p.gate.Args
	}
	return p.call.Args
}

// pending reads a call of the open turn, and what was asked and decided about it.
func (h *Host) pending(r row, id string) (pendingCall, error) {
	var p pendingCall
	var since []abi.LogRecord // newest first
	for rec, err := range h.journal.ReadReverse(r.UID, r.Head.Seq, r.sum.Open) {
		if err != nil {
			return p, err
		}
		e, _, err := h.decode(rec)
		if err != nil {
			return p, err
		}
		switch {
		case e.Approval != nil && e.Approval.ToolCallID == id, e.ApprovalResult != nil && e.ApprovalResult.ToolCallID == id:
			since = append(since, abi.LogRecord{Seq: rec.Seq, Event: e})
		case e.Tool != nil && e.Tool.ID == id:
			p.call = *e.Tool
			for _, s := range slices.Backward(since) {
				p.gate.Take(s.Seq, s.Event)
			}
			return p, nil
		}
	}
	return p, fmt.Errorf("call %q: %w in the record", id, ErrNotFound)
}

// decision is what req records, as a reader gets it: arguments that are not those that
// the request is about are edited.
func (p *pendingCall) decision(req DecideRequest) (*abi.Event, error) {
	e := &abi.Event{
		Kind: abi.EventApprovalResult, Actor: req.Actor,
		ApprovalResult: &abi.ApprovalResult{
			ToolCallID: p.call.ID, Approved: req.Approved, Reason: req.Reason, RequestSeq: p.gate.Request,
		},
	}
	if len(req.Args) > 0 {
		e.Cell = &abi.Cell{Args: req.Args}
	}
	staged, err := turn.Stage(e)
	if err == nil {
		e, err = staged.Decoded()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if e.Cell != nil && bytes.Equal(e.Cell.Args, p.asked()) {
		e.Cell = nil
	}
	return e, nil
}

// repeats reports whether a decision is there already. Against another one it is
// ErrConflict.
func (p *pendingCall) repeats(e *abi.Event) (bool, error) {
	var args abi.Struct
	if e.Cell != nil {
		args = e.Cell.Args
	}
	if p.gate.Decision == nil {
		var by abi.IdentityRef
		if e.Actor != nil {
			by = *e.Actor
		}
		return e.ApprovalResult.Approved && p.gate.HasApproved(by, args), nil
	}
	was, is := *p.gate.Decision.ApprovalResult, *e.ApprovalResult
	if p.gate.Approvers > 1 {
		was.Reason, is.Reason = "", "" // each has their own
	}
	var had abi.Struct
	if c := p.gate.Decision.Cell; c != nil {
		had = c.Args
	}
	was.RequestSeq = is.RequestSeq
	if was != is || !bytes.Equal(had, args) {
		return false, fmt.Errorf("%w: seq %d has another decision on call %q", ErrConflict, p.gate.Decided, p.call.ID)
	}
	return true, nil
}

// expired says that a decision comes too late, and what becomes of the call.
func (p *pendingCall) expired() error {
	next := "the call is denied"
	if p.gate.AsksAgain() {
		next = "people are asked again"
	}
	return fmt.Errorf("%w: %w: the request of seq %d to approve call %q did so at %s: %s when the turn goes on",
		ErrConflict, ErrExpired, p.gate.Request, p.call.ID, p.gate.Until, next)
}

// mayEdit asks the policy about a call with the arguments that a person gives it, and
// the one under which people were asked if that is another: who decides without it, or
// under a newer one, gets no call past it that it would not have let through.
func (h *Host) mayEdit(r row, p pendingCall, args abi.Struct) error {
	if h.cfg.Policy == nil && p.gate.Policy.IsZero() {
		return nil
	}
	t, err := h.readTurn(r.UID, r.sum.Open, r.Head.Seq)
	if err != nil {
		return asDivergence(err)
	}
	call, model := p.call, t.start.Event.Cell.Model
	call.Args = args
	policy, err := h.policy(r, model)
	if err != nil {
		return err
	}
	var now turn.Verdict
	if policy != nil {
		now = policy(call, byName(t.grants)[call.Tool])
	}
	if err := permits(now, call, ""); err != nil || p.gate.Policy.IsZero() || p.gate.Policy == now.Policy {
		return err
	}
	kept, err := h.keptPolicy(p.gate.Policy, subject(r, model))
	if err != nil {
		return fmt.Errorf("%w: other arguments for call %q want the policy under which people were asked: give it with --policy: %w", ErrInvalid, call.ID, err)
	}
	return permits(kept(call, byName(t.grants)[call.Tool]), call, fmt.Sprintf(", of when people were asked (policy %s),", p.gate.Policy))
}

// permits is ErrInvalid if a policy, of which more may be said, denies a call.
func permits(v turn.Verdict, call abi.ToolCall, more string) error {
	if v.Action != turn.Deny {
		return v.Check()
	}
	why := ""
	if v.Reason != "" {
		why = ": " + v.Reason
	}
	return fmt.Errorf("%w: the policy's rule %q%s denies call %q with these arguments%s", ErrInvalid, v.Rule, more, call.ID, why)
}

// keptPolicy is the policy with that digest. It wraps ErrNotFound.
func (h *Host) keptPolicy(digest abi.Digest, s turn.Subject) (turn.Policy, error) {
	if h.cfg.KeptPolicy == nil {
		return nil, fmt.Errorf("policy %s: %w", digest, ErrNotFound)
	}
	return h.cfg.KeptPolicy(digest, s)
}

// policy is what decides on the calls of a turn with that default model.
func (h *Host) policy(r row, model string) (turn.Policy, error) {
	if h.cfg.Policy == nil {
		return nil, nil
	}
	return h.cfg.Policy(subject(r, model))
}

// subject is what a policy knows of a session, in a turn with that default model.
func subject(r row, model string) turn.Subject {
	return turn.Subject{
		Session: r.UID, Project: r.Project, Name: r.Name,
		Harness: r.meta.Harness, Model: model, Labels: r.meta.Labels,
	}
}

// PendingCall is a tool call that waits for a decision.
type PendingCall struct {
	Session abi.SessionID
	Seq     abi.Seq // of the request
	// Call has the arguments that it is to be made with: Edited says that these are not
	// the harness's own.
	Call   abi.ToolCall
	Edited bool
	Reason string
	Since  time.Time
	// Rule is that of the policy that asks, if one does, and Policy the digest of the one
	// under which people were asked, zero if there was none.
	Rule   string
	Policy abi.Digest
	// Until is when the request expires, zero if never; AsksAgain says that people are
	// asked again then, else the call is denied.
	Until     time.Time
	AsksAgain bool
	// Approvers is how many people must approve, at least 1, and Approvals are those
	// that count so far; Proposed the arguments that these approved, if they edited
	// them.
	Approvers int
	Approvals []abi.IdentityRef
	Proposed  abi.Struct `json:",omitempty"`
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
		if w.Tool == "" || w.Settled {
			continue
		}
		p, err := h.pending(r, w.CallID)
		if err != nil {
			return nil, fmt.Errorf("approvals: %w", err)
		}
		out = append(out, p.show(uid))
	}
	return out, nil
}

func (p *pendingCall) show(uid abi.SessionID) PendingCall {
	g := &p.gate
	out := PendingCall{
		Session: uid, Seq: g.Request, Call: p.call, Edited: !bytes.Equal(p.asked(), p.call.Args),
		Reason: g.Reason, Since: g.Asked.Time, Rule: g.Rule, Policy: g.Policy, Until: g.Until.Time, AsksAgain: g.AsksAgain(),
		Approvers: g.Approvers,
	}
	out.Call.Args = p.asked()
	for _, a := range g.Approvals {
		out.Approvals, out.Proposed = append(out.Approvals, a.By), a.Args
	}
	return out
}

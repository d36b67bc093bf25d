package turn

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/agentcell/agentcell/sdk/abi"
)

// The texts that stand in results and requests which the host makes by itself.
const (
	outcomeUnknown = "outcome unknown: the host stopped while the call was under way"
	outcomeCut     = "outcome unknown: the turn ended while the call was under way"
	notMade        = "not made: the budget has nothing left for it"
	askAgain       = "the host stopped while the call was under way; call it again?"
	mayBeMade      = " (the host stopped while the call was under way: it may have been made)"
	expired        = "the request for approval expired"
)

// NotMade reports whether a call's result says that it was not made: that it was denied,
// or that the budget had nothing left for it.
func NotMade(r *abi.ToolResult) bool {
	return r.Code == abi.ToolApprovalDenied || r.Code == abi.ToolExecutorError && r.Error == notMade
}

// PolicyPrincipal is who the record says has decided what a policy did.
const PolicyPrincipal = "policy"

// decide takes a call on as far as that takes nobody: by what was decided on it, by
// its tool's rule if it may have been under way when an earlier run ended, and by the
// policy.
func (m *Machine) decide(c *toolCall, r *Ready, now abi.Time) error {
	switch {
	case c.gate.Decision != nil && !c.gate.Approved():
		c.deny()
	case c.recovered && c.grant.OnCrash == abi.OnCrashRetry && c.gate.Approved():
		c.run(r)
	case c.recovered && c.grant.OnCrash == abi.OnCrashAsk:
		c.gated, c.recovered, c.judged = true, false, false
		c.gate.reopen()
		return m.judge(c, r, now)
	case c.recovered && c.grant.OnCrash != abi.OnCrashRetry:
		c.settle(ToolOutcome{Err: errors.New(outcomeUnknown)})
	case c.gate.Approved():
		// Those that nobody had to decide go first: see start.
	case c.gate.Expired(now) && !c.gate.AsksAgain():
		if err := m.refuse(c, r, expired, &abi.Cell{Expired: true}, now); err != nil {
			return err
		}
		c.deny()
	case c.gate.Expired(now):
		c.judged = false
		return m.judge(c, r, now)
	case !c.judged && !c.gate.Waits():
		return m.judge(c, r, now)
	}
	return nil
}

// judge asks the policy about a call that is about to be made, or asked about.
func (m *Machine) judge(c *toolCall, r *Ready, now abi.Time) error {
	c.judged = true
	var v Verdict
	if m.opening.Policy != nil {
		v = m.opening.Policy(c.actual(), c.grant)
	}
	if err := v.Check(); err != nil {
		return fmt.Errorf("policy, rule %q: %w", v.Rule, err)
	}
	if v.Action == Ask && c.recovered {
		c.gate.Again, c.recovered = true, false
	}
	switch {
	case v.Action == Deny:
		if err := m.refuse(c, r, v.Reason, policyCell(v), now); err != nil {
			return err
		}
		c.deny()
		return nil
	case v.Action == Allow && !c.gate.Again:
		// The record of that is the call's start too, as both are in one commit.
		e, err := m.stageEvent(r, abi.Event{
			Kind: abi.EventApprovalResult, Actor: &abi.IdentityRef{Principal: PolicyPrincipal}, Cell: policyCell(v),
			ApprovalResult: &abi.ApprovalResult{ToolCallID: c.call.ID, Approved: true, Reason: v.Reason, RequestSeq: c.gate.Request},
		}, now)
		if err != nil {
			return err
		}
		r.Commit = true
		c.gate.Take(m.newest(r), e)
		c.run(r)
		return nil
	case v.Action != Ask && c.gate.requests > 0:
		c.terms = c.gate.terms() // nobody says anything else
	default:
		c.terms = v
		if v.Action != Ask {
			c.terms.Rule = "" // it is not what asks
		}
	}
	if c.gate.Again {
		c.terms.Reason = strings.TrimSpace(askAgain + " " + c.terms.Reason)
	}
	switch {
	case !c.gated && v.Action != Ask:
		c.run(r)
	case !c.gated || c.gate.Waits():
		// Its intent does not say that it waits for people, so this must be as durable.
		c.gated = true
		return m.request(c, r, now)
	}
	return nil
}

// refuse records that a call is not to be made, for which no person is needed.
func (m *Machine) refuse(c *toolCall, r *Ready, reason string, cell *abi.Cell, now abi.Time) error {
	cell.Again = c.gate.Again || c.recovered
	var actor *abi.IdentityRef
	if !cell.Expired {
		actor = &abi.IdentityRef{Principal: PolicyPrincipal}
	}
	e, err := m.stageEvent(r, abi.Event{
		Kind: abi.EventApprovalResult, Actor: actor, Cell: cell,
		ApprovalResult: &abi.ApprovalResult{ToolCallID: c.call.ID, Reason: reason, RequestSeq: c.gate.Request},
	}, now)
	if err != nil {
		return err
	}
	c.gate.Take(m.newest(r), e)
	return nil
}

// deny makes the decision against a call its result.
func (c *toolCall) deny() {
	why := denial(c.gate.Decision)
	if c.gate.Again || cellOf(c.gate.Decision).Again {
		why += mayBeMade
	}
	c.settle(ToolOutcome{Result: abi.ToolResult{IsError: true, Code: abi.ToolApprovalDenied, Error: why}})
}

// denial says who denied a call, and why.
func denial(e *abi.Event) string {
	text := "denied"
	if c := cellOf(e); !c.Policy.IsZero() {
		text += " by the policy"
		if c.Rule != "" {
			text += fmt.Sprintf("'s rule %q", c.Rule)
		}
	}
	return withReason(text, e.ApprovalResult.Reason)
}

func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// start lets a call run that people have approved. Its start is recorded, so that a
// later run knows that it may have been under way.
func (m *Machine) start(c *toolCall, r *Ready, now abi.Time) error {
	_, err := m.stageEvent(r, abi.Event{
		Kind: abi.EventLifecycle, Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleResume}, Cell: &abi.Cell{CallID: c.call.ID},
	}, now)
	if err != nil {
		return err
	}
	r.Commit = true
	c.run(r)
	return nil
}

// ask requests the decisions that are missing, and parks the turn.
func (m *Machine) ask(r Ready, now abi.Time) (Ready, error) {
	for _, c := range m.batch {
		if c.result != nil || c.gate.Decision != nil {
			continue
		}
		if !c.gate.Waits() {
			if err := m.request(c, &r, now); err != nil {
				return Ready{}, err
			}
		}
		call := c.actual()
		r.Park = append(r.Park, Waiting{CallID: c.call.ID, Call: &call, Gate: &c.gate, Until: c.gate.Until})
	}
	r.Commit = true
	return r, nil
}

// request asks people to decide on a call.
func (m *Machine) request(c *toolCall, r *Ready, now abi.Time) error {
	t := c.terms
	cell := &abi.Cell{Rule: t.Rule, Policy: t.Policy, Again: c.gate.Again, Args: c.gate.Args}
	if t.Approvers > 1 {
		cell.Approvers = t.Approvers
	}
	if t.Expires > 0 {
		cell.Until, cell.OnExpiry = abi.NewTime(m.stamp(now).Add(t.Expires)), string(t.OnExpiry)
	}
	e, err := m.stageEvent(r, abi.Event{
		Kind: abi.EventApprovalRequest, Cell: cell, Approval: &abi.ApprovalRequest{ToolCallID: c.call.ID, Reason: t.Reason},
	}, now)
	if err != nil {
		return err
	}
	c.gate.Take(m.newest(r), e)
	return nil
}

// policyCell is who decided, where that is a policy.
func policyCell(v Verdict) *abi.Cell { return &abi.Cell{Rule: v.Rule, Policy: v.Policy} }

// stageEvent stages a record of the turn that the machine makes by itself, and gives
// the event as a reader gets it.
func (m *Machine) stageEvent(r *Ready, e abi.Event, now abi.Time) (*abi.Event, error) {
	e.ExecutionID, e.Time = m.opening.Execution, m.stamp(now)
	if reflect.ValueOf(*e.Cell).IsZero() {
		e.Cell = nil
	}
	s, err := Stage(&e)
	if err != nil {
		return nil, err
	}
	m.last = e.Time
	r.Stage = append(r.Stage, s)
	return s.Decoded()
}

// newest is the seq of the record that was staged last.
func (m *Machine) newest(r *Ready) abi.Seq { return m.seq + abi.Seq(len(r.Stage)) }

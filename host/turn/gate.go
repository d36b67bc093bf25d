package turn

import (
	"bytes"
	"slices"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Gate is what stands between a tool call and its being made: the newest request for
// its approval, and what was decided on it. It follows from the records of both, in
// their order, and from nothing else: neither a policy nor a clock is asked again.
type Gate struct {
	Request abi.Seq  // of the request, 0 if there is none
	Asked   abi.Time // when it was made
	Reason  string
	// Rule is that of the policy that asks, if one does, and Policy the digest of the one
	// under which people were asked, zero if there was none.
	Rule   string
	Policy abi.Digest
	// Until is when the request expires, zero if it does not, and OnExpiry what then.
	Until    abi.Time
	OnExpiry OnExpiry
	// Approvers is how many different people must approve, at least 1.
	Approvers int
	// Again: the call may have been made already.
	Again bool
	// Args are the arguments that the request is about, nil for those of the call.
	Args abi.Struct
	// Approvals are what counts so far: of different people, for the same arguments.
	Approvals []Approval
	// Decision is what opened or closed the gate, an APPROVAL_RESULT, and Decided its
	// seq; nil if that is not decided.
	Decision *abi.Event
	Decided  abi.Seq

	requests int // so many were made
}

// Approval is one person's.
type Approval struct {
	By abi.IdentityRef
	// Args are the arguments that they approved, nil for those of the request.
	Args abi.Struct
}

// Take follows a record: an APPROVAL_REQUEST or APPROVAL_RESULT of the call.
func (g *Gate) Take(seq abi.Seq, e *abi.Event) {
	switch {
	case e.Approval != nil:
		g.ask(seq, e)
	case e.ApprovalResult != nil && g.Decision == nil:
		g.decide(seq, e)
	}
}

func (g *Gate) ask(seq abi.Seq, e *abi.Event) {
	c := cellOf(e)
	*g = Gate{
		Request: seq, Asked: e.Time, Reason: e.Approval.Reason, Rule: c.Rule, Policy: c.Policy,
		Until: c.Until, OnExpiry: OnExpiry(c.OnExpiry), Approvers: max(1, int(c.Approvers)),
		Again: c.Again, Args: c.Args, requests: g.requests + 1,
	}
}

func (g *Gate) decide(seq abi.Seq, e *abi.Event) {
	d, args := e.ApprovalResult, cellOf(e).Args
	switch {
	case d.RequestSeq != 0 && d.RequestSeq != g.Request:
		return // on a request that is void
	case d.Approved && g.Request != 0 && !byPolicy(e):
		by := identity(e)
		if len(g.Approvals) > 0 && !bytes.Equal(g.Approvals[0].Args, args) {
			g.Approvals = nil // somebody edited the arguments: all begin anew
		}
		if !g.hasApproved(by) {
			g.Approvals = append(g.Approvals, Approval{By: by, Args: args})
		}
		if len(g.Approvals) < g.Approvers {
			return
		}
	}
	g.Decision, g.Decided = e, seq
}

func (g *Gate) hasApproved(by abi.IdentityRef) bool {
	return slices.ContainsFunc(g.Approvals, func(a Approval) bool { return a.By == by })
}

// HasApproved reports whether an approval counts already: of that person, for those
// arguments.
func (g *Gate) HasApproved(by abi.IdentityRef, args abi.Struct) bool {
	return g.hasApproved(by) && bytes.Equal(g.Approvals[0].Args, args)
}

// Approved reports whether the call may be made.
func (g *Gate) Approved() bool { return g.Decision != nil && g.Decision.ApprovalResult.Approved }

// Edited are the arguments that the call has now, nil if nobody edited them.
func (g *Gate) Edited() abi.Struct {
	if g.Approved() && cellOf(g.Decision).Args != nil {
		return cellOf(g.Decision).Args
	}
	return g.Args
}

// Waits reports whether the gate waits for people.
func (g *Gate) Waits() bool { return g.Request != 0 && g.Decision == nil }

// Expired reports whether people have let the time pass.
func (g *Gate) Expired(now abi.Time) bool {
	return g.Waits() && !g.Until.IsZero() && !now.Before(g.Until.Time)
}

// AsksAgain reports whether a request that has expired is made once more.
func (g *Gate) AsksAgain() bool { return g.OnExpiry == ExpiryAsks && g.requests < MaxRequests }

// terms are those of the request, for one more.
func (g *Gate) terms() Verdict {
	v := Verdict{Action: Ask, Rule: g.Rule, Policy: g.Policy, Approvers: int32(g.Approvers), OnExpiry: g.OnExpiry}
	if !g.Again {
		v.Reason = g.Reason // else it says that first
	}
	if !g.Until.IsZero() {
		v.Expires = max(time.Microsecond, g.Until.Sub(g.Asked.Time))
	}
	return v
}

// reopen is the gate of a call that may be made again only if people say so: as it
// was, with nothing decided.
func (g *Gate) reopen() {
	g.Args = g.Edited()
	g.Request, g.Approvals, g.Decision, g.Decided, g.Again = 0, nil, nil, 0, true
}

// byPolicy reports whether no person decided.
func byPolicy(e *abi.Event) bool { return !cellOf(e).Policy.IsZero() || cellOf(e).Expired }

func identity(e *abi.Event) abi.IdentityRef {
	if e.Actor == nil {
		return abi.IdentityRef{}
	}
	return *e.Actor
}

func cellOf(e *abi.Event) abi.Cell {
	if e.Cell == nil {
		return abi.Cell{}
	}
	return *e.Cell
}

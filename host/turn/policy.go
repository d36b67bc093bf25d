package turn

import (
	"errors"
	"fmt"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Action is what a policy wants of a tool call. The zero Action leaves it to the
// tool's own mediation.
type Action string

// The values of Action.
const (
	Allow Action = "allow" // perform it, without asking even where the tool is gated
	Deny  Action = "deny"  // the harness is told that it was denied
	Ask   Action = "ask"   // park until people have decided
)

// OnExpiry is what becomes of a request for approval that nobody answers in time.
type OnExpiry string

// The values of OnExpiry; empty means ExpiryDenies.
const (
	ExpiryDenies OnExpiry = "deny" // the call is denied
	ExpiryAsks   OnExpiry = "ask"  // people are asked again
)

// Verdict is what a policy says of a tool call.
type Verdict struct {
	Action Action
	// Rule is the name of the rule that decided, and Policy the digest of the whole
	// policy: the record of a decision that no person made has both. A policy gives its
	// digest also where it leaves a call to its tool: the request for approval has it.
	Rule   string
	Policy abi.Digest
	// Reason is what the harness reads of a denial, and a person of a request.
	Reason string

	// The rest is of Ask, and of a call that asks because its tool does.

	// Approvers is how many different people must approve; 0 stands for 1. One who
	// denies is enough.
	Approvers int32
	// Expires is how long a request waits for its decision, forever if it is 0.
	Expires  time.Duration
	OnExpiry OnExpiry
}

// What a Verdict can ask for, and how often people are asked, at most. Who asks for
// more than that in vain wants to be told.
const (
	MaxApprovers = 32
	MaxExpires   = 10 * 365 * 24 * time.Hour
	MaxRequests  = 8
)

// Check reports what a Verdict cannot say.
func (v Verdict) Check() error {
	switch {
	case v.Action != "" && v.Action != Allow && v.Action != Deny && v.Action != Ask:
		return fmt.Errorf("%q is nothing that a policy can want of a call", v.Action)
	case v.Action != "" && v.Policy.IsZero():
		return errors.New("a policy that decides has a digest")
	case v.OnExpiry != "" && v.OnExpiry != ExpiryDenies && v.OnExpiry != ExpiryAsks:
		return fmt.Errorf("%q is nothing that can become of a request that expires", v.OnExpiry)
	case v.Approvers < 0 || v.Approvers > MaxApprovers:
		return fmt.Errorf("%d people to approve a call: want 1 to %d", v.Approvers, MaxApprovers)
	case v.Expires < 0 || v.Expires > MaxExpires:
		return fmt.Errorf("a request that expires after %s: want at most %s", v.Expires, MaxExpires)
	}
	return nil
}

// Policy decides on a tool call. It is a pure function: the machine asks it only
// where the record ends, about a call that is about to be performed or asked about
// and that has no decision in the record yet, so that a turn that is replayed needs
// no policy. What it allows it records as started, in the commit of the intent.
//
// A call that a tool's on_crash rule puts before people is one that the policy can
// deny, or ask about on other terms, and not allow: whether it may be made twice is
// not what its rules are about. A Verdict that its Check refuses gives the run up.
type Policy func(call abi.ToolCall, grant abi.ToolGrant) Verdict

// Subject is the session whose calls a Policy decides on.
type Subject struct {
	Session abi.SessionID
	Project string
	Name    string
	Harness string
	Model   string
	Labels  map[string]string
}

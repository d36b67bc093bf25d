package turn

import (
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
	// policy: the record of a decision that no person made has both.
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

// Policy decides on a tool call. It is a pure function: the machine asks it only
// where the record ends, about a call that is about to be performed or asked about
// and that has no decision in the record yet, so that a turn that is replayed needs
// no policy.
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

package abi

// Op is an imported function of the module "agent", by its import name. The
// names are append-only.
type Op string

// The imports of ABI version 1.
const (
	OpRead     Op = "read"
	OpStart    Op = "start"
	OpModel    Op = "model"
	OpOutput   Op = "output"
	OpToolCall Op = "tool_call"
	OpReport   Op = "report"
	OpUsage    Op = "usage"
	OpWait     Op = "wait"
	OpHistory  Op = "history"
	OpLog      Op = "log"
	OpReply    Op = "reply"
	OpFail     Op = "fail"
)

// Ops lists every import that takes a request, in a fixed order; OpRead does
// not take one.
func Ops() []Op {
	return []Op{OpStart, OpModel, OpOutput, OpToolCall, OpReport, OpUsage, OpWait, OpHistory, OpLog, OpReply, OpFail}
}

// Status is the upper half of a request's result. Append-only.
type Status uint32

// The statuses.
const (
	StatusOK      Status = 0 // the response is pending
	StatusInvalid Status = 1 // the request is malformed; the text says how
	StatusRefused Status = 2 // not here: outside a turn, before start, not granted
	StatusFailed  Status = 3 // the call failed; recorded; the text is an Error
	StatusDenied  Status = 4 // a person or policy said no
	StatusLimit   Status = 5 // a limit is reached
)

// EndReason says why a turn ended. Append-only.
type EndReason string

// The reasons.
const (
	ReasonCompleted EndReason = "completed" // the harness returned 0
	ReasonError     EndReason = "error"     // the harness returned an error
	ReasonTrap      EndReason = "trap"      // WebAssembly trap
	ReasonFuel      EndReason = "fuel"      // the fuel limit is used up
	ReasonDepth     EndReason = "depth"     // too many call frames
	ReasonLimit     EndReason = "limit"     // another limit of the turn
	ReasonExit      EndReason = "exit"      // the guest called proc_exit
	ReasonDeadline  EndReason = "deadline"  // the turn's wall-time is over
	ReasonCanceled  EndReason = "canceled"  // the caller canceled
	ReasonAbandoned EndReason = "abandoned" // a person gave the open turn up
	ReasonEngine    EndReason = "engine"    // a limit of the engine itself
	ReasonHost      EndReason = "host"      // the host could not go on
	ReasonBudget    EndReason = "budget"    // what it asked for next is more than the budget leaves
	// ReasonUnrecorded: a rerun asked for a call of a tool that has no recorded result
	// and may not, or cannot, be made.
	ReasonUnrecorded EndReason = "unrecorded"
)

// EndClass says whether running the turn again must reach the same end.
type EndClass string

// The classes.
const (
	ClassDeterministic EndClass = "deterministic"
	ClassExternal      EndClass = "external"
)

// Class is the class of r.
func (r EndReason) Class() EndClass {
	switch r {
	case ReasonDeadline, ReasonCanceled, ReasonAbandoned, ReasonEngine, ReasonHost, ReasonBudget, ReasonUnrecorded:
		return ClassExternal
	}
	return ClassDeterministic
}

// State is the state of a turn that ended for r.
func (r EndReason) State() EndState {
	switch r {
	case ReasonCompleted:
		return StateCompleted
	case ReasonCanceled, ReasonAbandoned:
		return StateCanceled
	}
	return StateFailed
}

// ErrorCode is the code of an Error. The numbers are those of gRPC's codes,
// append-only.
type ErrorCode int32

// The codes in use.
const (
	CodeUnknown            ErrorCode = 2
	CodeInvalidArgument    ErrorCode = 3
	CodeDeadlineExceeded   ErrorCode = 4
	CodeNotFound           ErrorCode = 5
	CodeResourceExhausted  ErrorCode = 8
	CodeFailedPrecondition ErrorCode = 9
	CodeAborted            ErrorCode = 10
	CodeUnimplemented      ErrorCode = 12
	CodeInternal           ErrorCode = 13
	CodeUnavailable        ErrorCode = 14
)

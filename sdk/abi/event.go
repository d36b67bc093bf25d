package abi

// SchemaVersion is the schema_version of every record this module writes.
const SchemaVersion = 1

// EventKind says what an Event records.
type EventKind string

// The kinds of events. Those after EventParked are ours, from number 1000.
const (
	EventInput           EventKind = "EVENT_INPUT"
	EventModelCall       EventKind = "EVENT_MODEL_CALL"
	EventOutput          EventKind = "EVENT_OUTPUT"
	EventToolCall        EventKind = "EVENT_TOOL_CALL"
	EventToolResult      EventKind = "EVENT_TOOL_RESULT"
	EventApprovalRequest EventKind = "EVENT_APPROVAL_REQUEST"
	EventApprovalResult  EventKind = "EVENT_APPROVAL_RESULT"
	EventUsage           EventKind = "EVENT_USAGE"
	EventLifecycle       EventKind = "EVENT_LIFECYCLE"
	EventEnd             EventKind = "EVENT_END"
	EventError           EventKind = "EVENT_ERROR"
	EventExecutionStart  EventKind = "EVENT_EXECUTION_START"
	EventParked          EventKind = "EVENT_PARKED"
	EventWait            EventKind = "EVENT_WAIT"
	EventSignal          EventKind = "EVENT_SIGNAL"
)

// Event is one thing that happened in a session. At most one of the body fields
// (Message to ExecutionStart) is set; which one follows from Kind.
type Event struct {
	Kind          EventKind    `json:"kind,omitempty"`
	ExecutionID   ExecutionID  `json:"execution_id,omitempty"`
	Time          Time         `json:"ts,omitzero"`
	SchemaVersion int32        `json:"schema_version,omitempty"`
	Actor         *IdentityRef `json:"actor,omitempty"`
	Cell          *Cell        `json:"cell,omitempty"`

	Message        *Message         `json:"message,omitempty"`
	Model          *ModelCall       `json:"model,omitempty"`
	Tool           *ToolCall        `json:"tool,omitempty"`
	Result         *ToolResult      `json:"result,omitempty"`
	Approval       *ApprovalRequest `json:"approval,omitempty"`
	ApprovalResult *ApprovalResult  `json:"approval_result,omitempty"`
	Usage          *Usage           `json:"usage,omitempty"`
	Lifecycle      *Lifecycle       `json:"lifecycle,omitempty"`
	End            *HarnessEnd      `json:"end,omitempty"`
	Error          *Error           `json:"error,omitempty"`
	ExecutionStart *ExecutionStart  `json:"execution_start,omitempty"`
}

// IdentityRef names who acted.
type IdentityRef struct {
	Principal string `json:"principal,omitempty"`
	Issuer    string `json:"issuer,omitempty"`
	Subject   string `json:"subject,omitempty"`
}

// ApprovalRequest asks a person to decide on a tool call.
type ApprovalRequest struct {
	ToolCallID string `json:"tool_call_id,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// ApprovalResult is that decision.
type ApprovalResult struct {
	ToolCallID string `json:"tool_call_id,omitempty"`
	Approved   bool   `json:"approved,omitempty"`
	Reason     string `json:"reason,omitempty"`
	RequestSeq Seq    `json:"request_seq,omitempty"`
}

// HarnessEnd closes a turn.
type HarnessEnd struct {
	State EndState `json:"state,omitempty"`
	Error *Error   `json:"error,omitempty"`
}

// EndState is how a turn ended.
type EndState string

// The values of EndState.
const (
	StateCompleted EndState = "COMPLETED"
	StateFailed    EndState = "FAILED"
	StateCanceled  EndState = "CANCELED"
)

// Lifecycle records a change of the session itself.
type Lifecycle struct {
	Kind   LifecycleKind `json:"kind,omitempty"`
	Detail string        `json:"detail,omitempty"`
}

// LifecycleKind is the enum of Lifecycle.
type LifecycleKind string

// The values of LifecycleKind. CREATE (1000) and UPGRADE (1001) are ours.
const (
	LifecycleSuspend LifecycleKind = "LIFECYCLE_SUSPEND"
	LifecycleResume  LifecycleKind = "LIFECYCLE_RESUME"
	LifecycleFork    LifecycleKind = "LIFECYCLE_FORK"
	LifecycleCreate  LifecycleKind = "LIFECYCLE_CREATE"
	LifecycleUpgrade LifecycleKind = "LIFECYCLE_UPGRADE"
)

// ExecutionStart opens a turn.
type ExecutionStart struct {
	Config         []byte `json:"config,omitempty"`
	ResumeFromSeq  Seq    `json:"resume_from_seq,omitempty"`
	InputCount     *Int64 `json:"input_count,omitempty"`
	Harness        string `json:"harness,omitempty"`
	HarnessVersion string `json:"harness_version,omitempty"`
}

// Cell holds every field that is ours (Event field 1000). Which ones a record
// carries stands in docs/journal.md.
type Cell struct {
	// CREATE, FORK; Harness, GoldenRoot and ABI also in UPGRADE.
	UID        SessionID `json:"uid,omitempty"`
	Harness    string    `json:"harness,omitempty"`
	GoldenRoot Digest    `json:"golden_root,omitzero"`
	ABI        int32     `json:"abi,omitempty"`
	Parent     SessionID `json:"parent,omitempty"`
	At         Seq       `json:"at,omitempty"`

	// UPGRADE: the module that Module takes the place of, the seq of the CREATE or
	// UPGRADE since which turns ran it, and the digest of the state that agent_save
	// gave and agent_load took. The old root is BaseRoot, the new one Root; Seed,
	// Limits and the record's time are those of both calls.
	OldModule Digest `json:"old_module,omitzero"`
	Since     Seq    `json:"since,omitempty"`
	State     Digest `json:"state,omitzero"`

	// CREATE, UPGRADE, EXECUTION_START.
	Module   Digest `json:"module,omitzero"`
	Rewriter int32  `json:"rewriter,omitempty"`

	// EXECUTION_START; Seed also in FORK. Model is the turn's default model:
	// it fills a ModelCall whose own is empty. In FORK it is the child's, where that
	// is not its parent's.
	BaseRoot    Digest  `json:"base_root,omitzero"`
	Seed        []byte  `json:"seed,omitempty"`
	StartDigest Digest  `json:"start_digest,omitzero"`
	Limits      *Limits `json:"limits,omitempty"`
	Model       string  `json:"model,omitempty"`
	// Cloned, in EXECUTION_START: agent_cloned runs first.
	Cloned bool `json:"cloned,omitempty"`

	// Key, in EXECUTION_START: the idempotency key of the request.
	Key string `json:"key,omitempty"`

	// Tools, in EXECUTION_START: the blob of the tools granted to the turn.
	Tools Digest `json:"tools,omitzero"`

	// Source and SourceSeq name a record of another session: in EXECUTION_START of a
	// rerun that of the turn whose inputs it runs again, in TOOL_RESULT the result that
	// was served in place of a call; Args are those of that call if they were edited.
	Source    SessionID `json:"source,omitempty"`
	SourceSeq Seq       `json:"source_seq,omitempty"`

	// EVENT_WAIT, EVENT_SIGNAL; Until also in APPROVAL_REQUEST. Payload is a blob.
	Until   Time   `json:"until,omitzero"`
	Signal  string `json:"signal,omitempty"`
	Payload Digest `json:"payload,omitzero"`

	// MODEL_CALL: the request blob, and the head of its message list.
	Request  Digest `json:"request,omitzero"`
	Messages Digest `json:"messages,omitzero"`

	// OUTPUT, USAGE and ERROR that answer a call; LIFECYCLE_RESUME that starts an
	// approved one; EVENT_WAIT, and the EVENT_SIGNAL that ends it.
	CallID string `json:"call_id,omitempty"`

	// APPROVAL_REQUEST, and APPROVAL_RESULT where no person decided: the rule that
	// did, and the digest of the policy that has it. A request that no rule has caused
	// has that of the policy under which it was made, if there was one.
	Rule   string `json:"rule,omitempty"`
	Policy Digest `json:"policy,omitzero"`
	// APPROVAL_REQUEST: what becomes of it after Until; how many people must approve,
	// where one is not enough.
	OnExpiry  string `json:"on_expiry,omitempty"`
	Approvers int32  `json:"approvers,omitempty"`
	// APPROVAL_REQUEST, APPROVAL_RESULT: the call may have been made already.
	Again bool `json:"again,omitempty"`
	// APPROVAL_RESULT: nobody decided in time.
	Expired bool `json:"expired,omitempty"`
	// APPROVAL_REQUEST, APPROVAL_RESULT: the arguments of the call, where they are not
	// what was asked for: a person edited them. They are part of the record's body.
	Args Struct `json:"args,omitempty"`

	// END.
	Reason EndReason `json:"reason,omitempty"`
	Class  EndClass  `json:"class,omitempty"`
	Root   Digest    `json:"root,omitzero"`
	Fuel   Int64     `json:"fuel,omitempty"`
	// Turn and ModelCalls, in END and UPGRADE, count those of the whole record up to here,
	// so that a fork at any END knows them without reading the record.
	Turn       Int64 `json:"turn,omitempty"`
	ModelCalls Int64 `json:"model_calls,omitempty"`

	// Body is the digest of the event's body where that is a blob of its own,
	// because the record would pass MaxInlineBytes.
	Body Digest `json:"body,omitzero"`

	// Numbers has the raw text of every number that a JSON double cannot hold,
	// by its JSON Pointer (RFC 6901) in the event.
	Numbers map[string]string `json:"numbers,omitempty"`
}

// MaxInlineBytes is the size of an encoded event above which its body becomes a
// blob, referenced by digest.
const MaxInlineBytes = 64 << 10

// Limits are the bounds of a turn that a guest can notice, so that they are
// part of what the turn is a function of (M2).
type Limits struct {
	Depth        int32 `json:"depth,omitempty"`         // call frames
	Effects      int32 `json:"effects,omitempty"`       // journaled calls
	Fuel         Int64 `json:"fuel,omitempty"`          // units, see docs/abi.md
	MemoryBytes  Int64 `json:"memory_bytes,omitempty"`  // linear memory
	OutputBytes  Int64 `json:"output_bytes,omitempty"`  // all output requests of a turn together
	RequestBytes Int64 `json:"request_bytes,omitempty"` // one request
}

// DefaultLimits are what a turn gets when nobody says otherwise.
func DefaultLimits() Limits {
	return Limits{
		Depth:        20_000,
		Effects:      1_000,
		Fuel:         10_000_000_000,
		MemoryBytes:  256 << 20,
		OutputBytes:  16 << 20,
		RequestBytes: 4 << 20,
	}
}

// LogRecord is a record as the protocol shows it. Fence and ContentHash stand
// beside the hashed line, not in it.
type LogRecord struct {
	Seq         Seq    `json:"seq,omitempty"`
	PrevHash    Digest `json:"prev_hash,omitzero"`
	ContentHash Digest `json:"content_hash,omitzero"`
	Fence       Fence  `json:"fence,omitempty"`
	Event       *Event `json:"event,omitempty"`
}

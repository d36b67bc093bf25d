package abi

// Version is the ABI version of this package; the guest export
// "agent_abi_v1" marks it.
const Version = 1

// HarnessDescriptor is what a harness says of itself.
type HarnessDescriptor struct {
	ID           string        `json:"id,omitempty"`
	Models       []string      `json:"models,omitempty"`
	Tools        []ToolSpec    `json:"tools,omitempty"`
	Capabilities *Capabilities `json:"capabilities,omitempty"`
	Version      string        `json:"version,omitempty"`
}

// Capabilities are a harness's needs.
type Capabilities struct {
	Resumability    Resumability `json:"resumability,omitempty"`
	ForkSafe        bool         `json:"fork_safe,omitempty"`
	RequiresGPU     bool         `json:"requires_gpu,omitempty"`
	Streaming       bool         `json:"streaming,omitempty"`
	ReasoningReplay bool         `json:"reasoning_replay,omitempty"`
}

// Resumability says what must survive between turns.
type Resumability string

// The values of Resumability.
const (
	// StatelessReplay: nothing; each turn starts from the golden image.
	StatelessReplay Resumability = "RESUMABILITY_STATELESS_REPLAY"
	// RequiresMemorySnapshot: the cell's memory, saved at each END.
	RequiresMemorySnapshot Resumability = "RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT"
)

// ToolSpec names a tool that a harness wants to call.
type ToolSpec struct {
	Name        string    `json:"name,omitempty"`
	Description string    `json:"description,omitempty"`
	Mediation   Mediation `json:"mediation,omitempty"`
}

// HoldsMemory reports whether the cell's memory must survive between turns.
func (d HarnessDescriptor) HoldsMemory() bool {
	return d.Capabilities != nil && d.Capabilities.Resumability == RequiresMemorySnapshot
}

// IdentityContext tells a harness for whom it acts.
type IdentityContext struct {
	Principal     *IdentityRef `json:"principal,omitempty"`
	CanMintTokens bool         `json:"can_mint_tokens,omitempty"`
}

// Start is what a harness is given at the start of a turn. History is always
// empty here; a harness pages through it with the history import.
type Start struct {
	Config        []byte           `json:"config,omitempty"`
	Inputs        []Message        `json:"inputs,omitempty"`
	Identity      *IdentityContext `json:"identity,omitempty"`
	ResumeFromSeq Seq              `json:"resume_from_seq,omitempty"`
	Cell          *StartCell       `json:"cell,omitempty"`
}

// StartCell holds the fields of Start that are ours.
type StartCell struct {
	Model  string           `json:"model,omitempty"`
	Tools  []ToolDefinition `json:"tools,omitempty"`
	Limits *Limits          `json:"limits,omitempty"`
}

// HistoryRequest asks for a page of the events before this turn. FromSeq is the
// first seq wanted; 0 is the oldest, or with Reverse the newest. At most Limit
// records come back (0 and anything above MaxHistoryPage: MaxHistoryPage), of
// the given kinds if any are named; a page may be cut short, and only an empty one
// is the end. The answer is a list of LogRecord whose events are whole: bodies
// and numbers stand in their places, none in Cell.Numbers.
type HistoryRequest struct {
	FromSeq Seq         `json:"from_seq,omitempty"`
	Limit   int32       `json:"limit,omitempty"`
	Kinds   []EventKind `json:"kinds,omitempty"`
	Reverse bool        `json:"reverse,omitempty"`
}

// MaxStateBytes bounds the portable state of a harness, which agent_save gives and
// agent_load takes.
const MaxStateBytes = 64 << 20

// MaxHistoryPage is the largest page of history, MaxHistoryKinds the longest list
// of kinds.
const (
	MaxHistoryPage  = 100
	MaxHistoryKinds = 64
)

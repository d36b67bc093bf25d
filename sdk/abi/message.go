package abi

import (
	"encoding/json"
	"strings"
)

// Struct is a JSON object kept as its raw text, so that numbers a double cannot
// hold survive.
type Struct = json.RawMessage

// Message is one message of a conversation. Role is "system", "user",
// "assistant" or "tool".
type Message struct {
	Role  string `json:"role,omitempty"`
	Parts []Part `json:"parts,omitempty"`
}

// The roles of a message.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Part is one part of a message; exactly one field is set.
type Part struct {
	Text       *TextPart      `json:"text,omitempty"`
	File       *FilePart      `json:"file,omitempty"`
	Data       *DataPart      `json:"data,omitempty"`
	Reasoning  *ReasoningPart `json:"reasoning,omitempty"`
	ToolCall   *ToolCall      `json:"tool_call,omitempty"`
	ToolResult *ToolResult    `json:"tool_result,omitempty"`
}

// TextPart is plain text.
type TextPart struct {
	Text string `json:"text,omitempty"`
}

// FilePart is a file, by its bytes or by reference.
type FilePart struct {
	MIME   string `json:"mime,omitempty"`
	Bytes  []byte `json:"bytes,omitempty"`
	URI    string `json:"uri,omitempty"`
	Name   string `json:"name,omitempty"`
	Digest string `json:"digest,omitempty"`
}

// DataPart is structured data.
type DataPart struct {
	Data Struct `json:"data,omitempty"`
}

// ReasoningPart is a provider's own reasoning, opaque to everyone else. It is
// recorded and handed back verbatim (I2).
type ReasoningPart struct {
	Provider      string `json:"provider,omitempty"`
	ModelID       string `json:"model_id,omitempty"`
	OpaqueBytes   []byte `json:"opaque_bytes,omitempty"`
	OpaqueURI     string `json:"opaque_uri,omitempty"`
	Summary       []Part `json:"summary,omitempty"`
	ItemID        string `json:"item_id,omitempty"`
	Ordinal       int32  `json:"ordinal,omitempty"`
	ValidityScope string `json:"validity_scope,omitempty"`
	OpaqueDigest  string `json:"opaque_digest,omitempty"`
}

// Text makes a message of one text part.
func Text(role, text string) Message {
	return Message{Role: role, Parts: []Part{{Text: &TextPart{Text: text}}}}
}

// Text joins the text parts of m.
func (m Message) Text() string {
	if len(m.Parts) == 1 && m.Parts[0].Text != nil {
		return m.Parts[0].Text.Text
	}
	var b strings.Builder
	for _, p := range m.Parts {
		if p.Text != nil {
			b.WriteString(p.Text.Text)
		}
	}
	return b.String()
}

// ModelCall asks for one completion. An empty Model means the turn's default.
// ID and InputHash are set by the host and never by a guest.
type ModelCall struct {
	Model      string            `json:"model,omitempty"`
	Params     map[string]string `json:"params,omitempty"`
	InputHash  string            `json:"input_hash,omitempty"`
	ID         string            `json:"id,omitempty"`
	Messages   []Message         `json:"messages,omitempty"`
	Tools      []ToolDefinition  `json:"tools,omitempty"`
	ToolChoice *ToolChoice       `json:"tool_choice,omitempty"`
}

// ModelResult answers a ModelCall.
type ModelResult struct {
	Message     Message `json:"message,omitzero"`
	Usage       *Usage  `json:"usage,omitempty"`
	ModelCallID string  `json:"model_call_id,omitempty"`
}

// ToolDefinition tells a model of a tool.
type ToolDefinition struct {
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	InputSchema Struct `json:"input_schema,omitempty"`
}

// ToolChoice says whether a model may, must or must not call a tool.
type ToolChoice struct {
	Mode ToolChoiceMode `json:"mode,omitempty"`
	Name string         `json:"name,omitempty"`
}

// ToolChoiceMode is the enum of ToolChoice.
type ToolChoiceMode string

// The values of ToolChoiceMode.
const (
	ToolChoiceAuto     ToolChoiceMode = "MODE_AUTO"
	ToolChoiceNone     ToolChoiceMode = "MODE_NONE"
	ToolChoiceRequired ToolChoiceMode = "MODE_REQUIRED"
)

// Usage counts the tokens of a completion.
type Usage struct {
	Model           string `json:"model,omitempty"`
	InputTokens     Int64  `json:"input_tokens,omitempty"`
	OutputTokens    Int64  `json:"output_tokens,omitempty"`
	ReasoningTokens Int64  `json:"reasoning_tokens,omitempty"`
}

// ToolCall asks for one call of a tool.
type ToolCall struct {
	ID             string    `json:"id,omitempty"`
	Tool           string    `json:"tool,omitempty"`
	Args           Struct    `json:"args,omitempty"`
	Mediation      Mediation `json:"mediation,omitempty"`
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
}

// Mediation says who performs a tool call.
type Mediation string

// The values of Mediation.
const (
	MediationInHarnessReported  Mediation = "MEDIATION_IN_HARNESS_REPORTED"
	MediationControllerMediated Mediation = "MEDIATION_CONTROLLER_MEDIATED"
	MediationRequiresApproval   Mediation = "MEDIATION_REQUIRES_APPROVAL"
)

// OnCrash says what becomes of a tool call that was under way when its host died
// or its turn was cut short.
type OnCrash string

// The values of OnCrash; empty means OnCrashUnknown.
const (
	// OnCrashUnknown tells the harness that the outcome is unknown.
	OnCrashUnknown OnCrash = "unknown"
	// OnCrashRetry calls the tool again: it is safe to repeat, or honours the
	// idempotency key.
	OnCrashRetry OnCrash = "retry"
	// OnCrashAsk asks a person whether to call it again.
	OnCrashAsk OnCrash = "ask"
)

// ToolGrant is a tool that a turn may call through its host.
type ToolGrant struct {
	ToolDefinition
	Mediation Mediation `json:"mediation,omitempty"`
	OnCrash   OnCrash   `json:"on_crash,omitempty"`
}

// ToolCallRequest asks for calls that run side by side. Each has an id, unique in
// the turn, and an idempotency key.
type ToolCallRequest struct {
	Calls []ToolCall `json:"calls,omitempty"`
}

// MaxToolCalls is the most calls one request has.
const MaxToolCalls = 32

// MaxNameBytes is the length of the longest id of a tool call and of the longest
// name of a signal: they are kept in memory, and beside the head of a session.
const MaxNameBytes = 1 << 10

// MaxMessages is the most messages one ModelCall has.
const MaxMessages = 10_000

// ToolCallResponse has a result for each call, in their order.
type ToolCallResponse struct {
	Results []ToolResult `json:"results,omitempty"`
}

// WaitRequest parks the turn until an instant, a named signal, or whichever
// comes first.
type WaitRequest struct {
	Until  Time   `json:"until,omitzero"`
	Signal string `json:"signal,omitempty"`
}

// WaitResponse tells what ended a wait: the signal of that name with its
// payload, or the time if Signal is empty.
type WaitResponse struct {
	Signal  string          `json:"signal,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// ToolResult is the outcome of one ToolCall.
type ToolResult struct {
	ID                  string         `json:"id,omitempty"`
	Output              Struct         `json:"output,omitempty"`
	OutputURI           string         `json:"output_uri,omitempty"`
	IsError             bool           `json:"is_error,omitempty"`
	Error               string         `json:"error,omitempty"`
	OutputDigest        string         `json:"output_digest,omitempty"`
	Content             []Part         `json:"content,omitempty"`
	Code                ToolResultCode `json:"code,omitempty"`
	ApprovalRequestSeq  Seq            `json:"approval_request_seq,omitempty"`
	ApprovalDecisionSeq Seq            `json:"approval_decision_seq,omitempty"`
	// Cell is what a harness is told beside; it stands in no record.
	Cell *ResultCell `json:"cell,omitempty"`
}

// EditedArgs are the arguments that the tool was called with where a person gave it
// others than those of the ToolCall, else nil.
func (r ToolResult) EditedArgs() Struct {
	if r.Cell == nil {
		return nil
	}
	return r.Cell.Args
}

// ResultCell holds the fields of ToolResult that are ours.
type ResultCell struct {
	// Args are the arguments that the tool was called with, where they are not those
	// of the ToolCall: the person who approved it edited them.
	Args Struct `json:"args,omitempty"`
}

// ToolResultCode is the enum of ToolResult.
type ToolResultCode string

// The values of ToolResultCode.
const (
	ToolApprovalDenied ToolResultCode = "APPROVAL_DENIED"
	ToolExecutorError  ToolResultCode = "EXECUTOR_ERROR"
)

// Error is a failure as it is recorded and as a guest is told of it. The codes
// are ErrorCode's.
type Error struct {
	Code        ErrorCode `json:"code,omitempty"`
	Description string    `json:"description,omitempty"`
}

// Error makes an Error usable as a Go error.
func (e *Error) Error() string { return e.Description }

package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/remote"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Answer implements remote.Protocol.
func (p protocol) Answer(req model.Request, room *remote.Room) remote.Answer {
	return &answer{req: req, room: room, model: p.Model, names: remote.NewToolNames(req.Call.Tools), blocks: map[int]*block{}}
}

// answer is an answer as far as it has come.
type answer struct {
	req    model.Request
	room   *remote.Room
	names  remote.ToolNames
	model  string
	blocks map[int]*block
	order  []*block
	usage  usage
	// uncounted: a usage could not be read, so that none is known.
	uncounted bool

	stop  string
	begun bool
	over  bool
}

// block is a block of content. What streams is in texts, by the field it belongs
// to; the rest is as it came.
type block struct {
	kind   string
	fields map[string]json.RawMessage
	texts  map[string]*strings.Builder
	input  strings.Builder // the JSON of input
}

// The kinds of blocks that our vocabulary has a form for.
const (
	blockText    = "text"
	blockToolUse = "tool_use"
)

// usage counts; what a later event does not say stays as it was.
type usage struct {
	Input       *remote.Tokens `json:"input_tokens"`
	CacheWrites *remote.Tokens `json:"cache_creation_input_tokens"`
	CacheReads  *remote.Tokens `json:"cache_read_input_tokens"`
	Output      *remote.Tokens `json:"output_tokens"`
}

type whole struct {
	Type       string                       `json:"type"`
	Model      string                       `json:"model"`
	Content    []map[string]json.RawMessage `json:"content"`
	StopReason string                       `json:"stop_reason"`
	Usage      json.RawMessage              `json:"usage"`
}

type event struct {
	Type    string                     `json:"type"`
	Index   int                        `json:"index"`
	Message whole                      `json:"message"`
	Block   map[string]json.RawMessage `json:"content_block"`
	Delta   struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage json.RawMessage `json:"usage"`
}

// Event implements remote.Answer.
func (a *answer) Event(_ string, data []byte) (text string, over bool, err error) {
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return "", false, remote.Garbage("its answer cannot be read: %s", abi.JSONProblem(err))
	}
	switch e.Type {
	case "message_start":
		a.begin(e.Message)
		a.count(e.Message.Usage)
	case "content_block_start":
		text, err = a.start(e.Index, e.Block)
	case "content_block_delta":
		text, err = a.delta(e)
	case "message_delta":
		a.stop = e.Delta.StopReason
		a.count(e.Usage)
	case "message_stop":
		a.over = true
	case "error":
		err = remote.InStream(data)
	}
	return text, a.over, err
}

// Whole implements remote.Answer.
func (a *answer) Whole(body []byte) (string, error) {
	var w whole
	if err := json.Unmarshal(body, &w); err != nil {
		return "", remote.Garbage("its answer cannot be read: %s", abi.JSONProblem(err))
	}
	if w.Type == "error" {
		return "", remote.InStream(body)
	}
	if w.Type == "message" {
		a.begin(w)
	}
	a.stop, a.over = w.StopReason, true
	a.count(w.Usage)
	var all strings.Builder
	for i, fields := range w.Content {
		text, err := a.start(i, fields)
		if err != nil {
			return "", err
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

func (a *answer) begin(w whole) {
	a.begun = true
	if w.Model != "" {
		a.model = remote.Clip(w.Model, abi.MaxNameBytes)
	}
}

func (a *answer) count(raw json.RawMessage) {
	if len(raw) > 0 && json.Unmarshal(raw, &a.usage) != nil {
		a.uncounted = true
	}
}

// partCost is what a block takes of the room beside its text.
const partCost = 1 << 10

// start begins a block, or takes a whole one.
func (a *answer) start(index int, fields map[string]json.RawMessage) (text string, err error) {
	size := partCost
	for name, value := range fields {
		size += len(name) + len(value)
	}
	if err := a.room.Take(size); err != nil {
		return "", err
	}
	if a.blocks[index] != nil {
		return "", remote.Garbage("its answer begins block %d twice", index)
	}
	b := &block{fields: fields, texts: map[string]*strings.Builder{}}
	if b.kind, err = stringOf(fields, "type"); err != nil {
		return "", err
	}
	if b.kind == "" {
		return "", remote.Garbage("its answer has a block without a type")
	}
	a.blocks[index] = b
	a.order = append(a.order, b)
	if b.kind == blockText {
		return stringOf(fields, "text")
	}
	return "", nil
}

func (a *answer) delta(e event) (text string, err error) {
	b := a.blocks[e.Index]
	if b == nil {
		return "", remote.Garbage("its answer goes on with block %d, which has not begun", e.Index)
	}
	d := e.Delta
	if err := a.room.Take(len(d.Text) + len(d.Thinking) + len(d.Signature) + len(d.PartialJSON)); err != nil {
		return "", err
	}
	switch d.Type {
	case "text_delta":
		b.add("text", d.Text)
		if b.kind == blockText {
			text = d.Text
		}
	case "thinking_delta":
		b.add("thinking", d.Thinking)
	case "signature_delta":
		b.add("signature", d.Signature)
	case "input_json_delta":
		b.input.WriteString(d.PartialJSON)
	}
	return text, nil
}

func (b *block) add(field, text string) {
	if b.texts[field] == nil {
		b.texts[field] = new(strings.Builder)
	}
	b.texts[field].WriteString(text)
}

// text is a field of b that is a string: as it began, and what streamed.
func (b *block) text(field string) (string, error) {
	s, err := stringOf(b.fields, field)
	if streamed := b.texts[field]; err == nil && streamed != nil {
		s += streamed.String()
	}
	return s, err
}

func stringOf(fields map[string]json.RawMessage, name string) (s string, err error) {
	if raw := fields[name]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", remote.Garbage("its answer has a block that cannot be read: %s: %s", name, abi.JSONProblem(err))
		}
	}
	return s, nil
}

// Result implements remote.Answer.
func (a *answer) Result() (model.Result, error) {
	if !a.over {
		return model.Result{}, remote.ErrCut
	}
	if !a.begun {
		return model.Result{}, remote.Garbage("it gave no message to take the answer from")
	}
	m := abi.Message{Role: abi.RoleAssistant}
	answered := false
	for i, b := range a.order {
		part, err := a.part(i, b)
		if err != nil {
			return model.Result{}, err
		}
		if part.Text == nil || part.Text.Text != "" {
			m.Parts = append(m.Parts, part)
			answered = answered || part.Reasoning == nil
		}
	}
	if !answered {
		return model.Result{}, remote.Garbage("its answer is empty: neither text nor a tool call%s", a.reason())
	}
	return model.Result{Message: m, Usage: a.counted()}, nil
}

// reason is how the answer says it ended, for an error.
func (a *answer) reason() string {
	if a.stop == "" {
		return ""
	}
	return fmt.Sprintf(" (stop_reason %.40q)", a.stop)
}

func (a *answer) part(i int, b *block) (abi.Part, error) {
	switch b.kind {
	case blockText:
		s, err := b.text("text")
		return abi.Part{Text: &abi.TextPart{Text: s}}, err
	case blockToolUse:
		return a.toolCall(i, b)
	}
	return a.opaque(i, b)
}

func (a *answer) toolCall(i int, b *block) (abi.Part, error) {
	id, err := stringOf(b.fields, "id")
	if err != nil {
		return abi.Part{}, err
	}
	if id == "" {
		id = fmt.Sprintf("call_%d_%d", a.req.Index, i)
	}
	name, err := stringOf(b.fields, "name")
	if err != nil {
		return abi.Part{}, err
	}
	input := b.input.String()
	if input == "" {
		input = string(b.fields["input"])
	}
	args, err := remote.Arguments(name, input, a.reason())
	if err != nil {
		return abi.Part{}, err
	}
	return abi.Part{ToolCall: &abi.ToolCall{ID: id, Tool: a.names.Ours(name), Args: args}}, nil
}

// opaque is a block that only this API understands, whole.
func (a *answer) opaque(i int, b *block) (abi.Part, error) {
	out := remote.Object{}
	for name, value := range b.fields {
		out[name] = value
	}
	for field := range b.texts {
		s, err := b.text(field)
		if err != nil {
			return abi.Part{}, err
		}
		out[field] = s
	}
	if b.input.Len() > 0 {
		input, err := remote.Arguments(b.kind, b.input.String(), a.reason())
		if err != nil {
			return abi.Part{}, err
		}
		out["input"] = input
	}
	opaque, err := out.Encode()
	if err != nil {
		return abi.Part{}, err
	}
	part := &abi.ReasoningPart{Provider: API, ModelID: a.model, OpaqueBytes: bytes.TrimSpace(opaque), Ordinal: int32(i)}
	if thinking, err := b.text("thinking"); err == nil && thinking != "" {
		part.Summary = []abi.Part{{Text: &abi.TextPart{Text: thinking}}}
	}
	return abi.Part{Reasoning: part}, nil
}

// counted adds up what was sent, cached or not: USAGE has one number for it.
func (a *answer) counted() *abi.Usage {
	if a.uncounted || a.usage.Input == nil && a.usage.Output == nil {
		return nil
	}
	var input, output remote.Tokens
	for _, n := range []*remote.Tokens{a.usage.Input, a.usage.CacheWrites, a.usage.CacheReads} {
		if n != nil {
			if *n < 0 {
				return nil
			}
			input += *n
		}
	}
	if a.usage.Output != nil {
		output = *a.usage.Output
	}
	return remote.Usage(a.model, input, output, 0)
}

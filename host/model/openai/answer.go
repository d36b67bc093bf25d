package openai

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/remote"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Answer implements remote.Protocol.
func (p protocol) Answer(req model.Request, room *remote.Room) remote.Answer {
	return &answer{
		req: req, room: room, model: p.Model,
		names: remote.NewToolNames(req.Call.Tools), open: map[int]*call{},
	}
}

// answer is an answer as far as it has come.
type answer struct {
	req   model.Request
	room  *remote.Room
	names remote.ToolNames

	model     string
	chosen    bool // there is a choice
	over      bool
	finish    string
	text      strings.Builder
	reasoning [2]strings.Builder // reasoning_content and reasoning
	details   details
	images    []abi.Part
	calls     []*call       // in the order in which they began
	open      map[int]*call // by the index that pieces of them have
	usage     *usage
}

// call is a tool call as far as it has come.
type call struct {
	index    int
	id, name string
	args     strings.Builder
}

// chunk is a piece of a streamed answer, or a whole one.
type chunk struct {
	Object  string          `json:"object"`
	Error   json.RawMessage `json:"error"`
	Model   string          `json:"model"`
	Choices []struct {
		Index        int     `json:"index"`
		Delta        message `json:"delta"`
		Message      message `json:"message"`
		FinishReason string  `json:"finish_reason"`
	} `json:"choices"`
	Usage json.RawMessage `json:"usage"`
}

type message struct {
	Content          json.RawMessage   `json:"content"` // text, or a list of parts
	Refusal          string            `json:"refusal"`
	ReasoningContent string            `json:"reasoning_content"`
	Reasoning        json.RawMessage   `json:"reasoning"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	Images           []struct {
		ImageURL struct {
			URL string `json:"url"`
		} `json:"image_url"`
	} `json:"images"`
	ToolCalls []toolCallPiece `json:"tool_calls"`
}

type toolCallPiece struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // text, or an object
	} `json:"function"`
}

type usage struct {
	Prompt     remote.Tokens `json:"prompt_tokens"`
	Completion remote.Tokens `json:"completion_tokens"`
	Details    struct {
		Reasoning remote.Tokens `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// reported is the event, or the object, that some endpoints report an error as.
const reported = "error"

// Event implements remote.Answer.
func (a *answer) Event(name string, data []byte) (string, bool, error) {
	switch {
	case string(bytes.TrimSpace(data)) == "[DONE]":
		a.over = true
		return "", true, nil
	case name == reported:
		return "", false, remote.InStream(data)
	}
	text, err := a.take(data)
	return text, false, err
}

// Whole implements remote.Answer.
func (a *answer) Whole(body []byte) (string, error) {
	text, err := a.take(body)
	a.over = true
	return text, err
}

func (a *answer) take(data []byte) (string, error) {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return "", remote.Garbage("its answer cannot be read: %s", abi.JSONProblem(err))
	}
	if c.Object == reported || len(c.Error) > 0 && string(c.Error) != "null" {
		return "", remote.InStream(data)
	}
	if c.Model != "" {
		a.model = remote.Clip(c.Model, abi.MaxNameBytes)
	}
	if u := new(usage); len(c.Usage) > 0 && string(c.Usage) != "null" && json.Unmarshal(c.Usage, u) == nil {
		a.usage = u
	}
	var text string
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // one is asked for
		}
		a.chosen = true
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
		for _, m := range []message{choice.Delta, choice.Message} {
			piece, err := a.message(m)
			if err != nil {
				return "", err
			}
			text += piece
		}
	}
	return text, nil
}

// message takes what a message, or a piece of one, adds to the answer.
func (a *answer) message(m message) (text string, err error) {
	if text, err = contentText(m.Content); err != nil {
		return "", err
	}
	text += m.Refusal
	reasoning, err := unquote(m.Reasoning)
	if err != nil {
		return "", err
	}
	if err := a.room.Take(len(text) + len(m.ReasoningContent) + len(reasoning)); err != nil {
		return "", err
	}
	a.text.WriteString(text)
	a.reasoning[0].WriteString(m.ReasoningContent)
	a.reasoning[1].WriteString(reasoning)
	for _, d := range m.ReasoningDetails {
		if err := a.details.add(d, a.room); err != nil {
			return "", err
		}
	}
	for _, image := range m.Images {
		if err := a.room.Take(len(image.ImageURL.URL) + partCost); err != nil {
			return "", err
		}
		a.images = append(a.images, imagePart(image.ImageURL.URL))
	}
	for i, c := range m.ToolCalls {
		if err := a.call(i, c); err != nil {
			return "", err
		}
	}
	return text, nil
}

// partCost is what a part takes of the room beside its text.
const partCost = 1 << 10

// call takes a piece of the tool call with its index, or at place i of the list. There
// are endpoints that give whole calls, and none of them a number, or all the same: an
// id of its own begins a call as well.
func (a *answer) call(i int, piece toolCallPiece) error {
	if piece.Index != nil {
		i = *piece.Index
	}
	c := a.open[i]
	if c == nil || piece.ID != "" && c.id != "" && piece.ID != c.id {
		if err := a.room.Take(partCost); err != nil {
			return err
		}
		c = &call{index: i}
		a.open[i] = c
		a.calls = append(a.calls, c)
	}
	args, err := unquote(piece.Function.Arguments)
	if err != nil {
		return err
	}
	if err := a.room.Take(len(args) + len(piece.ID) + len(piece.Function.Name)); err != nil {
		return err
	}
	if piece.ID != "" {
		c.id = piece.ID
	}
	// Some repeat the name in each piece; none gives it in pieces.
	if piece.Function.Name != "" {
		c.name = piece.Function.Name
	}
	c.args.WriteString(args)
	return nil
}

// contentText is the text of content.
func contentText(content json.RawMessage) (string, error) {
	if len(content) == 0 || content[0] != '[' {
		return unquote(content)
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(content, &parts); err != nil {
		return "", remote.Garbage("its answer has content that cannot be read: %s", abi.JSONProblem(err))
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// unquote is what a JSON string says; of another value it is the JSON, and of null
// nothing.
func unquote(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if raw[0] != '"' {
		return string(raw), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", remote.Garbage("its answer has text that cannot be read: %s", abi.JSONProblem(err))
	}
	return s, nil
}

func imagePart(url string) abi.Part {
	head, data, isData := strings.Cut(url, ";base64,")
	if mime, ok := strings.CutPrefix(head, "data:"); ok && isData {
		if b, err := base64.StdEncoding.DecodeString(data); err == nil {
			return abi.Part{File: &abi.FilePart{MIME: mime, Bytes: b}}
		}
	}
	return abi.Part{File: &abi.FilePart{MIME: "image/*", URI: url}}
}

// Result implements remote.Answer.
func (a *answer) Result() (model.Result, error) {
	if !a.over && a.finish == "" {
		return model.Result{}, remote.ErrCut
	}
	if !a.chosen {
		return model.Result{}, remote.Garbage("it gave no choice to take the answer from")
	}
	m := abi.Message{Role: abi.RoleAssistant}
	reasoning, err := a.reasoningPart()
	if err != nil {
		return model.Result{}, err
	}
	if reasoning != nil {
		m.Parts = append(m.Parts, *reasoning)
	}
	if a.text.Len() > 0 {
		m.Parts = append(m.Parts, abi.Part{Text: &abi.TextPart{Text: a.text.String()}})
	}
	m.Parts = append(m.Parts, a.images...)
	slices.SortStableFunc(a.calls, func(one, other *call) int { return cmp.Compare(one.index, other.index) })
	for n, c := range a.calls {
		part, err := a.toolCall(n, c)
		if err != nil {
			return model.Result{}, err
		}
		m.Parts = append(m.Parts, part)
	}
	if a.text.Len() == 0 && len(a.images) == 0 && len(a.calls) == 0 {
		return model.Result{}, remote.Garbage("its answer is empty: neither text nor a tool call%s", a.reason())
	}
	return model.Result{Message: m, Usage: a.counted()}, nil
}

// reason is how the answer says it ended, for an error.
func (a *answer) reason() string {
	if a.finish == "" {
		return ""
	}
	return fmt.Sprintf(" (finish_reason %.40q)", a.finish)
}

func (a *answer) toolCall(n int, c *call) (abi.Part, error) {
	id := c.id
	if id == "" {
		id = fmt.Sprintf("call_%d_%d", a.req.Index, n)
	}
	args, err := remote.Arguments(c.name, c.args.String(), a.reason())
	if err != nil {
		return abi.Part{}, err
	}
	return abi.Part{ToolCall: &abi.ToolCall{ID: id, Tool: a.names.Ours(c.name), Args: args}}, nil
}

// reasoningPart is all reasoning of the answer, in the fields it came in.
func (a *answer) reasoningPart() (*abi.Part, error) {
	fields := remote.Object{}
	summary := ""
	for i := range a.reasoning {
		if text := a.reasoning[i].String(); text != "" {
			fields[reasoningFields[i]], summary = text, text
		}
	}
	if a.details != nil {
		fields["reasoning_details"] = a.details.objects()
	}
	if len(fields) == 0 {
		return nil, nil
	}
	opaque, err := fields.Encode()
	if err != nil {
		return nil, err
	}
	part := &abi.ReasoningPart{Provider: API, ModelID: a.model, OpaqueBytes: bytes.TrimSpace(opaque)}
	if summary != "" {
		part.Summary = []abi.Part{{Text: &abi.TextPart{Text: summary}}}
	}
	return &abi.Part{Reasoning: part}, nil
}

func (a *answer) counted() *abi.Usage {
	if a.usage == nil {
		return nil
	}
	return remote.Usage(a.model, a.usage.Prompt, a.usage.Completion, a.usage.Details.Reasoning)
}

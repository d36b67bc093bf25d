// Package script owns the model of tests and documents: a file of answers, of
// which line n answers a session's n-th model call.
//
// A script is JSON lines, one object a line, with these fields:
//
//	text        string: the answer
//	chunks      how it streams: a number of pieces, or the pieces themselves, which
//	            join to text or stand in its place
//	tool_calls  list of objects: the tools that the answer calls, behind its text
//	            if there is any. Each has an id, which no other call of the line
//	            has, the tool's name, and args, an object that may be left out
//	delay_ms    number: milliseconds to wait before each piece, or before an error
//	error       string: the call fails with this text, after any pieces
//	hang        true: the call never ends by itself, after any pieces
//	usage       object: input_tokens, output_tokens and reasoning_tokens to report
//
// A line has an answer (text, chunks as a list, or tool_calls), an error, or hang;
// error and hang may follow a text that breaks off, but neither tool_calls nor
// each other. Anything else is
// refused when the script is loaded. Which line answers depends on the call's
// number alone, so a script gives the same answers after a crash, and gives each
// child of a fork the lines after its parent's.
//
// The package imports host/model and sdk/abi, and never the host or a network.
package script

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// ErrScript reports text that is not a script. The error that wraps it names the
// line and says what is wanted there.
var ErrScript = errors.New("malformed script")

// maxLine bounds a line, and maxDelay a delay.
const (
	maxLine  = 16 << 20
	maxDelay = 24 * time.Hour
)

// Provider answers from a script. Make one with New or Load.
type Provider struct {
	lines []line
}

var _ model.Provider = (*Provider)(nil)

// line is one answer, checked and ready.
type line struct {
	pieces []string
	parts  []abi.Part // of the whole answer
	delay  time.Duration
	fail   string
	hang   bool
	usage  *abi.Usage
}

// Load reads the script in the file path. The error wraps ErrScript if the file
// is not one.
func Load(path string) (*Provider, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load script: %w", err)
	}
	defer f.Close()
	p, err := New(f)
	if err != nil {
		return nil, fmt.Errorf("load script %q: %w", path, err)
	}
	return p, nil
}

// New reads a script from r. The error wraps ErrScript if it is not one.
func New(r io.Reader) (*Provider, error) {
	p := new(Provider)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		l, err := parse(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrScript, len(p.lines)+1, err)
		}
		p.lines = append(p.lines, l)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("%w: line %d: longer than %d bytes", ErrScript, len(p.lines)+1, maxLine)
	}
	return p, lines.Err()
}

// Len is the number of lines.
func (p *Provider) Len() int { return len(p.lines) }

// Complete implements model.Provider. A call past the last line fails with an
// *model.Error.
func (p *Provider) Complete(ctx context.Context, req model.Request, deltas func(model.Delta)) (model.Result, error) {
	if req.Index < 0 || req.Index >= int64(len(p.lines)) {
		return model.Result{}, &model.Error{
			Code:    abi.CodeFailedPrecondition,
			Message: fmt.Sprintf("script has %d lines; call %d has no answer", len(p.lines), req.Index+1),
			Free:    true,
		}
	}
	l := p.lines[req.Index]
	wait := func() error { return sleep(ctx, l.delay) }
	if l.fails() {
		return model.Result{}, l.breakOff(ctx, req.Attempt, deltas, wait)
	}
	if err := model.Stream(l.pieces, req.Attempt, deltas, wait); err != nil {
		return model.Result{}, fmt.Errorf("script line %d: %w", req.Index+1, err)
	}
	return model.Result{
		Message: abi.Message{Role: abi.RoleAssistant, Parts: slices.Clone(l.parts)},
		Usage:   l.usageOf(req.Call.Model),
	}, nil
}

func (l line) fails() bool { return l.hang || l.fail != "" }

// breakOff streams what there is of an answer, never as done, and then fails.
func (l line) breakOff(ctx context.Context, attempt int, deltas func(model.Delta), wait func() error) error {
	unfinished := func(d model.Delta) {
		d.Done = false
		if deltas != nil {
			deltas(d)
		}
	}
	if err := model.Stream(l.pieces, attempt, unfinished, wait); err != nil {
		return err
	}
	if err := wait(); err != nil {
		return err
	}
	if l.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return &model.Error{Code: abi.CodeUnknown, Message: l.fail}
}

// usageOf is the line's usage, for a call of the named model.
func (l line) usageOf(name string) *abi.Usage {
	if l.usage == nil {
		return nil
	}
	u := *l.usage
	u.Model = name
	return &u
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// source is a line as it is written. Pointers tell what is unset.
type source struct {
	Text      *string         `json:"text"`
	Chunks    json.RawMessage `json:"chunks"`
	DelayMS   int64           `json:"delay_ms"`
	Error     *string         `json:"error"`
	Hang      bool            `json:"hang"`
	ToolCalls []toolCall      `json:"tool_calls"`
	Usage     *struct {
		Input     abi.Int64 `json:"input_tokens"`
		Output    abi.Int64 `json:"output_tokens"`
		Reasoning abi.Int64 `json:"reasoning_tokens"`
	} `json:"usage"`
}

// toolCall is a tool call as it is written.
type toolCall struct {
	ID   string     `json:"id"`
	Tool string     `json:"tool"`
	Args abi.Struct `json:"args"`
}

func parse(text []byte) (line, error) {
	// What has a canonical form is free of what two readers could understand in
	// two ways: names that stand twice, and broken UTF-8. It is not the form that
	// is read, as it has no room for some numbers of arguments (I2).
	if _, err := abi.Canonical(text); err != nil {
		return line{}, fmt.Errorf(`%w; want an object such as {"text":"hello"}`, err)
	}
	var s source
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return line{}, fmt.Errorf("%s; want an object with text, chunks, tool_calls, delay_ms, error, hang or usage", abi.JSONProblem(err))
	}
	return s.check()
}

func (s source) check() (line, error) {
	l := line{hang: s.Hang, delay: time.Duration(s.DelayMS) * time.Millisecond}
	if s.DelayMS < 0 || s.DelayMS > maxDelay.Milliseconds() {
		return line{}, fmt.Errorf("delay_ms is %d; want 0 to %d", s.DelayMS, maxDelay.Milliseconds())
	}
	var err error
	if l.pieces, err = s.pieces(); err != nil {
		return line{}, err
	}
	if s.Error != nil {
		if l.fail = *s.Error; l.fail == "" {
			return line{}, errors.New("error is empty; want the text to fail with")
		}
	}
	switch {
	case l.pieces == nil && s.ToolCalls == nil && !l.fails():
		return line{}, errors.New("no answer; want text, chunks as a list, tool_calls, error, or hang")
	case l.hang && l.fail != "":
		return line{}, errors.New("hang and error exclude each other")
	case l.fails() && s.ToolCalls != nil:
		return line{}, errors.New("tool_calls stand beside a failure; want them in a whole answer")
	case l.fails() && s.Usage != nil:
		return line{}, errors.New("usage stands beside a failure; want it beside a whole answer")
	}
	if u := s.Usage; u != nil {
		if u.Input < 0 || u.Output < 0 || u.Reasoning < 0 {
			return line{}, errors.New("usage is negative; want counts from 0")
		}
		l.usage = &abi.Usage{InputTokens: u.Input, OutputTokens: u.Output, ReasoningTokens: u.Reasoning}
	}
	if l.pieces != nil {
		l.parts = []abi.Part{{Text: &abi.TextPart{Text: strings.Join(l.pieces, "")}}}
	}
	calls, err := s.toolCalls()
	if err != nil {
		return line{}, err
	}
	l.parts = append(l.parts, calls...)
	if l.pieces == nil && !l.fails() {
		l.pieces = []string{""} // so that an answer without text ends its stream
	}
	return l, nil
}

// toolCalls are the calls of the line, each a part of its answer.
func (s source) toolCalls() ([]abi.Part, error) {
	if s.ToolCalls != nil && len(s.ToolCalls) == 0 {
		return nil, errors.New("tool_calls is an empty list; want calls, or no tool_calls")
	}
	ids := map[string]bool{}
	parts := make([]abi.Part, len(s.ToolCalls))
	for i, c := range s.ToolCalls {
		switch {
		case c.ID == "" || ids[c.ID]:
			return nil, fmt.Errorf("tool_calls has the id %.40q at %d; want one that no other call has", c.ID, i)
		case c.Tool == "":
			return nil, fmt.Errorf("tool_calls has no tool at %d; want its name", i)
		case len(c.Args) > 0 && c.Args[0] != '{':
			return nil, fmt.Errorf("tool_calls has the args %.40s at %d; want an object", c.Args, i)
		}
		ids[c.ID] = true
		parts[i] = abi.Part{ToolCall: &abi.ToolCall{ID: c.ID, Tool: c.Tool, Args: c.Args}}
	}
	return parts, nil
}

// pieces is what the line streams: nil if it has no answer.
func (s source) pieces() ([]string, error) {
	const want = "want a number from 1, or a list of strings"
	if s.Chunks == nil {
		if s.Text == nil {
			return nil, nil
		}
		return []string{*s.Text}, nil
	}
	if s.Chunks[0] != '[' {
		var n int
		if err := json.Unmarshal(s.Chunks, &n); err != nil || n < 1 {
			return nil, fmt.Errorf("chunks is %.40s; %s", s.Chunks, want)
		}
		if s.Text == nil {
			return nil, errors.New("chunks is a number but there is no text to cut")
		}
		return model.Pieces(*s.Text, n), nil
	}
	var list []*string
	if err := json.Unmarshal(s.Chunks, &list); err != nil {
		return nil, fmt.Errorf("chunks is %.40s; %s", s.Chunks, want)
	}
	if len(list) == 0 {
		return nil, errors.New("chunks is an empty list; " + want)
	}
	pieces := make([]string, len(list))
	for i, p := range list {
		if p == nil {
			return nil, fmt.Errorf("chunks has null at %d; %s", i, want)
		}
		pieces[i] = *p
	}
	if joined := strings.Join(pieces, ""); s.Text != nil && joined != *s.Text {
		return nil, fmt.Errorf("chunks join to %.40q, text is %.40q; want them equal", joined, *s.Text)
	}
	return pieces, nil
}

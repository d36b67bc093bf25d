// Package script owns the tools of tests and documents: a file of tools that do
// what their lines say.
//
// A script is JSON lines, one tool a line, with these fields:
//
//	name          string: what the tool is called
//	description   string: what a model is told of it
//	input_schema  object: the JSON Schema of its arguments
//	approval      true: a person decides on each call
//	on_crash      retry, unknown or ask: what becomes of a call that was under
//	              way when its host died; unknown if it is left out
//	delay_ms      number: milliseconds to wait before it answers
//	output        object: it answers with this
//	echo          true: it answers with its arguments
//	error         string: each call fails with this text
//	hang          true: no call ends by itself
//
// A line has exactly one of output, echo, error and hang. Anything else is refused
// when the script is loaded. A tool gives the same answer each time, whatever its
// idempotency key; how often a key was called is counted, so that tests can see
// what a host did.
//
// The package imports host/tool and sdk/abi, and never the host or a network.
package script

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

// ErrScript reports text that is not a script. The error that wraps it names the
// line and says what is wanted there.
var ErrScript = errors.New("malformed tool script")

// maxLine bounds a line, and maxDelay a delay.
const (
	maxLine  = 16 << 20
	maxDelay = 24 * time.Hour
)

// Script is a set of tools. Make one with New or Load. It is safe for concurrent
// use.
type Script struct {
	tools map[string]tool.Tool

	mu    sync.Mutex
	calls map[string]int // by idempotency key
}

// Load reads the script in the file path. The error wraps ErrScript if the file
// is not one.
func Load(path string) (*Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load tools: %w", err)
	}
	defer f.Close()
	s, err := New(f)
	if err != nil {
		return nil, fmt.Errorf("load tools %q: %w", path, err)
	}
	return s, nil
}

// New reads a script from r. The error wraps ErrScript if it is not one.
func New(r io.Reader) (*Script, error) {
	s := &Script{tools: map[string]tool.Tool{}, calls: map[string]int{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number := 0
	for lines.Scan() {
		number++
		if err := s.add(lines.Bytes()); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrScript, number, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("%w: line %d: longer than %d bytes", ErrScript, number+1, maxLine)
	}
	return s, lines.Err()
}

// Tools are the tools by name. The caller owns the map.
func (s *Script) Tools() map[string]tool.Tool { return maps.Clone(s.tools) }

// Calls is how often calls of that idempotency key were made, over all tools.
func (s *Script) Calls(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[key]
}

func (s *Script) count(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[key]++
}

// add makes a tool of a line.
func (s *Script) add(text []byte) error {
	l, err := parse(text)
	if err != nil {
		return err
	}
	t := tool.Tool{
		Definition: abi.ToolDefinition{Name: l.Name, Description: l.Description, InputSchema: l.InputSchema},
		OnCrash:    l.OnCrash,
		Executor:   &executor{script: s, line: l},
	}
	if l.Approval {
		t.Mediation = abi.MediationRequiresApproval
	}
	if err := t.Check(); err != nil {
		return err
	}
	if _, ok := s.tools[l.Name]; ok {
		return fmt.Errorf("there is a tool %s already", l.Name)
	}
	s.tools[l.Name] = t
	return nil
}

// executor performs the calls of one tool.
type executor struct {
	script *Script
	line   line
}

var _ tool.Executor = (*executor)(nil)

// Call does what the line says.
func (e *executor) Call(ctx context.Context, c tool.Call) (abi.ToolResult, error) {
	if ctx.Err() != nil {
		return abi.ToolResult{}, fmt.Errorf("call %s: %w", c.Tool, ctx.Err())
	}
	e.script.count(c.IdempotencyKey)
	if err := e.line.wait(ctx); err != nil {
		return abi.ToolResult{}, fmt.Errorf("call %s: %w", c.Tool, err)
	}
	switch {
	case e.line.Error != nil:
		return abi.ToolResult{}, errors.New(*e.line.Error)
	case e.line.Echo:
		return abi.ToolResult{Output: bytes.Clone(c.Args)}, nil
	}
	return abi.ToolResult{Output: bytes.Clone(e.line.Output)}, nil
}

// line is a tool as it is written.
type line struct {
	Name        string      `json:"name"`
	Description string      `json:"description"`
	InputSchema abi.Struct  `json:"input_schema"`
	Approval    bool        `json:"approval"`
	OnCrash     abi.OnCrash `json:"on_crash"`
	DelayMS     int64       `json:"delay_ms"`
	Output      abi.Struct  `json:"output"`
	Echo        bool        `json:"echo"`
	Error       *string     `json:"error"`
	Hang        bool        `json:"hang"`
}

// wait takes the time that the tool takes.
func (l line) wait(ctx context.Context) error {
	if l.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if l.DelayMS == 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(l.DelayMS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func parse(text []byte) (line, error) {
	// What has a canonical form is free of what two readers could understand in
	// two ways: names that stand twice, and broken UTF-8. It is not the form that
	// is read, as it has no room for some numbers of an output (I2).
	if _, err := abi.Canonical(text); err != nil {
		return line{}, fmt.Errorf(`%w; want an object such as {"name":"read","output":{"ok":true}}`, err)
	}
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return line{}, fmt.Errorf("%s; want an object with name, description, input_schema, approval, on_crash, delay_ms, and output, echo, error or hang", abi.JSONProblem(err))
	}
	return l, l.check()
}

// check refuses what tool.Tool does not know of.
func (l line) check() error {
	answers := 0
	for _, is := range []bool{l.Output != nil, l.Echo, l.Error != nil, l.Hang} {
		if is {
			answers++
		}
	}
	switch {
	case answers != 1:
		return fmt.Errorf("it has %d of output, echo, error and hang; want one", answers)
	case l.Output != nil && l.Output[0] != '{':
		return fmt.Errorf("output is %.40s; want an object", l.Output)
	case l.Error != nil && *l.Error == "":
		return errors.New("error is empty; want the text to fail with")
	case l.DelayMS < 0 || l.DelayMS > maxDelay.Milliseconds():
		return fmt.Errorf("delay_ms is %d; want 0 to %d", l.DelayMS, maxDelay.Milliseconds())
	}
	return nil
}

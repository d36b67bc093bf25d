// Package sdktest owns a host that harness authors test against: it runs turns
// of a harness natively, answers its calls, and keeps a record of them that the
// harness can read as its history.
//
// It keeps to the rules that a harness can notice (what a turn records, that
// history ends before the turn, page sizes, statuses) and to nothing else: no
// hashes, limits, images, parking or replay. The harness is a Go value that is only used: a
// failed turn leaves it as it is, where a cell's memory would be dropped; a
// harness without memory should get a new value for each turn. Import the package
// in tests only.
//
// Host.Upgrade carries it over to another build.
//
// What a session came to is compared with a file by Host.Golden.
//
// The package imports sdk and sdk/abi, and never a real host or a runtime.
package sdktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Host is a session and its host. The zero Host is ready for use. It is not
// safe for concurrent use.
type Host struct {
	// Config is the harness's configuration.
	Config []byte
	// Limits are what Turn.Limits gives; none is enforced.
	Limits *abi.Limits
	// Model answers the model calls; nil answers "echo:" and the text of the
	// last message. An error becomes the recorded result (see sdk.Failure).
	Model func(abi.ModelCall) (abi.ModelResult, error)
	// Tools perform the tool calls, by name; Turn.Tools has their names and no
	// more. An error becomes the failed result of the call, as that of a real
	// tool does. A result with abi.ToolApprovalDenied plays the person who denies
	// a call, one with Cell.Args the person who edits its arguments.
	Tools map[string]func(abi.ToolCall) (abi.ToolResult, error)
	// Wait says what ends a wait, which it does at once; nil lets the time come
	// or, if there is none, the signal, without payload.
	Wait func(abi.WaitRequest) abi.WaitResponse
	// Page, if positive, is the largest page of history, below the ABI's own.
	Page int

	// Records is the session's record so far, without hashes and times. A test
	// may put earlier records here.
	Records []abi.LogRecord
	// Calls are all model calls so far; Logs all lines logged; Pages counts
	// the pages of history that were read.
	Calls []abi.ModelCall
	Logs  []string
	Pages int

	turns int
}

// Run runs one turn of h with the given inputs of a user. It returns the
// messages the turn put out, and the harness's error.
func (s *Host) Run(ctx context.Context, h sdk.Harness, inputs ...string) ([]abi.Message, error) {
	messages := make([]abi.Message, len(inputs))
	for i, input := range inputs {
		messages[i] = abi.Text(abi.RoleUser, input)
	}
	return s.RunMessages(ctx, h, messages...)
}

// RunMessages is Run for inputs of any form.
func (s *Host) RunMessages(ctx context.Context, h sdk.Harness, inputs ...abi.Message) ([]abi.Message, error) {
	s.turns++
	t := &turn{
		host:      s,
		execution: abi.NewExecutionID([12]byte{11: byte(s.turns)}),
		start:     abi.Start{Config: s.Config, Inputs: inputs, Cell: &abi.StartCell{Limits: s.Limits, Tools: s.definitions()}},
		before:    len(s.Records),
		toolIDs:   map[string]bool{},
		random:    rand.NewChaCha8([32]byte{byte(s.turns), byte(s.turns >> 8)}),
	}
	t.record(abi.Event{Kind: abi.EventExecutionStart, ExecutionStart: &abi.ExecutionStart{}})
	for _, m := range inputs {
		t.record(abi.Event{Kind: abi.EventInput, Message: &m})
	}
	err := sdk.RunTurn(ctx, h, t)
	end := abi.HarnessEnd{State: abi.StateCompleted}
	if err != nil {
		end = abi.HarnessEnd{State: abi.StateFailed, Error: sdk.Failure(err)}
	}
	t.record(abi.Event{Kind: abi.EventEnd, End: &end})
	return t.outputs, err
}

// turn is the transport of one turn.
type turn struct {
	host      *Host
	execution abi.ExecutionID
	start     abi.Start
	before    int // how many records are history
	outputs   []abi.Message
	toolIDs   map[string]bool // in use
	waits     int
	random    *rand.ChaCha8
}

var _ sdk.Transport = (*turn)(nil)

// Call answers one request as a host does.
func (t *turn) Call(ctx context.Context, op abi.Op, request []byte) (abi.Status, []byte, error) {
	if ctx.Err() != nil {
		return 0, nil, context.Cause(ctx)
	}
	answer, err := t.serve(op, request)
	var (
		recorded *abi.Error
		refused  refusal
	)
	switch {
	case errors.As(err, &refused):
		return abi.StatusRefused, []byte(refused), nil
	case errors.As(err, &recorded):
		body, err := json.Marshal(recorded)
		return abi.StatusFailed, body, err
	case err != nil:
		return abi.StatusInvalid, []byte(err.Error()), nil
	case answer == nil:
		return abi.StatusOK, nil, nil
	}
	body, err := json.Marshal(answer)
	return abi.StatusOK, body, err
}

// Random gives a stream that differs from turn to turn and not from run to run.
func (t *turn) Random(p []byte) { _, _ = t.random.Read(p) }

// serve performs op. An *abi.Error is the result of a call that failed, a
// refusal says that it is not granted, and any other error that the request is
// invalid.
func (t *turn) serve(op abi.Op, request []byte) (any, error) {
	switch op {
	case abi.OpStart:
		return t.start, nil
	case abi.OpLog:
		t.host.Logs = append(t.host.Logs, string(request))
		return nil, nil
	case abi.OpModel:
		return serve(request, t.model)
	case abi.OpOutput:
		return serve(request, func(m abi.Message) (any, error) {
			t.output(m)
			return nil, nil
		})
	case abi.OpToolCall:
		return serve(request, t.toolCall)
	case abi.OpReport:
		return serve(request, t.report)
	case abi.OpWait:
		return serve(request, t.wait)
	case abi.OpUsage:
		return serve(request, func(u abi.Usage) (any, error) {
			t.record(abi.Event{Kind: abi.EventUsage, Usage: &u})
			return nil, nil
		})
	case abi.OpHistory:
		return serve(request, t.history)
	}
	return nil, fmt.Errorf("no such request: %q", op)
}

func serve[T any](request []byte, do func(T) (any, error)) (any, error) {
	var v T
	if err := json.Unmarshal(request, &v); err != nil {
		return nil, err
	}
	return do(v)
}

func (t *turn) model(call abi.ModelCall) (any, error) {
	t.host.Calls = append(t.host.Calls, call)
	t.record(abi.Event{Kind: abi.EventModelCall, Model: &call})
	answer := t.host.Model
	if answer == nil {
		answer = echo
	}
	result, err := answer(call)
	if err != nil {
		failure := sdk.Failure(err)
		t.record(abi.Event{Kind: abi.EventError, Error: failure})
		return nil, failure
	}
	t.output(result.Message)
	return result, nil
}

func echo(call abi.ModelCall) (abi.ModelResult, error) {
	text := "echo:"
	if n := len(call.Messages); n > 0 {
		text += call.Messages[n-1].Text()
	}
	return abi.ModelResult{Message: abi.Text(abi.RoleAssistant, text)}, nil
}

func (t *turn) output(m abi.Message) {
	t.outputs = append(t.outputs, m)
	t.record(abi.Event{Kind: abi.EventOutput, Message: &m})
}

func (t *turn) history(request abi.HistoryRequest) (any, error) {
	t.host.Pages++
	records := slices.Clone(t.host.Records[:t.before])
	if request.Reverse {
		slices.Reverse(records)
	}
	limit := abi.MaxHistoryPage
	for _, bound := range []int{int(request.Limit), t.host.Page} {
		if bound > 0 {
			limit = min(limit, bound)
		}
	}
	page := []abi.LogRecord{}
	for _, r := range records {
		behind := r.Seq < request.FromSeq
		if request.Reverse {
			behind = request.FromSeq != 0 && r.Seq > request.FromSeq
		}
		if behind || len(request.Kinds) > 0 && !slices.Contains(request.Kinds, r.Event.Kind) {
			continue
		}
		if page = append(page, r); len(page) == limit {
			break
		}
	}
	return page, nil
}

func (t *turn) record(e abi.Event) {
	e.ExecutionID = t.execution
	t.host.record(e)
}

func (s *Host) record(e abi.Event) {
	e.SchemaVersion = abi.SchemaVersion
	seq := abi.Seq(1)
	if n := len(s.Records); n > 0 {
		seq = s.Records[n-1].Seq + 1
	}
	s.Records = append(s.Records, abi.LogRecord{Seq: seq, Event: &e})
}

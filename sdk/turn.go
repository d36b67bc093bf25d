package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Turn is one turn of a session, seen from within its harness: what was given
// for it, and how to reach the host. It is not safe for concurrent use.
//
// A method whose ctx is done returns context.Cause(ctx) without asking the host. An
// answer of the host that is not "ok" comes back as an *Error.
type Turn struct {
	transport Transport
	start     abi.Start
	rand      *rand.Rand
	toolCalls int // made so far
}

// Inputs are the messages this turn was started with, oldest first. The caller
// must not change them.
func (t *Turn) Inputs() []abi.Message { return t.start.Inputs }

// Config is the session's configuration for the harness, as it was given; nil
// if there is none. The caller must not change it.
func (t *Turn) Config() []byte { return t.start.Config }

// DecodeConfig reads Config as JSON into v, which stays as it is if there is no
// configuration. A name that v has no field for is an error, so that a typing
// mistake does not go unnoticed.
func (t *Turn) DecodeConfig(v any) error {
	if len(bytes.TrimSpace(t.start.Config)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(t.start.Config))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return configError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return configError(errors.New("text after the value"))
	}
	return nil
}

func configError(err error) error {
	return &abi.Error{Code: abi.CodeInvalidArgument, Description: "config: " + abi.JSONProblem(err)}
}

// Limits are the bounds of this turn, zero where the host names none.
func (t *Turn) Limits() abi.Limits {
	if t.start.Cell == nil || t.start.Cell.Limits == nil {
		return abi.Limits{}
	}
	return *t.start.Cell.Limits
}

// Rand is a generator of this turn's own, seeded anew in each turn and each fork
// (M6). It is not for secrets, and not to be kept beyond the turn.
func (t *Turn) Rand() *rand.Rand {
	if t.rand == nil {
		t.rand = rand.New(source(t.random))
	}
	return t.rand
}

// Model asks for one completion. The host records the call and its answer; the
// answer's message becomes the turn's output without further ado.
//
// A call that failed is recorded too, and comes back as an *Error that is
// ErrFailed. When the turn is replayed or recovered, the recorded answer is
// given again and no provider is asked (I1).
func (t *Turn) Model(ctx context.Context, call abi.ModelCall) (abi.ModelResult, error) {
	var result abi.ModelResult
	err := t.ask(ctx, opModel, call, &result)
	return result, err
}

// Output adds to the turn's output what no model produced. An empty role stands
// for the assistant's.
func (t *Turn) Output(ctx context.Context, m abi.Message) error {
	if m.Role == "" {
		m.Role = abi.RoleAssistant
	}
	return t.ask(ctx, opOutput, m, nil)
}

// OutputText is Output of a text.
func (t *Turn) OutputText(ctx context.Context, text string) error {
	return t.Output(ctx, abi.Text(abi.RoleAssistant, text))
}

// Usage records tokens that the harness accounts for itself; what Model spends
// the host records.
func (t *Turn) Usage(ctx context.Context, u abi.Usage) error {
	return t.ask(ctx, opUsage, u, nil)
}

// Logf writes a line for the operator, who may or may not keep it. It is not
// part of the record.
func (t *Turn) Logf(format string, args ...any) {
	// Not the turn's context: the last words of a turn that was given up are
	// worth hearing. And no error: a harness must not act on what its log does.
	_, _, _ = t.call(context.Background(), opLog, fmt.Appendf(nil, format, args...))
}

// ask performs one request, in JSON unless it is nil, and reads the answer into
// answer unless that is nil.
func (t *Turn) ask(ctx context.Context, e endpoint, request, answer any) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", e.op, context.Cause(ctx))
	}
	var body []byte
	if request != nil {
		var err error
		if body, err = abi.Marshal(request); err != nil {
			return fmt.Errorf("%s: %w", e.op, err)
		}
	}
	status, body, err := t.call(ctx, e, body)
	if err != nil {
		return fmt.Errorf("%s: %w", e.op, err)
	}
	if status != abi.StatusOK {
		return newError(e.op, status, body)
	}
	if answer == nil {
		return nil
	}
	if err := abi.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("%s: the host's answer: %w", e.op, err)
	}
	return nil
}

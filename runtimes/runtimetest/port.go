package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// port is a world that answers at once: the model says "echo: " and the last
// thing it was told.
type port struct {
	inputs []string
	// model, if set, answers model calls instead.
	model func(ctx context.Context) (runtimes.Response, error)
	calls []call
}

type call struct {
	op      abi.Op
	request string
}

func newPort(inputs ...string) *port { return &port{inputs: inputs} }

// Call implements runtimes.Port.
func (p *port) Call(ctx context.Context, op abi.Op, request []byte) (runtimes.Response, error) {
	if op == abi.OpLog {
		return runtimes.Response{}, nil
	}
	p.calls = append(p.calls, call{op, string(request)})
	switch op {
	case abi.OpStart:
		start := abi.Start{Cell: &abi.StartCell{Model: "echo"}}
		for _, text := range p.inputs {
			start.Inputs = append(start.Inputs, abi.Text(abi.RoleUser, text))
		}
		return answer(start)
	case abi.OpModel:
		if p.model != nil {
			return p.model(ctx)
		}
		return modelAnswer("echo"), nil
	case abi.OpOutput:
		return runtimes.Response{}, nil
	}
	return runtimes.Response{}, fmt.Errorf("no test asks for %q", op)
}

func answer(v any) (runtimes.Response, error) {
	body, err := json.Marshal(v)
	return runtimes.Response{Body: body, Now: time.Unix(1_700_000_100, 0)}, err
}

func modelAnswer(text string) runtimes.Response {
	r, err := answer(abi.ModelResult{Message: abi.Text(abi.RoleAssistant, text)})
	if err != nil {
		panic(err) // a message of text always has a JSON form
	}
	return r
}

// transcript tells the calls, one a line. Requests are told by what they mean:
// their JSON may differ from runtime to runtime.
func (p *port) transcript() []string {
	lines := make([]string, 0, len(p.calls))
	for _, c := range p.calls {
		line := string(c.op)
		switch c.op {
		case abi.OpModel:
			var m abi.ModelCall
			if err := json.Unmarshal([]byte(c.request), &m); err != nil {
				line += " " + err.Error()
			}
			for _, message := range m.Messages {
				line += " " + message.Role + ": " + message.Text()
			}
		case abi.OpOutput:
			var m abi.Message
			if err := json.Unmarshal([]byte(c.request), &m); err != nil {
				line += " " + err.Error()
			}
			line += " " + m.Role + ": " + m.Text()
		}
		lines = append(lines, line)
	}
	return lines
}

// turn is a turn with a seed and a start of its own.
func turn(n byte) runtimes.Turn {
	return runtimes.Turn{
		Execution: abi.NewExecutionID([12]byte{n}),
		Seed:      [32]byte{n},
		Start:     time.Unix(1_700_000_000+int64(n), 0),
		Limits:    abi.DefaultLimits(),
	}
}

// completed runs a turn that must complete.
func completed(t testing.TB, in runtimes.Incarnation, n byte, p *port) runtimes.Outcome {
	t.Helper()
	out, err := in.Run(t.Context(), turn(n), p)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	if out.Reason != abi.ReasonCompleted || out.Err != nil {
		t.Fatalf("outcome %q, error %v", out.Reason, out.Err)
	}
	return out
}

// ended holds an incarnation that can only be stopped to that.
func ended(t testing.TB, in runtimes.Incarnation) {
	t.Helper()
	if s := in.Status(); s != runtimes.Stopped {
		t.Errorf("status %d, want %d", s, runtimes.Stopped)
	}
	p := newPort("hi")
	if _, err := in.Run(t.Context(), turn(1), p); !errors.Is(err, runtimes.ErrStopped) {
		t.Errorf("run of a stopped incarnation: %v", err)
	}
	if calls := p.transcript(); len(calls) != 0 {
		t.Errorf("a stopped incarnation called %q", calls)
	}
	if s, ok := in.(runtimes.Snapshotter); ok {
		if _, err := s.Snapshot(t.Context()); !errors.Is(err, runtimes.ErrStopped) {
			t.Errorf("snapshot of a stopped incarnation: %v", err)
		}
	}
	if err := in.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

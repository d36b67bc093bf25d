package main

import (
	"context"
	"fmt"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

const (
	// trialInput is what a turn on trial is told unless somebody knows better.
	trialInput = "hi"
	// trialTime bounds a turn on trial, which nobody waits for the result of.
	trialTime = 10 * time.Second
)

// trial is a first turn that is run to see what it costs.
type trial struct {
	inputs []abi.Message
	config []byte

	// What came of it.
	host.Execution
	modelCalls int
	took       time.Duration
}

// run runs the turn in a session of its own on h, whose store nobody keeps. A turn
// that fails is a result as well.
func (t *trial) run(ctx context.Context, h *edge.Host, harness host.Harness) error {
	s, err := h.Create(ctx, host.CreateRequest{Harness: harness, Model: edge.EchoModel, Config: t.config})
	if err != nil {
		return fmt.Errorf("turn on trial: %w", err)
	}
	start := time.Now()
	t.Execution, err = h.Exec(ctx, host.ExecRequest{
		Session: s.UID, Inputs: t.inputs, Deadline: trialTime,
		Observe: func(u host.Update) {
			if u.Record != nil && u.Record.Event.Kind == abi.EventModelCall {
				t.modelCalls++
			}
		},
	})
	t.took = time.Since(start)
	if err != nil {
		return fmt.Errorf("turn on trial: %w", err)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return nil
}

// state is how the turn ended, or AWAITING if it is parked.
func (t *trial) state() host.ExecState {
	if len(t.Waiting) > 0 {
		return host.ExecAwaiting
	}
	return host.ExecState(t.State)
}

// facts are what a person is told of it.
func (t *trial) facts() []fact {
	how := fmt.Sprintf("on trial with the input %q, the echo model and a journal in memory", t.inputs[0].Text())
	cost := fmt.Sprintf("%d fuel, %d model calls, %.1f ms here", t.Fuel, t.modelCalls, float64(t.took.Microseconds())/1000)
	came := fmt.Sprintf("%d pages (%s) of memory changed", t.Pages, bytesText(int64(t.Pages)*abi.PageSize))
	switch t.state() {
	case host.ExecCompleted:
	case host.ExecAwaiting:
		came = "parked: it waits for a decision, a signal or a time, and has no cost yet"
		cost = fmt.Sprintf("%d model calls, %.1f ms here", t.modelCalls, float64(t.took.Microseconds())/1000)
	default:
		came = (&turnError{t.Execution}).Error()
	}
	return []fact{{"first turn", came}, {"", cost}, {"", how}}
}

// trialJSON is a turn on trial; the model is always echo.
type trialJSON struct {
	Input      string         `json:"input"`
	Model      string         `json:"model"`
	State      host.ExecState `json:"state"`
	Reason     abi.EndReason  `json:"reason,omitempty"`
	Error      *abi.Error     `json:"error,omitempty"`
	Fuel       uint64         `json:"fuel"`
	Pages      int            `json:"pages"`
	ModelCalls int            `json:"model_calls"`
	Micros     int64          `json:"wall_us"`
}

func newTrialJSON(t *trial) trialJSON {
	return trialJSON{
		Input: t.inputs[0].Text(), Model: edge.EchoModel, State: t.state(), Reason: t.Reason, Error: t.Err,
		Fuel: t.Fuel, Pages: t.Pages, ModelCalls: t.modelCalls, Micros: t.took.Microseconds(),
	}
}

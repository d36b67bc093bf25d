package sdk

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Tools are the tools that this turn may call, as a model is told of them. The
// caller must not change them.
func (t *Turn) Tools() []abi.ToolDefinition {
	if t.start.Cell == nil {
		return nil
	}
	return t.start.Cell.Tools
}

// CallTools calls tools side by side and gives their results in the order of the
// calls. A call that failed, or that a person denied, is not an error but a result
// that says so (IsError, Error and Code), for the model to read.
//
// Each call needs a Tool and its Args, a JSON object; and may have
//
//   - an ID, which no other call of the turn has: that of the model's own
//     abi.ToolCall, if it comes from one. Else it is "tool-1", "tool-2" and so on,
//     by the call's place among all of the turn.
//   - an IdempotencyKey, by which the tool knows a call that is made again after
//     a crash. Else it is drawn from the turn's own randomness: the same whenever
//     the turn is run again, and no other call's in any turn, session or fork.
//   - the Mediation abi.MediationRequiresApproval, to ask for an approval that the
//     host does not ask for by itself. Nothing else can be chosen.
//
// More than abi.MaxToolCalls calls go in several requests, one after another. On
// an error the results are those of the requests before.
//
// While people decide on a call, the turn is parked: see Wait. They may give it other
// arguments, which EditedArgs of its result then has. When a turn is
// replayed or recovered, recorded results are given again and no tool is called
// (I1). A call that was under way when the host died is made again or not, by
// the rule of its tool (abi.OnCrash); if not, its result says that its outcome is
// unknown.
func (t *Turn) CallTools(ctx context.Context, calls ...abi.ToolCall) ([]abi.ToolResult, error) {
	results := make([]abi.ToolResult, 0, len(calls))
	for batch := range slices.Chunk(calls, abi.MaxToolCalls) {
		request := abi.ToolCallRequest{Calls: make([]abi.ToolCall, len(batch))}
		for i, call := range batch {
			request.Calls[i] = t.complete(call)
		}
		var response abi.ToolCallResponse
		if err := t.ask(ctx, opToolCall, request, &response); err != nil {
			return results, err
		}
		if got, want := len(response.Results), len(batch); got != want {
			return results, fmt.Errorf("%s: the host's answer: %d results for %d calls", opToolCall.op, got, want)
		}
		results = append(results, response.Results...)
	}
	return results, nil
}

// ResultPart is a result as a part of the message that hands it to a model. Where a
// person gave the call other arguments it says so: the model would take the result for
// that of what it asked for.
func ResultPart(r abi.ToolResult) abi.Part {
	if args := r.EditedArgs(); args != nil {
		content := []abi.Part{{Text: &abi.TextPart{Text: "A person changed the arguments of this call to " + string(args)}}}
		if len(r.Content) == 0 && len(r.Output) > 0 {
			content = append(content, abi.Part{Data: &abi.DataPart{Data: r.Output}})
		}
		r.Output, r.Content, r.Cell = nil, append(content, r.Content...), nil
	}
	return abi.Part{ToolResult: &r}
}

// complete fills in what CallTools says of a call.
func (t *Turn) complete(call abi.ToolCall) abi.ToolCall {
	t.toolCalls++
	if call.ID == "" {
		call.ID = fmt.Sprintf("tool-%d", t.toolCalls)
	}
	if call.IdempotencyKey == "" {
		var key [16]byte
		t.random(key[:])
		call.IdempotencyKey = hex.EncodeToString(key[:])
	}
	return call
}

// CallTool is CallTools of one call, whose arguments are args as JSON; nil stands
// for none.
func (t *Turn) CallTool(ctx context.Context, name string, args any) (abi.ToolResult, error) {
	call := abi.ToolCall{Tool: name}
	if args != nil {
		var err error
		if call.Args, err = json.Marshal(args); err != nil {
			return abi.ToolResult{}, fmt.Errorf("%s: %s: %w", opToolCall.op, name, err)
		}
	}
	results, err := t.CallTools(ctx, call)
	if err != nil {
		return abi.ToolResult{}, err
	}
	return results[0], nil
}

// Report records the result of a tool that the harness ran itself, under the ID
// of the model's call. The host needs it for nothing; it is there for those who
// read the record.
func (t *Turn) Report(ctx context.Context, r abi.ToolResult) error {
	return t.ask(ctx, opReport, r, nil)
}

// Wait waits until an instant, a signal of that name, or whichever comes first; a
// zero time or an empty name stands for none. The answer has the signal and its
// payload, or no Signal if it was the time.
//
// A turn that waits is parked. In a cell Run does not go on, not even what it
// deferred: its memory and goroutines are given up. When the wait is over, perhaps
// on another host and years later, the turn is run again from its start; the host
// answers from the record, and Run goes on behind the wait. What Run does before a
// wait must so be the same each time: in a cell it is, as long as it keeps to what
// the package says of cells. And it is paid for each time: work of minutes
// belongs into another turn. Natively Wait returns an error, ctx is done, and Run
// is called again later.
func (t *Turn) Wait(ctx context.Context, until time.Time, signal string) (abi.WaitResponse, error) {
	var response abi.WaitResponse
	err := t.ask(ctx, opWait, abi.WaitRequest{Until: abi.NewTime(until), Signal: signal}, &response)
	return response, err
}

// Sleep is Wait for d from now, by the clock that time.Now reads; if d is not
// positive it returns at once. Unlike time.Sleep, which in a cell only moves that
// clock, it takes the time that it says.
func (t *Turn) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	_, err := t.Wait(ctx, time.Now().Add(d), "")
	return err
}

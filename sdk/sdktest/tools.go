package sdktest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// refusal is why a request is refused.
type refusal string

func (r refusal) Error() string { return string(r) }

// definitions are the host's tools as a model is told of them, by name.
func (s *Host) definitions() []abi.ToolDefinition {
	var definitions []abi.ToolDefinition
	for _, name := range slices.Sorted(maps.Keys(s.Tools)) {
		definitions = append(definitions, abi.ToolDefinition{Name: name})
	}
	return definitions
}

// toolCall checks a request as a whole, records its calls, and then makes them
// one after another.
func (t *turn) toolCall(request abi.ToolCallRequest) (any, error) {
	if n := len(request.Calls); n == 0 || n > abi.MaxToolCalls {
		return nil, fmt.Errorf("%d calls: want 1 to %d", n, abi.MaxToolCalls)
	}
	ids := maps.Clone(t.toolIDs)
	for i, call := range request.Calls {
		switch _, ok := t.host.Tools[call.Tool]; {
		case !ok:
			return nil, refusal(fmt.Sprintf("call %d: that tool is not granted to this turn", i+1))
		case call.ID == "" || ids[call.ID]:
			return nil, fmt.Errorf("call %d: its id must be one that no other call of the turn has", i+1)
		case call.IdempotencyKey == "":
			return nil, fmt.Errorf("call %d: it has no idempotency key", i+1)
		case call.Mediation == abi.MediationInHarnessReported:
			return nil, fmt.Errorf("call %d: what a harness does itself it reports", i+1)
		}
		ids[call.ID] = true
	}
	t.toolIDs = ids
	for i := range request.Calls {
		call := &request.Calls[i]
		if call.Mediation != abi.MediationRequiresApproval {
			call.Mediation = abi.MediationControllerMediated
		}
		t.record(abi.Event{Kind: abi.EventToolCall, Tool: call})
	}
	var response abi.ToolCallResponse
	for _, call := range request.Calls {
		result, err := t.host.Tools[call.Tool](call)
		if err != nil {
			result = abi.ToolResult{IsError: true, Error: err.Error(), Code: abi.ToolExecutorError}
		}
		result.ID = call.ID
		recorded := result
		recorded.Cell = nil // it is told, and follows from other records
		t.record(abi.Event{Kind: abi.EventToolResult, Result: &recorded})
		response.Results = append(response.Results, result)
	}
	return response, nil
}

func (t *turn) report(result abi.ToolResult) (any, error) {
	switch {
	case result.ID == "":
		return nil, errors.New("a report needs the id of its call")
	case result.Code == abi.ToolApprovalDenied || result.ApprovalRequestSeq != 0 || result.ApprovalDecisionSeq != 0 || result.Cell != nil:
		return nil, errors.New("a report cannot speak of approvals")
	}
	t.record(abi.Event{Kind: abi.EventToolResult, Result: &result})
	return nil, nil
}

func (t *turn) wait(request abi.WaitRequest) (any, error) {
	if request.Until.IsZero() && request.Signal == "" {
		return nil, errors.New("wait for a time, a signal, or both")
	}
	t.waits++
	id := fmt.Sprintf("wait-%d", t.waits)
	t.record(abi.Event{Kind: abi.EventWait, Cell: &abi.Cell{CallID: id, Until: request.Until, Signal: request.Signal}})
	var response abi.WaitResponse
	switch {
	case t.host.Wait != nil:
		response = t.host.Wait(request)
	case request.Until.IsZero():
		response.Signal = request.Signal
	}
	t.record(abi.Event{Kind: abi.EventSignal, Cell: &abi.Cell{CallID: id, Signal: response.Signal}})
	return response, nil
}

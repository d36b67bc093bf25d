package sdk

import (
	"context"

	"github.com/agentcell/agentcell/sdk/abi"
)

// PastCall is a tool call of an earlier turn, and what came of it.
type PastCall struct {
	// Call is the call as it was made: with the arguments that a person gave it, if
	// Edited, in place of those that were asked for.
	Call   abi.ToolCall
	Edited bool
	// Result is nil if none is recorded, because the turn ended before. The call may
	// have been made then, unless approvals were missing: so many of them.
	Result           *abi.ToolResult
	MissingApprovals int
}

// PastCalls gives the tool calls in the record from a seq on and before another,
// oldest first. It is for turns that did not complete: memory that is put back knows
// nothing of them, but what their tools did to the world is not put back. The range
// should be that of one turn, as ids of calls are unique only within one.
func (t *Turn) PastCalls(ctx context.Context, from, before abi.Seq) ([]PastCall, error) {
	var calls []PastCall
	byID := map[string]int{}
	query := HistoryQuery{From: from, Kinds: []abi.EventKind{
		abi.EventToolCall, abi.EventApprovalRequest, abi.EventApprovalResult, abi.EventToolResult,
	}}
	for record, err := range t.History(ctx, query) {
		if err != nil {
			return nil, err
		}
		if record.Seq >= before {
			break
		}
		e := record.Event
		if e.Tool != nil {
			byID[e.Tool.ID] = len(calls)
			calls = append(calls, PastCall{Call: *e.Tool})
		} else if n, ok := byID[aboutCall(e)]; ok {
			calls[n].became(e)
		}
	}
	return calls, nil
}

// aboutCall is the id of the call that an event says something new of.
func aboutCall(e *abi.Event) string {
	switch {
	case e.Approval != nil:
		return e.Approval.ToolCallID
	case e.ApprovalResult != nil:
		return e.ApprovalResult.ToolCallID
	case e.Result != nil:
		return e.Result.ID
	}
	return ""
}

// became takes in what an event says of the call.
func (c *PastCall) became(e *abi.Event) {
	var cell abi.Cell
	if e.Cell != nil {
		cell = *e.Cell
	}
	switch {
	case e.Approval != nil:
		// Where people are asked again, the call may have been made.
		if !cell.Again {
			c.MissingApprovals = max(1, int(cell.Approvers))
		}
	case e.ApprovalResult != nil && e.ApprovalResult.Approved:
		c.MissingApprovals = max(0, c.MissingApprovals-1)
		if len(cell.Args) > 0 {
			c.Call.Args, c.Edited = cell.Args, true
		}
	case e.Result != nil:
		c.Result = e.Result
	}
}

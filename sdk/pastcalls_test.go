package sdk_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// TestPastCalls: what became of the calls of a turn is what the record says of each.
func TestPastCalls(t *testing.T) {
	asked := func(c abi.Cell) *abi.Event {
		return &abi.Event{Kind: abi.EventApprovalRequest, Approval: &abi.ApprovalRequest{ToolCallID: "a"}, Cell: &c}
	}
	decided := func(approved bool, args string) *abi.Event {
		return &abi.Event{
			Kind: abi.EventApprovalResult, ApprovalResult: &abi.ApprovalResult{ToolCallID: "a", Approved: approved},
			Cell: &abi.Cell{Args: abi.Struct(args)},
		}
	}
	pay := abi.ToolCall{ID: "a", Tool: "pay", Args: abi.Struct(`{"eur":5}`)}
	less := abi.ToolCall{ID: "a", Tool: "pay", Args: abi.Struct(`{"eur":4}`)}
	paid := abi.ToolResult{ID: "a", Output: abi.Struct(`{"ok":true}`)}
	done := &abi.Event{Kind: abi.EventToolResult, Result: &paid}
	yes, no := decided(true, ""), decided(false, "")
	for name, test := range map[string]struct {
		events []*abi.Event
		want   sdk.PastCall
	}{
		"under way":               {nil, sdk.PastCall{Call: pay}},
		"done":                    {[]*abi.Event{done}, sdk.PastCall{Call: pay, Result: &paid}},
		"undecided":               {[]*abi.Event{asked(abi.Cell{})}, sdk.PastCall{Call: pay, MissingApprovals: 1}},
		"one of two approved":     {[]*abi.Event{asked(abi.Cell{Approvers: 2}), yes}, sdk.PastCall{Call: pay, MissingApprovals: 1}},
		"asked about again":       {[]*abi.Event{asked(abi.Cell{Again: true})}, sdk.PastCall{Call: pay}},
		"approved":                {[]*abi.Event{asked(abi.Cell{}), yes}, sdk.PastCall{Call: pay}},
		"allowed by a policy":     {[]*abi.Event{yes}, sdk.PastCall{Call: pay}},
		"denied what may be made": {[]*abi.Event{asked(abi.Cell{Again: true}), no}, sdk.PastCall{Call: pay}},
		"approved with changes":   {[]*abi.Event{asked(abi.Cell{}), decided(true, `{"eur":4}`), done}, sdk.PastCall{Call: less, Edited: true, Result: &paid}},
		"denied":                  {[]*abi.Event{asked(abi.Cell{Approvers: 2}), no}, sdk.PastCall{Call: pay, MissingApprovals: 2}},
	} {
		host := new(sdktest.Host)
		add := func(e *abi.Event) {
			host.Records = append(host.Records, abi.LogRecord{Seq: abi.Seq(len(host.Records) + 1), Event: e})
		}
		call := &abi.Event{Kind: abi.EventToolCall, Tool: &pay}
		// The turns before and after have a call of the same id.
		add(call)
		add(&abi.Event{Kind: abi.EventEnd, End: &abi.HarnessEnd{State: abi.StateCompleted}})
		add(done) // of no call in the range
		add(call)
		for _, e := range test.events {
			add(e)
		}
		before := abi.Seq(len(host.Records) + 1)
		add(done)
		add(call)
		h := run(func(ctx context.Context, turn *sdk.Turn) error {
			got, err := turn.PastCalls(ctx, 3, before)
			if diff := cmp.Diff([]sdk.PastCall{test.want}, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			return err
		})
		if _, err := host.Run(t.Context(), h, "go"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package main

import (
	"errors"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// What a call came to is found among other calls' answers, and never beyond the
// end of its turn.
func TestAnswerOf(t *testing.T) {
	answerTo := func(kind abi.EventKind, call string) abi.Event {
		return abi.Event{Kind: kind, Cell: &abi.Cell{CallID: call}}
	}
	result := func(id string) abi.Event {
		return abi.Event{Kind: abi.EventToolResult, Result: &abi.ToolResult{ID: id}}
	}
	gate := abi.Event{Kind: abi.EventApprovalRequest, Approval: &abi.ApprovalRequest{ToolCallID: "t"}}
	decision := abi.Event{Kind: abi.EventApprovalResult, ApprovalResult: &abi.ApprovalResult{ToolCallID: "t"}}
	signal, end := abi.Event{Kind: abi.EventSignal}, abi.Event{Kind: abi.EventEnd}
	modelCall := &abi.Event{Kind: abi.EventModelCall, Model: &abi.ModelCall{ID: "call-1"}}
	toolCall := &abi.Event{Kind: abi.EventToolCall, Tool: &abi.ToolCall{ID: "t"}}
	output, usage := answerTo(abi.EventOutput, "call-1"), answerTo(abi.EventUsage, "call-1")
	for name, tt := range map[string]struct {
		call      *abi.Event
		following []abi.Event
		want      []int
	}{
		"model":             {modelCall, []abi.Event{output, usage, end}, []int{0, 1}},
		"model, signalled":  {modelCall, []abi.Event{signal, output, end}, []int{1}},
		"model failed":      {modelCall, []abi.Event{answerTo(abi.EventError, "call-1"), end}, []int{0}},
		"next turn's model": {modelCall, []abi.Event{end, output}, nil},
		"other model call":  {modelCall, []abi.Event{answerTo(abi.EventOutput, "call-2"), end}, nil},
		"nothing follows":   {modelCall, nil, nil},
		"tool in a batch":   {toolCall, []abi.Event{result("a"), gate, result("b"), decision, result("t"), end}, []int{1, 3, 4}},
		"tool parked":       {toolCall, []abi.Event{gate}, []int{0}},
		"next turn's tool":  {toolCall, []abi.Event{end, result("t")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			records := func(yield func(host.Record, error) bool) {
				for i := range tt.following {
					r := host.Record{LogRecord: abi.LogRecord{Seq: abi.Seq(i), Event: &tt.following[i]}}
					if !yield(r, nil) {
						return
					}
				}
			}
			answer, err := answerOf(tt.call, records)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, r := range answer {
				got = append(got, int(r.Seq))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	broken := errors.New("broken")
	var failing iter.Seq2[host.Record, error] = func(yield func(host.Record, error) bool) { yield(host.Record{}, broken) }
	if _, err := answerOf(modelCall, failing); !errors.Is(err, broken) {
		t.Errorf("a record that cannot be read: %v", err)
	}
}

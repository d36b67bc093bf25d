package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// calling is an answer that calls tools.
func calling(calls ...abi.ToolCall) abi.Message {
	m := abi.Message{Role: abi.RoleAssistant}
	for i := range calls {
		m.Parts = append(m.Parts, abi.Part{ToolCall: &calls[i]})
	}
	return m
}

// newHost has a model that gives the answers one after another, and three tools.
func newHost(answers ...abi.Message) *sdktest.Host {
	host := &sdktest.Host{Tools: map[string]func(abi.ToolCall) (abi.ToolResult, error){
		"read":   func(c abi.ToolCall) (abi.ToolResult, error) { return abi.ToolResult{Output: c.Args}, nil },
		"broken": func(abi.ToolCall) (abi.ToolResult, error) { return abi.ToolResult{}, errors.New("no such file") },
		"drop": func(abi.ToolCall) (abi.ToolResult, error) {
			return abi.ToolResult{IsError: true, Code: abi.ToolApprovalDenied, Error: "denied: not today"}, nil
		},
	}}
	host.Model = func(abi.ModelCall) (abi.ModelResult, error) {
		if len(answers) == 0 {
			return abi.ModelResult{}, errors.New("out of answers")
		}
		answer := answers[0]
		answers = answers[1:]
		return abi.ModelResult{Message: answer}, nil
	}
	return host
}

// TestConversation holds a session against its transcript in testdata.
func TestConversation(t *testing.T) {
	host := newHost(
		calling(
			abi.ToolCall{ID: "a", Tool: "read", Args: abi.Struct(`{"n":12345678901234567890}`), Mediation: abi.MediationInHarnessReported},
			abi.ToolCall{ID: "b", Tool: "invented"},
			abi.ToolCall{ID: "c", Tool: "broken"},
		),
		calling(abi.ToolCall{ID: "d", Tool: "drop"}),
		abi.Text(abi.RoleAssistant, "It is a number, and still there."),
		abi.Text(abi.RoleAssistant, "As I said."),
	)
	host.Config = []byte(`{"system":"Be brief."}`)
	h := new(agent)
	for _, inputs := range [][]string{{"What is it?", "And drop it."}, {"Really?"}} {
		if _, err := host.Run(t.Context(), h, inputs...); err != nil {
			t.Fatal(err)
		}
	}
	host.Golden(t, "testdata/conversation.txt")
	for i, call := range host.Calls {
		if len(call.Tools) != 3 {
			t.Errorf("the model was told of %d tools in call %d", len(call.Tools), i+1)
		}
	}
}

// TestI2_ToolsHandsReasoningBack: what a provider calls opaque stands in the next
// prompt as it came, beside the tool call it led to.
func TestI2_ToolsHandsReasoningBack(t *testing.T) {
	answer := calling(abi.ToolCall{ID: "a", Tool: "read", Args: abi.Struct(`{"x":0.10}`)})
	answer.Parts = append([]abi.Part{{Reasoning: &abi.ReasoningPart{Provider: "p", OpaqueBytes: []byte{0, 255}}}}, answer.Parts...)
	host := newHost(answer, abi.Text(abi.RoleAssistant, "done"))
	if _, err := host.Run(t.Context(), new(agent), "go"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(answer, host.Calls[1].Messages[1]); diff != "" {
		t.Error(diff)
	}
}

func TestRounds(t *testing.T) {
	again := func(n int) []abi.Message {
		var answers []abi.Message
		for i := range n {
			answers = append(answers, calling(abi.ToolCall{ID: fmt.Sprint(i), Tool: "read"}))
		}
		return append(answers, abi.Text(abi.RoleAssistant, "done"))
	}
	for _, tt := range []struct {
		config string
		calls  int // answers that call a tool
		made   int // calls
		fails  bool
	}{
		{``, 15, 15, false},
		{``, 16, 15, true},
		{`{"max_rounds":1}`, 0, 0, false},
		{`{"max_rounds":1}`, 1, 0, true},
	} {
		host := newHost(again(tt.calls)...)
		host.Config = []byte(tt.config)
		h := new(agent)
		_, err := host.Run(t.Context(), h, "go")
		var failure *abi.Error
		if failed := errors.As(err, &failure) && failure.Code == abi.CodeResourceExhausted; failed != tt.fails {
			t.Errorf("%d calls under %q: %v", tt.calls, tt.config, err)
		}
		made := 0
		for _, r := range host.Records {
			if r.Event.Kind == abi.EventToolResult {
				made++
			}
		}
		if made != tt.made {
			t.Errorf("%d calls under %q: %d were made, want %d", tt.calls, tt.config, made, tt.made)
		}
		if remembered := len(h.said) > 0; remembered == tt.fails {
			t.Errorf("%d calls under %q: %d messages are remembered", tt.calls, tt.config, len(h.said))
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, tt := range []struct {
		config string
		inputs []string
		answer abi.Message
		want   string
		is     error
	}{
		{config: `{"max_rounds":0}`, inputs: []string{"a"}, want: "config: max_rounds must be positive"},
		{config: `{"rounds":1}`, inputs: []string{"a"}, want: `config: unknown field "rounds"`},
		{want: "tools: the turn has no input"},
		{
			inputs: []string{"a"}, answer: calling(abi.ToolCall{ID: "a", Tool: "read"}, abi.ToolCall{ID: "a", Tool: "read"}),
			want: "tool_call: invalid request: call 2: its id must be one that no other call of the turn has", is: sdk.ErrInvalid,
		},
	} {
		host := newHost(tt.answer)
		host.Config = []byte(tt.config)
		_, err := host.Run(t.Context(), new(agent), tt.inputs...)
		if err == nil || err.Error() != tt.want || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s %q: %v, want %s", tt.config, tt.inputs, err, tt.want)
		}
	}
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// lastPrompt is what the last model call sent, a line a message.
func lastPrompt(host *sdktest.Host) []string {
	var lines []string
	for _, m := range host.Calls[len(host.Calls)-1].Messages {
		lines = append(lines, m.Role+": "+m.Text())
	}
	return lines
}

func TestChat(t *testing.T) {
	size := func(role, text string) int {
		b, err := json.Marshal(abi.Text(role, text))
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	// What the last two turns of the conversation below and the new input take.
	three := size("user", "b1") + size("user", "b2") + size("assistant", "echo:b2") +
		size("user", "c") + size("assistant", "echo:c") + size("user", "new")

	tests := []struct {
		name   string
		config string
		want   []string
	}{
		{"defaults", ``, []string{
			"user: a", "assistant: echo:a", "user: b1", "user: b2", "assistant: echo:b2", "user: c", "assistant: echo:c", "user: new",
		}},
		{"system", `{"system":"Be brief."}`, []string{
			"system: Be brief.",
			"user: a", "assistant: echo:a", "user: b1", "user: b2", "assistant: echo:b2", "user: c", "assistant: echo:c", "user: new",
		}},
		{"messages, to the last", `{"max_messages":6,"system":"s"}`, []string{
			"system: s", "user: b1", "user: b2", "assistant: echo:b2", "user: c", "assistant: echo:c", "user: new",
		}},
		{"whole turns only", `{"max_messages":5}`, []string{"user: c", "assistant: echo:c", "user: new"}},
		{"no room for a turn", `{"max_messages":2}`, []string{"user: new"}},
		{"bytes, to the last", fmt.Sprintf(`{"max_bytes":%d}`, three), []string{
			"user: b1", "user: b2", "assistant: echo:b2", "user: c", "assistant: echo:c", "user: new",
		}},
		{"one byte less", fmt.Sprintf(`{"max_bytes":%d}`, three-1), []string{"user: c", "assistant: echo:c", "user: new"}},
		{"the input is sent whatever the bounds", `{"max_bytes":1}`, []string{"user: new"}},
	}
	for _, test := range tests {
		// Short pages, so that turns run over their ends.
		host := &sdktest.Host{Page: 2}
		for _, inputs := range [][]string{{"a"}, {"b1", "b2"}, {"c"}} {
			if _, err := host.Run(t.Context(), chat{}, inputs...); err != nil {
				t.Fatal(err)
			}
		}
		host.Config = []byte(test.config)
		outputs, err := host.Run(t.Context(), chat{}, "new")
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(test.want, lastPrompt(host)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if diff := cmp.Diff([]abi.Message{abi.Text(abi.RoleAssistant, "echo:new")}, outputs); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestChatLeavesFailedTurnsOut(t *testing.T) {
	host := new(sdktest.Host)
	say := func(input string) error {
		_, err := host.Run(t.Context(), chat{}, input)
		return err
	}
	if err := say("a"); err != nil {
		t.Fatal(err)
	}
	host.Model = func(abi.ModelCall) (abi.ModelResult, error) { return abi.ModelResult{}, errors.New("down") }
	if err := say("b"); !errors.Is(err, sdk.ErrFailed) {
		t.Fatalf("got error %v, want the model's", err)
	}
	host.Model = nil
	// A turn that put something out before it was canceled counts no more.
	canceled := abi.Text(abi.RoleUser, "x")
	next := host.Records[len(host.Records)-1].Seq
	host.Records = append(host.Records,
		abi.LogRecord{Seq: next + 1, Event: &abi.Event{Kind: abi.EventInput, Message: &canceled}},
		abi.LogRecord{Seq: next + 2, Event: &abi.Event{Kind: abi.EventOutput, Message: &canceled}},
		abi.LogRecord{Seq: next + 3, Event: &abi.Event{Kind: abi.EventEnd, End: &abi.HarnessEnd{State: abi.StateCanceled}}},
	)
	if err := say("b"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"user: a", "assistant: echo:a", "user: b"}, lastPrompt(host)); diff != "" {
		t.Error(diff)
	}
}

// TestI2_ChatHandsReasoningBack: what a provider calls opaque comes back to it
// as it was.
func TestI2_ChatHandsReasoningBack(t *testing.T) {
	answer := abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
		{Reasoning: &abi.ReasoningPart{Provider: "p", OpaqueBytes: []byte{0, 255, 1}}},
		{Data: &abi.DataPart{Data: abi.Struct(`{"n":9007199254740993,"x":0.10}`)}},
	}}
	host := &sdktest.Host{Model: func(abi.ModelCall) (abi.ModelResult, error) {
		return abi.ModelResult{Message: answer}, nil
	}}
	for _, input := range []string{"a", "b"} {
		if _, err := host.Run(t.Context(), chat{}, input); err != nil {
			t.Fatal(err)
		}
	}
	want := []abi.Message{abi.Text(abi.RoleUser, "a"), answer, abi.Text(abi.RoleUser, "b")}
	if diff := cmp.Diff(want, host.Calls[1].Messages); diff != "" {
		t.Error(diff)
	}
}

// A bounded prompt must not cost more the longer the session is (F14).
func TestChatReadsWhatItSends(t *testing.T) {
	host := &sdktest.Host{Config: []byte(`{"max_messages":9}`)}
	for i := range 300 {
		if _, err := host.Run(t.Context(), chat{}, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	before := host.Pages
	if _, err := host.Run(t.Context(), chat{}, "last"); err != nil {
		t.Fatal(err)
	}
	if got := host.Pages - before; got != 1 {
		t.Errorf("%d pages read, want 1", got)
	}
}

// A record that cannot be read must not be left out of a prompt in silence.
func TestChatBrokenHistory(t *testing.T) {
	host := &sdktest.Host{Records: []abi.LogRecord{
		{Seq: 1, Event: &abi.Event{Kind: abi.EventOutput}},
		{Seq: 2, Event: &abi.Event{Kind: abi.EventEnd, End: &abi.HarnessEnd{State: abi.StateCompleted}}},
	}}
	if _, err := host.Run(t.Context(), chat{}, "hi"); err == nil || err.Error() != "chat: record 1, EVENT_OUTPUT, has no message" {
		t.Errorf("got error %v", err)
	}
}

func TestChatErrors(t *testing.T) {
	tests := []struct {
		config string
		inputs []string
		err    string
	}{
		{``, nil, "chat: the turn has no input"},
		{`{"sytem":"x"}`, []string{"hi"}, `config: unknown field "sytem"`},
		{`{"max_messages":0}`, []string{"hi"}, "config: max_messages and max_bytes must be positive"},
		{`{"max_bytes":-1}`, []string{"hi"}, "config: max_messages and max_bytes must be positive"},
	}
	for _, test := range tests {
		host := &sdktest.Host{Config: []byte(test.config)}
		_, err := host.Run(t.Context(), chat{}, test.inputs...)
		if err == nil || !strings.HasPrefix(err.Error(), test.err) || sdk.Failure(err).Code != abi.CodeInvalidArgument {
			t.Errorf("%s: got error %v, want %s", test.config, err, test.err)
		}
		if len(host.Calls) != 0 {
			t.Errorf("%s: the model was called", test.config)
		}
	}
}

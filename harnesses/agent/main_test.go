package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// answers is a model that gives them one after another.
func answers(list ...abi.Message) func(abi.ModelCall) (abi.ModelResult, error) {
	return func(abi.ModelCall) (abi.ModelResult, error) {
		if len(list) == 0 {
			return abi.ModelResult{}, errors.New("out of answers")
		}
		next := list[0]
		list = list[1:]
		return abi.ModelResult{Message: next}, nil
	}
}

// wants is an answer that calls tools.
func wants(calls ...abi.ToolCall) abi.Message {
	m := abi.Message{Role: abi.RoleAssistant}
	for _, c := range calls {
		m.Parts = append(m.Parts, abi.Part{ToolCall: &c})
	}
	return m
}

func says(text string) abi.Message { return abi.Text(abi.RoleAssistant, text) }

// workshop has a tool that gives back its arguments, one that fails, and one that
// a person always forbids.
func workshop() map[string]func(abi.ToolCall) (abi.ToolResult, error) {
	return map[string]func(abi.ToolCall) (abi.ToolResult, error){
		"files.read": func(c abi.ToolCall) (abi.ToolResult, error) { return abi.ToolResult{Output: c.Args}, nil },
		"files.lost": func(abi.ToolCall) (abi.ToolResult, error) { return abi.ToolResult{}, errors.New("no such file") },
		"db.drop": func(abi.ToolCall) (abi.ToolResult, error) {
			return abi.ToolResult{IsError: true, Code: abi.ToolApprovalDenied, Error: "denied: not today"}, nil
		},
	}
}

// TestSession holds a session against its transcript: calls of one answer side by
// side, each with its result, whatever went wrong with it.
func TestSession(t *testing.T) {
	host := &sdktest.Host{
		Config: []byte(`{"system":"Be brief.","model":"m","params":{"temperature":0.20,"effort":"low"}}`),
		Tools:  workshop(),
		Model: answers(
			wants(
				abi.ToolCall{ID: "a", Tool: "files.read", Args: abi.Struct(`{"n":12345678901234567890,"x":0.10}`), Mediation: abi.MediationInHarnessReported},
				abi.ToolCall{ID: "b", Tool: "invented"},
				abi.ToolCall{ID: "c", Tool: "files.lost"},
				abi.ToolCall{ID: "d", Tool: "files.read", Args: abi.Struct(`["n"]`)},
			),
			wants(abi.ToolCall{ID: "a", Tool: "db.drop"}, abi.ToolCall{Tool: "files.read", Args: abi.Struct(`{}`)}),
			says("It is a number, and still there."),
			says("As I said."),
		),
	}
	h := new(agent)
	for _, inputs := range [][]string{{"What is it?", "And drop it."}, {"Really?"}} {
		if _, err := host.Run(t.Context(), h, inputs...); err != nil {
			t.Fatal(err)
		}
	}
	host.Golden(t, "testdata/session.txt")
}

// TestI2_VerbatimParts: reasoning of an answer and files of a result stand in the
// next prompt as they came, and where they came.
func TestI2_VerbatimParts(t *testing.T) {
	answer := wants(abi.ToolCall{ID: "a", Tool: "look", Args: abi.Struct(`{"x":0.10,"n":9007199254740993}`)})
	answer.Parts = append([]abi.Part{{Reasoning: &abi.ReasoningPart{Provider: "p", OpaqueBytes: []byte{0, 255}, ItemID: "r1"}}}, answer.Parts...)
	seen := abi.ToolResult{Content: []abi.Part{
		{Text: &abi.TextPart{Text: "a cat"}},
		{File: &abi.FilePart{MIME: "image/png", Bytes: []byte{137, 80, 78, 71}}},
	}}
	host := &sdktest.Host{
		Model: answers(answer, says("done")),
		Tools: map[string]func(abi.ToolCall) (abi.ToolResult, error){
			"look": func(abi.ToolCall) (abi.ToolResult, error) { return seen, nil },
		},
	}
	if _, err := host.Run(t.Context(), new(agent), "go"); err != nil {
		t.Fatal(err)
	}
	seen.ID = "a"
	want := []abi.Message{abi.Text(abi.RoleUser, "go"), answer, {Role: abi.RoleTool, Parts: []abi.Part{{ToolResult: &seen}}}}
	if diff := cmp.Diff(want, host.Calls[1].Messages); diff != "" {
		t.Error(diff)
	}
}

// TestEditedArguments: a model is told that a person changed what it asked for.
func TestEditedArguments(t *testing.T) {
	host := &sdktest.Host{
		Model: answers(wants(abi.ToolCall{ID: "a", Tool: "pay", Args: abi.Struct(`{"eur":500}`)}), says("done")),
		Tools: map[string]func(abi.ToolCall) (abi.ToolResult, error){
			"pay": func(abi.ToolCall) (abi.ToolResult, error) {
				return abi.ToolResult{Output: abi.Struct(`{"paid":50}`), Cell: &abi.ResultCell{Args: abi.Struct(`{"eur":50}`)}}, nil
			},
		},
	}
	if _, err := host.Run(t.Context(), new(agent), "go"); err != nil {
		t.Fatal(err)
	}
	want := []abi.Part{{ToolResult: &abi.ToolResult{ID: "a", Content: []abi.Part{
		{Text: &abi.TextPart{Text: `A person changed the arguments of this call to {"eur":50}`}},
		{Data: &abi.DataPart{Data: abi.Struct(`{"paid":50}`)}},
	}}}}
	if diff := cmp.Diff(want, host.Calls[1].Messages[2].Parts); diff != "" {
		t.Error(diff)
	}
	for _, r := range host.Records {
		if r.Event.Result != nil && r.Event.Result.Cell != nil {
			t.Errorf("the record has %+v", r.Event.Result)
		}
	}
}

// TestCalls: which requests reach the host for the calls of one answer.
func TestCalls(t *testing.T) {
	read := func(ids ...string) abi.Message {
		calls := make([]abi.ToolCall, len(ids))
		for i, id := range ids {
			calls[i] = abi.ToolCall{ID: id, Tool: "files.read", Args: abi.Struct(fmt.Sprintf(`{"i":%d}`, i))}
		}
		return wants(calls...)
	}
	many := make([]string, abi.MaxToolCalls+1)
	for i := range many {
		many[i] = fmt.Sprint("m", i)
	}
	for _, tt := range []struct {
		name, config string
		answers      []abi.Message
		record       string // C for each TOOL_CALL and R for each TOOL_RESULT
		ids          []string
	}{
		{"side by side", ``, []abi.Message{read("a", "b")}, "CCRR", []string{"a", "b"}},
		{"one after another", `{"parallel":false}`, []abi.Message{read("a", "b")}, "CRCR", []string{"a", "b"}},
		{"the same ids again", ``, []abi.Message{read("0", "1"), read("0", "")}, "CCRRCCRR", []string{"0", "1", "0#3", "#4"}},
		{"an id taken twice over", ``, []abi.Message{read("0#2", "0", "0")}, "CCCRRR", []string{"0#2", "0", "0#3"}},
		{"an id that is too long", ``, []abi.Message{read(strings.Repeat("é", 600))}, "CR", []string{strings.Repeat("é", 64) + "#1"}},
		{
			"more than fit one request", ``,
			[]abi.Message{read(many...)},
			strings.Repeat("C", abi.MaxToolCalls) + strings.Repeat("R", abi.MaxToolCalls) + "CR", many,
		},
	} {
		host := &sdktest.Host{Config: []byte(tt.config), Tools: workshop(), Model: answers(append(tt.answers, says("done"))...)}
		if _, err := host.Run(t.Context(), new(agent), "go"); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var record string
		var ids []string
		keys := map[string]bool{}
		for _, r := range host.Records {
			switch r.Event.Kind {
			case abi.EventToolCall:
				record += "C"
				ids = append(ids, r.Event.Tool.ID)
				keys[r.Event.Tool.IdempotencyKey] = true
			case abi.EventToolResult:
				record += "R"
			}
		}
		if record != tt.record {
			t.Errorf("%s: the record has %s, want %s", tt.name, record, tt.record)
		}
		if diff := cmp.Diff(tt.ids, ids); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if len(keys) != len(ids) {
			t.Errorf("%s: %d calls have %d keys", tt.name, len(ids), len(keys))
		}
		// Whatever the record calls them: the model reads its own ids, in its order.
		for i, answer := range tt.answers {
			results := host.Calls[len(host.Calls)-1].Messages[2+2*i]
			for j, p := range answer.Parts {
				want := abi.ToolResult{ID: p.ToolCall.ID, Output: p.ToolCall.Args}
				if diff := cmp.Diff(want, *results.Parts[j].ToolResult); diff != "" {
					t.Errorf("%s: result %d of answer %d: %s", tt.name, j+1, i+1, diff)
				}
			}
		}
	}
}

// TestSteps: in the last step the model is told to answer, and cannot call tools. One that
// does so in spite of it fails the turn, which is then not remembered.
func TestSteps(t *testing.T) {
	for _, tt := range []struct {
		config  string
		calls   int // answers that call a tool
		choices string
		fails   bool
	}{
		{``, 0, "-", false},
		{``, 18, strings.Repeat("-", 19), false},
		{``, 19, strings.Repeat("-", 19) + "n", false},
		{``, 20, strings.Repeat("-", 19) + "n", true},
		{`{"max_steps":1}`, 0, "n", false},
		{`{"max_steps":1}`, 1, "n", true},
		{`{"max_steps":3,"tool_choice":"required"}`, 2, "r-n", false},
		{`{"max_steps":3,"tool_choice":"files.read"}`, 2, "f-n", false},
	} {
		var list []abi.Message
		for i := range tt.calls {
			list = append(list, wants(abi.ToolCall{ID: fmt.Sprint(i), Tool: "files.read"}))
		}
		host := &sdktest.Host{Config: []byte(tt.config), Tools: workshop(), Model: answers(append(list, says("done"))...)}
		h := new(agent)
		_, err := host.Run(t.Context(), h, "go")
		if failed := err != nil && sdk.Failure(err).Code == abi.CodeResourceExhausted; failed != tt.fails || err != nil && !failed {
			t.Errorf("%d calls under %q: %v", tt.calls, tt.config, err)
		}
		if remembered := len(h.talk.Said) > 0; remembered == tt.fails {
			t.Errorf("%d calls under %q: %d messages are remembered", tt.calls, tt.config, len(h.talk.Said))
		}
		var choices string
		for _, call := range host.Calls {
			if len(call.Tools) != 3 {
				t.Errorf("the model was told of %d tools", len(call.Tools))
			}
			choices += choiceLetter(call.ToolChoice)
		}
		if choices != tt.choices {
			t.Errorf("%d calls under %q: tool choices %s, want %s", tt.calls, tt.config, choices, tt.choices)
		}
		prompt := host.Calls[len(host.Calls)-1].Messages
		told := prompt[len(prompt)-1].Text() == lastStep
		if want := strings.HasSuffix(choices, "-n"); told != want {
			t.Errorf("%d calls under %q: told of the last step: %t", tt.calls, tt.config, told)
		}
	}
}

func choiceLetter(c *abi.ToolChoice) string {
	switch {
	case c == nil:
		return "-"
	case c.Name != "":
		return c.Name[:1]
	}
	return map[abi.ToolChoiceMode]string{abi.ToolChoiceNone: "n", abi.ToolChoiceRequired: "r"}[c.Mode]
}

// TestSubset: a tool that the configuration does not name is neither offered nor called.
func TestSubset(t *testing.T) {
	for _, tt := range []struct {
		config string
		want   []string
		made   bool
	}{
		{`{"tools":["db.*","other"]}`, []string{"db.drop"}, false},
		{`{"tools":["files.*"]}`, []string{"files.lost", "files.read"}, true},
		{`{"tools":[]}`, nil, false},
	} {
		host := &sdktest.Host{
			Config: []byte(tt.config), Tools: workshop(),
			Model: answers(wants(abi.ToolCall{ID: "a", Tool: "files.read", Args: abi.Struct(`{"x":1}`)}), says("done")),
		}
		if _, err := host.Run(t.Context(), new(agent), "go"); err != nil {
			t.Fatal(err)
		}
		var offered []string
		for _, d := range host.Calls[0].Tools {
			offered = append(offered, d.Name)
		}
		if diff := cmp.Diff(tt.want, offered); diff != "" {
			t.Errorf("%s: %s", tt.config, diff)
		}
		result := host.Calls[1].Messages[2].Parts[0].ToolResult
		want := &abi.ToolResult{ID: "a", Output: abi.Struct(`{"x":1}`)}
		if !tt.made {
			want = &abi.ToolResult{ID: "a", IsError: true, Error: `there is no tool "files.read"`}
		}
		if diff := cmp.Diff(want, result); diff != "" {
			t.Errorf("%s: %s", tt.config, diff)
		}
	}
}

func TestRefuses(t *testing.T) {
	for config, want := range map[string]string{
		`{"max_steps":0}`:                         "config: max_steps: want at least 1",
		`{"steps":1}`:                             `config: unknown field "steps"`,
		`{"tools":["["]}`:                         `config: tools: "[": want a name, or a pattern such as files.*`,
		`{"tool_choice":"nope"}`:                  `config: tool_choice: the turn has no tool "nope"; want auto, required, or one of its tools`,
		`{"tool_choice":"db.drop","tools":["f"]}`: `config: tool_choice: the turn has no tool "db.drop"; want auto, required, or one of its tools`,
		`{"tool_choice":"required","tools":[]}`:   "config: tool_choice: a tool is required, and the turn has none",
		`{"compaction":{"max_bytes":-1}}`:         "config: compaction: max_bytes: want at least 0",
		`{"compaction":{"max_tokens":-1}}`:        "config: compaction: max_tokens: want at least 0",
		`{"compaction":{"keep_messages":0}}`:      "config: compaction: keep_messages: want at least 1",
		`{"compaction":{"tool_result_bytes":-1}}`: "config: compaction: tool_result_bytes: want at least 0",
	} {
		host := &sdktest.Host{Config: []byte(config), Tools: workshop()}
		_, err := host.Run(t.Context(), new(agent), "go")
		if err == nil || err.Error() != want || sdk.Failure(err).Code != abi.CodeInvalidArgument || len(host.Calls) > 0 {
			t.Errorf("%s: %v after %d calls, want %s", config, err, len(host.Calls), want)
		}
	}
	host := new(sdktest.Host)
	if _, err := host.Run(t.Context(), new(agent)); err == nil || err.Error() != "agent: the turn has no input" {
		t.Errorf("no input: %v", err)
	}
	host.Model = answers()
	if _, err := host.Run(t.Context(), new(agent), "go"); !errors.Is(err, sdk.ErrFailed) {
		t.Errorf("a failed model call: %v", err)
	}
}

// TestPortable: another build goes on with the conversation as it was.
func TestPortable(t *testing.T) {
	first := &agent{talk: conversation{
		Summary: "Summary so far: a.", Tokens: 12, Seen: 7,
		Said: []abi.Message{
			abi.Text(abi.RoleUser, "go"),
			{Role: abi.RoleAssistant, Parts: []abi.Part{
				{Reasoning: &abi.ReasoningPart{Provider: "p", OpaqueBytes: []byte{0, 255}}},
				{ToolCall: &abi.ToolCall{ID: "a", Tool: "t", Args: abi.Struct(`{"n":12345678901234567890,"x":0.10}`)}},
			}},
		},
	}}
	state, err := sdk.SaveState(first)
	if err != nil {
		t.Fatal(err)
	}
	second := new(agent)
	if err := sdk.LoadState(second, state); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.talk, second.talk, cmpopts.IgnoreUnexported(conversation{})); diff != "" {
		t.Error(diff)
	}
	for state, want := range map[string]string{
		`{"version":2}`: "agent: a saved state of version 2; this is version 1",
		`{}`:            "agent: a saved state of version 0; this is version 1",
		`[]`:            "agent: the saved state: ",
	} {
		if err := sdk.LoadState(new(agent), json.RawMessage(state)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", state, err, want)
		}
	}
}

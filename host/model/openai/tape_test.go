package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/modeltest"
	"github.com/agentcell/agentcell/host/model/openai"
	"github.com/agentcell/agentcell/sdk/abi"
)

var search = abi.ToolDefinition{
	Name: "web.search", Description: "Search the web.",
	InputSchema: abi.Struct(`{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`),
}

// What goes out and what comes back, in every form that endpoints have. The answer
// of one call is the next one's history.
func TestTapes(t *testing.T) {
	for _, tt := range []struct {
		tape    string
		options openai.Options
		calls   []abi.ModelCall // each but the first is preceded by what was said
		want    []model.Result
	}{
		{
			tape: "tools.txtar", options: openai.Options{Params: map[string]string{"temperature": "0.2", "reasoning_effort": "low"}},
			calls: []abi.ModelCall{
				{
					Messages: []abi.Message{abi.Text(abi.RoleSystem, "Be brief."), abi.Text(abi.RoleUser, "Who is <Ada> & what is 2^53+1?")},
					Tools:    []abi.ToolDefinition{search, {Name: "now"}}, ToolChoice: &abi.ToolChoice{Mode: abi.ToolChoiceAuto},
					Params: map[string]string{"temperature": "0.7", "stop": `["END"]`, "parallel_tool_calls": "true"},
				},
				{
					Messages: []abi.Message{{Role: abi.RoleTool, Parts: []abi.Part{
						{ToolResult: &abi.ToolResult{ID: "call_a", Output: abi.Struct(`{"n":9007199254740993}`)}},
						{ToolResult: &abi.ToolResult{ID: "call_b", IsError: true, Error: "no clock"}},
					}}},
					Tools: []abi.ToolDefinition{search, {Name: "now"}}, ToolChoice: &abi.ToolChoice{Name: "web.search"},
				},
			},
			want: []model.Result{
				{
					Message: abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
						{Text: &abi.TextPart{Text: "Let me see."}},
						{ToolCall: &abi.ToolCall{ID: "call_a", Tool: "web.search", Args: abi.Struct(`{"q":"Ada","n":9007199254740993}`)}},
						{ToolCall: &abi.ToolCall{ID: "call_b", Tool: "now", Args: abi.Struct(`{}`)}},
					}},
					Usage: &abi.Usage{Model: "m-1-2026", InputTokens: 81, OutputTokens: 40, ReasoningTokens: 12},
				},
				{Message: abi.Text(abi.RoleAssistant, "Ada wrote the first program.")},
			},
		},
		{
			tape: "reasoning.txtar",
			calls: []abi.ModelCall{
				{Messages: []abi.Message{abi.Text(abi.RoleUser, "Think.")}},
				{Messages: []abi.Message{abi.Text(abi.RoleUser, "Again.")}},
				{Messages: []abi.Message{abi.Text(abi.RoleUser, "And once more.")}},
			},
			want: []model.Result{
				{Message: abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
					reasoning("m-1", `{"reasoning_content":"1 < 2 & so on"}`, "1 < 2 & so on"),
					{Text: &abi.TextPart{Text: "One."}},
				}}},
				{Message: abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
					reasoning("m-1", `{"reasoning":"hm","reasoning_details":[{"format":"x-v1","id":"r1","index":0,"signature":"c2ln","text":"hm, well","type":"reasoning.text"},{"data":"ZW5j","index":1,"type":"reasoning.encrypted"}]}`, "hm"),
					{Text: &abi.TextPart{Text: "Two."}},
				}}},
				{Message: abi.Text(abi.RoleAssistant, "Three.")},
			},
		},
		{
			tape: "files.txtar", options: openai.Options{NoStream: true},
			calls: []abi.ModelCall{
				{Messages: []abi.Message{{Role: abi.RoleUser, Parts: []abi.Part{
					{Text: &abi.TextPart{Text: "What is this?"}},
					{File: &abi.FilePart{MIME: "image/png", Bytes: []byte("png")}},
					{File: &abi.FilePart{MIME: "image/jpeg", URI: "https://example.com/a.jpg"}},
					{File: &abi.FilePart{MIME: "application/pdf", Name: "a.pdf", Bytes: []byte("pdf")}},
					{File: &abi.FilePart{MIME: "audio/mpeg", Bytes: []byte("mp3")}},
					{File: &abi.FilePart{MIME: "text/csv", Bytes: []byte("a,b\n1,2\n")}},
					{Data: &abi.DataPart{Data: abi.Struct(`{"n":9007199254740993}`)}},
					{Data: &abi.DataPart{Data: abi.Struct(`{"cache_control":{"type":"ephemeral"}}`)}},
				}}}},
				{Messages: []abi.Message{{Role: abi.RoleTool, Parts: []abi.Part{
					{ToolResult: &abi.ToolResult{ID: "call_0_0", Content: []abi.Part{
						{Text: &abi.TextPart{Text: "a picture"}},
						{File: &abi.FilePart{MIME: "image/png", Bytes: []byte("shot")}},
						{File: &abi.FilePart{MIME: "text/plain", URI: "file:///b", Bytes: []byte("b")}},
						{File: &abi.FilePart{MIME: "audio/wav", URI: "file:///c", Name: "c"}},
					}}},
				}}}},
			},
			want: []model.Result{
				{Message: abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
					{File: &abi.FilePart{MIME: "image/png", Bytes: []byte("made")}},
					{ToolCall: &abi.ToolCall{ID: "call_0_0", Tool: "shoot", Args: abi.Struct(`{"x":1}`)}},
				}}},
				{Message: abi.Text(abi.RoleAssistant, "I cannot.")},
			},
		},
	} {
		t.Run(tt.tape, func(t *testing.T) {
			p := provider(modeltest.Tape(t, "testdata/"+tt.tape), tt.options)
			modeltest.Converse(t, p, tt.calls, tt.want)
		})
	}
}

func reasoning(id, opaque, summary string) abi.Part {
	if !json.Valid([]byte(opaque)) {
		panic(opaque)
	}
	return abi.Part{Reasoning: &abi.ReasoningPart{
		Provider: openai.API, ModelID: id, OpaqueBytes: []byte(opaque), Summary: []abi.Part{{Text: &abi.TextPart{Text: summary}}},
	}}
}

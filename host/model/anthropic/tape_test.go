package anthropic_test

import (
	"testing"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/anthropic"
	"github.com/agentcell/agentcell/host/model/modeltest"
	"github.com/agentcell/agentcell/sdk/abi"
)

// What goes out and what comes back. The answer of one call is the next one's
// history.
func TestTapes(t *testing.T) {
	search := abi.ToolDefinition{
		Name: "web.search", Description: "Search the web.",
		InputSchema: abi.Struct(`{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`),
	}
	cached := abi.Part{Data: &abi.DataPart{Data: abi.Struct(`{"cache_control":{"type":"ephemeral"}}`)}}
	for _, tt := range []struct {
		tape    string
		options anthropic.Options
		calls   []abi.ModelCall // each but the first is preceded by what was said
		want    []model.Result
	}{
		{
			tape: "thinking.txtar", options: anthropic.Options{Params: map[string]string{"max_tokens": "4096"}},
			calls: []abi.ModelCall{
				{
					Messages: []abi.Message{
						{Role: abi.RoleSystem, Parts: []abi.Part{{Text: &abi.TextPart{Text: "Be brief."}}, cached}},
						abi.Text(abi.RoleUser, "Who is <Ada> & what is 2^53+1?"),
					},
					Tools: []abi.ToolDefinition{search, {Name: "now"}}, ToolChoice: &abi.ToolChoice{Mode: abi.ToolChoiceAuto},
					Params: map[string]string{"thinking": `{"type":"enabled","budget_tokens":1024}`},
				},
				{
					Messages: []abi.Message{
						{Role: abi.RoleTool, Parts: []abi.Part{{ToolResult: &abi.ToolResult{ID: "toolu_a", Output: abi.Struct(`{"n":9007199254740993}`)}}}},
						{Role: abi.RoleTool, Parts: []abi.Part{{ToolResult: &abi.ToolResult{ID: "toolu_b", IsError: true, Error: "no clock"}}}},
						{Role: abi.RoleUser, Parts: []abi.Part{{Text: &abi.TextPart{Text: "Well?"}}, cached}},
					},
					Tools: []abi.ToolDefinition{search, {Name: "now"}}, ToolChoice: &abi.ToolChoice{Mode: abi.ToolChoiceRequired},
				},
			},
			want: []model.Result{
				{
					Message: abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
						opaque(0, `{"signature":"c2ln/A==","thinking":"1 < 2 & so on","type":"thinking"}`, "1 < 2 & so on"),
						opaque(1, `{"data":"ZW5j","type":"redacted_thinking"}`, ""),
						{Text: &abi.TextPart{Text: "Let me see."}},
						{ToolCall: &abi.ToolCall{ID: "toolu_a", Tool: "web.search", Args: abi.Struct(`{"q":"Ada","n":9007199254740993}`)}},
						{ToolCall: &abi.ToolCall{ID: "toolu_b", Tool: "now", Args: abi.Struct(`{}`)}},
					}},
					Usage: &abi.Usage{Model: "m-1-2026", InputTokens: 111, OutputTokens: 40},
				},
				{
					Message: abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
						opaque(0, `{"id":"srvtoolu_1","input":{"query":"Ada"},"name":"web_search","type":"server_tool_use"}`, ""),
						{Text: &abi.TextPart{Text: "Ada wrote the first program."}},
					}},
					Usage: &abi.Usage{Model: "m-1", InputTokens: 7, OutputTokens: 3},
				},
			},
		},
		{
			tape: "files.txtar", options: anthropic.Options{NoStream: true},
			calls: []abi.ModelCall{
				{Messages: []abi.Message{{Role: abi.RoleUser, Parts: []abi.Part{
					{Text: &abi.TextPart{Text: "What is this?"}},
					{Text: &abi.TextPart{}},
					{Text: &abi.TextPart{Text: " \n\n"}},
					{File: &abi.FilePart{MIME: "image/png", Bytes: []byte("png")}},
					{File: &abi.FilePart{MIME: "image/jpeg", URI: "https://example.com/a.jpg"}},
					{File: &abi.FilePart{MIME: "application/pdf", Name: "a.pdf", Bytes: []byte("pdf")}},
					{File: &abi.FilePart{MIME: "text/csv", Bytes: []byte("a,b\n1,2\n")}},
					{Data: &abi.DataPart{Data: abi.Struct(`{"n":9007199254740993}`)}},
				}}}},
				{
					Messages: []abi.Message{{Role: abi.RoleTool, Parts: []abi.Part{
						{ToolResult: &abi.ToolResult{ID: "toolu_a", Content: []abi.Part{
							{Text: &abi.TextPart{Text: "a picture"}},
							{File: &abi.FilePart{MIME: "image/png", Bytes: []byte("shot")}},
							{File: &abi.FilePart{MIME: "text/plain", URI: "file:///b", Bytes: []byte("b")}},
							{File: &abi.FilePart{MIME: "audio/wav", URI: "file:///c", Name: "c"}},
						}}},
					}}},
					Tools: []abi.ToolDefinition{{Name: "shoot"}}, ToolChoice: &abi.ToolChoice{Name: "shoot"},
				},
			},
			want: []model.Result{
				{Message: abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
					{ToolCall: &abi.ToolCall{ID: "toolu_a", Tool: "shoot", Args: abi.Struct(`{"x":1}`)}},
				}}},
				{Message: abi.Text(abi.RoleAssistant, "A cat.")},
			},
		},
	} {
		t.Run(tt.tape, func(t *testing.T) {
			p := provider(modeltest.Tape(t, "testdata/"+tt.tape), tt.options)
			modeltest.Converse(t, p, tt.calls, tt.want)
		})
	}
}

func opaque(at int32, block, summary string) abi.Part {
	id := "m-1-2026"
	if summary == "" && at == 0 {
		id = "m-1"
	}
	r := &abi.ReasoningPart{Provider: anthropic.API, ModelID: id, OpaqueBytes: []byte(block), Ordinal: at}
	if summary != "" {
		r.Summary = []abi.Part{{Text: &abi.TextPart{Text: summary}}}
	}
	return abi.Part{Reasoning: r}
}

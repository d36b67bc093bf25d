package mcp_test

import (
	"testing"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/mcp"
	"github.com/agentcell/agentcell/sdk/abi"
)

// BenchmarkCall is a call of a tool that gives its arguments back, of a server over
// stdio that runs.
func BenchmarkCall(b *testing.B) {
	path, err := program()
	if err != nil {
		b.Fatal(err)
	}
	s := mcp.New(map[string]config.MCP{"s": {Command: path}}, mcp.Options{})
	defer s.Close()
	t, ok, err := s.Tool(b.Context(), "s.echo")
	if err != nil || !ok {
		b.Fatal(ok, err)
	}
	c := tool.Call{ToolCall: abi.ToolCall{ID: "1", Tool: "s.echo", Args: abi.Struct(`{"n":1}`)}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.Executor.Call(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}

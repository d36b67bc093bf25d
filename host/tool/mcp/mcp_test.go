package mcp_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/mcp"
	"github.com/agentcell/agentcell/host/tool/tooltest"
	"github.com/agentcell/agentcell/sdk/abi"
)

func TestMain(m *testing.M) {
	if os.Getenv(hostEnv) != "" {
		runHost(os.Getenv(hostEnv))
	}
	goleak.VerifyTestMain(m)
}

// program is the server of testdata, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agentcell-mcp")
	if err != nil {
		return "", err
	}
	return tooltest.MCPServer(dir)
})

// stdio is a server of testdata that behaves as it is told, with the name of its log.
func stdio(t *testing.T, how ...string) (config.MCP, string) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	return config.MCP{Command: path, Args: how, Env: map[string]config.Value{"LOG": {Text: log}}}, log
}

// open makes servers that are closed with the test.
func open(t *testing.T, o mcp.Options, servers map[string]config.MCP) *mcp.Servers {
	t.Helper()
	s := mcp.New(servers, o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func one(t *testing.T, c config.MCP) *mcp.Servers {
	return open(t, mcp.Options{}, map[string]config.MCP{"s": c})
}

func names(tools []tool.Tool) []string {
	out := []string{}
	for _, t := range tools {
		out = append(out, t.Definition.Name)
	}
	slices.Sort(out)
	return out
}

func call(ctx context.Context, s *mcp.Servers, name, args string) (abi.ToolResult, error) {
	t, ok, err := s.Tool(ctx, name)
	if err != nil || !ok {
		return abi.ToolResult{}, errors.Join(err, errors.New("no tool"))
	}
	return t.Executor.Call(ctx, tool.Call{ToolCall: abi.ToolCall{ID: "1", Tool: name, Args: abi.Struct(args)}})
}

func logged(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll(string(b), " ", "-"))
}

// Nothing is started before it is needed; then tools are listed and called, what they
// give is as the server wrote it (I2), and one process serves all.
func TestServers(t *testing.T) {
	c, log := stdio(t)
	s := one(t, c)
	if got := logged(t, log); len(got) > 0 {
		t.Errorf("before anything was asked: %v", got)
	}
	tools, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"s.child", "s.echo", "s.env", "s.exit", "s.fail", "s.grow", "s.show", "s.slow"}
	if diff := cmp.Diff(want, names(tools)); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if d := tools[1].Definition; d.Description != "Does echo." || string(d.InputSchema) != `{"type":"object","properties":{"n":{"type":"integer","maximum":12345678901234567890}}}` {
		t.Errorf("%+v with schema %s", d, d.InputSchema)
	}
	const args = `{"n":12345678901234567890,"z":1.50,"a":"ä"}`
	for _, tt := range []struct {
		name string
		want abi.ToolResult
	}{
		{"s.echo", abi.ToolResult{Output: abi.Struct(args), Content: []abi.Part{{Text: &abi.TextPart{Text: args}}}}},
		{"s.fail", abi.ToolResult{IsError: true, Error: "no such file"}},
		{"s.show", abi.ToolResult{Content: []abi.Part{
			{Text: &abi.TextPart{Text: "see"}},
			{File: &abi.FilePart{MIME: "image/png", Bytes: []byte{0x89, 'P', 'N', 'G'}}},
			{File: &abi.FilePart{MIME: "audio/wav", Bytes: []byte("RIFF")}},
			{Data: &abi.DataPart{Data: abi.Struct(`{"type":"resource_link","mimeType":"text/plain","uri":"file:///a","name":"a"}`)}},
			{File: &abi.FilePart{URI: "file:///b", MIME: "text/plain", Bytes: []byte("b")}},
			{File: &abi.FilePart{URI: "file:///c", Bytes: []byte{1, 2}}},
		}}},
	} {
		got, err := call(t.Context(), s, tt.name, args)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if diff := cmp.Diff([]string{"start", "echo", "fail", "show"}, logged(t, log)); diff != "" {
		t.Errorf("what the server did (-want +got):\n%s", diff)
	}
}

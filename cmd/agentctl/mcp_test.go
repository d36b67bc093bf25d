package main

import (
	"os"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentcell/agentcell/host/tool/tooltest"
)

// mcpServer is the MCP server of host/tool/mcp's tests, built once.
var mcpServer = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "agentctl-mcp")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program, err := tooltest.MCPServer(dir)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(program)
})

// buildMCPServer is the script command `mkserver FILE`: an MCP server on stdin and
// stdout.
func buildMCPServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mkserver FILE")
	}
	program, err := mcpServer()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), program, 0o755))
}

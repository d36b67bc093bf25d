package tooltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// MCPServer builds the MCP server of the tests, whose comment says how it behaves, into
// dir.
func MCPServer(dir string) (program string, err error) {
	program = filepath.Join(dir, "server")
	const source = "github.com/agentcell/agentcell/host/tool/mcp/testdata/server"
	if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, nil
}

// ServeMCP runs the program as a server over HTTP until the test ends, with log as its
// log, and returns its URL.
func ServeMCP(t testing.TB, program, log string) (url string) {
	t.Helper()
	server := exec.Command(program, "http")
	server.Env = append(os.Environ(), "LOG="+log)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for {
		text, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if line, _, whole := strings.Cut(string(text), "\n"); whole {
			return strings.TrimPrefix(line, "start ")
		}
		time.Sleep(time.Millisecond)
	}
}

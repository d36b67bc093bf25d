package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// slow is a module that takes a second to be ready, once it is compiled.
func slow() wasmtest.Module {
	m := guest(`i32.const 0`)
	m.Funcs = append(m.Funcs, wasmtest.Func{Export: "_initialize", Body: `
		loop
			i32.const 4096 i32.const 4096 i32.load i32.const 1 i32.add i32.store
			i32.const 4096 i32.load i32.const 500000000 i32.lt_u br_if 0
		end`})
	return m
}

// A person is told of a module that takes long to compile, once on each machine. Who
// reads what agentctl prints by a program is not; the log has it.
func TestTerminalCompile(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	file := writeFile(t, string(slow().Bytes()))
	cache := t.TempDir()
	inspect := []string{"harness", "inspect", file}

	p := atTerminalWith(t, data, cache, inspect...)
	p.awaitMatch(`compiling \S+ \(0\.0 MB\), once on this machine …\r\n(?s:.*)compiled \S+ in [\d.]+m?s\r\n`)
	p.ends(exitOK)

	silent := func(what string, p *pty) {
		t.Helper()
		p.await("golden")
		p.ends(exitOK)
		p.mu.Lock()
		defer p.mu.Unlock()
		if strings.Contains(p.text.String(), "compil") {
			t.Errorf("%s: it says %q", what, p.text.String())
		}
	}
	silent("from the cache", atTerminalWith(t, data, cache, inspect...))
	silent("as JSON", atTerminalWith(t, data, t.TempDir(), append(inspect, "--json")...))

	var stderr bytes.Buffer
	cmd := exec.Command("agentctl", append(inspect, "-v")...)
	cmd.Env = append(os.Environ(), "AGENTCTL_DATA="+data, "AGENTCELL_CACHE="+t.TempDir())
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if got := stderr.String(); strings.Contains(got, "compiling") || !strings.Contains(got, "module compiled") {
		t.Errorf("no terminal: it says %q", got)
	}
}

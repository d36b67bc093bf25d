package extism_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/extism"
	"github.com/agentcell/agentcell/sdk/abi"
)

// others is where the SDK keeps its plug-ins, which others have built.
func others(t testing.TB) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "wasm")
}

// testCache is the compile cache that the tests of all packages share.
func testCache(t testing.TB) string {
	if dir := os.Getenv("AGENTCELL_TEST_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "agentcell-test")
}

func module(code []byte) extism.Module {
	return extism.Module{Digest: abi.DigestOf(code), Code: func() ([]byte, error) { return code, nil }}
}

func plugins(t testing.TB, o extism.Options) *extism.Plugins {
	t.Helper()
	p := extism.New(o)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func other(t testing.TB, name string) []byte {
	t.Helper()
	code, err := os.ReadFile(filepath.Join(others(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func text(s string) abi.ToolResult {
	return abi.ToolResult{Content: []abi.Part{{Text: &abi.TextPart{Text: s}}}}
}

// patient gives a plug-in that is compiled first, on a machine that has other things to
// do, the time that it takes.
func patient(m extism.Manifest) extism.Manifest {
	if m.TimeoutMS == 0 {
		m.TimeoutMS = 600_000
	}
	return m
}

func call(t testing.TB, p *extism.Plugins, code []byte, m extism.Manifest, args string) (abi.ToolResult, error) {
	t.Helper()
	e := p.Executor(module(code), patient(m))
	return e.Call(t.Context(), tool.Call{ToolCall: abi.ToolCall{ID: "c1", Tool: "x", Args: abi.Struct(args)}})
}

// Plug-ins that others have built, with several compilers.
func TestOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "test.txt"), []byte("hello from outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := plugins(t, extism.Options{CacheDir: testCache(t)})
	for _, tt := range []struct {
		name, module string
		manifest     extism.Manifest
		args         string
		want         abi.ToolResult
	}{
		{"hello", "hello.wasm", extism.Manifest{Export: "run_test"}, ``, text("Hello, world!")},
		{
			"count vowels", "count_vowels.wasm",
			extism.Manifest{Export: "count_vowels", Input: "text", WASI: true},
			`{"text":"hello world"}`,
			abi.ToolResult{Output: abi.Struct(`{"count":3,"total":3,"vowels":"aeiouAEIOU"}`)},
		},
		{
			"config", "config.wasm",
			extism.Manifest{Export: "run_test", WASI: true, Config: map[string]string{"thing": "hello"}},
			`{}`,
			abi.ToolResult{Output: abi.Struct(`{"config": "hello"}`)},
		},
		{
			"haskell", "hello_haskell.wasm",
			extism.Manifest{Export: "testing", WASI: true, Config: map[string]string{"greeting": "Howdy"}, Input: "who"},
			`{"who":"John"}`, text("Howdy, John"),
		},
		{
			"var", "var.wasm", extism.Manifest{Export: "run_test", WASI: true}, `{}`, text("a: 0"),
		},
		{
			"a directory", "fs.wasm",
			extism.Manifest{Export: "run_test", WASI: true, Paths: []extism.Path{{Host: dir, Guest: "/mnt"}}},
			`{}`, text("hello from outside"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := other(t, tt.module)
			if err := p.Check(t.Context(), code, patient(tt.manifest)); err != nil {
				t.Fatal(err)
			}
			got, err := call(t, p, code, tt.manifest, tt.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

package harnesses

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Sessions are pinned to a module's digest, so two machines must build the same
// bytes, wherever their source trees are.
func TestBuildIsReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a harness twice")
	}
	here, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "another", "tree")
	for _, dir := range []string{"sdk", filepath.Join("harnesses", "agent")} {
		if err := os.CopyFS(filepath.Join(elsewhere, dir), os.DirFS(filepath.Join(here, dir))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(here, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(elsewhere, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Agent is the biggest, and uses most of the SDK.
	first, second := build(t, here, "agent"), build(t, elsewhere, "agent")
	if !bytes.Equal(first, second) {
		t.Errorf("%s and %s gave different modules of %d and %d bytes", here, elsewhere, len(first), len(second))
	}
	const limit = 15 << 18 // 3.75 MiB: what a module costs to compile and to keep
	if len(first) > limit {
		t.Errorf("agent has %d bytes, more than %d", len(first), limit)
	}
}

// build builds a harness as `make harnesses` does.
func build(t *testing.T, root, name string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, "./harnesses/"+name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build in %s: %v\n%s", root, err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

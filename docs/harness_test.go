package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The harness in harness-authoring.md, in a module of its own as its author has it, builds
// by the command that stands there and passes the test that stands there.
func TestHarnessExample(t *testing.T) {
	document := read(t, "harness-authoring.md")
	blocks := golang.FindAllStringSubmatch(document, -1)
	command := regexp.MustCompile(`(?m)^    (GOOS=wasip1 .*)$`).FindStringSubmatch(document)
	if len(blocks) != 2 || command == nil {
		t.Fatalf("want a harness, its test and a command: found %d blocks of Go, command %q", len(blocks), command)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go":      blocks[0][1],
		"main_test.go": blocks[1][1],
		"go.sum":       read(t, "../go.sum"),
		"go.mod": "module example.com/patient\n\ngo 1.26.0\n\nrequire github.com/agentcell/agentcell v0.0.0\n\n" +
			"replace github.com/agentcell/agentcell => " + root + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []string{command[1], "go vet .", "go test ."} {
		// Words apart by blanks, quotes around some: what a shell would do here.
		var args []string
		env := append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
		for _, word := range regexp.MustCompile(`'[^']*'|\S+='[^']*'|\S+`).FindAllString(c, -1) {
			word = strings.ReplaceAll(word, "'", "")
			if len(args) == 0 && strings.Contains(word, "=") {
				env = append(env, word)
			} else {
				args = append(args, word)
			}
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c, err, out)
		}
	}
	module, err := os.ReadFile(filepath.Join(dir, "patient.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	// What the document says of its imports.
	if !strings.Contains(string(module), "\x05agent\x05model\x00") || strings.Contains(string(module), "\x05agent\x07history\x00") {
		t.Error("the module must import agent.model and must not import agent.history")
	}
}

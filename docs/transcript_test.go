package docs

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/harnesses"
)

const readme = "../README.md"

var update = flag.Bool("update", false, "write what the commands print into the documents")

// TestTranscripts runs every block of a document that is marked as console, in a
// directory of its own: lines that begin with "$ " are commands, and what follows
// is what they print, ids, hashes and times aside. A "> " line continues a command.
func TestTranscripts(t *testing.T) {
	agentctl := build(t)
	// What has been compiled is not compiled again while a transcript waits.
	for _, name := range harnesses.Names() {
		replay(t, agentctl, t.TempDir(), []string{"agentctl exec --harness " + name + " --input 1"})
	}
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, path := range append(documents, readme) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fresh := console.ReplaceAllFunc(text, func(block []byte) []byte {
			blocks++
			want := string(console.FindSubmatch(block)[1])
			got := replay(t, agentctl, place(t, path), commands(want))
			if diff := cmp.Diff(normalise(want), normalise(got)); diff != "" && !*update {
				t.Errorf("%s says what is not so; `go test ./docs -update` rewrites it (-document +run):\n%s", path, diff)
			}
			return fmt.Appendf(nil, "```console\n%s```\n", got)
		})
		if *update && !bytes.Equal(text, fresh) {
			if err := os.WriteFile(path, fresh, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if blocks == 0 {
		t.Error("no document has a console block")
	}
}

var (
	console = regexp.MustCompile("(?ms)^```console\n(.*?)^```\n")
	golang  = regexp.MustCompile("(?ms)^```go\n(.*?)^```\n")
)

// build builds agentctl as make does.
func build(t *testing.T) string {
	t.Helper()
	if len(harnesses.Names()) == 0 {
		missing(t, "no bundled harnesses; run `make harnesses`")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		missing(t, "bash is not installed")
	}
	path := filepath.Join(t.TempDir(), "agentctl")
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/agentctl").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// missing skips the test, or fails it where nothing may be missing.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// commands are the commands of a block.
func commands(block string) []string {
	var found []string
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			found = append(found, command)
		} else if more, ok := strings.CutPrefix(line, "> "); ok && len(found) > 0 {
			found[len(found)-1] += "\n" + more
		}
	}
	return found
}

// place is an empty directory. For the README it is one of the checkout as far as the go
// command is concerned.
func place(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	if path != readme {
		return dir
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(read(t, filepath.Join("..", name))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// replay runs the commands in one shell, in dir, and returns them with what they print.
func replay(t *testing.T, agentctl, dir string, commands []string) string {
	t.Helper()
	var script strings.Builder
	for _, command := range commands {
		shown := "$ " + strings.ReplaceAll(command, "\n", "\n> ")
		fmt.Fprintf(&script, "cat <<'SHOWN'\n%s\nSHOWN\n%s\n", shown, command)
	}
	// Commands wait for each other, so one that fails may keep the others waiting.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"AGENTCTL_DATA="+filepath.Join(dir, "data"),
		"PATH="+filepath.Dir(agentctl)+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"NO_COLOR=1",
	)
	if cache := os.Getenv("AGENTCELL_TEST_CACHE"); cache != "" {
		cmd.Env = append(cmd.Env, "AGENTCELL_CACHE="+cache)
	}
	// What is still running in the end is not waited for, as it would be with a pipe.
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	// A command that fails is a transcript too; what matters is what it printed.
	if err := cmd.Run(); ctx.Err() != nil || err != nil && cmd.ProcessState == nil {
		t.Fatalf("bash: %v; it printed:\n%s", err, read(t, out.Name()))
	}
	return progress.ReplaceAllString(read(t, out.Name()), "")
}

// progress is what agentctl says when compiling takes long, which depends on the
// machine.
var progress = regexp.MustCompile(`(?m)^(compiling|compiled) .*\n`)

// changing matches what differs from run to run: a duration with the spaces that fill
// its column.
var changing = regexp.MustCompile(`\b(sess-|exec-)?[0-9a-f]{12,64}\b|\b[A-Z2-7]{26}\b` +
	`|\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z` +
	`|\b\d+(\.\d+)?(ns|µs|ms|s|m|h|d)\b *`)

// normalise puts in place of each changing text its kind, and in place of ids
// and hashes also which one of the block it is, so that what was equal must stay
// equal.
func normalise(block string) string {
	known := map[string]int{}
	return changing.ReplaceAllStringFunc(block, func(s string) string {
		switch {
		case strings.HasSuffix(s, "Z"):
			return "<time>"
		case strings.ContainsAny(s[len(s)-1:], "smhd ") && len(s) < 12:
			return "<duration>"
		}
		kind, id, named := strings.Cut(s, "-")
		if !named {
			// A hash may stand there whole or cut short.
			kind, id = "hash", s[:12]
		}
		if known[id] == 0 {
			known[id] = len(known) + 1
		}
		return fmt.Sprintf("<%s %d>", kind, known[id])
	})
}

func TestNormalise(t *testing.T) {
	a, b := "sess-"+strings.Repeat("a", 24), "sess-"+strings.Repeat("b", 24)
	root := strings.Repeat("0c", 6)
	block := a + " root=" + root + "\n" + b + " parent=" + a + " 2026-01-02T03:04:05.678Z 12s ago seq=4 123456789012\n" + root + "ff"
	want := "<sess 1> root=<hash 2>\n<sess 3> parent=<sess 1> <time> <duration>ago seq=4 <hash 4>\n<hash 2>"
	if diff := cmp.Diff(want, normalise(block)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

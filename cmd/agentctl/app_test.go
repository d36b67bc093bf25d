package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/harnesses"
)

// The first Ctrl-C ends the context; the second one leaves.
func TestInterrupts(t *testing.T) {
	a := newApp(nil, new(strings.Builder), new(strings.Builder), func(string) string { return "" })
	a.turning.Store(true)
	left := make(chan int, 1)
	ctx, stop := a.interrupts(func(code int) { left <- code })
	defer stop()
	interrupt := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	interrupt()
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) {
		t.Errorf("the context ended for %v", cause)
	}
	select {
	case code := <-left:
		t.Fatalf("left with %d after the first signal", code)
	default:
	}
	interrupt()
	if code := <-left; code != exitInterrupted {
		t.Errorf("left with %d, want %d", code, exitInterrupted)
	}
}

// SIGTERM ends the context however often it comes; Ctrl-C behind it leaves.
func TestTerminatedTwice(t *testing.T) {
	a := newApp(nil, new(strings.Builder), new(strings.Builder), func(string) string { return "" })
	left := make(chan int, 1)
	a.exit = func(code int) { left <- code }
	ctx, cancel := context.WithCancelCause(t.Context())
	signals := make(chan os.Signal)
	go a.heed(signals, cancel)
	for range 3 { // each is taken when the one before it was heeded
		signals <- syscall.SIGTERM
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) {
		t.Errorf("the context ended for %v", cause)
	}
	if len(left) != 0 {
		t.Fatalf("left with %d after SIGTERM", <-left)
	}
	signals <- os.Interrupt
	if code := <-left; code != exitInterrupted {
		t.Errorf("left with %d, want %d", code, exitInterrupted)
	}
}

// Whoever reads stdout and does not go on keeps nobody from leaving.
func TestInterruptsWhileOutputIsStuck(t *testing.T) {
	a := newApp(nil, new(strings.Builder), new(strings.Builder), func(string) string { return "" })
	a.turning.Store(true)
	a.mu.Lock() // as a blocked write holds it
	left := make(chan int, 1)
	ctx, stop := a.interrupts(func(code int) { left <- code })
	defer stop()
	for range 2 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
	}
	if code := <-left; code != exitInterrupted {
		t.Errorf("left with %d, want %d", code, exitInterrupted)
	}
	a.mu.Unlock()
}

// A read from a terminal that never ends gives way to Ctrl-C.
func TestReadInputGivesUp(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	a := newApp(r, new(strings.Builder), new(strings.Builder), func(string) string { return "" })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	if _, err := a.readInputs(ctx, "--input", []string{"-"}); exitCode(err) != exitInterrupted {
		t.Errorf("readInputs gives %v", err)
	}
}

// So does a pipe that nobody writes to, wherever a file may be named.
func TestReadFileGivesUp(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.wasm")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"exec", "--input", "@" + pipe},
		{"exec", "--input", "x", "--config", "@" + pipe},
		{"exec", "--input", "x", "--script", pipe},
		{"exec", "--input", "x", "--harness", pipe},
		{"exec", "--input", "x", "--tools", pipe},
		{"signal", "--session", "s", "go", "--payload", "@" + pipe},
		{"harness", "inspect", pipe},
	} {
		var stdout, stderr strings.Builder
		a := newApp(strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errInterrupted)
		code := a.run(ctx, append(args, "--data", filepath.Join(t.TempDir(), "data")))
		if code != exitInterrupted || stdout.Len() > 0 {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, stdout.String(), stderr.String())
		}
	}
}

// Every example of every help text runs, in the order of the text, where there
// are a session "demo", an interrupted one "stuck", parked ones "gated" and
// "unpaid", and the files that the examples name.
func TestExamples(t *testing.T) {
	needHarnesses(t)
	warm(t)
	program, err := exec.LookPath("agentctl")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			shell := exampleDirectory(t, program)
			parked(t, shell, cmd.Example)
			for line := range strings.Lines(cmd.Example) {
				line = strings.TrimSpace(line)
				if strings.HasPrefix(line, "agentctl watch") && !strings.Contains(line, "--no-wait") {
					interrupted(t, shell("exec "+line))
					continue
				}
				if out, err := shell(line).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			}
		})
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(newRootCommand(newApp(nil, new(strings.Builder), new(strings.Builder), func(string) string { return "" })))
}

// interrupted runs an example that ends with Ctrl-C, which a person presses who
// has seen something.
func interrupted(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		t.Errorf("%s shows nothing: %v", cmd, lines.Err())
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", cmd, err)
	}
}

// parked makes the sessions with parked turns that an example is about.
func parked(t *testing.T, shell func(string) *exec.Cmd, example string) {
	t.Helper()
	for name, line := range map[string]string{
		"gated":  `--harness tools --script calls.jsonl --tools tools.jsonl`,
		"unpaid": `--harness waits.wasm`,
	} {
		if !strings.Contains(example, name) {
			continue
		}
		cmd := shell("agentctl exec --name " + name + " --input go " + line)
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != exitAwaiting {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// exampleDirectory prepares a directory for examples, and gives a shell in it.
func exampleDirectory(t *testing.T, program string) (shell func(line string) *exec.Cmd) {
	t.Helper()
	dir := t.TempDir()
	cache, err := testCache()
	if err != nil {
		t.Fatal(err)
	}
	shell = func(line string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", "set -e\n"+line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(),
			"PATH="+filepath.Dir(program)+string(filepath.ListSeparator)+os.Getenv("PATH"),
			"AGENTCTL_DATA="+filepath.Join(dir, "data"), "AGENTCELL_CACHE="+cache)
		return cmd
	}
	echo, err := harnesses.Module("echo")
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := pluginDirectory()
	if err != nil {
		t.Fatal(err)
	}
	vowels, err := os.ReadFile(filepath.Join(plugins, "count_vowels.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"count_vowels.wasm": string(vowels),
		// The same code with a custom section is another module.
		"echo-2.wasm":   string(echo) + "\x00\x05\x04next",
		"question.txt":  "1 2\n",
		"questions.txt": "1\n2\n",
		"answers.jsonl": strings.Repeat(`{"text":"an answer"}`+"\n", 9),
		"hang.jsonl":    `{"hang":true}` + "\n",
		"mine.wasm":     string(guests()["quiet"]().Bytes()),
		"waits.wasm":    string(guests()["waits"]().Bytes()),
		"calls.jsonl":   `{"tool_calls":[{"id":"c1","tool":"drop"},{"id":"c2","tool":"drop"}]}` + "\n" + `{"text":"done"}` + "\n",
		"tools.jsonl":   `{"name":"drop","approval":true,"output":{}}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := shell("agentctl exec --name demo --input hello && agentctl export demo demo.agentcell").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	stuck := shell("exec agentctl exec --name stuck --script hang.jsonl --input hello")
	stdout, err := stuck.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stuck.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { _ = stuck.Process.Kill() }).Stop()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), "EVENT_MODEL_CALL") {
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	_ = stuck.Process.Kill()
	_ = stuck.Wait() // killed, as meant
	return shell
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model/script"
	tools "github.com/agentcell/agentcell/host/tool/script"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

func TestExitCode(t *testing.T) {
	ended := func(reason abi.EndReason) error {
		return &turnError{host.Execution{State: reason.State(), Reason: reason}}
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything else"), 1},
		{journal.ErrFull, 1},
		{journal.ErrFormat, 1},
		{journal.ErrReadOnly, 1},
		{journal.ErrPoisoned, 1},
		{runtimes.ErrShortage, 1},
		{usagef("bad flag"), 2},
		{usagef("--config: %w", abi.ErrJSON), 2},
		{host.ErrInvalid, 2},
		{host.ErrAmbiguous, 2},
		{host.ErrNothingOpen, 2},
		{host.ErrMidTurn, 2},
		{script.ErrScript, 2},
		{tools.ErrScript, 2},
		{&fs.PathError{Err: syscall.EISDIR}, 2},
		{&fs.PathError{Err: syscall.ENOTDIR}, 2},
		{&fs.PathError{Err: syscall.EACCES}, 1},
		{host.ErrNotFound, 3},
		{journal.ErrNotFound, 3},
		{harnesses.ErrNotBundled, 3},
		{fs.ErrNotExist, 3},
		{host.ErrExists, 4},
		{journal.ErrExists, 4},
		{host.ErrBusy, 4},
		{host.ErrOpenTurn, 4},
		{host.ErrConflict, 4},
		{journal.ErrConflict, 4},
		{journal.ErrFenced, 4},
		{journal.ErrLocked, 4},
		{ended(abi.ReasonError), 5},
		{ended(abi.ReasonTrap), 5},
		{ended(abi.ReasonDeadline), 5},
		{&journal.Broken{Seq: 3}, 6},
		{host.ErrDivergence, 6},
		{journal.ErrCorrupt, 6},
		{host.ErrPlacement, 7},
		{runtimes.ErrModule, 7},
		{&awaitingError{}, 8},
		{ended(abi.ReasonCanceled), 130},
		{ended(abi.ReasonAbandoned), 130},
		{errInterrupted, 130},
		{context.Canceled, 130},
	} {
		name := fmt.Sprint(c.err)
		if got := exitCode(c.err); got != c.want {
			t.Errorf("exitCode(%s) = %d, want %d", name, got, c.want)
		}
		if c.err == nil {
			continue
		}
		// However deep it is wrapped, and whatever failed beside it.
		wrapped := errors.Join(fmt.Errorf("exec: session x: %w", c.err), errors.New("close: too"))
		if got := exitCode(wrapped); got != c.want {
			t.Errorf("exitCode(wrapped %s) = %d, want %d", name, got, c.want)
		}
	}
}

// What is wrong with the place says what to do about it.
func TestNextStep(t *testing.T) {
	a := &app{project: "work", dataDir: "it's here", getenv: func(string) string { return "" }}
	for err, want := range map[error]string{
		journal.ErrFull:        "--data",
		journal.ErrReadOnly:    "--data",
		host.ErrBusy:           "wait",
		host.ErrConflict:       "agentctl get --data 'it'\\''s here' --project work --session demo ",
		host.ErrOpenTurn:       "agentctl resume --data 'it'\\''s here' --project work --session demo ",
		host.ErrNothingOpen:    "agentctl exec --data 'it'\\''s here' --project work --session demo --input TEXT ",
		host.ErrExists:         "another name",
		runtimes.ErrModule:     "docs/abi.md",
		errors.New("whatever"): "",
	} {
		a.ref = "demo"
		if got := a.nextStep(fmt.Errorf("exec: %w", err)); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("after %q: %q, want %q", err, got, want)
		}
	}
}

// Every help text has an example, says what the command does, and lists every
// exit code.
func TestHelp(t *testing.T) {
	var walk func(path []string, cmd *cobra.Command)
	walk = func(path []string, cmd *cobra.Command) {
		var stdout, stderr strings.Builder
		a := newApp(strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
		if code := a.run(t.Context(), append(path, "--help")); code != 0 || stderr.Len() > 0 {
			t.Errorf("%v --help: exit code %d, stderr %q", path, code, stderr.String())
		}
		for _, want := range []string{exitCodesHelp, "Examples:\n", cmd.Long} {
			if want == "" || !strings.Contains(stdout.String(), want) {
				t.Errorf("%v --help has no %.40q", path, want)
			}
		}
		for line := range strings.Lines(stdout.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 120 {
				t.Errorf("%v --help has a line of %d characters: %s", path, n, line)
			}
		}
		for _, child := range cmd.Commands() {
			walk(append(path[:len(path):len(path)], child.Name()), child)
		}
	}
	walk(nil, newRootCommand(newApp(nil, new(strings.Builder), new(strings.Builder), func(string) string { return "" })))
}

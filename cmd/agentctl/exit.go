package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/model/script"
	"github.com/agentcell/agentcell/host/secret"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/extism"
	tools "github.com/agentcell/agentcell/host/tool/script"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// The exit codes. They are an interface: append-only, and in every help text.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitTurnFailed  = 5
	exitUnverified  = 6
	exitRefused     = 7
	exitAwaiting    = 8
	exitInterrupted = 130
)

const exitCodesHelp = `Exit codes:
  0    ok
  1    failure
  2    usage: a flag or argument is wrong
  3    not found: session, harness, model, record or file
  4    conflict: name taken, session busy or moved on, store in use
  5    the turn failed
  6    verification failed: the record is broken or does not re-execute
  7    refused: not a module agentcell takes, or neither a runtime nor the session can go with it
  8    awaiting: the turn is parked until a decision, a time or a signal
  130  interrupted: the turn was canceled, or left to be resumed`

// errInterrupted is the cause of a context that Ctrl-C ended.
var errInterrupted = errors.New("interrupted")

// usageError is a mistake in how a command was called.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// adviceError is an error with what a person can do about it.
type adviceError struct {
	err  error
	next string
}

func (e *adviceError) Error() string { return e.err.Error() }
func (e *adviceError) Unwrap() error { return e.err }

// turnError is a turn that was run and did not complete.
type turnError struct{ host.Execution }

func (e *turnError) Error() string {
	if e.State == abi.StateCanceled {
		return fmt.Sprintf("turn %s", e.Reason)
	}
	text := fmt.Sprintf("turn failed (%s)", e.Reason)
	if e.Err != nil && e.Err.Description != "" {
		text += ": " + e.Err.Description
	}
	return text
}

// exitCode is the one place that turns an error into an exit code.
func exitCode(err error) int {
	var (
		usage    *usageError
		turn     *turnError
		awaiting *awaitingError
		broken   *journal.Broken
		batch    *batchError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &batch):
		return batch.code
	case errors.As(err, &turn):
		if turn.State == abi.StateCanceled {
			return exitInterrupted
		}
		return exitTurnFailed
	case errors.As(err, &awaiting):
		return exitAwaiting
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &broken), errors.Is(err, host.ErrDivergence), errors.Is(err, journal.ErrCorrupt):
		return exitUnverified
	case errors.Is(err, host.ErrPlacement), errors.Is(err, host.ErrNotPortable), errors.Is(err, runtimes.ErrModule), errors.Is(err, extism.ErrModule):
		return exitRefused
	case errors.Is(err, host.ErrExists), errors.Is(err, journal.ErrExists),
		errors.Is(err, host.ErrBusy), errors.Is(err, host.ErrOpenTurn),
		errors.Is(err, host.ErrConflict), errors.Is(err, journal.ErrConflict),
		errors.Is(err, journal.ErrFenced), errors.Is(err, journal.ErrLocked):
		return exitConflict
	case errors.As(err, &usage), errors.Is(err, host.ErrInvalid), errors.Is(err, host.ErrAmbiguous),
		errors.Is(err, host.ErrNothingOpen), errors.Is(err, host.ErrMidTurn), errors.Is(err, script.ErrScript), errors.Is(err, tools.ErrScript), errors.Is(err, config.ErrConfig), errors.Is(err, secret.ErrInvalid),
		errors.Is(err, tool.ErrTool), errors.Is(err, extism.ErrManifest),
		errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return exitUsage
	case errors.Is(err, host.ErrNotFound), errors.Is(err, journal.ErrNotFound),
		errors.Is(err, harnesses.ErrNotBundled), errors.Is(err, secret.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return exitNotFound
	}
	return exitFailure
}

package wasm

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/agentcell/agentcell/sdk/abi"
)

// The errors of this package; test with errors.Is.
var (
	// ErrModule reports code that the engine does not take; the text says why.
	ErrModule = errors.New("module refused")
	// ErrShortage reports that the host lacks memory. What was asked may be
	// asked again.
	ErrShortage = errors.New("host resources exhausted")
	// ErrStopped reports a call on an instance, or an engine, that was stopped.
	ErrStopped = errors.New("stopped")
	// ErrHost reports a fault of the host: a handler that panicked, or a bug in
	// the engine. The text has a stack trace.
	ErrHost = errors.New("host fault")
)

// Outcome is how a turn ended by itself.
type Outcome struct {
	Reason abi.EndReason
	// Err tells what failed; nil when Reason is completed.
	Err *abi.Error
	// Fuel is what the turn used.
	Fuel uint64
}

// ended is an end that the guest has brought about, as an error so that it can
// travel through the engine.
type ended struct {
	reason abi.EndReason
	err    abi.Error
}

func (e *ended) Error() string { return e.err.Description }

func endedf(reason abi.EndReason, code abi.ErrorCode, format string, args ...any) *ended {
	return &ended{reason, abi.Error{Code: code, Description: fmt.Sprintf(format, args...)}}
}

// unwind is what a host function panics with to leave the guest; why stands in
// call.end.
type unwind struct{}

func (unwind) Error() string { return "unwind" }

// wazero's texts. It exports no sentinels for traps.
const (
	trapPrefix     = "wasm error: "
	stackOverflow  = "stack overflow"
	traceSeparator = "\nwasm stack trace:\n\t"
)

// endOf says what err, which wazero returned for a call that no host function
// ended, means.
func endOf(err error) error {
	if s := (shortage{}); errors.As(err, &s) {
		return s.err
	}
	text, trace, _ := strings.Cut(err.Error(), traceSeparator)
	trap, isTrap := strings.CutPrefix(text, trapPrefix)
	switch {
	case text == stackOverflow, isTrap && trap == stackOverflow:
		return endedf(abi.ReasonEngine, abi.CodeResourceExhausted, "the engine's own call stack is used up")
	case isTrap:
		return endedf(abi.ReasonTrap, abi.CodeAborted, "trap: %s%s", trap, place(trace))
	default:
		return fmt.Errorf("%w: %w", ErrHost, err)
	}
}

// traceFrames is how many frames of a trap are told.
const traceFrames = 4

// place names the innermost frames of a stack trace.
func place(trace string) string {
	var names []string
	for line := range strings.Lines(trace) {
		name, _, isFrame := strings.Cut(strings.TrimSpace(line), "(")
		if !isFrame || len(names) == traceFrames {
			break
		}
		names = append(names, clip(strings.TrimPrefix(name, "."), 80))
	}
	if names == nil {
		return ""
	}
	return " in " + strings.Join(names, " < ")
}

// maxDescription bounds the text of an error that a guest gives.
const maxDescription = 4 << 10

// clip is s, or as many whole characters of it as fit into n bytes.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

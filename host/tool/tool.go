// Package tool owns the seam to tools: Executor, which performs calls, and Tool,
// which is what a host offers to its harnesses.
//
// An executor performs a call and nothing else: it does not record, retry across
// crashes or ask anyone for approval. That is the host's work, which makes a call
// only after its intent is durable (I3), and never one whose result is recorded
// (I1). The packages below this one are executors.
//
// It imports sdk/abi and never the host, the journal, a runtime or an executor.
package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentcell/agentcell/sdk/abi"
)

// ErrTool reports a tool that a host cannot offer. The error that wraps it says
// what is wrong with it.
var ErrTool = errors.New("malformed tool")

// Executor performs calls of tools. It is safe for concurrent use: the calls of
// one request run side by side, and so do those of many sessions.
type Executor interface {
	// Call performs one call and returns its result. The ID and the approval
	// seqs of the result are ignored.
	//
	// When ctx ends, Call returns soon, with an error that wraps ctx.Err().
	// Every other error is recorded as the failed result of the call, its text
	// as what the harness and its model read: it holds nothing secret (S4).
	//
	// A call with an idempotency key may have been made before: by a host that
	// died, of a tool whose rule is abi.OnCrashRetry, or that a person asked to
	// call again. An executor that honours the key gives what the first call
	// gave. It takes the key together with the session: children forked from a
	// turn that was parked share the call, and each may have it made.
	//
	// Call keeps nothing of c and does not change it.
	Call(ctx context.Context, c Call) (abi.ToolResult, error)
}

// Call is one call of a tool, and whom it is made for.
type Call struct {
	Session   abi.SessionID
	Execution abi.ExecutionID
	abi.ToolCall
}

// Tool is a tool that a host offers.
type Tool struct {
	// Definition is what a model is told. An empty InputSchema tells nothing of
	// the arguments.
	Definition abi.ToolDefinition
	// Mediation is abi.MediationControllerMediated, which empty stands for, or
	// abi.MediationRequiresApproval.
	Mediation abi.Mediation
	// OnCrash is what becomes of a call that was under way when its host died.
	// Empty stands for abi.OnCrashUnknown.
	OnCrash abi.OnCrash
	// From says, for people, where the tool is from; it may be empty.
	From string
	// Executor performs the calls.
	Executor Executor
}

// Grant is the tool as a turn is granted it, with the defaults filled in.
func (t Tool) Grant() abi.ToolGrant {
	g := abi.ToolGrant{ToolDefinition: t.Definition, Mediation: t.Mediation, OnCrash: t.OnCrash}
	if g.Mediation == "" {
		g.Mediation = abi.MediationControllerMediated
	}
	if g.OnCrash == "" {
		g.OnCrash = abi.OnCrashUnknown
	}
	return g
}

// Source offers tools that come and go, such as those of a server. It is safe for
// concurrent use.
type Source interface {
	// Tools lists the tools that there are now, each name once. It is asked when a turn
	// opens, whose tools are then fixed, and again for each call, so it is quick when
	// nothing has changed. An error refuses the turn, or is the result of the call: a
	// source that rather goes without some tools leaves them out.
	Tools(ctx context.Context) ([]Tool, error)
}

// Finder is a Source that finds one tool without its others.
type Finder interface {
	// Tool finds the tool of that name, for a call of it or for a turn that was granted
	// it. It may be one that Tools does not list any more, and without what a model is
	// told of it. An error is that of the call, or keeps the turn from going on here.
	Tool(ctx context.Context, name string) (t Tool, ok bool, err error)
}

// Granter is a Source that need not look for tools that nobody may call.
type Granter interface {
	// Granted is Tools for a turn that may call only what one of patterns matches, in the
	// way of path.Match: it may leave the others out. There is at least one pattern.
	Granted(ctx context.Context, patterns []string) ([]Tool, error)
}

// maxName is the longest name of a tool.
const maxName = 128

// Check reports with ErrTool why a host cannot offer t. A name is 1 to 128
// characters of a to z, A to Z, 0 to 9, '_', '-' and '.': what an API of models does not
// take, its provider writes in another way.
func (t Tool) Check() error {
	g := t.Grant()
	if !validName(g.Name) {
		return fmt.Errorf("%w: its name is %.80q; want 1 to %d of a-z, A-Z, 0-9, dot, _ and -", ErrTool, g.Name, maxName)
	}
	switch g.Mediation {
	case abi.MediationControllerMediated, abi.MediationRequiresApproval:
	default:
		return fmt.Errorf("%w: %s: mediation is %.80q; want %s or %s", ErrTool, g.Name,
			g.Mediation, abi.MediationControllerMediated, abi.MediationRequiresApproval)
	}
	switch g.OnCrash {
	case abi.OnCrashUnknown, abi.OnCrashRetry, abi.OnCrashAsk:
	default:
		return fmt.Errorf("%w: %s: on_crash is %.80q; want %s, %s or %s", ErrTool, g.Name,
			g.OnCrash, abi.OnCrashRetry, abi.OnCrashUnknown, abi.OnCrashAsk)
	}
	if s := g.InputSchema; len(s) > 0 && (!json.Valid(s) || bytes.TrimSpace(s)[0] != '{') {
		return fmt.Errorf("%w: %s: input_schema is %.80s; want a JSON object", ErrTool, g.Name, s)
	}
	if t.Executor == nil {
		return fmt.Errorf("%w: %s: it has no executor", ErrTool, g.Name)
	}
	return nil
}

func validName(s string) bool {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
	return s != "" && len(s) <= maxName && strings.Trim(s, chars) == ""
}

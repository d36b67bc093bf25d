package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// tools are those that this host has now, by name, and at least those of them that
// patterns name.
func (h *Host) tools(ctx context.Context, patterns []string) (map[string]tool.Tool, error) {
	if len(h.cfg.ToolSources) == 0 {
		return h.cfg.Tools, nil
	}
	all := make(map[string]tool.Tool)
	for _, s := range slices.Backward(h.cfg.ToolSources) {
		list, err := offered(ctx, s, patterns)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		for _, t := range list {
			if err := t.Check(); err != nil {
				return nil, err
			}
			all[t.Definition.Name] = t
		}
	}
	maps.Copy(all, h.cfg.Tools)
	return all, nil
}

// offered is what a source offers to those who are granted what patterns name.
func offered(ctx context.Context, s tool.Source, patterns []string) ([]tool.Tool, error) {
	if g, ok := s.(tool.Granter); ok && len(patterns) > 0 {
		return g.Granted(ctx, patterns)
	}
	return s.Tools(ctx)
}

// tool is the tool of that name, which a turn was granted. It is ErrNotFound if this host
// does not have it.
func (h *Host) tool(ctx context.Context, name string) (tool.Tool, error) {
	if t, ok := h.cfg.Tools[name]; ok {
		return t, nil
	}
	for _, s := range h.cfg.ToolSources {
		t, ok, err := find(ctx, s, name)
		if err == nil && ok {
			err = t.Check()
		}
		if err != nil {
			return tool.Tool{}, fmt.Errorf("tool %q: %w", name, err)
		}
		if ok {
			return t, nil
		}
	}
	return tool.Tool{}, fmt.Errorf("tool %q: %w on this host", name, ErrNotFound)
}

// find is the tool of that name which a source has.
func find(ctx context.Context, s tool.Source, name string) (tool.Tool, bool, error) {
	if f, ok := s.(tool.Finder); ok {
		return f.Tool(ctx, name)
	}
	list, err := s.Tools(ctx)
	if err != nil {
		return tool.Tool{}, false, err
	}
	i := slices.IndexFunc(list, func(t tool.Tool) bool { return t.Definition.Name == name })
	if i < 0 {
		return tool.Tool{}, false, nil
	}
	return list[i], true, nil
}

// grants are the tools that a turn of the session is granted, by name.
func (h *Host) grants(ctx context.Context, m meta) ([]abi.ToolGrant, error) {
	tools, err := h.tools(ctx, m.Grants)
	if err != nil {
		return nil, err
	}
	var grants []abi.ToolGrant
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		if granted(m.Grants, name) {
			grants = append(grants, tools[name].Grant())
		}
	}
	return grants, nil
}

// granted reports whether a tool is among those that patterns name.
func granted(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		match, err := path.Match(p, name) // the names of tools have no slash
		return match && err == nil
	})
}

// maxGrants bounds the patterns of a session's tools.
const maxGrants = 64

func checkGrants(patterns []string) error {
	if len(patterns) > maxGrants {
		return fmt.Errorf("%w: %d patterns of tools: a session takes at most %d", ErrInvalid, len(patterns), maxGrants)
	}
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" || len(p) > maxLabelBytes {
			return fmt.Errorf("%w: tools %.40q: want a name, or a pattern such as files.*", ErrInvalid, p)
		}
	}
	return nil
}

// grantList is the blob that EXECUTION_START names.
type grantList struct {
	Tools []abi.ToolGrant `json:"tools"`
}

// Granted are the tools that the turn was granted which an EXECUTION_START opens.
func (h *Host) Granted(start *abi.Event) ([]abi.ToolGrant, error) {
	if start.Cell == nil {
		return nil, nil
	}
	return h.readGrants(start.Cell.Tools)
}

// readGrants reads the tools that a turn was granted.
func (h *Host) readGrants(digest abi.Digest) ([]abi.ToolGrant, error) {
	if digest.IsZero() {
		return nil, nil
	}
	b, err := h.journal.Blob(digest)
	if err != nil {
		return nil, fmt.Errorf("granted tools: %w", err)
	}
	return parseGrants(b)
}

// parseGrants reads the blob: tools are shown to a harness as the record has
// them.
func parseGrants(b []byte) ([]abi.ToolGrant, error) {
	var list grantList
	if err := abi.UnmarshalLossless(b, &list); err != nil {
		return nil, fmt.Errorf("granted tools: %w", err)
	}
	return list.Tools, nil
}

func definitions(grants []abi.ToolGrant) []abi.ToolDefinition {
	var out []abi.ToolDefinition
	for _, g := range grants {
		out = append(out, g.ToolDefinition)
	}
	return out
}

func byName(grants []abi.ToolGrant) map[string]abi.ToolGrant {
	m := make(map[string]abi.ToolGrant, len(grants))
	for _, g := range grants {
		m[g.Name] = g
	}
	return m
}

// hasTools refuses a turn whose tools this host does not have: it must not record
// that as their failure.
func (h *Host) hasTools(ctx context.Context, grants []abi.ToolGrant) error {
	for _, g := range grants {
		if _, err := h.tool(ctx, g.Name); err != nil {
			return err
		}
	}
	return nil
}

// toolDone is the outcome of a tool call.
type toolDone struct {
	id      string
	outcome turn.ToolOutcome
	size    int // of the result
}

// maxResultsBytes bounds the results of the calls of one request together: the
// harness is given them in one answer.
const maxResultsBytes = 32 << 20

// callTools performs calls side by side.
func (x *execution) callTools(ctx context.Context, effects []turn.ToolEffect, done chan<- toolDone) {
	limit := x.callTime()
	for _, e := range effects {
		go func() {
			outcome, size := x.callTool(ctx, e.Call, limit)
			done <- toolDone{e.Call.ID, outcome, size}
		}()
	}
}

// callTool is the outcome of a call, and the size of its result.
func (x *execution) callTool(ctx context.Context, call abi.ToolCall, limit time.Duration) (turn.ToolOutcome, int) {
	result, size, err := x.host.performCall(ctx, tool.Call{Session: x.uid, Execution: x.spec.Execution, ToolCall: call}, limit)
	if err != nil {
		return turn.ToolOutcome{Err: err}, 0
	}
	return turn.ToolOutcome{Result: result}, size
}

// performCall makes a call, and tells the size of its result.
func (h *Host) performCall(ctx context.Context, call tool.Call, limit time.Duration) (abi.ToolResult, int, error) {
	result, err := within(ctx, limit, fmt.Sprintf("tool %q", call.Tool), func(ctx context.Context) (abi.ToolResult, error) {
		t, err := h.tool(ctx, call.Tool)
		if err != nil {
			return abi.ToolResult{}, err
		}
		return t.Executor.Call(ctx, call)
	})
	if err != nil {
		return abi.ToolResult{}, 0, err
	}
	b, err := json.Marshal(result)
	switch {
	case err != nil:
		return abi.ToolResult{}, 0, fmt.Errorf("tool %q gave no valid result: %w", call.Tool, err)
	case len(b) > maxAnswerBytes:
		return abi.ToolResult{}, 0, fmt.Errorf("tool %q gave %d bytes, at most %d are taken", call.Tool, len(b), maxAnswerBytes)
	}
	return result, len(b), nil
}

// Tools lists the tools that this host has now, by name.
func (h *Host) Tools(ctx context.Context) ([]tool.Tool, error) {
	all, err := h.tools(ctx, nil)
	if err != nil {
		return nil, err
	}
	list := make([]tool.Tool, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list, nil
}

// TryTool makes one call of a tool outside of any session, under the bounds of a turn's,
// with arguments that are a JSON object or empty. Nothing is recorded, and nobody is
// asked. A call that failed is an error. It wraps ErrNotFound for a tool that this host
// does not have, and ErrInvalid for arguments that cannot be.
func (h *Host) TryTool(ctx context.Context, name string, args abi.Struct) (abi.ToolResult, error) {
	args = bytes.TrimSpace(args)
	if len(args) > 0 {
		if _, err := abi.Canonical(args); err != nil || args[0] != '{' {
			return abi.ToolResult{}, fmt.Errorf("%w: arguments: want a JSON object", ErrInvalid)
		}
	}
	id, err := h.newExecutionID()
	if err != nil {
		return abi.ToolResult{}, err
	}
	call := abi.ToolCall{ID: "trial", Tool: name, Args: args, IdempotencyKey: string(id)}
	result, _, err := h.performCall(ctx, tool.Call{Execution: id, ToolCall: call}, h.cfg.CallTimeout)
	if err != nil {
		return abi.ToolResult{}, fmt.Errorf("call %s: %w", name, err)
	}
	return result, nil
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// toolbox has the tools that a turn may call.
type toolbox struct {
	offered []abi.ToolDefinition
	// atOnce is how many calls go out side by side.
	atOnce int
	ids    map[string]bool // of calls that were made
}

// newToolbox offers those of the granted tools that the configuration names.
func newToolbox(c config, granted []abi.ToolDefinition) (*toolbox, error) {
	b := &toolbox{atOnce: 1, ids: map[string]bool{}}
	if c.Parallel {
		b.atOnce = abi.MaxToolCalls
	}
	for _, d := range granted {
		if c.Tools == nil || slices.ContainsFunc(c.Tools, func(pattern string) bool { return matches(pattern, d.Name) }) {
			b.offered = append(b.offered, d)
		}
	}
	switch {
	case c.ToolChoice == choiceAuto || c.ToolChoice == choiceRequired && len(b.offered) > 0 || b.has(c.ToolChoice):
		return b, nil
	case c.ToolChoice == choiceRequired:
		return nil, invalid("tool_choice: a tool is required, and the turn has none")
	}
	return nil, invalid("tool_choice: the turn has no tool %q; want auto, required, or one of its tools", c.ToolChoice)
}

func matches(pattern, name string) bool {
	match, err := path.Match(pattern, name)
	return match && err == nil
}

func (b *toolbox) has(name string) bool {
	return slices.ContainsFunc(b.offered, func(d abi.ToolDefinition) bool { return d.Name == name })
}

// callsOf are the tool calls of an answer. Of what a model says of them, tool,
// arguments and id count; who performs them, and under which key, is not its to say.
func callsOf(answer abi.Message) []abi.ToolCall {
	var calls []abi.ToolCall
	for _, part := range answer.Parts {
		if part.ToolCall != nil {
			calls = append(calls, abi.ToolCall{ID: part.ToolCall.ID, Tool: part.ToolCall.Tool, Args: part.ToolCall.Args})
		}
	}
	return calls
}

// call makes the calls of one answer, and gives a message with a result for each,
// in their order. What goes wrong with a call is its result, for the model to read
// and do better; an error means that the turn cannot go on.
func (b *toolbox) call(ctx context.Context, t *sdk.Turn, calls []abi.ToolCall) (abi.Message, error) {
	results := make([]abi.ToolResult, len(calls))
	var places []int // of the calls that can be made
	for i, call := range calls {
		if problem := b.problem(call); problem != "" {
			results[i] = abi.ToolResult{IsError: true, Error: problem}
		} else {
			places = append(places, i)
		}
	}
	for batch := range slices.Chunk(places, b.atOnce) {
		requests := make([]abi.ToolCall, len(batch))
		for i, place := range batch {
			requests[i] = calls[place]
			requests[i].ID = b.id(calls[place].ID)
		}
		made, err := t.CallTools(ctx, requests...)
		if err != nil {
			return abi.Message{}, err
		}
		for i, place := range batch {
			results[place] = made[i]
		}
	}
	message := abi.Message{Role: abi.RoleTool}
	for i := range results {
		results[i].ID = calls[i].ID
		message.Parts = append(message.Parts, sdk.ResultPart(results[i]))
	}
	return message, nil
}

// problem says why a call cannot be made; it is empty if it can.
func (b *toolbox) problem(call abi.ToolCall) string {
	switch args := bytes.TrimSpace(call.Args); {
	case !b.has(call.Tool):
		return fmt.Sprintf("there is no tool %q", call.Tool)
	case len(args) > 0 && args[0] != '{':
		return "the arguments must be a JSON object"
	}
	return ""
}

// id is what a call is called in the record: as the model calls it, unless
// that is no name or another call of the turn has it. Some models count their calls
// from zero in each answer.
func (b *toolbox) id(wanted string) string {
	id := wanted
	for n := len(b.ids) + 1; id == "" || len(id) > abi.MaxNameBytes || b.ids[id]; n++ {
		id = fmt.Sprintf("%.64s#%d", wanted, n)
	}
	b.ids[id] = true
	return id
}

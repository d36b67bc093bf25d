// Tools is an agent: it asks a model, calls the tools that the model wants, tells
// it the results, and asks again, until the model has an answer. It remembers the
// conversation with all of its tool calls.
//
//	$ agentctl exec --harness tools --config '{"system":"Be brief."}' --input 'What is in notes.txt?'
//
// Configuration, all of it optional:
//
//	system      a message of role "system" that stands first in each prompt
//	max_rounds  how many times a turn asks the model (default 16)
//
// The model is told of every tool that the turn may call. The calls of one answer
// run side by side, and their results go back in one message of role "tool". A
// call that failed, or that a person denied, goes back as what it is; so does a
// call of a tool that there is not. A turn in which the
// model calls tools once more when it is not to be asked again fails: those tools
// are not called, and the turn is not remembered.
package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

type config struct {
	System    string `json:"system"`
	MaxRounds int    `json:"max_rounds"`
}

// agent is all that a session remembers: what was said, without the system's
// message.
type agent struct {
	said []abi.Message
}

func (*agent) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{
		ID:      "tools",
		Version: "1",
		Capabilities: &abi.Capabilities{
			Resumability: abi.RequiresMemorySnapshot, ForkSafe: true, Streaming: true, ReasoningReplay: true,
		},
	}
}

func (a *agent) Run(ctx context.Context, t *sdk.Turn) error {
	c := config{MaxRounds: 16}
	if err := t.DecodeConfig(&c); err != nil {
		return err
	}
	if c.MaxRounds < 1 {
		return &abi.Error{Code: abi.CodeInvalidArgument, Description: "config: max_rounds must be positive"}
	}
	if len(t.Inputs()) == 0 {
		return &abi.Error{Code: abi.CodeInvalidArgument, Description: "tools: the turn has no input"}
	}
	said := slices.Concat(a.said, t.Inputs())
	for round := 1; ; round++ {
		result, err := t.Model(ctx, abi.ModelCall{Messages: prompt(c, said), Tools: t.Tools()})
		if err != nil {
			return err
		}
		said = append(said, result.Message)
		calls := callsOf(result.Message)
		if len(calls) == 0 {
			a.said = said
			return nil
		}
		if round == c.MaxRounds {
			return &abi.Error{
				Code:        abi.CodeResourceExhausted,
				Description: fmt.Sprintf("tools: the model still calls tools after %d rounds (max_rounds)", round),
			}
		}
		results, err := perform(ctx, t, calls)
		if err != nil {
			return err
		}
		said = append(said, results)
	}
}

func prompt(c config, said []abi.Message) []abi.Message {
	if c.System == "" {
		return said
	}
	return slices.Concat([]abi.Message{abi.Text(abi.RoleSystem, c.System)}, said)
}

// callsOf are the tool calls of an answer. What a model says of them beside tool,
// arguments and id is not its to say.
func callsOf(m abi.Message) []abi.ToolCall {
	var calls []abi.ToolCall
	for _, p := range m.Parts {
		if c := p.ToolCall; c != nil {
			calls = append(calls, abi.ToolCall{ID: c.ID, Tool: c.Tool, Args: c.Args})
		}
	}
	return calls
}

// perform makes the calls that can be made, and gives a message with a result for
// each, in their order.
func perform(ctx context.Context, t *sdk.Turn, calls []abi.ToolCall) (abi.Message, error) {
	granted := map[string]bool{}
	for _, d := range t.Tools() {
		granted[d.Name] = true
	}
	results := make([]abi.ToolResult, len(calls))
	var possible []abi.ToolCall
	var places []int // of the possible calls
	for i, call := range calls {
		if !granted[call.Tool] {
			results[i] = abi.ToolResult{ID: call.ID, IsError: true, Error: fmt.Sprintf("there is no tool %q", call.Tool)}
			continue
		}
		possible = append(possible, call)
		places = append(places, i)
	}
	made, err := t.CallTools(ctx, possible...)
	if err != nil {
		return abi.Message{}, err
	}
	for i, result := range made {
		results[places[i]] = result
	}
	message := abi.Message{Role: abi.RoleTool}
	for _, result := range results {
		message.Parts = append(message.Parts, sdk.ResultPart(result))
	}
	return message, nil
}

func init() { sdk.Register(new(agent)) }

func main() {}

// Agent is the loop of a real agent: it asks a model, has the tools called that
// the model wants, tells it what came of them, and asks again, until there is an
// answer. It remembers the conversation, and sums it up when it grows too long.
//
//	$ agentctl exec --harness agent --config '{"system":"Be brief."}' --input 'What is in notes.txt?'
//
// The configuration is that of docs/agent.md; all of it is optional.
//
//	main.go          the loop, and what a session remembers
//	config.go        what can be configured
//	calls.go         tool calls and their results
//	conversation.go  what was said, and how much room it takes
//	compaction.go    how it is made to take less
//	unfinished.go    what the model must know of turns that did not complete
package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// agent is all that a session remembers.
type agent struct {
	talk conversation
}

func (*agent) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{
		ID:      "agent",
		Version: "1",
		Capabilities: &abi.Capabilities{
			Resumability: abi.RequiresMemorySnapshot, ForkSafe: true, Streaming: true, ReasoningReplay: true,
		},
	}
}

// lastStep is said behind the results of the last tools that a turn may call.
const lastStep = "[This was the last step in which this turn may call tools. Answer now with what you have, and say what is not done.]"

// Run goes round the loop once for each step. A turn that fails is not remembered:
// what it adds to the conversation it adds to a copy.
func (a *agent) Run(ctx context.Context, t *sdk.Turn) error {
	c, err := readConfig(t)
	if err != nil {
		return err
	}
	if len(t.Inputs()) == 0 {
		return &abi.Error{Code: abi.CodeInvalidArgument, Description: "agent: the turn has no input"}
	}
	tools, err := newToolbox(c, t.Tools())
	if err != nil {
		return err
	}
	talk := a.talk
	if err := talk.open(ctx, t); err != nil {
		return err
	}
	for step := 1; ; step++ {
		if err := talk.compact(ctx, t, c); err != nil {
			return err
		}
		answer, err := t.Model(ctx, c.call(talk.prompt(c.System), tools.offered, step))
		if err != nil {
			return err
		}
		talk.answered(answer)
		calls := callsOf(answer.Message)
		if len(calls) == 0 {
			a.talk = talk
			return nil
		}
		if step == c.MaxSteps {
			return &abi.Error{
				Code:        abi.CodeResourceExhausted,
				Description: fmt.Sprintf("agent: the model calls tools where it must answer, after %d steps (max_steps)", step),
			}
		}
		results, err := tools.call(ctx, t, calls)
		if err != nil {
			return err
		}
		talk.add(results)
		if step+1 == c.MaxSteps {
			talk.add(abi.Text(abi.RoleUser, lastStep))
		}
	}
}

// saved is what one build of agent hands to another.
type saved struct {
	Version int `json:"version"`
	conversation
}

const savedVersion = 1

// Save implements sdk.Portable.
func (a *agent) Save() ([]byte, error) {
	return json.Marshal(saved{Version: savedVersion, conversation: a.talk})
}

// Load implements sdk.Portable.
func (a *agent) Load(state []byte) error {
	var s saved
	if err := json.Unmarshal(state, &s); err != nil {
		return fmt.Errorf("agent: the saved state: %w", err)
	}
	if s.Version != savedVersion {
		return fmt.Errorf("agent: a saved state of version %d; this is version %d", s.Version, savedVersion)
	}
	a.talk = s.conversation
	return nil
}

var _ sdk.Portable = (*agent)(nil)

func init() { sdk.Register(new(agent)) }

func main() {}

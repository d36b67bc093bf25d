// Echo is the smallest harness: each turn sends the last input to the model, as
// a user's message and with nothing around it, and the model's answer is the
// turn's output. It holds no memory and reads no history, so every turn stands
// for itself.
//
//	$ agentctl exec --harness echo --input hi
//
// Earlier inputs of the same turn are recorded but not sent. A turn without
// input fails. There is no configuration; the session's model answers.
package main

import (
	"context"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

type echo struct{}

func (echo) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{
		ID:           "echo",
		Version:      "1",
		Capabilities: &abi.Capabilities{Resumability: abi.StatelessReplay, ForkSafe: true, Streaming: true},
	}
}

func (echo) Run(ctx context.Context, t *sdk.Turn) error {
	inputs := t.Inputs()
	if len(inputs) == 0 {
		return &abi.Error{Code: abi.CodeInvalidArgument, Description: "echo: the turn has no input"}
	}
	last := inputs[len(inputs)-1]
	last.Role = abi.RoleUser
	_, err := t.Model(ctx, abi.ModelCall{Messages: []abi.Message{last}})
	return err
}

func init() { sdk.Register(echo{}) }

func main() {}

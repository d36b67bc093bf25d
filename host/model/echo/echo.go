// Package echo owns the default model: it answers with what it was told, so that
// everything works without a key, a network or a configuration.
//
// It imports host/model and sdk/abi, and never anything that could reach a
// network.
package echo

import (
	"context"
	"fmt"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Name is the name of the model.
const Name = "echo"

// pieces is how many deltas an answer comes in, so that streaming can be seen.
const pieces = 3

// Provider answers "echo:" and the text of the last message whose role is user.
type Provider struct{}

var _ model.Provider = Provider{}

// Complete implements model.Provider. It fails only when ctx is done.
func (Provider) Complete(ctx context.Context, req model.Request, deltas func(model.Delta)) (model.Result, error) {
	answer := "echo:" + lastUserText(req.Call.Messages)
	if err := model.Stream(model.Pieces(answer, pieces), req.Attempt, deltas, ctx.Err); err != nil {
		return model.Result{}, fmt.Errorf("model %s: %w", Name, err)
	}
	return model.Result{Message: abi.Text(abi.RoleAssistant, answer)}, nil
}

func lastUserText(messages []abi.Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == abi.RoleUser {
			return messages[i].Text()
		}
	}
	return ""
}

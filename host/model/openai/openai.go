// Package openai owns the API of chat completions, as OpenAI has it and many
// others do: Azure, Ollama, vLLM, llama.cpp, and whoever else serves models.
//
// What these agree on is small. Where they differ, an answer is read in every form
// that is in use: reasoning as reasoning_content, reasoning or reasoning_details;
// arguments of a tool as text or as an object; a tool call without an id; an
// endpoint that does not stream although asked to. A request is written in the
// form that all of them read. Reasoning is kept as it came, and goes back with the
// message it came with, to this API alone (I2).
//
// It imports host/model, host/model/remote and sdk/abi, and never the host.
package openai

import (
	"context"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/remote"
)

// API names the protocol, in a configuration and in the reasoning of an answer.
const API = "openai"

// The defaults of an endpoint of this API.
const (
	DefaultURL    = "https://api.openai.com/v1"
	DefaultPath   = "/chat/completions"
	DefaultAuth   = "Authorization"
	DefaultScheme = "Bearer"
)

// Options are how one model is called.
type Options struct {
	// Model is the provider's name of the model.
	Model string
	// Params are those of a call that does not have them itself.
	Params map[string]string
	// OutputParam is the parameter that bounds the tokens of an answer where the call
	// has none of them: max_tokens, which is what most endpoints know, or
	// max_completion_tokens. Empty means the first.
	OutputParam string
	// NoStream asks for answers in one piece.
	NoStream bool
	// NoUsage leaves out stream_options, which some endpoints refuse.
	NoUsage bool
	// NoReasoning keeps reasoning from being sent back, which some models refuse.
	NoReasoning bool
}

// Check reports a parameter of o that no call may have.
func (o Options) Check() error {
	return remote.Object{}.Params(nil, o.Params, taken()...)
}

// taken are the parameters that follow from a call.
func taken() []string {
	return []string{"model", "messages", "stream", "stream_options", "tools", "tool_choice", "n"}
}

// Provider completes through an endpoint.
type Provider struct {
	client   *remote.Client
	protocol protocol
}

var _ model.Provider = (*Provider)(nil)

// New makes the provider of one model.
func New(c *remote.Client, o Options) *Provider { return &Provider{c, protocol{o}} }

// Complete implements model.Provider.
func (p *Provider) Complete(ctx context.Context, req model.Request, deltas func(model.Delta)) (model.Result, error) {
	return p.client.Complete(ctx, p.protocol, req, deltas)
}

type protocol struct{ Options }

var _ remote.Protocol = protocol{}

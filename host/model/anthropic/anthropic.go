// Package anthropic owns Anthropic's Messages API.
//
// Thinking goes back as it came, with its signature; so do redacted thinking and
// every other block that has no form in our vocabulary: each is the opaque bytes
// of a reasoning part, which is this API's alone (I2). A data part that is
// {"cache_control": …} marks the block before it, so that a harness says itself
// up to where a prompt is cached.
//
// It imports host/model, host/model/remote and sdk/abi, and never the host.
package anthropic

import (
	"context"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/remote"
)

// API names the protocol, in a configuration and in the reasoning of an answer.
const API = "anthropic"

// The defaults of an endpoint of this API.
const (
	DefaultURL  = "https://api.anthropic.com"
	DefaultPath = "/v1/messages"
	DefaultAuth = "x-api-key"
	// VersionHeader has the version of the API, which is Version.
	VersionHeader = "anthropic-version"
	Version       = "2023-06-01"
)

// MaxTokens bounds an answer for which no max_tokens is given: the API demands it.
const MaxTokens = "8192"

// Options are how one model is called.
type Options struct {
	// Model is the provider's name of the model.
	Model string
	// Params are those of a call that does not have them itself.
	Params map[string]string
	// NoStream asks for answers in one piece.
	NoStream bool
	// NoReasoning keeps thinking from being sent back.
	NoReasoning bool
}

// Check reports a parameter of o that no call may have.
func (o Options) Check() error {
	return remote.Object{}.Params(nil, o.Params, taken()...)
}

// taken are the parameters that follow from a call.
func taken() []string {
	return []string{"model", "messages", "system", "stream", "tools", "tool_choice"}
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

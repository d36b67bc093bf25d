package main

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// config is the session's configuration.
type config struct {
	System string `json:"system"`
	Model  string `json:"model"`
	// Params go with each model call. A value is sent as it is written.
	Params map[string]json.RawMessage `json:"params"`
	// Tools are patterns of those that the model is told of; nil: of all.
	Tools []string `json:"tools"`
	// ToolChoice is auto, required, or a tool's name.
	ToolChoice string     `json:"tool_choice"`
	Parallel   bool       `json:"parallel"`
	MaxSteps   int        `json:"max_steps"`
	Compaction compaction `json:"compaction"`
}

// compaction is when and how a conversation is made shorter.
type compaction struct {
	MaxBytes    int `json:"max_bytes"`
	MaxTokens   int `json:"max_tokens"`
	Keep        int `json:"keep_messages"`
	ResultBytes int `json:"tool_result_bytes"`

	most int // bytes that fit into one request; 0: any number
}

// The values of tool_choice that are not the name of a tool.
const (
	choiceAuto     = "auto"
	choiceRequired = "required"
)

// defaultMaxBytes is a bound for models with room for 128,000 tokens, which leaves
// half of it for tools and answers.
const defaultMaxBytes = 256 << 10

func readConfig(t *sdk.Turn) (config, error) {
	c := config{
		ToolChoice: choiceAuto,
		Parallel:   true,
		MaxSteps:   20,
		Compaction: compaction{Keep: 8, ResultBytes: 1 << 10},
	}
	if err := t.DecodeConfig(&c); err != nil {
		return config{}, err
	}
	for _, bound := range []struct {
		name         string
		value, least int
	}{
		{"max_steps", c.MaxSteps, 1},
		{"compaction: max_bytes", c.Compaction.MaxBytes, 0},
		{"compaction: max_tokens", c.Compaction.MaxTokens, 0},
		{"compaction: keep_messages", c.Compaction.Keep, 1},
		{"compaction: tool_result_bytes", c.Compaction.ResultBytes, 0},
	} {
		if bound.value < bound.least {
			return config{}, invalid("%s: want at least %d", bound.name, bound.least)
		}
	}
	c.Compaction.bound(int(t.Limits().RequestBytes))
	for _, pattern := range c.Tools {
		if _, err := path.Match(pattern, ""); err != nil {
			return config{}, invalid("tools: %q: want a name, or a pattern such as files.*", pattern)
		}
	}
	return c, nil
}

// bound fills in what a configuration leaves open, for requests of so many bytes.
// Some of a request is for tools, and for what JSON does to bytes and quotes.
func (c *compaction) bound(request int) {
	c.most = request / 8 * 5
	if c.MaxBytes == 0 && c.MaxTokens == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	if c.most > 0 && (c.MaxBytes == 0 || c.MaxBytes > c.most) {
		c.MaxBytes = c.most
	}
}

func invalid(format string, args ...any) error {
	return &abi.Error{Code: abi.CodeInvalidArgument, Description: "config: " + fmt.Sprintf(format, args...)}
}

// call is the model call of a step. What tool_choice asks for it asks of the first
// step only: a model that must call a tool each time never answers. In the last one
// the tools are still named, as calls of them stand in the prompt, but not to be
// called.
func (c config) call(prompt []abi.Message, tools []abi.ToolDefinition, step int) abi.ModelCall {
	call := abi.ModelCall{Model: c.Model, Params: c.params(), Messages: prompt, Tools: tools}
	switch {
	case len(tools) == 0:
	case step == c.MaxSteps:
		call.ToolChoice = &abi.ToolChoice{Mode: abi.ToolChoiceNone}
	case step > 1 || c.ToolChoice == choiceAuto:
	case c.ToolChoice == choiceRequired:
		call.ToolChoice = &abi.ToolChoice{Mode: abi.ToolChoiceRequired}
	default:
		call.ToolChoice = &abi.ToolChoice{Name: c.ToolChoice}
	}
	return call
}

func (c config) params() map[string]string {
	params := make(map[string]string, len(c.Params))
	for name, value := range c.Params {
		params[name] = string(value)
	}
	return params
}

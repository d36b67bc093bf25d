package main

import (
	"encoding/json"
	"fmt"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// config is the session's configuration.
type config struct {
	// Mode says what an input is that does not say it itself: code or model.
	Mode   string `json:"mode"`
	System string `json:"system"`
	Model  string `json:"model"`
	// Params go with each model call. A value is sent as it is written.
	Params map[string]json.RawMessage `json:"params"`
	// MaxSteps is how many answers of the model a question may take.
	MaxSteps int `json:"max_steps"`
	// ResultBytes bounds what is shown of a value, and of what code prints.
	ResultBytes int `json:"result_bytes"`
	// TalkBytes bounds what is remembered of what was said.
	TalkBytes int `json:"talk_bytes"`
}

// The values of mode.
const (
	modeCode  = "code"
	modeModel = "model"
)

func readConfig(t *sdk.Turn) (config, error) {
	c := config{Mode: modeCode, MaxSteps: 20, ResultBytes: 8 << 10, TalkBytes: 128 << 10}
	if err := t.DecodeConfig(&c); err != nil {
		return config{}, err
	}
	switch {
	case c.Mode != modeCode && c.Mode != modeModel:
		return config{}, invalid("mode: %q; want %s or %s", c.Mode, modeCode, modeModel)
	case c.MaxSteps < 1:
		return config{}, invalid("max_steps: want at least 1")
	case c.ResultBytes < minResultBytes || c.ResultBytes > maxResultBytes:
		return config{}, invalid("result_bytes: want %d to %d", minResultBytes, maxResultBytes)
	case c.TalkBytes < 0:
		return config{}, invalid("talk_bytes: want at least 0")
	}
	return c, nil
}

// What result_bytes can be.
const (
	minResultBytes = 100
	maxResultBytes = 1 << 20
)

func invalid(format string, args ...any) error {
	return &abi.Error{Code: abi.CodeInvalidArgument, Description: "config: " + fmt.Sprintf(format, args...)}
}

func (c config) params() map[string]string {
	params := make(map[string]string, len(c.Params))
	for name, value := range c.Params {
		params[name] = string(value)
	}
	return params
}

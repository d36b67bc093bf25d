package main

import (
	"context"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// conversation is what was said so far, without the system's message. Messages are
// shared between copies of it, and never changed.
type conversation struct {
	// Summary stands for all that was said before Said.
	Summary string        `json:"summary,omitempty"`
	Said    []abi.Message `json:"said,omitempty"`
	// Tokens is how many tokens a prompt of it takes: as the provider counted
	// them, and an estimate of what came later.
	Tokens int `json:"tokens,omitempty"`
	// Seen is the last record of earlier turns that was looked at.
	Seen abi.Seq `json:"seen,omitempty"`

	// What this turn was asked stands in Said from and before these places.
	asked, askedEnd int
}

// open begins a turn with its inputs.
func (v *conversation) open(ctx context.Context, t *sdk.Turn) error {
	v.asked = len(v.Said)
	notes, err := v.unfinished(ctx, t)
	if err != nil {
		return err
	}
	for _, note := range notes {
		v.add(abi.Text(abi.RoleUser, note))
	}
	for _, input := range t.Inputs() {
		v.add(input)
	}
	v.askedEnd = len(v.Said)
	return nil
}

// add puts a message at the end. Where Said has room, other copies of v do not see
// it: they end before it.
func (v *conversation) add(m abi.Message) {
	v.Said = append(v.Said, m)
	v.Tokens += sizeOf(m).tokens
}

// answered adds an answer, and corrects the estimate by what its provider says.
func (v *conversation) answered(r abi.ModelResult) {
	v.add(r.Message)
	if u := r.Usage; u != nil && u.InputTokens > 0 {
		v.Tokens = int(u.InputTokens + u.OutputTokens)
	}
}

// prompt is what is sent to the model.
func (v *conversation) prompt(system string) []abi.Message {
	prompt := make([]abi.Message, 0, len(v.Said)+2)
	if system != "" {
		prompt = append(prompt, abi.Text(abi.RoleSystem, system))
	}
	if v.Summary != "" {
		prompt = append(prompt, abi.Text(abi.RoleUser, summaryHead+v.Summary))
	}
	return append(prompt, v.Said...)
}

// size is how much room messages take.
type size struct{ bytes, tokens int }

// What JSON puts around a message, a file in tokens, and how many bytes of text
// make a token: all of them rough.
const (
	messageBytes  = 48
	fileTokens    = 1000
	bytesPerToken = 4
)

// sizeOf is the size of messages: the bytes of texts, arguments, results and
// files, and an estimate of the tokens. It encodes nothing, since it is called before
// each model call.
func sizeOf(messages ...abi.Message) size {
	var text, files, fileBytes int
	var count func(parts []abi.Part)
	count = func(parts []abi.Part) {
		for _, p := range parts {
			switch {
			case p.Text != nil:
				text += len(p.Text.Text)
			case p.Data != nil:
				text += len(p.Data.Data)
			case p.Reasoning != nil:
				text += len(p.Reasoning.OpaqueBytes)
			case p.ToolCall != nil:
				text += len(p.ToolCall.Tool) + len(p.ToolCall.Args)
			case p.ToolResult != nil:
				text += len(p.ToolResult.Output) + len(p.ToolResult.Error)
				count(p.ToolResult.Content)
			case p.File != nil:
				files++
				fileBytes += len(p.File.Bytes)
			}
		}
	}
	for _, m := range messages {
		text += messageBytes
		count(m.Parts)
	}
	return size{bytes: text + fileBytes, tokens: text/bytesPerToken + files*fileTokens}
}

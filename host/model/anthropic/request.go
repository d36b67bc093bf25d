package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/remote"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Encode implements remote.Protocol.
func (p protocol) Encode(req model.Request) ([]byte, error) {
	call := req.Call
	body := remote.Object{"max_tokens": json.RawMessage(MaxTokens)}
	if err := body.Params(call.Params, p.Params, taken()...); err != nil {
		return nil, err
	}
	body.AtMost(req.MaxOutputTokens, "max_tokens")
	body["model"] = p.Model
	system, messages, err := p.messages(call.Messages)
	if err != nil {
		return nil, err
	}
	body["messages"] = messages
	if len(system) > 0 {
		body["system"] = system
	}
	choice := toolChoice(call.ToolChoice)
	offered := call.Tools
	if len(offered) == 0 {
		// The API demands tools where calls of some stand in the messages.
		offered, choice = called(call.Messages), remote.Object{"type": "none"}
	}
	if len(offered) > 0 {
		body["tools"] = tools(offered)
		if choice != nil {
			body["tool_choice"] = choice
		}
	}
	if !p.NoStream {
		body["stream"] = true
	}
	return body.Encode()
}

// called are the tools that messages have calls of, each once.
func called(messages []abi.Message) (tools []abi.ToolDefinition) {
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.ToolCall != nil && !slices.ContainsFunc(tools, func(t abi.ToolDefinition) bool { return t.Name == p.ToolCall.Tool }) {
				tools = append(tools, abi.ToolDefinition{Name: p.ToolCall.Tool})
			}
		}
	}
	return tools
}

func tools(tools []abi.ToolDefinition) []remote.Object {
	out := make([]remote.Object, len(tools))
	for i, t := range tools {
		out[i] = remote.Object{"name": remote.APIName(t.Name), "input_schema": json.RawMessage(`{"type":"object"}`)}
		if t.Description != "" {
			out[i]["description"] = t.Description
		}
		if len(t.InputSchema) > 0 {
			out[i]["input_schema"] = t.InputSchema
		}
	}
	return out
}

func toolChoice(c *abi.ToolChoice) remote.Object {
	switch {
	case c == nil:
		return nil
	case c.Name != "":
		return remote.Object{"type": "tool", "name": remote.APIName(c.Name)}
	case c.Mode == abi.ToolChoiceAuto:
		return remote.Object{"type": "auto"}
	case c.Mode == abi.ToolChoiceNone:
		return remote.Object{"type": "none"}
	case c.Mode == abi.ToolChoiceRequired:
		return remote.Object{"type": "any"}
	}
	return nil
}

// messages writes our messages. What the system says stands apart; the results of
// tools are the user's; and messages of one role in a row are one, as results
// must stand together.
func (p protocol) messages(all []abi.Message) (system, messages []remote.Object, err error) {
	messages = []remote.Object{}
	for _, m := range all {
		blocks, err := p.blocks(m)
		if err != nil {
			return nil, nil, err
		}
		role := m.Role
		switch role {
		case abi.RoleSystem:
			system = append(system, blocks...)
			continue
		case abi.RoleTool:
			role = abi.RoleUser
		}
		if len(blocks) == 0 {
			continue
		}
		if n := len(messages); n > 0 && messages[n-1]["role"] == role {
			messages[n-1]["content"] = append(messages[n-1]["content"].([]remote.Object), blocks...)
			continue
		}
		messages = append(messages, remote.Object{"role": role, "content": blocks})
	}
	return system, messages, nil
}

func (p protocol) blocks(m abi.Message) ([]remote.Object, error) {
	blocks := make([]remote.Object, 0, len(m.Parts))
	for _, part := range m.Parts {
		if part.Data != nil {
			if mark := remote.CacheControl(part.Data); mark != nil {
				if len(blocks) == 0 {
					return nil, remote.Invalid("cache_control has no part before it to mark")
				}
				blocks[len(blocks)-1]["cache_control"] = mark
				continue
			}
		}
		b, err := p.block(part)
		if err != nil {
			return nil, err
		}
		if b != nil {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

func (p protocol) block(part abi.Part) (remote.Object, error) {
	switch {
	case part.Text != nil:
		return text(part.Text.Text), nil
	case part.Data != nil:
		return text(string(part.Data.Data)), nil
	case part.File != nil:
		return file(*part.File)
	case part.Reasoning != nil:
		if part.Reasoning.Provider != API || p.NoReasoning {
			return nil, nil
		}
		var block map[string]json.RawMessage
		if err := json.Unmarshal(part.Reasoning.OpaqueBytes, &block); err != nil {
			return nil, remote.Invalid("a reasoning part of %s is not what this API gave: %v", API, err)
		}
		out := remote.Object{}
		for name, value := range block {
			out[name] = value
		}
		return out, nil
	case part.ToolCall != nil:
		input := part.ToolCall.Args
		if len(input) == 0 {
			input = abi.Struct("{}")
		}
		return remote.Object{"type": "tool_use", "id": part.ToolCall.ID, "name": remote.APIName(part.ToolCall.Tool), "input": input}, nil
	case part.ToolResult != nil:
		return toolResult(*part.ToolResult), nil
	}
	return nil, nil
}

// text is nothing where it is empty, or white space alone: the API refuses such a block.
func text(s string) remote.Object {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return remote.Object{"type": "text", "text": s}
}

func file(f abi.FilePart) (remote.Object, error) {
	kind, _, _ := strings.Cut(f.MIME, "/")
	source := remote.Object{"type": "url", "url": f.URI}
	switch {
	case f.URI != "" && len(f.Bytes) == 0:
	case kind == "text":
		source = remote.Object{"type": "text", "media_type": "text/plain", "data": string(f.Bytes)}
	default:
		source = remote.Object{"type": "base64", "media_type": f.MIME, "data": base64.StdEncoding.EncodeToString(f.Bytes)}
	}
	switch {
	case kind == "image":
		return remote.Object{"type": "image", "source": source}, nil
	case kind == "text" || f.MIME == "application/pdf":
		block := remote.Object{"type": "document", "source": source}
		if f.Name != "" {
			block["title"] = f.Name
		}
		return block, nil
	}
	return nil, remote.Invalid("this API has no form for a file of type %q: it takes images, PDF and text", f.MIME)
}

func toolResult(r abi.ToolResult) remote.Object {
	block := remote.Object{"type": "tool_result", "tool_use_id": r.ID}
	if r.IsError {
		block["is_error"] = true
	}
	content := []remote.Object{}
	if b := text(remote.ResultText(r)); b != nil {
		content = append(content, b)
	}
	for _, part := range r.Content {
		if part.File == nil {
			continue
		}
		b, err := file(*part.File)
		if err != nil || r.IsError { // an error has text alone, says the API
			b = text(remote.Unseen(*part.File))
		}
		content = append(content, b)
	}
	if len(content) > 0 {
		block["content"] = content
	}
	return block
}

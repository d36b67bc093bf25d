package openai

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/remote"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Encode implements remote.Protocol.
func (p protocol) Encode(req model.Request) ([]byte, error) {
	call := req.Call
	body := remote.Object{}
	if err := body.Params(call.Params, p.Params, taken()...); err != nil {
		return nil, err
	}
	body.AtMost(req.MaxOutputTokens, cmp.Or(p.OutputParam, "max_tokens"), "max_tokens", "max_completion_tokens")
	body["model"] = p.Model
	messages := []remote.Object{}
	for _, m := range call.Messages {
		encoded, err := p.message(m)
		if err != nil {
			return nil, err
		}
		messages = append(messages, encoded...)
	}
	body["messages"] = messages
	if len(call.Tools) > 0 {
		body["tools"] = tools(call.Tools)
	}
	if choice := toolChoice(call.ToolChoice); choice != nil {
		body["tool_choice"] = choice
	}
	if !p.NoStream {
		body["stream"] = true
		if !p.NoUsage {
			body["stream_options"] = remote.Object{"include_usage": true}
		}
	}
	return body.Encode()
}

func tools(tools []abi.ToolDefinition) []remote.Object {
	out := make([]remote.Object, len(tools))
	for i, t := range tools {
		function := remote.Object{"name": remote.APIName(t.Name), "parameters": json.RawMessage(`{"type":"object","properties":{}}`)}
		if t.Description != "" {
			function["description"] = t.Description
		}
		if len(t.InputSchema) > 0 {
			function["parameters"] = t.InputSchema
		}
		out[i] = remote.Object{"type": "function", "function": function}
	}
	return out
}

func toolChoice(c *abi.ToolChoice) any {
	switch {
	case c == nil:
		return nil
	case c.Name != "":
		return remote.Object{"type": "function", "function": remote.Object{"name": remote.APIName(c.Name)}}
	case c.Mode == abi.ToolChoiceAuto:
		return "auto"
	case c.Mode == abi.ToolChoiceNone:
		return "none"
	case c.Mode == abi.ToolChoiceRequired:
		return "required"
	}
	return nil
}

// message writes one of our messages, which may be several of theirs: each result
// of a tool is one, and the files of results come behind them all, from the user,
// as a result has room for text alone.
func (p protocol) message(m abi.Message) ([]remote.Object, error) {
	var (
		content []remote.Object
		calls   []remote.Object
		results []remote.Object
		files   []remote.Object
		out     = remote.Object{"role": m.Role}
	)
	for _, part := range m.Parts {
		switch {
		case part.ToolCall != nil:
			calls = append(calls, toolCall(*part.ToolCall))
		case part.ToolResult != nil:
			result, attached := toolResult(*part.ToolResult)
			results, files = append(results, result), append(files, attached...)
		case part.Reasoning != nil:
			if err := p.reasoning(*part.Reasoning, out); err != nil {
				return nil, err
			}
		default:
			piece, err := contentPart(part)
			if err != nil {
				return nil, err
			}
			if piece != nil {
				content = append(content, piece)
			}
		}
	}
	if len(calls) > 0 {
		out["tool_calls"] = calls
	}
	if len(content) > 0 || len(results) == 0 {
		out["content"] = plain(content, len(calls) > 0)
		results = append(results, out)
	}
	if len(files) > 0 {
		results = append(results, remote.Object{"role": abi.RoleUser, "content": files})
	}
	return results, nil
}

// plain is content as a string if it is text alone, which every endpoint reads.
func plain(content []remote.Object, calls bool) any {
	if len(content) == 0 && calls {
		return nil
	}
	var text strings.Builder
	for _, c := range content {
		piece, ok := c["text"].(string)
		if !ok {
			return content
		}
		text.WriteString(piece)
	}
	return text.String()
}

func contentPart(p abi.Part) (remote.Object, error) {
	switch {
	case p.Text != nil:
		return remote.Object{"type": "text", "text": p.Text.Text}, nil
	case p.Data != nil:
		if remote.CacheControl(p.Data) != nil {
			return nil, nil // there is nothing to mark: this API caches by itself
		}
		return remote.Object{"type": "text", "text": string(p.Data.Data)}, nil
	case p.File != nil:
		return file(*p.File)
	}
	return nil, nil
}

func file(f abi.FilePart) (remote.Object, error) {
	kind, format, _ := strings.Cut(f.MIME, "/")
	link := f.URI
	encoded := base64.StdEncoding.EncodeToString(f.Bytes)
	if len(f.Bytes) > 0 || link == "" {
		link = "data:" + f.MIME + ";base64," + encoded
	}
	switch {
	case kind == "image":
		return remote.Object{"type": "image_url", "image_url": remote.Object{"url": link}}, nil
	case f.URI == link:
		return nil, remote.Invalid("a file of type %q can only be sent by its bytes, not by a URI", f.MIME)
	case kind == "text":
		return remote.Object{"type": "text", "text": string(f.Bytes)}, nil
	case kind == "audio":
		if format == "mpeg" {
			format = "mp3"
		}
		return remote.Object{"type": "input_audio", "input_audio": remote.Object{"data": encoded, "format": strings.TrimPrefix(format, "x-")}}, nil
	}
	name := f.Name
	if name == "" {
		name = "file"
	}
	return remote.Object{"type": "file", "file": remote.Object{"filename": name, "file_data": link}}, nil
}

func toolCall(c abi.ToolCall) remote.Object {
	args := string(c.Args)
	if args == "" {
		args = "{}"
	}
	return remote.Object{"id": c.ID, "type": "function", "function": remote.Object{"name": remote.APIName(c.Tool), "arguments": args}}
}

func toolResult(r abi.ToolResult) (result remote.Object, files []remote.Object) {
	for _, part := range r.Content {
		if part.File == nil {
			continue
		}
		f, err := file(*part.File)
		if err != nil {
			f = remote.Object{"type": "text", "text": remote.Unseen(*part.File)}
		}
		files = append(files, f)
	}
	if len(files) > 0 {
		files = append([]remote.Object{{"type": "text", "text": "files of the tool call " + r.ID + ":"}}, files...)
	}
	return remote.Object{"role": abi.RoleTool, "tool_call_id": r.ID, "content": remote.ResultText(r)}, files
}

// reasoning puts what came from this API back into the message.
func (p protocol) reasoning(r abi.ReasoningPart, message remote.Object) error {
	if r.Provider != API || p.NoReasoning {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(r.OpaqueBytes, &fields); err != nil {
		return remote.Invalid("a reasoning part of %s is not what this API gave: %v", API, err)
	}
	for _, name := range reasoningFields {
		if value, ok := fields[name]; ok {
			message[name] = value
		}
	}
	return nil
}

// reasoningFields are the names under which reasoning comes.
var reasoningFields = []string{"reasoning_content", "reasoning", "reasoning_details"}

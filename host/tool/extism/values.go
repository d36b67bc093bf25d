package extism

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/agentcell/agentcell/sdk/abi"
)

// MaxOutput bounds what a plug-in may answer. Bytes that are no text are a third
// longer in a record, which has room for 8 MiB.
const MaxOutput = 5 << 20

// input is what the plug-in is given: the arguments as they are, or the one that is
// its input, without the quotes of a string.
func (m Manifest) input(args abi.Struct) ([]byte, error) {
	if m.Input == "" {
		if len(args) == 0 {
			return []byte("{}"), nil
		}
		return args, nil
	}
	var fields map[string]json.RawMessage
	if len(args) > 0 {
		if err := json.Unmarshal(args, &fields); err != nil {
			return nil, fmt.Errorf("arguments: %s", abi.JSONProblem(err))
		}
	}
	value, ok := fields[m.Input]
	if !ok {
		return nil, fmt.Errorf("the argument %q is missing", m.Input)
	}
	var text string
	if value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return []byte(text), nil
	}
	return value, nil
}

// result is a tool's result of what the plug-in answered: an object is the output,
// other text is a text, and anything else is a file.
func result(output []byte) (abi.ToolResult, error) {
	if len(output) > MaxOutput {
		return abi.ToolResult{}, fmt.Errorf("it answered %d bytes, at most %d are taken", len(output), MaxOutput)
	}
	if len(output) == 0 {
		return abi.ToolResult{}, nil
	}
	if object := bytes.TrimSpace(output); len(object) > 0 && object[0] == '{' {
		// What has no canonical form, such as a name that stands twice, is text.
		if _, err := abi.Canonical(object); err == nil {
			return abi.ToolResult{Output: object}, nil
		}
	}
	if utf8.Valid(output) {
		return abi.ToolResult{Content: []abi.Part{{Text: &abi.TextPart{Text: string(output)}}}}, nil
	}
	return abi.ToolResult{Content: []abi.Part{{File: &abi.FilePart{MIME: http.DetectContentType(output), Bytes: output}}}}, nil
}

package remote

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/agentcell/agentcell/sdk/abi"
)

// CacheControl is what a data part says about the part before it, for APIs that
// cache up to a mark: the part is an object with the member cache_control alone.
// Of any other part it is nil.
func CacheControl(d *abi.DataPart) json.RawMessage {
	var members map[string]json.RawMessage
	if d == nil || json.Unmarshal(d.Data, &members) != nil || len(members) != 1 {
		return nil
	}
	return members["cache_control"]
}

// Unseen stands for a file of a tool's result that an API has no form for: the model is
// told that there is one, as it could not ask for anything else if its call failed.
func Unseen(f abi.FilePart) string {
	text := fmt.Sprintf("[a file that cannot be shown: type %q", f.MIME)
	for _, name := range []string{f.Name, f.URI} {
		if name != "" {
			text += ", " + name
		}
	}
	if len(f.Bytes) > 0 {
		text += fmt.Sprintf(", %d bytes", len(f.Bytes))
	}
	return text + "]"
}

// ResultText is what a tool came to as text: its content if it has any, or else
// its output.
func ResultText(r abi.ToolResult) string {
	var b strings.Builder
	if r.IsError {
		b.WriteString("error: " + r.Error)
	}
	for _, p := range r.Content {
		if b.Len() > 0 && (p.Text != nil || p.Data != nil) {
			b.WriteByte('\n')
		}
		switch {
		case p.Text != nil:
			b.WriteString(p.Text.Text)
		case p.Data != nil:
			b.Write(p.Data.Data)
		}
	}
	if len(r.Content) == 0 && len(r.Output) > 0 {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.Write(r.Output)
	}
	return b.String()
}

// Arguments reads the arguments that a model calls a tool with: an object, or
// nothing. reason says how the answer ended, which may explain a broken one.
func Arguments(tool, text, reason string) (abi.Struct, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		text = "{}"
	}
	if text[0] != '{' || !json.Valid([]byte(text)) {
		return nil, Garbage("it calls the tool %.80q with arguments that are not a JSON object: %.80q%s", tool, text, reason)
	}
	if _, err := abi.Canonical([]byte(text)); err != nil {
		return nil, Garbage("it calls the tool %.80q with arguments that cannot be recorded: %v%s", tool, err, reason)
	}
	return abi.Struct(text), nil
}

// Tokens is a count of tokens in an answer, below 0 if it cannot be read as one: an
// answer that was paid for is not lost for it.
type Tokens int64

// UnmarshalJSON takes 10, and 10.0 and "10" as well.
func (t *Tokens) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	if text == "null" {
		return nil
	}
	const most = 1 << 53 // of whole numbers that a double has
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		*t = Tokens(n)
	} else if f, err := strconv.ParseFloat(text, 64); err == nil && f == math.Trunc(f) && 0 <= f && f < most {
		*t = Tokens(f)
	} else {
		*t = -1
	}
	return nil
}

// Usage counts tokens, nil if a count cannot be.
func Usage(model string, input, output, reasoning Tokens) *abi.Usage {
	if input < 0 || output < 0 || reasoning < 0 {
		return nil
	}
	return &abi.Usage{
		Model: model, InputTokens: abi.Int64(input), OutputTokens: abi.Int64(output), ReasoningTokens: abi.Int64(reasoning),
	}
}

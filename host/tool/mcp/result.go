package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentcell/agentcell/sdk/abi"
)

// notSent is the code of the SDK for a request that did not come through.
const notSent = -32005

// problem is why a call has failed: what the server answered, or what became of it.
func (c *conn) problem(err error) error {
	var answer *jsonrpc.Error
	if c.link.screened().cause() == nil && errors.As(err, &answer) && answer.Code != notSent {
		c.server.answered()
		return fmt.Errorf("it answered with error %d: %.4000s", answer.Code, answer.Message)
	}
	return fmt.Errorf("%w: %w", ErrDown, c.explain(err))
}

// result is what a server gave as it is recorded. Of a result that is an error the
// text is the error.
func result(r *sdk.CallToolResult) (abi.ToolResult, error) {
	var out abi.ToolResult
	output, err := written(r.StructuredContent)
	if err != nil {
		return abi.ToolResult{}, fmt.Errorf("its structured content: %w", err)
	}
	out.Output = output
	var texts []string
	for _, content := range r.Content {
		part, err := part(content)
		if err != nil {
			return abi.ToolResult{}, err
		}
		if r.IsError && part.Text != nil {
			texts = append(texts, part.Text.Text)
			continue
		}
		out.Content = append(out.Content, part)
	}
	if r.IsError {
		out.IsError = true
		if out.Error = strings.Join(texts, "\n"); out.Error == "" {
			out.Error = "the tool failed, and says no more"
		}
	}
	return out, nil
}

func part(content sdk.Content) (abi.Part, error) {
	file := func(f abi.FilePart) (abi.Part, error) { return abi.Part{File: &f}, nil }
	switch c := content.(type) {
	case *sdk.TextContent:
		return abi.Part{Text: &abi.TextPart{Text: c.Text}}, nil
	case *sdk.ImageContent:
		return file(abi.FilePart{MIME: c.MIMEType, Bytes: c.Data})
	case *sdk.AudioContent:
		return file(abi.FilePart{MIME: c.MIMEType, Bytes: c.Data})
	case *sdk.ResourceLink: // it is for the server alone: nobody else can follow it
		link, err := json.Marshal(c)
		return abi.Part{Data: &abi.DataPart{Data: link}}, err
	case *sdk.EmbeddedResource:
		if c.Resource == nil {
			return abi.Part{}, errors.New("its content has a resource that is empty")
		}
		f := abi.FilePart{MIME: c.Resource.MIMEType, URI: c.Resource.URI, Bytes: c.Resource.Blob}
		if f.Bytes == nil {
			f.Bytes = []byte(c.Resource.Text)
		}
		return file(f)
	}
	return abi.Part{}, fmt.Errorf("its content has a part of a kind that is not known: %T", content)
}

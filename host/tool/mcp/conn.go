package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

// protocol is the version that is asked for: the last one that begins with initialize,
// which every server knows.
const protocol = "2025-11-25"

// link is what carries the messages of one connection.
type link interface {
	sdk.Transport
	// leave begins the end of a link, which is cut when the session is closed or does
	// not want to be.
	leave()
	// cut ends the link, soon, with all that waits for it.
	cut()
	// screened is what its messages pass.
	screened() *screen
}

// conn is one connection to a server that runs.
type conn struct {
	server  *server
	link    link
	session *sdk.ClientSession
	ended   chan struct{} // closed when the session is over

	// list has the tools that the server offers, and nil when they have to be asked
	// for. Whoever takes it puts it back.
	list chan *list
}

// list is what came of listing tools.
type list struct {
	tools []tool.Tool
	err   error // of what the server offers; one of the connection is not kept
}

// connect starts or reaches a server, and greets it.
func connect(s *server) (*conn, error) {
	c := &conn{server: s, ended: make(chan struct{}), list: make(chan *list, 1)}
	c.list <- nil
	var err error
	if s.conf.URL != "" {
		c.link, err = newWeb(s)
	} else {
		c.link, err = newProcess(s)
	}
	if err != nil {
		return nil, err
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "agentcell", Version: "1"}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{}, // nothing may be asked of this client
	})
	limit := time.Duration(s.conf.Timeouts.Start)
	ctx, cancel := context.WithTimeoutCause(s.ctx, limit, fmt.Errorf("it did not answer within %s", limit))
	defer cancel()
	// The SDK may wait beyond the end of the context, for what only the end of the
	// link ends.
	stop := context.AfterFunc(ctx, c.link.cut)
	defer stop()
	c.session, err = client.Connect(ctx, c.link, &sdk.ClientSessionOptions{ProtocolVersion: protocol})
	if err != nil || ctx.Err() != nil {
		c.link.cut()
		if c.session != nil {
			_ = c.session.Close()
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, c.explain(err)
	}
	go func() {
		_ = c.session.Wait()
		close(c.ended)
	}()
	return c, nil
}

// cause is why the connection has ended.
func (c *conn) cause() error {
	if c.server.ctx.Err() != nil {
		return context.Cause(c.server.ctx)
	}
	if err := c.link.screened().cause(); err != nil {
		return err
	}
	return errors.New("it has ended")
}

// explain is the error of a request, in words that need no knowledge of the SDK.
func (c *conn) explain(err error) error {
	if cause := c.link.screened().cause(); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) || errors.Is(err, sdk.ErrConnectionClosed) {
		return errors.New("it has ended")
	}
	return err
}

func (c *conn) close() {
	c.link.leave()
	_ = c.session.Close()
	c.link.cut()
}

// tools are what the server offers, asked for when that is not known.
func (c *conn) tools(ctx context.Context) ([]tool.Tool, error) {
	var known *list
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case known = <-c.list:
	}
	defer func() { c.list <- known }()
	if c.link.screened().changed.Swap(false) {
		known = nil
	}
	if known != nil {
		return known.tools, known.err
	}
	limit := time.Duration(c.server.conf.Timeouts.Start)
	// It goes on for others when the turn that wanted it first has ended; the time is
	// bounded.
	listing, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	stop := context.AfterFunc(c.server.ctx, cancel)
	defer stop()
	found := c.find(listing)
	var down *lostError
	if errors.As(found.err, &down) {
		c.link.cut() // it is started again
		if listing.Err() != nil {
			return nil, fmt.Errorf("%w: it did not list its tools within %s", ErrDown, limit)
		}
		return nil, fmt.Errorf("%w: %w", ErrDown, c.explain(down.err))
	}
	known = found
	return known.tools, known.err
}

// lostError is a failure to list tools, after which the connection is no good.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }

const (
	maxPages      = 100       // of a list
	maxDefinition = 256 << 10 // of a tool: its description and its schema
)

var errTooMany = errors.New("it offers too many tools")

// find asks for the list, page by page.
func (c *conn) find(ctx context.Context) *list {
	s, found, seen := c.server, &list{}, map[string]bool{}
	params := &sdk.ListToolsParams{}
	for range maxPages {
		page, err := c.session.ListTools(ctx, params)
		if err != nil {
			return &list{err: &lostError{err}}
		}
		for _, offered := range page.Tools {
			if !s.offers(offered.Name) {
				continue
			}
			t := s.tool(offered.Name)
			err := define(&t, offered)
			if err == nil && seen[offered.Name] {
				err = errors.New("it is offered twice")
			}
			if err != nil {
				s.o.Log.Warn("a tool is left out", "tool", fmt.Sprintf("%.80q", offered.Name), "error", err)
				continue
			}
			seen[offered.Name] = true
			found.tools = append(found.tools, t)
			if len(found.tools) > s.conf.Limits.Tools {
				return &list{err: fmt.Errorf("%w: more than %d; name those that you want under tools, or raise limits.tools", errTooMany, s.conf.Limits.Tools)}
			}
		}
		if page.NextCursor == "" {
			return found
		}
		params.Cursor = page.NextCursor
	}
	return &list{err: fmt.Errorf("%w: more than %d pages", errTooMany, maxPages)}
}

// define adds what a model is told of a tool.
func define(t *tool.Tool, offered *sdk.Tool) error {
	t.Definition.Description = offered.Description
	if t.Definition.Description == "" {
		t.Definition.Description = offered.Title
	}
	schema, err := written(offered.InputSchema)
	if err != nil {
		return fmt.Errorf("its schema: %w", err)
	}
	t.Definition.InputSchema = schema
	if n := len(t.Definition.Description) + len(schema); n > maxDefinition {
		return fmt.Errorf("its description and schema have %d bytes, at most %d are taken", n, maxDefinition)
	}
	return t.Check()
}

// executor performs the calls of one tool.
type executor struct {
	server *server
	name   string // as the server has it
}

var _ tool.Executor = executor{}

// Call implements tool.Executor.
func (e executor) Call(ctx context.Context, call tool.Call) (abi.ToolResult, error) {
	result, err := e.call(ctx, call.Args)
	if ctx.Err() != nil {
		return abi.ToolResult{}, fmt.Errorf("call %s: %w", call.Tool, ctx.Err())
	}
	return result, err
}

func (e executor) call(ctx context.Context, args abi.Struct) (abi.ToolResult, error) {
	s, limit := e.server, time.Duration(e.server.conf.Timeouts.Call)
	if ctx.Err() != nil {
		return abi.ToolResult{}, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	late := func() error {
		if s.ctx.Err() != nil {
			return s.failed(errClosed)
		}
		return s.failed(fmt.Errorf("no answer within %s", limit))
	}
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return abi.ToolResult{}, late()
	}
	c, err := s.connected(ctx)
	if err != nil {
		<-s.slots
		return abi.ToolResult{}, err
	}
	params := &sdk.CallToolParams{Name: e.name, Arguments: json.RawMessage("{}")}
	if len(args) > 0 {
		params.Arguments = json.RawMessage(append([]byte(nil), args...))
	}
	type answer struct {
		result *sdk.CallToolResult
		err    error
	}
	done := make(chan answer, 1)
	go func() { // the SDK waits for a server that does not read, whatever the context says
		defer func() { <-s.slots }()
		result, err := c.session.CallTool(ctx, params)
		done <- answer{result, err}
	}()
	select {
	case <-ctx.Done():
		return abi.ToolResult{}, late()
	case a := <-done:
		switch {
		case a.err != nil && ctx.Err() != nil:
			return abi.ToolResult{}, late()
		case a.err != nil:
			return abi.ToolResult{}, s.failed(c.problem(a.err))
		}
		s.answered()
		result, err := result(a.result)
		if err != nil {
			return abi.ToolResult{}, s.failed(err)
		}
		return result, nil
	}
}

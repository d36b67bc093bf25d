package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool/mcp"
	"github.com/agentcell/agentcell/sdk/abi"
)

// counted counts requests at the transport.
type counted struct {
	requests atomic.Int64
	next     *http.Transport
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.next.RoundTrip(r)
}

// serve makes a server over HTTP, and the servers that have it.
func serve(t *testing.T, h http.Handler, c config.MCP) (*mcp.Servers, *counted) {
	t.Helper()
	server := httptest.NewServer(h)
	c.URL = server.URL + "/mcp"
	transport := &counted{next: &http.Transport{}}
	s := mcp.New(map[string]config.MCP{"s": c}, mcp.Options{
		Transport: transport,
		Secret:    func(string) (string, error) { return "canary", nil },
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		transport.next.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	return s, transport
}

// good is a server that gives its arguments back, and can be told of another tool.
func good(json bool) (http.Handler, *sdk.Server) {
	server := sdk.NewServer(&sdk.Implementation{Name: "web", Version: "1"}, nil)
	offer(server, "echo", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{StructuredContent: r.Params.Arguments, Content: []sdk.Content{&sdk.TextContent{Text: "said"}}}, nil
	})
	offer(server, "slow", func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{JSONResponse: json}), server
}

func offer(server *sdk.Server, name string, handle sdk.ToolHandler) {
	server.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object","maxProperties":12345678901234567890}`)}, handle)
}

// Over HTTP a server is as over stdio: nothing is sent before it is needed, what it
// gives is as it wrote it (I2), and its list may change.
func TestWeb(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		t.Run(fmt.Sprintf("json=%t", asJSON), func(t *testing.T) {
			handler, server := good(asJSON)
			var authorized atomic.Int64
			s, transport := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer canary" || r.Header.Get("X-Team") != "blue" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				authorized.Add(1)
				handler.ServeHTTP(w, r)
			}), config.MCP{Headers: map[string]config.Value{
				"Authorization": {Text: "Bearer ", Key: "secret:token"}, "X-Team": {Text: "blue"},
			}})
			if n := transport.requests.Load(); n != 0 {
				t.Errorf("%d requests before anything was asked", n)
			}
			tools, err := s.Tools(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"s.echo", "s.slow"}, names(tools)); diff != "" {
				t.Fatalf("tools (-want +got):\n%s", diff)
			}
			if got := string(tools[0].Definition.InputSchema); got != `{"type":"object","maxProperties":12345678901234567890}` {
				t.Errorf("schema %s", got)
			}
			got, err := call(t.Context(), s, "s.echo", `{"n":12345678901234567890}`)
			want := abi.ToolResult{Output: abi.Struct(`{"n":12345678901234567890}`), Content: []abi.Part{{Text: &abi.TextPart{Text: "said"}}}}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("result (-want +got):\n%s%v", diff, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := call(ctx, s, "s.slow", ``); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a call that is given up: %v", err)
			}
			offer(server, "more", nil)
			for len(tools) < 3 {
				if tools, err = s.Tools(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if authorized.Load() == 0 {
				t.Error("the headers of the configuration were not sent")
			}
		})
	}
}

// A server that was restarted knows nothing of the session: the call that finds out
// fails, and those after it have another session.
func TestWeb_Restarted(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		t.Run(fmt.Sprintf("json=%t", asJSON), func(t *testing.T) {
			var now atomic.Pointer[http.Handler]
			var running *sdk.Server
			restart := func() {
				if running != nil {
					for session := range running.Sessions() {
						_ = session.Close()
					}
				}
				var handler http.Handler
				handler, running = good(asJSON)
				now.Store(&handler)
			}
			restart()
			s, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*now.Load()).ServeHTTP(w, r) }), config.MCP{})
			if _, err := call(t.Context(), s, "s.echo", `{}`); err != nil {
				t.Fatal(err)
			}
			restart()
			if _, err := call(t.Context(), s, "s.echo", `{}`); !errors.Is(err, mcp.ErrDown) {
				t.Errorf("the call that finds out: %v", err)
			}
			awaitDown(t, s)
			if _, err := call(t.Context(), s, "s.echo", `{}`); err != nil {
				t.Errorf("the call after it: %v", err)
			}
		})
	}
}

// hello answers initialize and the list, and leaves the rest to then.
func hello(then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(body, &m)
		result := ""
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		case m.Method == "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`
		case m.Method == "tools/list":
			result = `{"tools":[{"name":"ok","inputSchema":{}}]}`
		case m.Method == "tools/call":
			then(w, r)
			return
		default:
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
}

// A server over HTTP that is hostile or broken is an error that says what it did, and
// has none of its secrets.
func TestWeb_Hostile(t *testing.T) {
	say := func(kind, text string, times int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			for range times {
				if _, err := io.WriteString(w, text); err != nil {
					return
				}
			}
		}
	}
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, text)
		}
	}
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else its end is not noticed
		<-r.Context().Done()
	}
	mega := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		name, want string
		h          http.HandlerFunc
	}{
		{"unauthorized", "Unauthorized", status(http.StatusUnauthorized, "canary is wrong")},
		{"an error page", "Internal Server Error", hello(status(http.StatusInternalServerError, "<html>canary</html>"))},
		{"a page", "it sent what is no message", say("text/html", "<html>canary</html>", 1)},
		{"a redirect", "it redirects", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}},
		{"no JSON", "it sent what is no message: \"{[secret:token]\"", hello(say("application/json", "{canary", 1))},
		{"200 MB", "it sent a message of more than 1000000 bytes", hello(say("application/json", mega, 200))},
		{"200 MB of an event", "it sent a message of more than 1000000 bytes", hello(say("text/event-stream", "data: "+mega+"\n", 200))},
		{"200 MB of a line", "it sent a message of more than 1000000 bytes", hello(say("text/event-stream", mega, 200))},
		{"an event that is no JSON", "it sent what is no message", hello(say("text/event-stream", "data: x\n\n", 1))},
		{"no event", "", hello(say("text/event-stream", "", 1))},
		{"no answer to hello", "it did not answer within 300ms", hang},
		{"no answer", "no answer within 300ms", hello(hang)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := quick(config.MCP{Headers: map[string]config.Value{"Authorization": {Key: "secret:token"}}}, time.Minute, time.Minute)
			switch tt.name {
			case "no answer to hello":
				c = quick(c, 300*time.Millisecond, time.Minute)
			case "no answer":
				c = quick(c, time.Minute, 300*time.Millisecond)
			}
			c.Limits.ResultBytes = 1_000_000
			s, _ := serve(t, tt.h, c)
			_, err := call(t.Context(), s, "s.ok", ``)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}

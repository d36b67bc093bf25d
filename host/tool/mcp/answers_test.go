package mcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool/mcp"
	"github.com/agentcell/agentcell/sdk/abi"
)

// answering is a server over HTTP without a network, which answers one method with a
// result, or whole messages, of somebody's choice, and the others well.
type answering struct {
	method string
	answer []byte
	whole  bool // the answer is all that is sent
	events bool
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	reply := func(status int, kind string, body []byte) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
		}, nil
	}
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		_ = json.Unmarshal(body, &m)
	}
	good := map[string]string{
		"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`,
		"tools/list": `{"tools":[{"name":"ok","inputSchema":{}}]}`,
		"tools/call": `{"content":[]}`,
	}
	switch {
	case r.Method != http.MethodPost:
		return reply(http.StatusMethodNotAllowed, "text/plain", nil)
	case good[m.Method] == "":
		return reply(http.StatusAccepted, "text/plain", nil)
	}
	result, whole := []byte(good[m.Method]), false
	if m.Method == a.method {
		result, whole = a.answer, a.whole
	}
	if !whole {
		result = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
	if !a.events {
		return reply(http.StatusOK, "application/json", result)
	}
	if !whole {
		result = fmt.Appendf(nil, "data: %s\n\n", bytes.ReplaceAll(result, []byte("\n"), []byte("\ndata: ")))
	}
	return reply(http.StatusOK, "text/event-stream", result)
}

// FuzzAnswer: whatever a server answers when it is greeted, when it is asked for its tools
// and when it is called, a host that has it goes on: tools can be offered, results can be
// recorded, and all else is an error. The goroutines of the SDK are in it, too.
func FuzzAnswer(f *testing.F) {
	methods := []string{"initialize", "tools/list", "tools/call"}
	for i, seeds := range [][]string{
		{`{"protocolVersion":"1","capabilities":null}`, `{"protocolVersion":"2025-11-25","serverInfo":null}`, `{"protocolVersion":"2026-07-28","capabilities":{},"resultType":"x"}`, "null", "{}"},
		{`{"tools":[null,{"name":"a","inputSchema":null,"annotations":{}}],"nextCursor":1}`, `{"tools":null}`, "null", "{}", "[]"},
		{`{"content":[null]}`, `{"content":null,"isError":true}`, `{"structuredContent":{"n":1e999},"content":[{"type":"image","data":"!"}]}`, "null", "{}", `{"resultType":"task","task":{}}`},
	} {
		for _, seed := range seeds {
			f.Add(uint8(i), []byte(seed), false, false)
			f.Add(uint8(i), []byte(seed), false, true)
		}
		f.Add(uint8(i), []byte(`{"jsonrpc":"2.0","id":1,"error":null}`), true, false)
		f.Add(uint8(i), []byte(`{"jsonrpc":"2.0","id":2,"method":"ping"}`), true, false)
		f.Add(uint8(i), []byte(`[{"jsonrpc":"2.0","id":null,"error":{}}]`), true, false)
		f.Add(uint8(i), []byte("id: 1\nretry: 0\nevent: x\ndata: {}\n\ndata: {\"method\":\"roots/list\",\"id\":\"a\",\"jsonrpc\":\"2.0\"}\n\n"), true, true)
	}
	f.Fuzz(func(t *testing.T, method uint8, answer []byte, whole, events bool) {
		c := quick(config.MCP{URL: "http://server.test/mcp", Required: true}, 100*time.Millisecond, 100*time.Millisecond)
		c.Limits.ResultBytes = 64 << 10
		s := mcp.New(map[string]config.MCP{"s": c}, mcp.Options{
			Transport: answering{methods[int(method)%len(methods)], answer, whole, events},
		})
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		tools, err := s.Tools(t.Context())
		if err != nil {
			return
		}
		for _, x := range tools {
			if err := x.Check(); err != nil {
				t.Error(err)
			}
		}
		r, err := call(t.Context(), s, "s.ok", `{}`)
		if err != nil {
			return
		}
		if _, err := abi.MarshalLossless(&r); err != nil {
			t.Errorf("%+v cannot be recorded: %v", r, err)
		}
	})
}

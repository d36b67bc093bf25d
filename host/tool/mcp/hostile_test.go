package mcp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool/mcp"
)

// quick are time-outs for servers that are to run into them.
func quick(c config.MCP, start, call time.Duration) config.MCP {
	c.Timeouts.Start, c.Timeouts.Call = config.Duration(start), config.Duration(call)
	return c
}

// A server that cannot be used is an error that says what it did, its tools are left
// out unless it is required, and it is not tried again at once.
func TestServers_Start(t *testing.T) {
	for _, tt := range []struct {
		how, want string
		start     time.Duration
	}{
		{"mute", "it did not answer within 200ms", 200 * time.Millisecond},
		{"stubborn", "it did not answer within 200ms", 200 * time.Millisecond},
		{"garbage", `it sent what is no message: "Welcome to the server!"`, time.Minute},
		{"dead", "it has ended", time.Minute},
		{"flood", "it sent a message of more than 1000000 bytes", time.Minute},
		{"many", "it offers too many tools: more than 256; name those that you want under tools, or raise limits.tools", time.Minute},
		{"endless", "it offers too many tools: more than 100 pages", time.Minute},
		{"listless", "within 2s", 2 * time.Second},
	} {
		t.Run(tt.how, func(t *testing.T) {
			t.Parallel()
			c, log := stdio(t, tt.how)
			c = quick(c, tt.start, 0)
			c.Limits.ResultBytes = 1_000_000
			var said lockedBuffer
			o := mcp.Options{Log: slog.New(slog.NewTextHandler(&said, nil))}
			s := open(t, o, map[string]config.MCP{"s": c})
			mcp.Rest(s)
			for range 2 {
				if tools, err := s.Tools(t.Context()); err != nil || len(tools) > 0 {
					t.Errorf("not required: %v, %v", names(tools), err)
				}
			}
			if !strings.Contains(said.String(), "tools are left out") {
				t.Errorf("the log says: %s", said.String())
			}
			if got := logged(t, log); len(got) != 1 {
				t.Errorf("it was started %d times", len(got))
			}
			c.Required = true
			s = open(t, o, map[string]config.MCP{"s": c})
			if _, err := s.Tools(t.Context()); err == nil || !strings.Contains(err.Error(), `MCP server "s": `) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("required: %v; want %q", err, tt.want)
			}
		})
	}
	t.Run("no program", func(t *testing.T) {
		s := one(t, config.MCP{Command: "/nowhere/server", Required: true})
		if _, err := s.Tools(t.Context()); !errors.Is(err, mcp.ErrDown) || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("%v", err)
		}
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var _ io.Writer = (*lockedBuffer)(nil)

// What a server does in a call is the error of that call.
func TestServers_Call(t *testing.T) {
	for _, tt := range []struct {
		how, want string
		call      time.Duration
	}{
		{"dies", `MCP server "s": the MCP server is down: it has ended`, time.Minute},
		{"huge", `MCP server "s": the MCP server is down: it sent a message of more than 1000000 bytes`, time.Minute},
		{"babbling", `MCP server "s": the MCP server is down: it sent too many messages that are no answers`, time.Minute},
		{"silent", `MCP server "s": no answer within 200ms`, 200 * time.Millisecond},
		{"deaf", `MCP server "s": no answer within 200ms`, 200 * time.Millisecond},
		{"odd", `MCP server "s": `, time.Minute},
		{"list", `MCP server "s": its structured content: [1] is no object`, time.Minute},
		{"twice", `MCP server "s": its structured content: `, time.Minute},
		{"refuses", `MCP server "s": it answered with error -32602: no such thing`, time.Minute},
	} {
		t.Run(tt.how, func(t *testing.T) {
			t.Parallel()
			c, _ := stdio(t, tt.how)
			c = quick(c, time.Minute, tt.call)
			c.Limits.ResultBytes = 1_000_000
			_, err := call(t.Context(), one(t, c), "s.ok", `{}`)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}

// What a server asks of its client is refused, and the call goes on.
func TestServers_Asks(t *testing.T) {
	c, _ := stdio(t, "asks")
	r, err := call(t.Context(), one(t, c), "s.ok", ``)
	if err != nil || len(r.Content) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	const want = "sampling/createMessage refused: true; elicitation/create refused: true; server/made/up refused: true"
	if diff := cmp.Diff(want, r.Content[0].Text.Text); diff != "" {
		t.Errorf("what it was told (-want +got):\n%s", diff)
	}
}

// 200 MB of a result take no memory of the host.
func TestServers_HugeIsNotHeld(t *testing.T) {
	c, _ := stdio(t, "huge")
	c.Limits.ResultBytes = 1 << 20
	s := one(t, c)
	if _, err := s.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory()
	before := allocated()
	if _, err := call(t.Context(), s, "s.ok", ``); err == nil {
		t.Fatal("a result of 200 MB was taken")
	}
	if n := allocated() - before; n > 32<<20 {
		t.Errorf("%d bytes were allocated for it", n)
	}
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// Tools that cannot be offered are left out, the others are there.
func TestServers_Names(t *testing.T) {
	c, _ := stdio(t, "names")
	c.Required = true
	tools, err := one(t, c).Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"s.none", "s.ok"}, names(tools)); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
}

// A list that changes whenever it is read is read once each time.
func TestServers_Changing(t *testing.T) {
	c, _ := stdio(t, "changing")
	s := one(t, c)
	for i := range 3 {
		tools, err := s.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"s.ok", fmt.Sprintf("s.t%d", i+1)}, names(tools)); diff != "" {
			t.Errorf("tools (-want +got):\n%s", diff)
		}
	}
}

// Command server is an MCP server for tests, on stdin and stdout. Its argument is how it
// behaves: well, which needs none, or as fakes.go has it; with "http" it behaves well, and
// is one over streamable HTTP. LOG names a file to which it adds a line when it starts, with
// its URL if it has one, and one for each connection and each call.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "hold" {
		hold(os.Args[2])
		return
	}
	web := len(os.Args) > 1 && os.Args[1] == "http"
	if !web {
		note("start")
	}
	if !web && len(os.Args) > 1 {
		fake(os.Args[1])
		return
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	for name, handler := range tools(server) {
		add(server, name, handler)
	}
	var err error
	if web {
		err = serve(server)
	} else {
		err = server.Run(context.Background(), &mcp.StdioTransport{})
	}
	note("end")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve serves over HTTP until the program is killed.
func serve(server *mcp.Server) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	note("start http://" + l.Addr().String())
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	return http.Serve(noting{l}, handler)
}

// noting is a listener that notes each connection.
type noting struct{ net.Listener }

func (l noting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		note("connection")
	}
	return conn, err
}

// note adds a line to the log.
func note(line string) {
	name := os.Getenv("LOG")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

type handler = func(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error)

func add(server *mcp.Server, name string, handle handler) {
	server.AddTool(&mcp.Tool{
		Name: name, Description: "Does " + name + ".",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","maximum":12345678901234567890}}}`),
	}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		note(name)
		return handle(ctx, r.Params.Arguments)
	})
}

func tools(server *mcp.Server) map[string]handler {
	text := func(s string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}, nil
	}
	return map[string]handler{
		"echo": func(_ context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{StructuredContent: args, Content: []mcp.Content{&mcp.TextContent{Text: string(args)}}}, nil
		},
		"show": func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{
				&mcp.TextContent{Text: "see"},
				&mcp.ImageContent{MIMEType: "image/png", Data: []byte{0x89, 'P', 'N', 'G'}},
				&mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("RIFF")},
				&mcp.ResourceLink{URI: "file:///a", Name: "a", MIMEType: "text/plain"},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///b", MIMEType: "text/plain", Text: "b"}},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///c", Blob: []byte{1, 2}}},
			}}, nil
		},
		"fail": func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no such file"}}}, nil
		},
		"slow": func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
			note("slow begun")
			<-ctx.Done()
			note("slow cancelled")
			return nil, ctx.Err()
		},
		"env": func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
			fmt.Fprintln(os.Stderr, "TOKEN is", os.Getenv("TOKEN"))
			dir, _ := os.Getwd()
			return text(strings.Join(append(os.Environ(), "dir="+dir), "\n"))
		},
		"exit": func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
			os.Exit(3)
			return nil, nil
		},
		"grow": func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
			add(server, "grown", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text("grown") })
			server.RemoveTools("echo")
			return text("ok")
		},
		// child starts a program that outlives this one, with a connection to an address.
		"child": func(_ context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
			var to struct{ Address string }
			if err := json.Unmarshal(args, &to); err != nil {
				return nil, err
			}
			if err := exec.Command(os.Args[0], "hold", to.Address).Start(); err != nil {
				return nil, err
			}
			return text("ok")
		},
	}
}

// hold holds a connection for as long as it lives.
func hold(address string) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, conn)
}

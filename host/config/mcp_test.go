package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/config"
)

func TestParse_MCP(t *testing.T) {
	got, err := config.Parse([]byte(`
mcp:
  files:
    command: files-server
    args: [--root, /srv]
    env: {MODE: read only, TOKEN: "secret:files", KEY: "env:FILES_KEY"}
    dir: /srv
    tools: [read_*, write_*]
    approval: [write_*]
    on_crash: {retry: [read_*], ask: [write_*]}
    required: true
    timeouts: {start: 1s, call: 2s}
    limits: {result_bytes: 1024, concurrent: 2, tools: 3}
  web:
    url: https://example.com/mcp
    headers: {Authorization: "Bearer secret:web", X-Team: blue}
    approval: true
    on_crash: retry
  plain: {command: c, approval: false, on_crash: unknown}
  asked: {command: c, on_crash: ask}
`))
	if err != nil {
		t.Fatal(err)
	}
	files := config.MCP{
		Command: "files-server", Args: []string{"--root", "/srv"}, Dir: "/srv",
		Env:   map[string]config.Value{"MODE": {Text: "read only"}, "TOKEN": {Key: "secret:files"}, "KEY": {Key: "env:FILES_KEY"}},
		Tools: []string{"read_*", "write_*"}, Approval: config.Globs{"write_*"},
		OnCrash: config.OnCrash{Retry: config.Globs{"read_*"}, Ask: config.Globs{"write_*"}}, Required: true,
	}
	files.Timeouts.Start, files.Timeouts.Call = seconds(1), seconds(2)
	files.Limits.ResultBytes, files.Limits.Concurrent, files.Limits.Tools = 1024, 2, 3
	all := config.Globs{"*"}
	want := map[string]config.MCP{
		"files": files,
		"web": {
			URL:      "https://example.com/mcp",
			Headers:  map[string]config.Value{"Authorization": {Text: "Bearer ", Key: "secret:web"}, "X-Team": {Text: "blue"}},
			Approval: all, OnCrash: config.OnCrash{Retry: all},
		},
		"plain": {Command: "c"},
		"asked": {Command: "c", OnCrash: config.OnCrash{Ask: all}},
	}
	if diff := cmp.Diff(want, got.MCP); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
}

func TestParse_RefusesMCP(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"s: {}", `mcp server "s": want command or url, one of them`},
		{"s: {command: c, url: u}", `mcp server "s": want command or url, one of them`},
		{"a.b: {command: c}", `mcp server "a.b": want a name of 1 to 32 letters, digits, _ and -`},
		{"s: {url: u, args: [a]}", "args, env and dir are for a command, and it has a url"},
		{"s: {command: c, headers: {A: b}}", "headers are for a url, and it has a command"},
		{"s: {command: c, env: {a-b: c}}", `"a-b" is no name of a variable`},
		{"s: {command: c, env: {A: [b]}}", "line 1: mcp.s.env.A: want a text, or where it is: env:NAME or secret:NAME"},
		{"s: {url: u, headers: {a b: c}}", `"a b" is no name of a header`},
		{"s: {url: u, headers: {X-Team: 'secret:my token'}}", "want env:NAME or secret:NAME"},
		{"s: {url: u, headers: {authorization: Bearer canary}}", `the header authorization has a secret; want where it is, such as "Bearer secret:NAME"`},
		{"s: {command: c, tools: ['[']}", `"[" is no pattern; want a name, or a pattern such as read_*`},
		{"s: {command: c, approval: some}", "line 1: mcp.s.approval: want true, false, or a list of patterns such as [write_*]"},
		{"s: {command: c, on_crash: maybe}", "line 1: mcp.s.on_crash: want unknown, ask, retry, or {retry: [PATTERN], ask: [PATTERN]}"},
		{"s: {command: c, on_crash: {never: true}}", "line 1: mcp.s.on_crash: there is no setting never"},
		{"s: {command: c, limits: {tools: -1}}", "a number is below 0"},
		{"s: {command: c, colour: red}", "line 1: there is no setting colour"},
	} {
		_, err := config.Parse([]byte("mcp: {" + tt.text + "}"))
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v; want %q", tt.text, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: the error has the secret: %v", tt.text, err)
		}
	}
}

package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/mcp"
	"github.com/agentcell/agentcell/host/tool/tooltest"
	"github.com/agentcell/agentcell/sdk/abi"
)

func TestConformance(t *testing.T) {
	c, _ := stdio(t)
	s := one(t, c)
	x, ok, err := s.Tool(t.Context(), "s.echo")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	y, ok, err := s.Tool(t.Context(), "s.slow")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	tooltest.Run(t, both{x.Executor, y.Executor},
		tool.Call{ToolCall: abi.ToolCall{ID: "1", Tool: "s.echo", Args: abi.Struct(`{"n":1}`)}},
		tool.Call{ToolCall: abi.ToolCall{ID: "2", Tool: "s.slow"}})
}

// both is the executor of two tools.
type both struct{ quick, slow tool.Executor }

func (b both) Call(ctx context.Context, c tool.Call) (abi.ToolResult, error) {
	if c.Tool == "s.slow" {
		return b.slow.Call(ctx, c)
	}
	return b.quick.Call(ctx, c)
}

// await waits until the log of a server has a line.
func await(t *testing.T, log, line string) {
	t.Helper()
	for !slices.Contains(logged(t, log), line) {
		if t.Context().Err() != nil {
			t.Fatalf("no %q in %v", line, logged(t, log))
		}
		time.Sleep(time.Millisecond)
	}
}

// The end of a call is told to the server, which goes on.
func TestServers_Cancel(t *testing.T) {
	c, log := stdio(t)
	s := one(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := call(ctx, s, "s.slow", ``)
		done <- err
	}()
	await(t, log, "slow-begun")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	await(t, log, "slow-cancelled")
	if _, err := call(t.Context(), s, "s.fail", ``); err != nil {
		t.Error(err)
	}
	if got := logged(t, log); got[0] != "start" || slices.Contains(got[1:], "start") {
		t.Errorf("what the server did: %v", got)
	}
}

// A server that has ended is started again, and left alone after that until it has
// answered a call.
func TestServers_Restart(t *testing.T) {
	c, log := stdio(t)
	s := one(t, c)
	mcp.Rest(s)
	if _, err := call(t.Context(), s, "s.fail", ``); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := call(t.Context(), s, "s.exit", ``); !errors.Is(err, mcp.ErrDown) || !strings.Contains(err.Error(), "it has ended") {
			t.Errorf("a call in which it ends: %v", err)
		}
		awaitDown(t, s)
	}
	_, err := call(t.Context(), s, "s.fail", ``)
	if !errors.Is(err, mcp.ErrDown) || !strings.Contains(err.Error(), "it has ended; it is tried again in ") {
		t.Errorf("a call while it is left alone: %v", err)
	}
	if diff := cmp.Diff([]string{"start", "fail", "exit", "start", "exit"}, logged(t, log)); diff != "" {
		t.Errorf("what the server did (-want +got):\n%s", diff)
	}
}

// awaitDown waits until a server that has ended is noticed.
func awaitDown(t *testing.T, s *mcp.Servers) {
	t.Helper()
	for mcp.Up(s, "s") {
		time.Sleep(time.Millisecond)
	}
}

// Nothing of a server is left when its host ends: not what it has started either,
// whether it ends when it is asked to or not.
func TestServers_NoOrphans(t *testing.T) {
	for _, how := range []string{"", "stubborn-child"} {
		t.Run(how, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c, _ := stdio(t)
			if how != "" {
				c, _ = stdio(t, how, l.Addr().String())
				c = quick(c, time.Second, 0)
			}
			s := mcp.New(map[string]config.MCP{"s": c}, mcp.Options{})
			if how == "" {
				if _, err := call(t.Context(), s, "s.child", `{"address":"`+l.Addr().String()+`"}`); err != nil {
					t.Fatal(err)
				}
			} else {
				go func() { _, _ = s.Tools(context.Background()) }()
			}
			child, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer child.Close()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if _, err := io.Copy(io.Discard, child); err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the program that the server has started: %v", err)
			}
			if _, err := call(t.Context(), s, "s.fail", ``); !errors.Is(err, mcp.ErrDown) || !strings.Contains(err.Error(), "the host is closed") {
				t.Errorf("a call after the end: %v", err)
			}
		})
	}
}

// A turn starts only the servers that can have what it is granted; a required one that is
// not among them may be down.
func TestServers_Granted(t *testing.T) {
	for _, tt := range []struct {
		patterns string
		started  []string
		tools    []string
		err      error
	}{
		{"vowels", nil, []string{}, nil},
		{"a.echo", []string{"a"}, []string{"a.echo"}, nil},
		{"a.e*,[b-c].*", []string{"a", "b"}, []string{"a.echo", "b.fail"}, nil},
		{"[^b].*,aa.x", []string{"a"}, []string{"a.echo"}, nil},
		{"*.fail", []string{"a", "b"}, []string{}, mcp.ErrDown},
	} {
		t.Run(tt.patterns, func(t *testing.T) {
			a, logA := stdio(t)
			b, logB := stdio(t)
			a.Tools, b.Tools = []string{"echo"}, []string{"fail"}
			down := config.MCP{Command: "/nowhere/server", Required: true}
			s := open(t, mcp.Options{}, map[string]config.MCP{"a": a, "b": b, "down": down})
			tools, err := s.Granted(t.Context(), strings.Split(tt.patterns, ","))
			if !errors.Is(err, tt.err) {
				t.Fatalf("%v; want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.tools, names(tools)); diff != "" {
				t.Errorf("tools (-want +got):\n%s", diff)
			}
			var started []string
			for name, log := range map[string]string{"a": logA, "b": logB} {
				for range logged(t, log) {
					started = append(started, name)
				}
			}
			slices.Sort(started)
			if diff := cmp.Diff(tt.started, started); diff != "" {
				t.Errorf("processes started (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReaches(t *testing.T) {
	for pattern, want := range map[string]bool{
		"": false, "s": false, "s.": true, "s.x": true, "s*": true, "*": true, "?.x": true, "[r-t].x": true, `\s.x`: true,
		"*x": true, "ss.x": false, "t.*": false, "[^s].*": false, "s?x": true, "s[.]x": true, "s[,-/]*": true, "??": true, "?": false, "s.[": true, "[": false,
	} {
		if got := mcp.Reaches(pattern, "s."); got != want {
			t.Errorf("%q reaches s.: %t", pattern, got)
		}
	}
}

// hostEnv makes a process of the test binary a host that starts the program it names, with
// the address to connect to.
const hostEnv = "AGENTCELL_MCP_TEST_HOST"

func runHost(spec string) {
	program, address, _ := strings.Cut(spec, " ")
	s := mcp.New(map[string]config.MCP{"s": {Command: program, Args: []string{"hold", address}}}, mcp.Options{})
	_, err := s.Tools(context.Background()) // it is never answered
	panic(fmt.Sprint("the host was not killed: ", err))
}

// A host that is killed leaves no program behind that does not look at its stdin, where
// the system can see to it.
func TestServers_KilledHost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system tells no program that its parent has died")
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host := exec.Command(os.Args[0])
	host.Env = append(os.Environ(), hostEnv+"="+path+" "+l.Addr().String())
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait()
	if _, err := io.Copy(io.Discard, server); err != nil && !strings.Contains(err.Error(), "reset") { // returns when it has ended
		t.Error(err)
	}
}

// What a program floods its stderr with is read, so that the program goes on, and is
// logged up to a bound.
func TestServers_Noisy(t *testing.T) {
	c, _ := stdio(t, "noisy")
	var said lockedBuffer
	s := open(t, mcp.Options{Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))}, map[string]config.MCP{"s": c})
	if _, err := call(t.Context(), s, "s.ok", ``); err != nil {
		t.Fatal(err)
	}
	if n := len(said.String()); n > 1<<20 || !strings.Contains(said.String(), "no more is logged") {
		t.Errorf("%d bytes are logged", n)
	}
}

// Calls that are under way end with the host.
func TestServers_CloseInCall(t *testing.T) {
	c, log := stdio(t)
	s := mcp.New(map[string]config.MCP{"s": c}, mcp.Options{})
	done := make(chan error)
	go func() {
		_, err := call(context.Background(), s, "s.slow", ``)
		done <- err
	}()
	await(t, log, "slow-begun")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, mcp.ErrDown) {
		t.Errorf("%v", err)
	}
}

// Calls beyond the limit wait, and those that wait end with their time.
func TestServers_Concurrent(t *testing.T) {
	c, log := stdio(t)
	c.Limits.Concurrent = 1
	s := one(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := call(ctx, s, "s.slow", ``)
		done <- err
	}()
	await(t, log, "slow-begun")
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := call(short, s, "s.fail", ``); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that waits: %v", err)
	}
	cancel()
	<-done
	if _, err := call(t.Context(), s, "s.fail", ``); err != nil {
		t.Error(err)
	}
	if slices.Index(logged(t, log), "fail") < 0 || slices.Index(logged(t, log), "fail") < slices.Index(logged(t, log), "slow-begun") {
		t.Errorf("what the server did: %v", logged(t, log))
	}
}

// A list that has changed is the next turn's. Who was granted a tool before calls it
// still, and the server says that it is gone.
func TestServers_ListChanged(t *testing.T) {
	c, _ := stdio(t)
	c.Tools = []string{"e*", "grow*"}
	s := one(t, c)
	before, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call(t.Context(), s, "s.grow", ``); err != nil {
		t.Fatal(err)
	}
	var after []tool.Tool
	for !slices.Contains(names(after), "s.grown") || slices.Contains(names(after), "s.echo") { // it tells a little later
		if after, err = s.Tools(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"s.echo", "s.env", "s.exit", "s.grow"}, names(before)); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"s.env", "s.exit", "s.grow", "s.grown"}, names(after)); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	if _, err := call(t.Context(), s, "s.echo", ``); err == nil || !strings.Contains(err.Error(), "it answered with error -32602") {
		t.Errorf("a tool that is gone: %v", err)
	}
	if _, ok, err := s.Tool(t.Context(), "s.slow"); ok || err != nil {
		t.Errorf("a tool that the configuration leaves out: %t, %v", ok, err)
	}
}

// What the configuration says of tools is theirs.
func TestServers_Rules(t *testing.T) {
	c, _ := stdio(t)
	c.Approval, c.OnCrash = config.Globs{"e*"}, config.OnCrash{Retry: config.Globs{"*o*"}, Ask: config.Globs{"s*"}}
	tools, err := one(t, c).Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, x := range tools {
		g := x.Grant()
		got[g.Name] = strings.TrimPrefix(string(g.Mediation), "MEDIATION_") + " " + string(g.OnCrash)
	}
	want := map[string]string{
		"s.child": "CONTROLLER_MEDIATED unknown", "s.echo": "REQUIRES_APPROVAL retry", "s.env": "REQUIRES_APPROVAL unknown",
		"s.exit": "REQUIRES_APPROVAL unknown", "s.fail": "CONTROLLER_MEDIATED unknown", "s.grow": "CONTROLLER_MEDIATED retry",
		"s.show": "CONTROLLER_MEDIATED ask", "s.slow": "CONTROLLER_MEDIATED ask",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// A program gets its own variables and a few of the host's; what a secret says is
// nowhere to be read but there (S4).
func TestS4_Environment(t *testing.T) {
	c, log := stdio(t)
	c.Dir = t.TempDir()
	c.Env = map[string]config.Value{
		"LOG": {Text: log}, "PLAIN": {Text: "p"}, "TOKEN": {Key: "secret:token"}, "AUTH": {Text: "Bearer ", Key: "env:KEY"},
	}
	var said lockedBuffer
	s := open(t, mcp.Options{
		Getenv: func(name string) string {
			return map[string]string{"PATH": "/bin", "KEY": `canary-"1"`, "OTHER": "canary-2"}[name]
		},
		Secret: func(name string) (string, error) { return "canary-3", nil },
		Log:    slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, map[string]config.MCP{"s": c})
	r, err := call(t.Context(), s, "s.env", ``)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Readlink(c.Dir)
	if err != nil {
		dir = c.Dir
	}
	got := strings.Split(r.Content[0].Text.Text, "\n")
	slices.Sort(got)
	want := []string{"AUTH=Bearer [env:KEY]", "LOG=" + log, "PATH=/bin", "PLAIN=p", "TOKEN=[secret:token]", "dir=" + dir}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	for !strings.Contains(said.String(), "TOKEN is ") { // what the program writes to stderr is read beside its answers
		time.Sleep(time.Millisecond)
	}
	if text := said.String(); strings.Contains(text, "canary") || !strings.Contains(text, "TOKEN is [secret:token]") {
		t.Errorf("the log says: %s", text)
	}
}

// A secret that is not to be had is an error that names it.
func TestServers_NoSecret(t *testing.T) {
	for ref, want := range map[config.Key]string{
		"env:NONE": "TOKEN: the variable NONE is not set", "secret:none": "TOKEN: secret:none: there is no secret store",
	} {
		c, log := stdio(t)
		c.Env["TOKEN"] = config.Value{Key: ref}
		_, err := call(t.Context(), open(t, mcp.Options{Getenv: func(string) string { return "" }}, map[string]config.MCP{"s": c}), "s.env", ``)
		if !errors.Is(err, mcp.ErrDown) || !strings.Contains(err.Error(), want) || len(logged(t, log)) > 0 {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

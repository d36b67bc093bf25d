package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/model/remote"
	"github.com/agentcell/agentcell/host/tool/tooltest"
	"github.com/agentcell/agentcell/sdk/abi"
)

// counts are what has arrived at the other end of each transport.
type counts map[string]int64

// world is everything that an agent of TestI1_CountedAtTheTransports may reach, in
// other hands than its host's: two providers of models, a site, and two MCP servers.
type world struct {
	dir, config         string
	chat, claude, site  *far
	stdioLog, serverLog string
}

// far is an HTTP server that counts connections and requests. With a channel in hang the
// next request is never answered: its number goes there when it has arrived.
type far struct {
	*httptest.Server
	accepted, asked atomic.Int64
	hang            atomic.Pointer[chan struct{}]
}

type counting struct {
	net.Listener
	n *atomic.Int64
}

func (l counting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return conn, err
}

func serveFar(t *testing.T, answer func(body string) string) *far {
	f := &far{}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the other end is gone
		}
		if reached := f.hang.Swap(nil); reached != nil {
			close(*reached)
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer(string(body)))
	}))
	f.Listener = counting{f.Listener, &f.accepted}
	f.Start()
	t.Cleanup(f.Close)
	return f
}

// step is what a model says when it has n results of tools: it calls all tools that need
// nobody's word, then one that does, and is done.
func (w *world) step(n int) (calls []abi.ToolCall, text string) {
	call := func(id, tool, args string) abi.ToolCall {
		return abi.ToolCall{ID: id, Tool: remote.APIName(tool), Args: abi.Struct(args)}
	}
	switch n {
	case 0:
		return []abi.ToolCall{
			call("c1", "get", `{"url":"`+w.site.URL+`/plugin"}`),
			call("c2", "fetch", `{"url":"`+w.site.URL+`/fetch"}`),
			call("c3", "near.echo", `{"n":12345678901234567890}`),
			call("c4", "far.echo", `{"n":2}`),
		}, ""
	case 4:
		return []abi.ToolCall{call("c5", "near.env", `{}`)}, ""
	}
	return nil, "done"
}

// openai and anthropic say it in the words of their API.
func (w *world) openai(body string) string {
	calls, text := w.step(strings.Count(body, `"role":"tool"`))
	message := map[string]any{"role": "assistant", "content": text}
	if calls != nil {
		var list []any
		for _, c := range calls {
			list = append(list, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Tool, "arguments": string(c.Args)}})
		}
		message["tool_calls"] = list
	}
	return asJSON(map[string]any{
		"model": "m", "choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": "stop"}},
		"usage": map[string]any{"prompt_tokens": 9, "completion_tokens": 2},
	})
}

func (w *world) anthropic(body string) string {
	calls, text := w.step(strings.Count(body, `"type":"tool_result"`))
	content := []any{map[string]any{"type": "thinking", "thinking": "hm", "signature": "c2ln"}}
	for _, c := range calls {
		content = append(content, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Tool, "input": json.RawMessage(c.Args)})
	}
	if text != "" {
		content = append(content, map[string]any{"type": "text", "text": text})
	}
	return asJSON(map[string]any{
		"type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": "end_turn",
		"usage": map[string]any{"input_tokens": 9, "output_tokens": 2},
	})
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// newWorld starts it, and writes the configuration that names it.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir()}
	w.config, w.stdioLog, w.serverLog = filepath.Join(w.dir, "config.yaml"), filepath.Join(w.dir, "stdio"), filepath.Join(w.dir, "http")
	w.chat, w.claude = serveFar(t, w.openai), serveFar(t, w.anthropic)
	w.site = serveFar(t, func(string) string { return `{"it":"is there"}` })
	server, err := tooltest.MCPServer(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	url := tooltest.ServeMCP(t, server, w.serverLog)
	config := fmt.Sprintf(`
providers:
  chat: {api: openai, base_url: %q, retry: {attempts: 1}}
  claude: {api: anthropic, base_url: %q, retry: {attempts: 1}}
models:
  - {name: gpt, provider: chat}
  - {name: sonnet, provider: claude}
mcp:
  near: {command: %q, env: {LOG: %q}, tools: [echo, env], approval: [env]}
  far: {url: %q, tools: [echo]}
fetch:
  rules: [{host: 127.0.0.1, schemes: [http], ports: [%d], private: true}]
`, w.chat.URL+"/v1", w.claude.URL, server, w.stdioLog, url, w.site.Listener.Addr().(*net.TCPAddr).Port)
	if err := os.WriteFile(w.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func logLines(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(b), "\n"), func(line string) bool { return line == "" })
}

// arrived is everything that has arrived so far: connections, requests, processes and
// calls.
func (w *world) arrived(t *testing.T) counts {
	t.Helper()
	c := counts{}
	for name, f := range map[string]*far{"chat": w.chat, "claude": w.claude, "site": w.site} {
		c[name+" connections"], c[name+" requests"] = f.accepted.Load(), f.asked.Load()
	}
	for name, log := range map[string]string{"near": w.stdioLog, "far": w.serverLog} {
		for _, line := range logLines(t, log) {
			what, _, _ := strings.Cut(line, " ")
			if what != "end" {
				c[name+" "+what]++
			}
		}
	}
	return c
}

// since is what has arrived since then.
func (w *world) since(t *testing.T, then counts) counts {
	t.Helper()
	more := counts{}
	for what, n := range w.arrived(t) {
		if n != then[what] {
			more[what] = n - then[what]
		}
	}
	return more
}

// agentctl is a process on the world's data.
func (w *world) agentctl(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := exec.LookPath("agentctl")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := testCache()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(args, "--data", filepath.Join(w.dir, "data"), "--config-file", w.config)...)
	cmd.Env = append(os.Environ(), "AGENTCELL_CACHE="+cache)
	return cmd
}

// run runs agentctl, which must end with code.
func (w *world) run(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd := w.agentctl(t, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("agentctl %v: %v; want exit code %d; it printed:\n%s", args, err, code, out)
	}
	return string(out)
}

// I1, counted at the other end of each transport: an agent asks models over HTTP, calls a
// plug-in and the tool fetch, which make requests, and MCP servers over stdio and HTTP;
// its host is killed in a model call, and a person decides. From then on nothing is
// connected to, asked or started, whatever is done with the record.
func TestI1_CountedAtTheTransports(t *testing.T) {
	needHarnesses(t)
	warm(t)
	w := newWorld(t)
	plugins, err := pluginDirectory()
	if err != nil {
		t.Fatal(err)
	}
	w.run(t, exitOK, "tool", "add", "get", filepath.Join(plugins, "http_headers.wasm"), "--export", "http_get", "--wasi", "--allow-host", "127.0.0.1")
	for model, provider := range map[string]*far{"gpt": w.chat, "sonnet": w.claude} {
		w.live(t, model, provider)
	}
	then := w.arrived(t)
	for what, n := range (counts{
		"chat requests": 4, "claude requests": 4, "site requests": 4, "near echo": 2, "near env": 2, "far echo": 2,
	}) {
		if then[what] != n {
			t.Errorf("%s of the live turns: %d, want %d", what, then[what], n)
		}
	}
	for _, model := range []string{"gpt", "sonnet"} {
		w.run(t, exitOK, "replay", model)
		w.run(t, exitOK, "show", model, "--seq", "4")
		w.run(t, exitOK, "export", model, filepath.Join(w.dir, model))
		if out := w.run(t, exitOK, "verify", model, "--reexecute", "--strict"); !strings.Contains(out, "1 turns byte-identical, 0 provider calls") {
			t.Errorf("verify: %s", out)
		}
	}
	forks := w.forkEverywhere(t)
	if diff := cmp.Diff(counts{}, w.since(t, then)); diff != "" {
		t.Errorf("what arrived (-want +got):\n%s", diff)
	}

	// What is not recorded is asked for: behind the results of the first calls, the second
	// model call, and the server is started for the tools that are granted.
	for model, provider := range map[string]string{"gpt": "chat", "sonnet": "claude"} {
		then := w.arrived(t)
		w.run(t, exitAwaiting, "resume", string(forks[model]))
		got := w.since(t, then)
		want := counts{provider + " requests": 1, provider + " connections": 1, "near start": 1}
		for what := range got { // however many connections greeting takes
			if what == "far connection" {
				delete(got, what)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: what a fork asked for that goes on (-want +got):\n%s", model, diff)
		}
	}
}

// live runs a turn that is killed in its first model call, goes on, parks, and is decided
// on.
func (w *world) live(t *testing.T, model string, provider *far) {
	t.Helper()
	reached := make(chan struct{})
	provider.hang.Store(&reached)
	killed := w.agentctl(t, "exec", "--name", model, "--harness", "agent", "--model", model, "--input", "go")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	if out := w.run(t, exitAwaiting, "resume", model); !strings.Contains(out, "awaiting approval of call") {
		t.Errorf("resume: %s", out)
	}
	out := w.run(t, exitOK, "approve", model)
	if !strings.Contains(out, " done\n") {
		t.Errorf("approve: %s", out)
	}
	if out = w.run(t, exitOK, "replay", model); strings.Contains(out, "error") {
		t.Errorf("a call has failed:\n%s", out)
	}
}

// forkEverywhere forks each session at each record, and replays, looks at and verifies
// each of the forks. It returns for each session the fork at the last result of its first
// calls.
func (w *world) forkEverywhere(t *testing.T) map[string]abi.SessionID {
	t.Helper()
	cache, err := testCache()
	if err != nil {
		t.Fatal(err)
	}
	h, err := edge.Open(filepath.Join(w.dir, "data"), edge.Options{ConfigFile: w.config, CacheDir: cache, Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	found := map[string]abi.SessionID{}
	for _, model := range []string{"gpt", "sonnet"} {
		uid, err := h.Resolve(t.Context(), defaultProject, model)
		if err != nil {
			t.Fatal(err)
		}
		var records []host.Record
		for r, err := range h.Replay(t.Context(), uid, 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
		}
		results, forked := 0, 0
		for _, r := range records {
			children, err := h.Fork(t.Context(), host.ForkRequest{Session: uid, At: r.Seq})
			if errors.Is(err, host.ErrMidTurn) { // in the opening of the turn
				continue
			}
			if err != nil {
				t.Fatalf("fork at %d: %v", r.Seq, err)
			}
			forked++
			child := children[0].UID
			if r.Event.Result != nil {
				if results++; results == 4 {
					found[model] = child
				}
			}
			for r, err := range h.Replay(t.Context(), child, 0, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if r.Event.Kind == abi.EventModelCall {
					if _, err := h.Prompt(t.Context(), child, r.Seq); err != nil {
						t.Errorf("fork at %d: %v", r.Seq, err)
					}
				}
			}
			if v, err := h.Verify(t.Context(), host.VerifyRequest{Session: child, Reexecute: true}); err != nil || v.ProviderCalls > 0 {
				t.Errorf("fork at %d: %+v, %v", r.Seq, v, err)
			}
		}
		if forked < len(records)-2 {
			t.Errorf("%s: %d forks of %d records", model, forked, len(records))
		}
	}
	return found
}

package extism_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/extism"
	"github.com/agentcell/agentcell/host/tool/tooltest"
	"github.com/agentcell/agentcell/sdk/abi"
	. "github.com/agentcell/agentcell/wasm/wasmtest"
)

// guest is a plug-in of our own, which may do what it likes.
func guest(body string) []byte {
	const env = "extism:host/env"
	return Module{
		Imports: []Import{
			{Module: env, Name: "input_offset", Type: "-> i64"},
			{Module: env, Name: "input_length", Type: "-> i64"},
			{Module: env, Name: "alloc", Type: "i64 -> i64"},
			{Module: env, Name: "length", Type: "i64 -> i64"},
			{Module: env, Name: "store_u8", Type: "i64 i32"},
			{Module: env, Name: "output_set", Type: "i64 i64"},
			{Module: env, Name: "error_set", Type: "i64"},
			{Module: env, Name: "config_get", Type: "i64 -> i64"},
			{Module: env, Name: "http_request", Type: "i64 i64 -> i64"},
		},
		Tables: []Table{{}},
		Funcs:  []Func{{Export: "run", Type: "-> i32", Locals: "i64", Body: body}},
	}.Bytes()
}

// echo answers with its input.
const echo = "call $input_offset\n call $input_length\n call $output_set\n i32.const 0"

// answer answers with the block whose offset is on the stack.
const answer = "\n local.tee 0\n local.get 0\n call $length\n call $output_set\n i32.const 0"

// What a plug-in may try, and the error that it is for whoever called it. Afterwards
// the host still performs calls.
func TestHostile(t *testing.T) {
	p := plugins(t, extism.Options{CacheDir: testCache(t)})
	run := extism.Manifest{Export: "run", TimeoutMS: 60_000}
	short := extism.Manifest{Export: "run", TimeoutMS: 100}
	large := extism.Manifest{Export: "run", Memory: 256 << 20}
	wasi := extism.Manifest{Export: "run_test", WASI: true}
	for _, tt := range []struct {
		name     string
		code     []byte
		manifest extism.Manifest
		want     string
	}{
		{"it panics", guest("unreachable"), run, "unreachable"},
		{"it loops", guest("loop\n br 0\n end\n i32.const 0"), short, "no answer in time: it had 100ms"},
		{"it recurses", guest("call $run"), run, "stack overflow"},
		{"it loops as it starts", Module{
			Start: "loop", Funcs: []Func{{Name: "loop", Body: "loop\n br 0\n end"}, {Export: "run", Type: "-> i32", Body: "i32.const 0"}},
		}.Bytes(), short, "no answer in time"},
		{"it has more memory than it may", Module{
			Memories: []Memory{{Min: 2000, Export: "memory"}}, Funcs: []Func{{Export: "run", Type: "-> i32", Body: "i32.const 0"}},
		}.Bytes(), run, "not a plug-in: section memory: min 2000 pages"},
		{"it takes memory without end", guest("loop\n i64.const 1048576\n call $alloc\n i64.eqz\n if\n unreachable\n end\n br 0\n end\n i32.const 0"), run, "unreachable"},
		{"it answers with 1 GB", guest("i64.const 1073741824\n call $alloc\n local.tee 0\n i64.eqz\n if\n unreachable\n end\n local.get 0" + answer), run, "unreachable"},
		{"it answers with 100 MB", guest("i64.const 104857600\n call $alloc" + answer), large, "it answered 104857600 bytes, at most 5242880 are taken"},
		{"it answers with what it does not have", guest("i64.const 4294967295\n i64.const -1\n call $output_set\n i32.const 3"), run, "it ended with code 3"},
		{"it asks for a host", other(t, "http.wasm"), wasi, `http request: host "jsonplaceholder.typicode.com" is not allowed`},
		{"it asks for a file", other(t, "fs.wasm"), wasi, "it ended with code 1"},
		{"it fails", other(t, "fail.wasm"), extism.Manifest{Export: "run_test"}, "Some error message"},
		{"it exits", other(t, "exit.wasm"), extism.Manifest{Export: "_start", WASI: true, Config: map[string]string{"code": "7"}}, "it exited with code 7"},
		{"it sleeps", other(t, "sleep.wasm"), extism.Manifest{Export: "run_test", WASI: true, TimeoutMS: 200, Config: map[string]string{"duration": "600"}}, "no answer in time"},
		{"it wants what nobody gives", other(t, "host.wasm"), wasi, "not a plug-in: instantiating module: module[extism:host/user] not instantiated"},
		{"it is without WASI", other(t, "exit.wasm"), extism.Manifest{Export: "_start"}, "module[wasi_snapshot_preview1] not instantiated"},
		{"the function is not there", other(t, "hello.wasm"), extism.Manifest{Export: "goodbye"}, "unknown function: goodbye"},
		{"it is text", []byte("remember the milk"), run, "it is not a WebAssembly module"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := call(t, p, tt.code, tt.manifest, `{}`)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "wasm stack trace") {
				t.Errorf("got %+v and the error %v; want %q", got, err, tt.want)
			}
		})
	}
	got, err := call(t, p, guest(echo), run, `{"n":12345678901234567890}`)
	if diff := cmp.Diff(abi.ToolResult{Output: abi.Struct(`{"n":12345678901234567890}`)}, got); err != nil || diff != "" {
		t.Errorf("afterwards: %v\n%s", err, diff)
	}
}

// A plug-in that asks for more than there may be is told no, as WebAssembly has it, and
// may go on.
func TestLimits(t *testing.T) {
	p := plugins(t, extism.Options{})
	for name, body := range map[string]string{
		"memory":          "i32.const 16\n memory.grow",
		"table":           "ref.null funcref\n i32.const 262145\n table.grow 0",
		"the whole table": "ref.null funcref\n i32.const -2\n table.grow 0",
	} {
		code := guest(body + "\n i32.const -1\n i32.ne") // 0 if it was told no
		if _, err := call(t, p, code, extism.Manifest{Export: "run", Memory: 1 << 20}, ``); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := call(t, p, guest("i32.const 14\n memory.grow\n i32.const 1\n i32.ne"), extism.Manifest{Export: "run", Memory: 1 << 20}, ``); err != nil {
		t.Errorf("within its limit: %v", err)
	}
	if _, err := call(t, p, guest("ref.null funcref\n i32.const 1000\n table.grow 0"), extism.Manifest{Export: "run"}, ``); err != nil {
		t.Errorf("within its table: %v", err)
	}
	tables := Module{Tables: make([]Table, 17), Funcs: []Func{{Export: "run"}}}.Bytes()
	large := Module{Tables: []Table{{Min: 1 << 20}}, Funcs: []Func{{Export: "run"}}}.Bytes()
	for _, code := range [][]byte{tables, large} {
		if _, err := call(t, p, code, extism.Manifest{Export: "run"}, ``); err == nil || !strings.Contains(err.Error(), "table") {
			t.Errorf("tables: %v", err)
		}
	}
}

// The contract of every executor, and that sandboxes are made of one compiled module.
func TestExecutor(t *testing.T) {
	p := plugins(t, extism.Options{CacheDir: t.TempDir()})
	loop := guest("call $input_length\n i64.const 3\n i64.lt_u\n if\n loop\n br 0\n end\n end\n" + echo)
	e := p.Executor(module(loop), extism.Manifest{Export: "run"})
	with := func(args string) tool.Call {
		return tool.Call{ToolCall: abi.ToolCall{ID: "c1", Args: abi.Struct(args)}}
	}
	tooltest.Run(t, e, with(`{"n":1}`), with(`{}`))
}

// More modules than are kept, all at once, each again and again.
func TestLibrary(t *testing.T) {
	p := plugins(t, extism.Options{})
	code := guest(echo)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			m := extism.Manifest{Export: "run", Memory: int64(1+i%32) << 20}
			args := fmt.Sprintf(`{"n":%d}`, i)
			got, err := call(t, p, code, m, args)
			if err != nil || string(got.Output) != args {
				t.Errorf("call %d: %s, %v", i, got.Output, err)
			}
		})
	}
	wg.Wait()
}

// A module is pinned to its digest, each time it is loaded.
func TestPinned(t *testing.T) {
	p := plugins(t, extism.Options{})
	m := module(guest(echo))
	m.Digest[0]++
	for range 2 {
		_, err := p.Executor(m, extism.Manifest{Export: "run"}).Call(t.Context(), tool.Call{})
		if err == nil || !strings.Contains(err.Error(), "to which it is pinned") {
			t.Errorf("the error is %v", err)
		}
	}
}

// S4: a secret is looked up for each call, and neither the result nor an error has it.
func TestS4_SecretOfAPlugin(t *testing.T) {
	const canary = "sk-canary-1234567890"
	asked := 0
	secret := func(name string) (string, error) {
		asked++
		switch name {
		case "KEY":
			return canary, nil
		case "LONGER":
			return canary + "-and-more", nil
		case "PEM":
			return strings.Repeat(canary, 1000), nil
		}
		return "", fmt.Errorf("secret %q: there is none", name)
	}
	p := plugins(t, extism.Options{Secret: secret})
	config := map[string]string{"key": "secret:KEY", "plain": "secret is nothing here"}
	// The input is the name of the value that it asks for.
	tell := guest("call $input_offset\n call $config_get" + answer)
	fail := guest("call $input_offset\n call $config_get\n call $error_set\n i32.const 1")
	m := extism.Manifest{Export: "run", Input: "name", Config: config}
	for range 2 {
		got, err := call(t, p, tell, m, `{"name":"key"}`)
		if diff := cmp.Diff(text("[secret]"), got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if asked != 2 {
		t.Errorf("looked up %d times, want once for each of two calls", asked)
	}
	got, err := call(t, p, tell, m, `{"name":"plain"}`)
	if diff := cmp.Diff(text("secret is nothing here"), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := call(t, p, fail, m, `{"name":"key"}`); err == nil || err.Error() != "[secret]" {
		t.Errorf("the error is %v", err)
	}
	// One that is a part of another one leaves nothing of it, and one that is longer than
	// what is shown of an error is not cut first.
	for range 10 { // maps have no order
		m.Config = map[string]string{"key": "secret:KEY", "longer": "secret:LONGER", "pem": "secret:PEM"}
		if got, err := call(t, p, tell, m, `{"name":"longer"}`); err != nil || !cmp.Equal(text("[secret]"), got) {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := call(t, p, fail, m, `{"name":"pem"}`); err == nil || err.Error() != "[secret]" {
			t.Errorf("the error is %v", err)
		}
	}
	m.Config = map[string]string{"key": "secret:OTHER"}
	if _, err := call(t, p, tell, m, `{"name":"key"}`); err == nil || !strings.Contains(err.Error(), `secret "OTHER"`) {
		t.Errorf("the error is %v", err)
	}
	if _, err := call(t, plugins(t, extism.Options{}), tell, m, `{"name":"key"}`); err == nil || !strings.Contains(err.Error(), "there are no secrets here") {
		t.Errorf("the error is %v", err)
	}
}

// A request stays among the hosts that are allowed, wherever it is sent on to.
func TestHTTP(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Host+r.URL.Path)
		mu.Unlock()
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "http://localhost"+r.Host[strings.LastIndexByte(r.Host, ':'):]+"/there", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/large":
			_, _ = w.Write(make([]byte, 2<<20))
		case "/slow":
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, r.Header.Get("X-Way"))
		}
	}))
	defer server.Close()
	p := plugins(t, extism.Options{})
	code := guest("call $input_offset\n i64.const 0\n call $http_request" + answer)
	for _, tt := range []struct {
		name, hosts, request string
		want                 string // of the answer, or else
		fails                string // of the error
	}{
		{name: "allowed", hosts: "127.0.0.1", request: `{"url":"BASE/x","method":"put","headers":{"X-Way":"there"}}`, want: "PUT /x there"},
		{name: "nothing is allowed", request: `{"url":"BASE/x?key=canary"}`, fails: `host "127.0.0.1" is not allowed`},
		{name: "an address is no pattern's", hosts: "*,127.*,localhost", request: `{"url":"BASE/x?key=canary"}`, fails: `host "127.0.0.1" is not allowed`},
		{name: "sent on to where it may not go", hosts: "127.0.0.1", request: `{"url":"BASE/away?key=canary"}`, fails: `host "localhost" is not allowed`},
		{name: "sent on to where it may go", hosts: "127.0.0.1,localhost", request: `{"url":"BASE/away"}`, want: "GET /there "},
		{name: "sent on for ever", hosts: "127.0.0.1", request: `{"url":"BASE/round"}`, fails: "it was sent on more than 10 times"},
		{name: "too large", hosts: "127.0.0.1", request: `{"url":"BASE/large"}`, fails: "the answer has more than 524288 bytes"},
		{name: "slow", hosts: "127.0.0.1", request: `{"url":"BASE/slow"}`, fails: "no answer in time"},
		{name: "a file", hosts: "*", request: `{"url":"file:///etc/passwd"}`, fails: `the scheme "file" is not allowed`},
		{name: "no URL", hosts: "*", request: `{"url":"http://a b/"}`, fails: "the method or the URL is not one"},
		{name: "no request", hosts: "*", request: `{"url":7}`, fails: "what is asked for is not JSON of a request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mu.Lock()
			seen = nil
			mu.Unlock()
			m := extism.Manifest{Export: "run", Memory: 1 << 20, TimeoutMS: 60_000}
			if tt.name == "slow" {
				m.TimeoutMS = 100
			}
			if tt.hosts != "" {
				m.Hosts = strings.Split(tt.hosts, ",")
			}
			got, err := call(t, p, code, m, strings.ReplaceAll(tt.request, "BASE", server.URL))
			if tt.fails == "" {
				if diff := cmp.Diff(text(tt.want), got); err != nil || diff != "" {
					t.Errorf("%v (-want +got):\n%s", err, diff)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.fails) || strings.Contains(err.Error(), "canary") {
				t.Errorf("got %v and the error %v; want %q", got, err, tt.fails)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, s := range seen {
				if strings.Contains(s, "/x") || strings.Contains(s, "/there") {
					t.Errorf("the server has seen %s", s)
				}
			}
		})
	}
}

// A plug-in sees its directories, writes where it may, and no link leads out of them.
func TestPaths(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{
		filepath.Join(outside, "canary.txt"): "canary",
		filepath.Join(dir, "note.txt"):       "a note",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"file": filepath.Join(outside, "canary.txt"), "dir": outside, "within": "note.txt",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Skip(err) // where links are not for everybody
		}
	}
	p := plugins(t, extism.Options{CacheDir: testCache(t)})
	code := other(t, "read_write.wasm")
	run := func(export, path, input string, readOnly bool) (abi.ToolResult, error) {
		t.Helper()
		m := extism.Manifest{
			Export: export, WASI: true, Input: "text", Config: map[string]string{"path": path},
			Paths: []extism.Path{{Host: dir, Guest: "/mnt", ReadOnly: readOnly}},
		}
		return call(t, p, code, m, fmt.Sprintf(`{"text":%q}`, input))
	}
	for _, readOnly := range []bool{true, false} {
		for _, name := range []string{"note.txt", "within"} {
			got, err := run("try_read", "/mnt/"+name, "", readOnly)
			if diff := cmp.Diff(text("a note"), got); err != nil || diff != "" {
				t.Errorf("read only %t: %v (-want +got):\n%s", readOnly, err, diff)
			}
		}
		for _, path := range []string{"/mnt/file", "/mnt/dir/canary.txt", "/mnt/../" + filepath.Base(outside) + "/canary.txt", filepath.Join(outside, "canary.txt")} {
			if got, err := run("try_read", path, "", readOnly); err == nil {
				t.Errorf("read only %t: %s is %+v", readOnly, path, got)
			}
			if got, err := run("try_write", path, "overwritten", readOnly); err == nil {
				t.Errorf("read only %t: writing %s is %+v", readOnly, path, got)
			}
		}
		_, err := run("try_write", "/mnt/note.txt", "a note", readOnly)
		if (err != nil) != readOnly {
			t.Errorf("read only %t: writing: %v", readOnly, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(outside, "canary.txt")); err != nil || string(b) != "canary" {
		t.Errorf("outside is %q, %v", b, err)
	}

	// It makes no link itself.
	const to, link = "../..", "mine"
	m := Module{
		Imports: []Import{
			{Module: "wasi_snapshot_preview1", Name: "path_symlink", Type: "i32 i32 i32 i32 i32 -> i32"},
			{Module: "wasi_snapshot_preview1", Name: "path_link", Type: "i32 i32 i32 i32 i32 i32 i32 -> i32"},
		},
		Datas: []Data{{Offset: 0, Bytes: []byte(to)}, {Offset: 16, Bytes: []byte(link)}, {Offset: 32, Bytes: []byte("within")}},
		Funcs: []Func{{Export: "run", Type: "-> i32", Body: `
			i32.const 0
			i32.const 5
			i32.const 3
			i32.const 16
			i32.const 4
			call $path_symlink
			i32.eqz
			i32.const 3
			i32.const 0
			i32.const 32
			i32.const 6
			i32.const 3
			i32.const 16
			i32.const 4
			call $path_link
			i32.eqz
			i32.or`}},
	}.Bytes()
	if _, err := call(t, p, m, extism.Manifest{Export: "run", WASI: true, Paths: []extism.Path{{Host: dir, Guest: "/"}}}, ``); err != nil {
		t.Error("it made a link", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, link)); err == nil {
		t.Error("the link is there")
	}
	gone := extism.Manifest{Export: "run", WASI: true, Paths: []extism.Path{{Host: filepath.Join(dir, "gone"), Guest: "/"}}}
	if _, err := call(t, p, m, gone, ``); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a directory that is gone: %v", err)
	}
}

// A call that waits for its turn ends with its context as well.
func TestSandboxesAreCounted(t *testing.T) {
	p := plugins(t, extism.Options{})
	loop := p.Executor(module(guest("loop\n br 0\n end\n i32.const 0")), extism.Manifest{Export: "run"})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range extism.MaxSandboxes + 2 {
		wg.Go(func() {
			if _, err := loop.Call(ctx, tool.Call{}); err == nil {
				t.Error("a loop has ended")
			}
		})
	}
	time.Sleep(50 * time.Millisecond) // most of them are at it by now; more or fewer is as well
	cancel()
	wg.Wait()
	if _, err := call(t, p, guest(echo), extism.Manifest{Export: "run"}, ``); err != nil {
		t.Error(err)
	}
}

package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentcell/agentcell/host/config"
)

const whole = `
default_model: fast
providers:
  cloud:
    api: openai
    base_url: https://example.com/v1
    path: /deployments/x/chat/completions
    query: {api-version: "2024-10-21"}
    key: env:CLOUD_KEY
    auth: {header: api-key, scheme: ""}
    headers: {X-Title: agents}
    stream: false
    stream_usage: false
    send_reasoning: false
    timeouts: {connect: 1s, first_byte: 2s, idle: 3s}
    retry: {attempts: 2, delay: 4s, max_delay: 5s}
    breaker: {failures: 3, pause: 6s}
    limits: {answer_bytes: 1024, concurrent: 8}
models:
  - name: fast
    provider: cloud
    upstream: m-1
    params: {temperature: 0.2, stop: [a, b], tier: low}
  - name: cloud/*
    provider: cloud
    upstream: "*"
`

func TestParse(t *testing.T) {
	got, err := config.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	path, header, scheme, no := "/deployments/x/chat/completions", "api-key", "", false
	want := config.File{
		DefaultModel: "fast",
		Models: []config.Model{
			{Name: "fast", Provider: "cloud", Upstream: "m-1", Params: map[string]config.JSON{"temperature": "0.2", "stop": `["a","b"]`, "tier": `"low"`}},
			{Name: "cloud/*", Provider: "cloud", Upstream: "*"},
		},
	}
	p := config.Provider{
		API: "openai", BaseURL: "https://example.com/v1", Path: &path, Query: map[string]string{"api-version": "2024-10-21"},
		Key: "env:CLOUD_KEY", Auth: config.Auth{Header: &header, Scheme: &scheme}, Headers: map[string]string{"X-Title": "agents"},
		Stream: &no, StreamUsage: &no, SendReasoning: &no,
	}
	p.Timeouts.Connect, p.Timeouts.FirstByte, p.Timeouts.Idle = seconds(1), seconds(2), seconds(3)
	p.Retry.Attempts, p.Retry.Delay, p.Retry.MaxDelay = 2, seconds(4), seconds(5)
	p.Breaker.Failures, p.Breaker.Pause = 3, seconds(6)
	p.Limits.AnswerBytes, p.Limits.Concurrent = 1024, 8
	want.Providers = map[string]config.Provider{"cloud": p}
	read := cmpopts.IgnoreUnexported(config.File{})
	if diff := cmp.Diff(want, got, read); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	if empty, err := config.Parse(nil); err != nil || !cmp.Equal(empty, config.File{}, read) {
		t.Errorf("an empty file: %+v, %v", empty, err)
	}
}

func seconds(n int) config.Duration { return config.Duration(n) * config.Duration(time.Second) }

// What is wrong is named, with its line where there is one, and a key that stands
// in the file is not repeated (S4).
func TestParse_Refuses(t *testing.T) {
	const provider = "providers:\n  p:\n    api: openai\n"
	for _, tt := range []struct{ text, want string }{
		{"modles: []", "line 1: there is no setting modles"},
		{provider + "    kye: env:X", "line 4: there is no setting kye"},
		{provider + "    key: sk-canary-0123", "line 4: providers.p.key: want where the key is, env:NAME or secret:NAME; the key itself never stands in this file"},
		{provider + "    key: {canary: x}", "line 4: providers.p.key: want where the key is"},
		{provider + "    key: env:sk canary", "line 4: providers.p.key: want where the key is"},
		{provider + "    headers: {authorization: Bearer sk-canary}", `provider "p": the header authorization is for the key`},
		{provider + "    headers: {Token: sk-canary}\n    auth: {header: token}", `provider "p": the header Token is for the key`},
		{provider + "    headers: {X-Goog-Api-Key: sk-canary}", `line 4: provider "p": the header X-Goog-Api-Key is for the key`},
		{provider + "    headers: {Host: x}", `line 4: provider "p": headers: "Host" cannot be set`},
		{provider + "    headers: {a b: x}", `line 4: provider "p": headers: "a b" cannot be set`},
		{provider + "    headers:\n      X-A: b\n      X-B: \"canary\\nX-C: d\"", `line 6: provider "p": headers: X-B has a value that a header cannot have`},
		{provider + "    query: {api-version: 1, api_key: sk-canary}", `line 4: provider "p": query: api_key is for a key`},
		{provider + "    auth: {header: 'a b'}", `line 4: provider "p": auth.header: "a b" is no name of a header`},
		{provider + "    auth: {scheme: Bearer sk-canary}", `line 4: provider "p": auth.scheme: want one word`},
		{provider + "    timeouts: {idle: -1s}", "line 4: providers.p.timeouts.idle: want a time above 0 and of at most 292 years, such as 30s"},
		{provider + "    timeouts: {idle: 5}", "line 4: providers.p.timeouts.idle: want a time above 0"},
		{provider + "    timeouts: {idle: 9999999h}", "line 4: providers.p.timeouts.idle: want a time above 0 and of at most 292 years"},
		{provider + "    retry: {attempts: -1}", `line 4: provider "p": retry.attempts is below 0`},
		{"providers: {p: {api: soap}}", `line 1: provider "p": api is "soap"; want openai or anthropic`},
		{"models: [{provider: p}]", "line 1: a model has no name"},
		{"models: [{name: m, provider: p}]", `line 1: model "m": there is no provider "p"`},
		{provider + "models: [{name: m, provider: p}, {name: m, provider: p}]", `model "m" stands twice`},
		{provider + "models: [{name: 'a*b*', provider: p}]", `model "a*b*": want one * at most`},
		{provider + "models: [{name: m, provider: p, upstream: '*'}]", `model "m": upstream has a *, and its name has none`},
		{"a: b: c", "line 1: mapping values are not allowed"},
		{"a:\n  b: c: d", "line 2: mapping values are not allowed"},
		{"x: *canary\n", "unknown anchor"},
		{"default_model: a\n---\ndefault_model: b", "want one document"},
		// Values of another kind, of which nothing is repeated.
		{"sk-canary", "line 1: want settings, as in {NAME: VALUE}"},
		{"[sk-canary]", "line 1: want settings"},
		{"providers: sk-canary", "line 1: providers: want settings"},
		{"providers: {p: sk-canary}", "line 1: providers.p: want settings"},
		{"providers: {[sk-canary]: {api: openai}}", "line 1: providers: want a name before each colon"},
		{"models: {sk-canary: x}", "line 1: models: want a list, as in [ONE, ANOTHER]"},
		{"models:\n- sk-canary", "line 2: models: want settings"},
		{"default_model: [sk-canary]", "line 1: default_model: want a text"},
		{provider + "    auth: Bearer sk-canary", "line 4: providers.p.auth: want settings"},
		{provider + "    timeouts: 5s", "line 4: providers.p.timeouts: want settings"},
		{provider + "    timeouts: {idle: [1s]}", "line 4: providers.p.timeouts.idle: want a time"},
		{provider + "    stream: perhaps", "line 4: providers.p.stream: want true or false"},
		{provider + "    base_url: {sk-canary: x}", "line 4: providers.p.base_url: want a text"},
		{provider + "    headers: {X: [sk-canary]}", "line 4: providers.p.headers.X: want a text"},
		{provider + "    retry:\n      attempts: many\n      delay: later", "line 5: providers.p.retry.attempts: want a whole number; line 6: providers.p.retry.delay: want a time"},
		{provider + "    retry: {attempts: 1.5}", "line 4: providers.p.retry.attempts: want a whole number"},
		{provider + "    retry: {attempts: 99999999999999999999}", "line 4: providers.p.retry.attempts: the number is too large"},
		{provider + "    stream: true\n    stream: false", "line 5: providers.p.stream stands at line 4 already"},
		{provider + "models: [{name: m, provider: p, price: 5}]", "line 4: models.price: want settings"},
		{provider + "models: [{name: m, provider: p, params: {x: .nan}}]", "line 4: models.params.x: want a number that JSON has"},
		{provider + "models: [{name: m, provider: p, params: {x: {a: 1, a: 2}}}]", `line 4: models.params.x: "a" stands twice`},
		{"providers:\n  p: &p {api: openai, stream: 1}\n  q: {<<: *p}\n  r: {<<: [*p]}", "line 2: providers.p.stream: want true or false; line 2: providers.q.stream: want true or false; line 2: providers.r.stream"},
		{"providers: {p: &x {api: openai, headers: *x}}", "anchor 'x' value contains itself"},
		{provider + "models: [{name: m, provider: p, params: {x: &x [*x]}}]", "line 4: models.params.x: want a value of at most"},
	} {
		_, err := config.Parse([]byte(tt.text))
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v; want %q", tt.text, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "sk-canary") {
			t.Errorf("%q: the error has the key: %v", tt.text, err)
		}
		if err != nil && (strings.Contains(err.Error(), "config.") || strings.Contains(err.Error(), "!!")) {
			t.Errorf("%q: that is not for people: %v", tt.text, err)
		}
	}
}

// What a file brings into a mapping from another place stands there as well.
func TestParse_Merge(t *testing.T) {
	f, err := config.Parse([]byte("providers:\n  p: &p {api: openai, base_url: 'http://a'}\n  q: {<<: *p, base_url: 'http://b'}"))
	if err != nil || f.Providers["q"].API != "openai" || f.Providers["q"].BaseURL != "http://b" {
		t.Errorf("%+v, %v", f.Providers, err)
	}
}

// I2: a parameter is the JSON that it stands for, and a number as it was written.
func TestJSON(t *testing.T) {
	for text, want := range map[string]config.JSON{
		"0.20":                           "0.20",
		"123456789012345678901234567890": "123456789012345678901234567890",
		"1e400":                          "1e400",
		"0x10":                           "16",
		"1_000":                          "1000",
		".5":                             "0.5",
		"+5":                             "5",
		"yes":                            `"yes"`,
		"true":                           "true",
		"2026-01-02":                     `"2026-01-02"`,
		"'7'":                            `"7"`,
		"<a & b>":                        `"<a & b>"`,
		"[a, 1, {b: [null, ~]}]":         `["a",1,{"b":[null,null]}]`,
		"{1: 2}":                         `{"1":2}`,
		"&x {a: 1}":                      `{"a":1}`,
	} {
		f, err := config.Parse([]byte("providers: {p: {api: openai}}\nmodels: [{name: m, provider: p, params: {x: " + text + "}}]"))
		if err != nil || f.Models[0].Params["x"] != want {
			t.Errorf("%s: %+v, %v; want %s", text, f.Models, err, want)
		}
	}
	laughs := "x: " + strings.Repeat("[", 200) + strings.Repeat("]", 200)
	if _, err := config.Parse([]byte("providers: {p: {api: openai}}\nmodels: [{name: m, provider: p, params: {" + laughs + "}}]")); !errors.Is(err, config.ErrConfig) {
		t.Errorf("lists in lists: %v", err)
	}
}

// What others find wrong with a file has its place, too.
func TestWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("providers:\n  p: &p\n    api: openai\n  q: *p\nmodels:\n  - name: m\n    provider: p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := config.Load("", path)
	if err != nil {
		t.Fatal(err)
	}
	for want, place := range map[string][]string{
		"bad configuration: oh":         nil,
		"bad configuration: line 3: oh": {"providers", "p", "api"},
		"bad configuration: line 2: oh": {"providers", "p", "base_url"},
		"bad configuration: line 7: oh": {"models", "0", "provider"},
		"bad configuration: line 5: oh": {"models", "1"},
	} {
		err := f.Wrong(errors.New("oh"), place...)
		if want = fmt.Sprintf("%q: %s", path, want); !errors.Is(err, config.ErrConfig) || err.Error() != want {
			t.Errorf("%v: %v, want %s", place, err, want)
		}
	}
	if err := new(config.File).Wrong(errors.New("oh"), "providers"); err.Error() != "bad configuration: oh" {
		t.Error(err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if f, err := config.Load(dir, ""); err != nil || f.DefaultModel != "" {
		t.Errorf("no file: %+v, %v", f, err)
	}
	if _, err := config.Load(dir, filepath.Join(dir, "missing.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a named file that is missing: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := config.Load(file, ""); err != nil || f.DefaultModel != "" {
		t.Errorf("a directory that is none: %+v, %v", f, err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write(config.FileName, "default_model: here")
	other := write("other.yaml", "default_model: there")
	for path, want := range map[string]string{"": "here", other: "there"} {
		if f, err := config.Load(dir, path); err != nil || f.DefaultModel != want {
			t.Errorf("%q: %+v, %v", path, f, err)
		}
	}
	large := write("large.yaml", strings.Repeat("# x\n", 300_000))
	if _, err := config.Load(dir, large); !errors.Is(err, config.ErrConfig) {
		t.Errorf("a large file: %v", err)
	}
	if _, err := config.Load(dir, dir); err == nil {
		t.Error("a directory: no error")
	}
}

// Whatever stands in the file, reading it ends with a file or an error.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		whole, "default_model: [a", "models: [{name: m}]\nproviders: {p: {api: nope}}", "x: &x [*x]", "&a a: *a", "? {a: b}\n: !!binary x", "providers: {<<: {p: 1}, q: {}}",
		"mcp: {s: {command: c, env: {A: \"secret:a\", B: 'env:B'}, tools: [a*], approval: [b], on_crash: {retry: [a], ask: []}, timeouts: {call: 2s}, limits: {tools: 3}}}",
		"mcp: {s: {url: 'https://a.test/', headers: {Authorization: Bearer env:A}, approval: true, on_crash: ask, required: true}, t: {command: c, url: u}, u: 1}",
		"fetch: {rules: [{host: '*.a.test', methods: [POST], ports: [1], schemes: [http], private: true, headers: {X: y}}, {host: '[::1]'}], limits: {redirects: 0}}",
		"providers: {p: {api: openai}}\nmodels: [{name: m, provider: p, params: {a: 1e400, b: [x, {c: ~}], d: 0x10, e: .5, f: 1_0, 'g': &x yes, h: *x}}]",
		"fetch: {rules: []}", "fetch: {rules: [{host: 'a b'}], headers: [Cookie]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := config.Parse(text)
		if err != nil {
			if !errors.Is(err, config.ErrConfig) {
				t.Fatal(err)
			}
			return
		}
		for name, c := range got.MCP {
			if (c.Command == "") == (c.URL == "") || name == "" {
				t.Errorf("server %q: command %q, url %q", name, c.Command, c.URL)
			}
		}
		if got.Fetch != nil {
			for _, r := range got.Fetch.Rules {
				if r.Host == "" || len(r.Methods) == 0 || len(r.Schemes) == 0 {
					t.Errorf("rule %+v", r)
				}
			}
		}
		for i, m := range got.Models {
			for name, value := range m.Params {
				if !json.Valid([]byte(value)) {
					t.Errorf("models, at %d: %s is no JSON: %s", i, name, value)
				}
			}
		}
	})
}

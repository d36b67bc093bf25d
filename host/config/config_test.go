package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
			{Name: "fast", Provider: "cloud", Upstream: "m-1", Params: map[string]any{"temperature": 0.2, "stop": []any{"a", "b"}, "tier": "low"}},
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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	if empty, err := config.Parse(nil); err != nil || !cmp.Equal(empty, config.File{}) {
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
		{provider + "    key: sk-canary-0123", "line 4: key: want where the key is, env:NAME or secret:NAME; the key itself never stands in this file"},
		{provider + "    key: {canary: x}", "line 4: key: want where the key is"},
		{provider + "    key: env:sk canary", "line 4: key: want where the key is"},
		{provider + "    headers: {authorization: Bearer sk-canary}", `provider "p": the header authorization is for the key`},
		{provider + "    headers: {Token: sk-canary}\n    auth: {header: token}", `provider "p": the header Token is for the key`},
		{provider + "    timeouts: {idle: -1s}", `line 4: "-1s": want a time above 0, such as 30s`},
		{provider + "    timeouts: {idle: 5}", `line 4: "5": want a time above 0, such as 30s`},
		{provider + "    retry: {attempts: -1}", `provider "p": a number is below 0`},
		{"providers: {p: {api: soap}}", `provider "p": api is "soap"; want openai or anthropic`},
		{"models: [{provider: p}]", "models has no name at 0"},
		{"models: [{name: m, provider: p}]", `model "m": there is no provider "p"`},
		{provider + "models: [{name: m, provider: p}, {name: m, provider: p}]", `model "m" stands twice`},
		{provider + "models: [{name: 'a*b*', provider: p}]", `model "a*b*": want one * at most`},
		{provider + "models: [{name: m, provider: p, upstream: '*'}]", `model "m": upstream has a *, and its name has none`},
		{"a: b: c", "mapping values are not allowed"},
		{"default_model: a\n---\ndefault_model: b", "want one document"},
	} {
		_, err := config.Parse([]byte(tt.text))
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v; want %q", tt.text, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: the error has the key: %v", tt.text, err)
		}
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
	f.Add([]byte(whole))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := config.Parse(text); err != nil && !errors.Is(err, config.ErrConfig) {
			t.Fatal(err)
		}
	})
}

package route_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/modeltest"
	"github.com/agentcell/agentcell/host/model/route"
	"github.com/agentcell/agentcell/sdk/abi"
)

const file = `
default_model: fast
providers:
  cloud: {api: openai, key: env:CLOUD}
  azure:
    api: openai
    base_url: https://x.example.com/openai/
    path: /deployments/d/chat/completions
    query: {api-version: "2024-10-21"}
    auth: {header: api-key}
    key: secret:azure
  local: {api: openai, base_url: "http://127.0.0.1:11434/v1"}
  claude: {api: anthropic, key: env:CLAUDE, headers: {anthropic-beta: x}}
  token: {api: openai, auth: {scheme: Token}, key: env:CLOUD, stream_usage: false}
models:
  - {name: fast, provider: cloud, upstream: m-1, params: {temperature: 0.5, seed: 9007199254740993, user: "7", tier: low}}
  - {name: cloud/special, provider: azure}
  - {name: "cloud/*", provider: cloud, upstream: "v/*-latest"}
  - {name: "claude-*", provider: claude}
  - {name: local, provider: local}
  - {name: token, provider: token}
`

func table(t *testing.T, o route.Options) *route.Table {
	t.Helper()
	f, err := config.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	r, err := route.New(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func keys(name string) string { return map[string]string{"CLOUD": "cloud-key-1"}[name] }

func TestFind(t *testing.T) {
	r := table(t, route.Options{Getenv: keys})
	type found struct{ Line, Provider, Upstream string }
	for name, want := range map[string]found{
		"fast":          {"fast", "cloud", "m-1"},
		"cloud/special": {"cloud/special", "azure", "cloud/special"},
		"cloud/a/b":     {"cloud/*", "cloud", "v/a/b-latest"},
		"cloud/":        {"cloud/*", "cloud", "v/-latest"},
		"claude-x":      {"claude-*", "claude", "claude-x"},
		"cloud":         {},
		"claude":        {},
		"":              {},
	} {
		l, ok := r.Find(name)
		if diff := cmp.Diff(want, found{l.Name, l.Provider, l.Upstream}); diff != "" || ok != (want.Line != "") {
			t.Errorf("%q: %v (-want +got):\n%s", name, ok, diff)
		}
		if p := r.Route(name); (p != nil) != ok {
			t.Errorf("%q: the provider is %v", name, p)
		}
	}
	if diff := cmp.Diff([]string{"fast", "cloud/special", "cloud/*", "claude-*", "local", "token"}, r.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	type line struct{ URL, Key, Problem string }
	want := []line{
		{"https://api.openai.com/v1/chat/completions", "env:CLOUD", ""},
		{"https://x.example.com/openai/deployments/d/chat/completions?api-version=2024-10-21", "secret:azure", "its key secret:azure: there is no secret store"},
		{"https://api.openai.com/v1/chat/completions", "env:CLOUD", ""},
		{"https://api.anthropic.com/v1/messages", "env:CLAUDE", "its key env:CLAUDE is not set"},
		{"http://127.0.0.1:11434/v1/chat/completions", "", ""},
		{"https://api.openai.com/v1/chat/completions", "env:CLOUD", ""},
	}
	var got []line
	for _, l := range r.Lines() {
		got = append(got, line{l.URL, l.Key, l.KeyProblem})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// What is sent follows from the provider and the line, and what a call says goes
// before it.
func TestRoute(t *testing.T) {
	const (
		chat    = `data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}` + "\n\n"
		message = `{"type":"message","content":[{"type":"text","text":"ok"}]}`
	)
	for _, tt := range []struct {
		model, answer string
		params        map[string]string
		url, header   string
		value, body   string
	}{
		{
			"fast", chat,
			map[string]string{"temperature": "0"},
			"/v1/chat/completions", "Authorization", "Bearer cloud-key-1",
			`{"messages":[],"model":"m-1","seed":9007199254740993,"stream":true,"stream_options":{"include_usage":true},"temperature":0,"tier":"low","user":"7"}`,
		},
		{
			"cloud/special", chat, nil, "/openai/deployments/d/chat/completions?api-version=2024-10-21", "Api-Key", "azure-key-2",
			`{"messages":[],"model":"cloud/special","stream":true,"stream_options":{"include_usage":true}}`,
		},
		{
			"claude-x", message, nil, "/v1/messages", "Anthropic-Beta", "x",
			`{"max_tokens":8192,"messages":[],"model":"claude-x","stream":true}`,
		},
		{
			"local", chat, nil, "/v1/chat/completions", "Authorization", "",
			`{"messages":[],"model":"local","stream":true,"stream_options":{"include_usage":true}}`,
		},
		{"token", chat, nil, "/v1/chat/completions", "Authorization", "Token cloud-key-1", `{"messages":[],"model":"token","stream":true}`},
	} {
		t.Run(tt.model, func(t *testing.T) {
			s := modeltest.Serve(t, modeltest.Answer(200, tt.answer))
			o := route.Options{
				Transport: plain{s},
				Getenv:    func(string) string { return "cloud-key-1" },
				Secret:    func(name string) (string, error) { return name + "-key-2", nil },
			}
			r := table(t, o)
			got, err := r.Route(tt.model).Complete(t.Context(), model.Request{Call: abi.ModelCall{Params: tt.params}}, nil)
			if err != nil || got.Message.Text() != "ok" {
				t.Fatalf("%+v, %v", got, err)
			}
			req := s.Requests()[0]
			if diff := cmp.Diff([]string{tt.url, tt.value, tt.body + "\n"}, []string{req.URL, req.Header.Get(tt.header), req.Body}); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if n := r.Attempts(); n != 1 {
				t.Errorf("%d attempts are counted", n)
			}
		})
	}
}

func TestRoute_FreeParams(t *testing.T) {
	r := table(t, route.Options{Getenv: keys})
	for _, name := range []string{"model", "messages", "stream", "tools", "tool_choice"} {
		call := abi.ModelCall{Params: map[string]string{name: "1"}}
		for _, to := range []string{"fast", "claude-x"} {
			var failure *model.Error
			_, err := r.Route(to).Complete(t.Context(), model.Request{Call: call}, nil)
			if !errors.As(err, &failure) || failure.Code != abi.CodeInvalidArgument {
				t.Errorf("%s of %s: %v", name, to, err)
			}
		}
	}
}

func TestNew_Refuses(t *testing.T) {
	f := config.File{Providers: map[string]config.Provider{"p": {API: "openai", BaseURL: "ftp://x"}}}
	if _, err := route.New(f, route.Options{}); !errors.Is(err, config.ErrConfig) {
		t.Errorf("a bad URL: %v", err)
	}
	for api, param := range map[string]string{"openai": "n", "anthropic": "system"} {
		f, err := config.Parse([]byte("providers: {p: {api: " + api + "}}\nmodels:\n- name: m\n  provider: p\n  params: {" + param + ": 1}"))
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`bad configuration: line 5: model "m": the parameter %q is not free: it follows from the call`, param)
		if _, err := route.New(f, route.Options{}); !errors.Is(err, config.ErrConfig) || err.Error() != want {
			t.Errorf("%s: %v, want %s", api, err, want)
		}
	}
}

// plain sends what is meant for TLS in the clear: the server of the test has none.
type plain struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p plain) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return p.RoundTripper.RoundTrip(r)
}

package fetch_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/fetch"
	"github.com/agentcell/agentcell/host/tool/tooltest"
	"github.com/agentcell/agentcell/sdk/abi"
)

func TestExecutor(t *testing.T) {
	hangs := func(w io.Writer, _ *http.Request) { _, _ = w.(io.Reader).Read(make([]byte, 1)) }
	w := &world{names: public(), sites: map[string]site{"site.example": page("text/plain", "x"), "other.example": hangs}}
	of := func(url string) tool.Call {
		return tool.Call{ToolCall: abi.ToolCall{Tool: fetch.Name, Args: abi.Struct(`{"url":"` + url + `"}`)}}
	}
	tooltest.Run(t, w.fetcher(t, rules), of("http://site.example/"), of("http://other.example/"))
}

// What is sent, and to whom: headers of the operator go to the origin that was asked
// for, and to no other one.
func TestRequests(t *testing.T) {
	const first = "Authorization=Bearer " + canary
	for _, tt := range []struct {
		name  string
		sites map[string]site
		args  string
		want  []string
	}{
		{"get", nil, `{"url":"http://Site.Example./a?b=c#d"}`, []string{"GET Site.Example./a?b=c " + first + " X-Team=blue"}},
		{"head", nil, `{"url":"http://site.example","method":"head"}`, []string{"HEAD site.example/ " + first + " X-Team=blue"}},
		{
			"post", nil, `{"url":"http://site.example/","method":"POST","body":"{}","headers":{"accept":"text/html","content-type":"a/b"}}`,
			[]string{"POST site.example/ " + first + " Accept=text/html X-Team=blue {}"},
		},
		{"by pattern", nil, `{"url":"http://a.pages.example/"}`, []string{"GET a.pages.example/"}},
		{
			"on the same origin",
			map[string]site{"site.example": once(sends(301, "/b"))},
			`{"url":"http://site.example/a"}`,
			[]string{"GET site.example/a " + first + " X-Team=blue", "GET site.example/b " + first + " X-Team=blue"},
		},
		{
			"to another host",
			map[string]site{"site.example": sends(302, "http://other.example/b")},
			`{"url":"http://site.example/a","headers":{"Accept":"x"}}`,
			[]string{"GET site.example/a " + first + " Accept=x X-Team=blue", "GET other.example/b Accept=x"},
		},
		{
			"there and back",
			map[string]site{"site.example": once(sends(302, "http://other.example/b")), "other.example": sends(302, "http://site.example/c")},
			`{"url":"http://site.example/a"}`,
			[]string{"GET site.example/a " + first + " X-Team=blue", "GET other.example/b", "GET site.example/c"},
		},
		{
			"from elsewhere",
			map[string]site{"other.example": sends(302, "http://site.example/c")},
			`{"url":"http://other.example/a"}`,
			[]string{"GET other.example/a", "GET site.example/c"},
		},
		{
			"a post that is seen elsewhere",
			map[string]site{"site.example": sends(303, "http://other.example/b")},
			`{"url":"http://site.example/","method":"POST","body":"x"}`,
			[]string{"POST site.example/ " + first + " X-Team=blue x", "GET other.example/b"},
		},
		{
			"a post that has moved",
			map[string]site{"site.example": sends(301, "http://other.example/b")},
			`{"url":"http://site.example/","method":"POST","body":"x"}`,
			[]string{"POST site.example/ " + first + " X-Team=blue x", "GET other.example/b"},
		},
		{
			"a post that stays one",
			map[string]site{"site.example": sends(307, "http://other.example/b")},
			`{"url":"http://site.example/","method":"POST","body":"x"}`,
			[]string{"POST site.example/ " + first + " X-Team=blue x", "POST other.example/b x"},
		},
	} {
		w := &world{names: public(), sites: tt.sites}
		if w.sites == nil {
			w.sites = map[string]site{}
		}
		w.names["site.example."] = w.names["site.example"]
		w.names["Site.Example."] = w.names["site.example"]
		for _, name := range []string{"Site.Example.", "site.example", "other.example", "a.pages.example"} {
			if w.sites[name] == nil {
				w.sites[name] = page("text/plain", "x")
			}
		}
		if _, err := call(t.Context(), w.fetcher(t, rules), tt.args); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		w.served.Wait()
		if diff := cmp.Diff(tt.want, w.requests); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", tt.name, diff)
		}
	}
}

// once does something with the first request, and answers the others.
func once(first site) site {
	done := false
	return func(w io.Writer, r *http.Request) {
		if done {
			first = page("text/plain", "x")
		}
		done = true
		first(w, r)
	}
}

// What comes back: headers without cookies, text in the output, an image beside it.
func TestResult(t *testing.T) {
	const png = "\x89PNG\x0d\x0a\x1a\x0a and so on"
	w := &world{names: public(), sites: map[string]site{
		"site.example": says("HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nSet-Cookie: a=b\r\nX-Two: 1\r\nX-Two: 2\r\nX-Long: " + strings.Repeat("é", 600) +
			"\r\nContent-Length: 6\r\n\r\n<a & b"),
		"other.example": page("application/octet-stream", png),
	}}
	f := w.fetcher(t, rules)
	result, err := call(t.Context(), f, `{"url":"http://site.example/"}`)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"status":404,"url":"http://site.example/","headers":{"content-length":"6","content-type":"text/html","x-long":"` +
		strings.Repeat("é", 512) + `…","x-two":"1, 2"},"body":"<a & b"}`
	if diff := cmp.Diff(want, string(result.Output)); diff != "" || result.Content != nil || result.IsError {
		t.Errorf("%+v, output (-want +got):\n%s", result, diff)
	}
	result, err = call(t.Context(), f, `{"url":"http://other.example/"}`)
	if err != nil {
		t.Fatal(err)
	}
	if a := answerOf(t, result); a.Note != "image/png, 18 bytes, is beside this" || a.Body != "" {
		t.Errorf("%+v", a)
	}
	parts := []abi.Part{{Data: &abi.DataPart{Data: result.Output}}, {File: &abi.FilePart{MIME: "image/png", Bytes: []byte(png)}}}
	if diff := cmp.Diff(parts, result.Content); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

// A secret that cannot be had, or sent, is an error that does not have it, and no
// request leaves.
func TestS4_SecretsOfFetch(t *testing.T) {
	for header, want := range map[string]string{
		"{Authorization: Bearer env:TOKEN}":                "",
		"{Authorization: Bearer env:MISSING}":              "the header Authorization: the variable MISSING is not set",
		"{Authorization: Bearer secret:missing}":           "the header Authorization: secret:missing: no such secret",
		"{Authorization: Bearer env:SHORT}":                "env:SHORT is shorter than 8 characters",
		"{Authorization: env:LINES}":                       "the header Authorization: its value has a character",
		"{X-Token: secret:site, Authorization: env:BROKE}": "the header Authorization: the variable BROKE is not set",
	} {
		w := &world{names: public(), sites: map[string]site{"site.example": page("text/plain", "x")}}
		file, err := config.Parse([]byte("fetch: {rules: [{host: site.example, schemes: [http], headers: " + header + "}]}"))
		if err != nil {
			t.Fatal(err)
		}
		f := fetch.New(*file.Fetch, fetch.Options{
			Getenv: func(name string) string {
				return map[string]string{"TOKEN": canary, "SHORT": "canary", "LINES": canary + "\n" + canary}[name]
			},
			Secret: func(name string) (string, error) {
				if name == "site" {
					return canary, nil
				}
				return "", errors.New("no such secret")
			},
			Resolve: w.resolve, Dial: w.dial,
		})
		_, err = call(t.Context(), f, `{"url":"http://site.example/"}`)
		w.served.Wait()
		switch {
		case want == "" && (err != nil || len(w.requests) != 1):
			t.Errorf("%s: %v, sent %v", header, err, w.requests)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") || len(w.requests) > 0):
			t.Errorf("%s: %v, sent %v; want %q", header, err, w.requests, want)
		}
	}
}

func TestTool(t *testing.T) {
	w := new(world)
	for _, tt := range []struct {
		text string
		want abi.ToolGrant
	}{
		{
			"fetch: {rules: [{host: a.example}, {host: '*.b.example', methods: [GET], schemes: [http, https], ports: [80, 8443]}]}",
			abi.ToolGrant{
				ToolDefinition: abi.ToolDefinition{
					Description: "Fetches what is at a URL over HTTP. Answers with the status, headers and body; an error status is an answer too. Allowed:" +
						"\nGET HEAD https://a.example\nGET http/https://*.b.example ports 80 8443",
					InputSchema: abi.Struct(`{"additionalProperties":false,"properties":{"body":{"type":"string"},"headers":{"additionalProperties":{"type":"string"},"type":"object"},` +
						`"method":{"description":"GET if it is left out","enum":["GET","HEAD"],"type":"string"},"url":{"description":"an absolute URL","type":"string"}},"required":["url"],"type":"object"}`),
				},
				Mediation: abi.MediationControllerMediated, OnCrash: abi.OnCrashRetry,
			},
		},
		{
			"fetch: {approval: true, rules: [{host: a.example, methods: [POST]}]}",
			abi.ToolGrant{
				ToolDefinition: abi.ToolDefinition{
					Description: "Fetches what is at a URL over HTTP. Answers with the status, headers and body; an error status is an answer too. Allowed:\nPOST https://a.example",
					InputSchema: abi.Struct(`{"additionalProperties":false,"properties":{"body":{"type":"string"},"headers":{"additionalProperties":{"type":"string"},"type":"object"},` +
						`"method":{"description":"GET if it is left out","enum":["POST"],"type":"string"},"url":{"description":"an absolute URL","type":"string"}},"required":["url"],"type":"object"}`),
				},
				Mediation: abi.MediationRequiresApproval, OnCrash: abi.OnCrashUnknown,
			},
		},
	} {
		list, err := w.fetcher(t, tt.text).Tools(t.Context())
		if err != nil || len(list) != 1 || list[0].Check() != nil {
			t.Fatalf("%+v, %v", list, err)
		}
		tt.want.Name = fetch.Name
		if diff := cmp.Diff(tt.want, list[0].Grant()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, diff)
		}
	}
}

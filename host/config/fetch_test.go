package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/config"
)

func TestFetch(t *testing.T) {
	got, err := config.Parse([]byte(`
fetch:
  rules:
    - {host: Example.COM.}
    - {host: "*.Example.com", methods: [POST], ports: [8080], schemes: [http], private: true, headers: {Authorization: Bearer secret:a, X-Plain: text}}
    - {host: "[::FFFF:10.0.0.1]"}
    - {host: "*"}
  headers: [X-Trace]
  approval: true
  timeouts: {connect: 1s, total: 2s}
  limits: {body_bytes: 10, request_bytes: 20, redirects: 0}
`))
	if err != nil {
		t.Fatal(err)
	}
	none, get, https := 0, []string{"GET", "HEAD"}, []string{"https"}
	want := &config.Fetch{
		Rules: []config.FetchRule{
			{Host: "example.com", Methods: get, Schemes: https},
			{
				Host: "*.example.com", Methods: []string{"POST"}, Ports: []int{8080}, Schemes: []string{"http"}, Private: true,
				Headers: map[string]config.Value{"Authorization": {Text: "Bearer ", Key: "secret:a"}, "X-Plain": {Text: "text"}},
			},
			{Host: "10.0.0.1", Methods: get, Schemes: https},
			{Host: "*", Methods: get, Schemes: https},
		},
		Headers: []string{"X-Trace"}, Approval: true,
	}
	want.Timeouts.Connect, want.Timeouts.Total = seconds(1), seconds(2)
	want.Limits.BodyBytes, want.Limits.RequestBytes, want.Limits.Redirects = 10, 20, &none
	if diff := cmp.Diff(want, got.Fetch); diff != "" {
		t.Errorf("fetch (-want +got):\n%s", diff)
	}
}

func TestFetch_Refuses(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                                                            "fetch: rules: nothing is allowed",
		"{rules: []}":                                                   "rules: nothing is allowed",
		"{rules: [{}]}":                                                 `rules, at 0: host: ""`,
		"{rules: [{host: a}, {host: 'a*'}]}":                            `rules, at 1: host: "a*"`,
		"{rules: [{host: '*.*.a'}]}":                                    "host: ",
		"{rules: [{host: '*.'}]}":                                       "host: ",
		"{rules: [{host: 'a..b'}]}":                                     "host: ",
		"{rules: [{host: 'https://a'}]}":                                "host: ",
		"{rules: [{host: 'a:80'}]}":                                     "host: ",
		"{rules: [{host: 'fe80::1%eth0'}]}":                             "host: ",
		"{rules: [{host: 'bücher.example'}]}":                           "others than ASCII as xn--",
		"{rules: [{host: a, methods: [get]}]}":                          `methods: "get"`,
		"{rules: [{host: a, methods: [CONNECT]}]}":                      `methods: "CONNECT"`,
		"{rules: [{host: a, schemes: [ftp]}]}":                          `schemes: "ftp"`,
		"{rules: [{host: a, ports: [0]}]}":                              "ports: 0",
		"{rules: [{host: a, ports: [65536]}]}":                          "ports: 65536",
		"{rules: [{host: a, path: /}]}":                                 "there is no setting path",
		"{rules: [{host: a, headers: {'a b': x}}]}":                     `headers: "a b" cannot be set`,
		"{rules: [{host: a, headers: {host: x}}]}":                      `headers: "host" cannot be set`,
		"{rules: [{host: a, headers: {Authorization: Bearer canary}}]}": "headers: Authorization has a secret; want where that is",
		"{rules: [{host: a, headers: {cookie: canary}}]}":               "headers: cookie has a secret",
		"{rules: [{host: '*', headers: {X-Key: secret:a}}]}":            "headers: X-Key would send secret:a to any host",
		"{rules: [{host: a}], headers: [Authorization]}":                `a model may not set "Authorization"`,
		"{rules: [{host: a}], headers: [x-forwarded-for]}":              "a model may not set",
		"{rules: [{host: a}], headers: [Proxy-Anything]}":               "a model may not set",
		"{rules: [{host: a}], headers: ['']}":                           "a model may not set",
		"{rules: [{host: a}], limits: {body_bytes: 5000000}}":           "limits: want at most 4194304 bytes",
		"{rules: [{host: a}], limits: {request_bytes: -1}}":             "limits: want at most",
		"{rules: [{host: a}], limits: {redirects: 21}}":                 "limits: want 0 to 20 redirects",
		"{rules: [{host: a}], timeouts: {total: 0s}}":                   "want a time above 0",
	} {
		_, err := config.Parse([]byte("fetch: " + text))
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

package fetch_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/tool/fetch"
)

// rules are those of most tests.
const rules = `fetch:
  rules:
    - {host: site.example, methods: [GET, HEAD, POST], schemes: [http], headers: {Authorization: Bearer secret:site, X-Team: blue}}
    - {host: "*.pages.example", schemes: [http]}
    - {host: other.example, methods: [GET, POST], schemes: [http]}
    - {host: inside.example, schemes: [http], private: true}
    - {host: 10.0.0.8, schemes: [http], private: true}
    - {host: 169.254.169.253, schemes: [http], private: true}
    - {host: 10.0.0.9, schemes: [http]}
  headers: [X-Ask]
  limits: {body_bytes: 1000, request_bytes: 100, redirects: 3}
`

// public are addresses of names, none of them private.
func public() map[string][]string {
	return map[string][]string{
		"site.example": {"93.184.216.34"}, "other.example": {"93.184.216.35 2606:2800:220:1::1"},
		"a.pages.example": {"93.184.216.36"}, "inside.example": {"10.1.2.3"},
	}
}

func packed(b []byte) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.String()
}

// endless writes a text again and again until nobody reads any more.
func endless(head, text string) site {
	return func(w io.Writer, _ *http.Request) {
		_, err := io.WriteString(w, head)
		for err == nil {
			_, err = io.WriteString(w, text)
		}
	}
}

// drips goes on with an answer by a byte a second.
func drips(begun string) site {
	return func(w io.Writer, _ *http.Request) {
		_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\n"+begun)
		for err == nil {
			time.Sleep(time.Second)
			_, err = io.WriteString(w, "x")
		}
	}
}

// A server may do what it wants: a call ends, in its time, with an error or with what
// it may have, and holds no connection.
func TestS3_HostileServers(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	gz := func(body string) site {
		return says(fmt.Sprintf(ok+"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	}
	for _, tt := range []struct {
		name string
		site site
		err  string        // "" if there is an answer
		want answer        // without its headers
		took time.Duration // of the bubble's clock
	}{
		{"never answers", func(w io.Writer, _ *http.Request) {
			_, _ = w.(io.Reader).Read(make([]byte, 1))
		}, "no whole answer within 30s", answer{}, 30 * time.Second},
		{"answers nothing", says(""), "EOF", answer{}, 0},
		{"drips a byte a second", drips("\r\n"), "no whole answer within 30s", answer{}, 30 * time.Second},
		{"drips its headers", drips("X: "), "no whole answer within 30s", answer{}, 30 * time.Second},
		{"a body without end", endless(ok+"\r\n", strings.Repeat("x", 500)), "", answer{Status: 200, Body: strings.Repeat("x", 1000), Truncated: true}, 0},
		{"ten gigabytes", endless(ok+"Content-Length: 10000000000\r\n\r\n", strings.Repeat("x", 500)), "", answer{Status: 200, Body: strings.Repeat("x", 1000), Truncated: true}, 0},
		{"a body of the limit", says(ok + "\r\n" + strings.Repeat("x", 1000)), "", answer{Status: 200, Body: strings.Repeat("x", 1000)}, 0},
		{"a character that is cut", says(ok + "\r\n" + strings.Repeat("x", 999) + "é"), "", answer{Status: 200, Body: strings.Repeat("x", 999), Truncated: true}, 0},
		{"an image without end", endless(ok+"\r\n\x89PNG\x0d\x0a\x1a\x0a", strings.Repeat("x", 500)), "", answer{Status: 200, Note: "image/png of more than 1000 bytes is left out"}, 0},
		{"a content-length that is too large", says(ok + "Content-Length: 900\r\n\r\nshort"), "the answer broke off", answer{}, 0},
		{"a content-length that is too small", says(ok + "Content-Length: 2\r\n\r\nlonger"), "", answer{Status: 200, Body: "lo"}, 0},
		{"two lengths", says(ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nlonger"), "Content-Length", answer{}, 0},
		{"a chunk that breaks off", says(ok + "Transfer-Encoding: chunked\r\n\r\n10\r\nshort"), "the answer broke off", answer{}, 0},
		{"a megabyte of headers", endless(ok, "X-Much: "+strings.Repeat("y", 1000)+"\r\n"), "exceeded 65536 bytes", answer{}, 0},
		{"a header without end", endless(ok+"X: ", "yyyyyyyyyyyyyyyy"), "exceeded 65536 bytes", answer{}, 0},
		{"hints without end", endless("", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), "exceeded 65536 bytes", answer{}, 0},
		{"a trailer without end", endless(ok+"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n1\r\nx\r\n0\r\nX: ", "yyyyyyyyyyyyyyyy"), "trailer", answer{}, 0},
		{"no HTTP", says("220 mail.example ESMTP\r\n\r\n"), "malformed HTTP", answer{}, 0},
		{"a protocol of its own", says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes"), "", answer{Status: 101, Body: "bytes"}, 0},
		{"gzip", gz(packed([]byte("hello"))), "", answer{Status: 200, Body: "hello"}, 0},
		{"a bomb", gz(packed(make([]byte, 1<<20))), "", answer{Status: 200, Note: "the body is neither text, nor an image or PDF, and is left out"}, 0},
		{"a bomb of text", gz(packed([]byte(strings.Repeat("x", 400_000)))), "", answer{Status: 200, Body: strings.Repeat("x", 1000), Truncated: true}, 0},
		{"gzip that unpacks to nothing", endless(ok+"Content-Encoding: gzip\r\n\r\n", packed(nil)), "the packed answer has more than 1000 bytes", answer{}, 0},
		{"gzip that is none", gz("not gzip at all"), "says that it is gzip, and is not", answer{}, 0},
		{"gzip that breaks off", gz(packed([]byte("hello"))[:15]), "the answer broke off", answer{}, 0},
		{"gzip with a wrong sum", gz(strings.Replace(packed([]byte("hello")), packed([]byte("hello"))[23:24], "!", 1)), "gzip: invalid", answer{}, 0},
		{"packed otherwise", says(ok + "Content-Encoding: br\r\n\r\nxx"), `packed with "br"`, answer{}, 0},
		{"a page that says it is an image", page("image/png", "<html>"), "", answer{Status: 200, Body: "<html>"}, 0},
		{"no text", page("text/plain", "a\x00b"), "", answer{Status: 200, Note: "the body is neither text, nor an image or PDF, and is left out"}, 0},
		{"text that is not UTF-8", page("text/plain", "a\xffb"), "", answer{Status: 200, Body: "a\uFFFDb"}, 0},
		{"Latin-1", page("text/plain; charset=ISO-8859-1", "caf\xe9"), "", answer{Status: 200, Body: "café"}, 0},
		{"an error", says("HTTP/1.1 500 Oh No\r\n\r\nsorry"), "", answer{Status: 500, Body: "sorry"}, 0},
		{"redirects in a ring", sends(302, "/again"), "more than 3 redirects", answer{}, 0},
		{"a redirect to nowhere", sends(302, ""), "", answer{Status: 302}, 0},
		{"a redirect to metadata", sends(302, "http://169.254.169.254/latest/meta-data/"), "GET http://169.254.169.254:80 is not among", answer{}, 0},
		{"a redirect inwards", sends(302, "http://10.0.0.7/"), "is not among", answer{}, 0},
		{"a redirect to another port", sends(307, "http://site.example:8080/"), "is not among", answer{}, 0},
		{"a redirect to a file", sends(302, "file:///etc/passwd"), "want a URL that begins with", answer{}, 0},
		{"a redirect with a password", sends(302, "http://a:b@site.example/"), "with a user or password", answer{}, 0},
		{"a redirect to a URL of a megabyte", sends(302, "/"+strings.Repeat("x", 9<<10)), "cannot be read", answer{}, 0},
		{"the secret in the body", func(w io.Writer, r *http.Request) { page("text/plain", r.Header.Get("Authorization"))(w, r) }, "it is not taken", answer{}, 0},
		{"the secret in a header", func(w io.Writer, r *http.Request) {
			says(ok+"X-Echo: "+r.Header.Get("Authorization")+"\r\n\r\n")(w, r)
		}, "it is not taken", answer{}, 0},
		{"the secret in what is not HTTP", func(w io.Writer, r *http.Request) { says(r.Header.Get("Authorization")+"\r\n\r\n")(w, r) }, "it is not taken", answer{}, 0},
		{"the secret in an image", func(w io.Writer, r *http.Request) {
			page("image/png", "\x89PNG\x0d\x0a\x1a\x0a"+r.Header.Get("Authorization"))(w, r)
		}, "it is not taken", answer{}, 0},
		{"the secret in a host", sends(302, "http://CANARY-0123456.example/"), "it is not taken", answer{}, 0},
		{"the secret in a URL", sends(302, "http://other.example/%63anary-0123456"), "it is not taken", answer{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{names: public(), sites: map[string]site{"site.example": tt.site, "other.example": page("text/plain", "x")}}
				start := time.Now()
				result, err := call(t.Context(), w.fetcher(t, rules), `{"url":"http://site.example/x"}`)
				if took := time.Since(start); took != tt.took {
					t.Errorf("it took %s, want %s", took, tt.took)
				}
				w.served.Wait()
				if err != nil && strings.Contains(err.Error(), canary) {
					t.Errorf("the error has the secret: %v", err)
				}
				if tt.err != "" {
					if err == nil || !strings.Contains(err.Error(), tt.err) || len(err.Error()) > 500 {
						t.Errorf("%s, %v; want %q", result.Output, err, tt.err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got := answerOf(t, result)
				got.Headers = nil
				tt.want.URL = "http://site.example/x"
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// No request leaves that the rules do not allow, whatever a model asks for.
func TestS1_HostileRequests(t *testing.T) {
	const want = "not allowed"
	for args, want := range map[string]string{
		`{"url":"http://elsewhere.example/"}`:                                                      "GET http://elsewhere.example:80 is not among",
		`{"url":"https://site.example/"}`:                                                          "GET https://site.example:443 is not among",
		`{"url":"http://site.example:8080/"}`:                                                      want,
		`{"url":"http://site.example:99999999999999999999/"}`:                                      want,
		`{"url":"http://site.example/","method":"DELETE"}`:                                         want,
		`{"url":"http://site.example/","method":"G\nET"}`:                                          want,
		`{"url":"http://pages.example/"}`:                                                          want,
		`{"url":"http://xpages.example/"}`:                                                         want,
		`{"url":"http://a.pages.example.evil.example/"}`:                                           want,
		`{"url":"http://127.0.0.1/"}`:                                                              want,
		`{"url":"http://[::1]/"}`:                                                                  want,
		`{"url":"http://[fe80::1%25eth0]/"}`:                                                       want,
		`{"url":"http://[::ffff:10.0.0.9]/"}`:                                                      "its address is not public",
		`{"url":"http://10.0.0.9/"}`:                                                               "its address is not public",
		`{"url":"http://169.254.169.254/"}`:                                                        want,
		`{"url":"http://2130706433/"}`:                                                             want,
		`{"url":"http://a:b@site.example/"}`:                                                       "with a user or password",
		`{"url":"http://site.example@127.0.0.1/"}`:                                                 "with a user or password",
		`{"url":"http://evil.example\\@site.example/"}`:                                            "cannot be read",
		`{"url":"http://evil.c\u2100.pages.example/"}`:                                             "other characters than letters",
		`{"url":"http://a\u3002pages.example/"}`:                                                   "other characters than letters",
		`{"url":"file:///etc/passwd"}`:                                                             "want a URL that begins with",
		`{"url":"http:site.example"}`:                                                              "has no host",
		`{"url":"//site.example/"}`:                                                                "want a URL that begins with",
		`{"url":"http://site.example/` + strings.Repeat("x", 9000) + `"}`:                          "more than 8192 bytes",
		`{"url":"http://site.example/","body":"x"}`:                                                "GET has no body",
		`{"url":"http://site.example/","method":"POST","body":"` + strings.Repeat("x", 101) + `"}`: "a body of more than 100 bytes",
		`{"url":"http://site.example/","headers":{"Host":"evil.example"}}`:                         `the header "Host"; those that are: Accept,`,
		`{"url":"http://site.example/","headers":{"authorization":"Bearer x"}}`:                    `the header "Authorization"`,
		`{"url":"http://site.example/","headers":{"Cookie":"a=b"}}`:                                `the header "Cookie"`,
		`{"url":"http://site.example/","headers":{"Proxy-Authorization":"x"}}`:                     `the header "Proxy-Authorization"`,
		`{"url":"http://site.example/","headers":{"Transfer-Encoding":"chunked"}}`:                 `the header "Transfer-Encoding"`,
		`{"url":"http://site.example/","headers":{"X-Team":"red"}}`:                                `the header "X-Team"`,
		`{"url":"http://site.example/","headers":{"Accept":"a\r\nHost: b"}}`:                       `the value of the header "Accept"`,
		`{"url":"http://site.example/","headers":{"Accept":"` + strings.Repeat("x", 9000) + `"}}`:  `the value of the header "Accept"`,
		`{"url":"http://site.example/","Body":1}`:                                                  "not an object with url",
		`{"url":"http://site.example/","follow":true}`:                                             "not an object with url",
		`[]`: "not an object with url",
		``:   "not an object with url",
	} {
		w := &world{names: public()}
		_, err := call(t.Context(), w.fetcher(t, rules), args)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v; want %q", args, err, want)
		}
		if len(w.requests)+len(w.dialed) > 0 {
			t.Errorf("%.100s: dialed %v, sent %v", args, w.dialed, w.requests)
		}
	}
}

// A name may stand for anything, and for another thing the next time: what counts is the
// address that is dialed.
func TestS1_HostileNames(t *testing.T) {
	for _, tt := range []struct {
		name    string
		url     string
		answers []string
		err     string
		dialed  []string
	}{
		{"public", "http://site.example", []string{"93.184.216.34"}, "", []string{"93.184.216.34:80"}},
		{"public, mapped", "http://site.example", []string{"::ffff:93.184.216.34"}, "", []string{"93.184.216.34:80"}},
		{"private", "http://site.example", []string{"10.0.0.1"}, "its address is not public", nil},
		{"one of several", "http://site.example", []string{"93.184.216.34 192.168.0.1"}, "its address is not public", nil},
		{"loopback", "http://site.example", []string{"::1"}, "its address is not public", nil},
		{"metadata", "http://site.example", []string{"169.254.169.254"}, "its cloud's metadata", nil},
		{"metadata, where private is allowed", "http://inside.example", []string{"169.254.169.254"}, "its cloud's metadata", nil},
		{"metadata that is meant", "http://169.254.169.253", nil, "", []string{"169.254.169.253:80"}},
		{"nothing", "http://inside.example", []string{"0.0.0.0"}, "this machine's network", nil},
		{"private that is allowed", "http://inside.example", []string{"10.1.2.3"}, "", []string{"10.1.2.3:80"}},
		{"private that is meant", "http://10.0.0.8", nil, "", []string{"10.0.0.8:80"}},
		{"no address", "http://site.example", nil, "cannot be resolved", nil},
		{"the first one is down", "http://site.example", []string{"93.184.216.99 93.184.216.34"}, "", []string{"93.184.216.99:80", "93.184.216.34:80"}},
		{"all are down", "http://site.example", []string{"93.184.216.99"}, "site.example:80: connection refused", []string{"93.184.216.99:80"}},
	} {
		w := &world{names: map[string][]string{"site.example": tt.answers, "inside.example": tt.answers, "down": {"93.184.216.99"}}, sites: map[string]site{}}
		for _, name := range []string{"site.example", "inside.example", "10.0.0.8", "169.254.169.253"} {
			w.sites[name] = page("text/plain", "x")
		}
		_, err := call(t.Context(), w.fetcher(t, rules), `{"url":"`+tt.url+`"}`)
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.err)
		}
		if diff := cmp.Diff(tt.dialed, w.dialed); diff != "" {
			t.Errorf("%s: dialed (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A name that is public when it is looked at and private from then on: each request
// finds out once, and goes where it has looked.
func TestS1_Rebinding(t *testing.T) {
	w := &world{
		names: map[string][]string{"site.example": {"93.184.216.34", "127.0.0.1"}},
		sites: map[string]site{"site.example": sends(302, "/again")},
	}
	_, err := call(t.Context(), w.fetcher(t, rules), `{"url":"http://site.example/"}`)
	if !errors.Is(err, fetch.ErrRefused) || !strings.Contains(err.Error(), "its address is not public") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff([]string{"93.184.216.34:80"}, w.dialed); diff != "" || w.asked["site.example"] != 2 {
		t.Errorf("asked %d times, dialed (-want +got):\n%s", w.asked["site.example"], diff)
	}
}

// No proxy of the environment is asked: it would connect to what nobody has checked.
func TestS1_NoProxy(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:3128")
	}
	w := &world{names: public(), sites: map[string]site{"site.example": page("text/plain", "x")}}
	if _, err := call(t.Context(), w.fetcher(t, rules), `{"url":"http://site.example/"}`); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"93.184.216.34:80"}, w.dialed); diff != "" {
		t.Errorf("dialed (-want +got):\n%s", diff)
	}
}

// A site is who it says it is, or nothing is sent to it.
func TestS1_Certificates(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	w := &world{names: public(), tls: s.TLS, sites: map[string]site{"site.example": page("text/plain", "x")}}
	f := w.fetcher(t, "fetch: {rules: [{host: site.example, headers: {Authorization: Bearer secret:site}}]}")
	_, err := call(t.Context(), f, `{"url":"https://site.example/"}`)
	w.served.Wait()
	if err == nil || !strings.Contains(err.Error(), "certificate") || len(w.requests) > 0 {
		t.Errorf("%v, sent %v", err, w.requests)
	}
	if diff := cmp.Diff([]string{"93.184.216.34:443"}, w.dialed); diff != "" {
		t.Errorf("dialed (-want +got):\n%s", diff)
	}
}

// Whatever a model writes, a request goes where the rules let it, or nowhere.
func FuzzCall(f *testing.F) {
	for _, seed := range []string{
		`{"url":"http://site.example/"}`, `{"url":"http://[::ffff:10.0.0.8]:80/","method":"HEAD"}`, `{"url":"http://10.0.0.9"}`,
		`{"url":"http://a.pages.example/%2e%2e","headers":{"Accept":"x"},"body":""}`, `{"url":"http://site.example:80@10.0.0.1/"}`,
	} {
		f.Add([]byte(seed))
	}
	allowed := []string{"93.184.216.34:80", "93.184.216.35:80", "93.184.216.36:80", "10.1.2.3:80", "10.0.0.8:80", "169.254.169.253:80"}
	f.Fuzz(func(t *testing.T, args []byte) {
		w := &world{names: public()}
		_, err := call(t.Context(), w.fetcher(t, rules), string(args))
		w.served.Wait()
		if err == nil {
			t.Error("nobody answers, and there is no error")
		}
		for _, to := range w.dialed {
			if !slices.Contains(allowed, to) {
				t.Errorf("dialed %s", to)
			}
		}
	})
}

// Whose context ends is told so, and has no connection left.
func TestCall_Canceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{names: public(), sites: map[string]site{"site.example": drips("\r\n")}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := call(ctx, w.fetcher(t, rules), `{"url":"http://site.example/"}`)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		w.served.Wait()
	})
}

package fetch_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/fetch"
	"github.com/agentcell/agentcell/sdk/abi"
)

// site writes what comes back to a request, byte for byte, and may take its time: a
// write fails when the other side is gone.
type site func(w io.Writer, r *http.Request)

// says is a site with one answer.
func says(text string) site {
	return func(w io.Writer, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// page is a site with a body of a type.
func page(kind, body string) site {
	return says(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body))
}

// sends is a site that sends on to a URL.
func sends(status int, location string) site {
	return says(fmt.Sprintf("HTTP/1.1 %d Elsewhere\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", status, location))
}

// world is a network in memory. It has no sockets, so that it works in a bubble of
// testing/synctest, where nothing takes time.
type world struct {
	// names are what names stand for: one answer after the other, the last one again.
	names map[string][]string
	// sites are those behind names and addresses.
	sites map[string]site
	// tls, if set, is what all sites speak.
	tls *tls.Config

	// served is done when no connection is left.
	served sync.WaitGroup

	mu       sync.Mutex
	asked    map[string]int
	dialed   []string
	requests []string // method, URL and what else is of interest
}

func (w *world) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answers := w.names[name]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	if w.asked == nil {
		w.asked = map[string]int{}
	}
	n := min(w.asked[name], len(answers)-1)
	w.asked[name]++
	var list []netip.Addr
	for text := range strings.FieldsSeq(answers[n]) {
		list = append(list, netip.MustParseAddr(text))
	}
	return list, nil
}

func (w *world) dial(_ context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialed = append(w.dialed, to.String())
	if slices.Contains(w.names["down"], to.Addr().String()) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: errors.New("connection refused")}
	}
	ours, theirs := net.Pipe()
	w.served.Go(func() { w.serve(theirs) })
	return ours, nil
}

func (w *world) serve(c net.Conn) {
	defer c.Close()
	if w.tls != nil {
		c = tls.Server(c, w.tls)
	}
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	text := r.Method + " " + r.Host + r.URL.String()
	for _, name := range []string{"Authorization", "Accept", "X-Team"} {
		if v := r.Header.Get(name); v != "" {
			text += " " + name + "=" + v
		}
	}
	if len(body) > 0 {
		text += " " + string(body)
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	w.mu.Lock()
	w.requests = append(w.requests, text)
	reply := w.sites[name]
	w.mu.Unlock()
	if reply != nil {
		reply(c, r)
	}
}

// fetcher makes the tool of a configuration, in w.
func (w *world) fetcher(t *testing.T, text string) *fetch.Fetcher {
	t.Helper()
	f, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return fetch.New(*f.Fetch, fetch.Options{
		Getenv: func(name string) string { return map[string]string{"TOKEN": canary}[name] },
		Secret: func(name string) (string, error) {
			if name != "site" {
				return "", errors.New("no such secret")
			}
			return canary + "\n", nil
		},
		Resolve: w.resolve, Dial: w.dial,
	})
}

// canary is the secret that must be nowhere but in one header.
const canary = "canary-0123456"

func call(ctx context.Context, f *fetch.Fetcher, args string) (abi.ToolResult, error) {
	return f.Call(ctx, tool.Call{ToolCall: abi.ToolCall{Tool: fetch.Name, Args: abi.Struct(args)}})
}

// answer is what a model reads.
type answer struct {
	Status    int               `json:"status"`
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Truncated bool              `json:"truncated"`
	Note      string            `json:"note"`
}

func answerOf(t *testing.T, r abi.ToolResult) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal(r.Output, &a); err != nil {
		t.Fatalf("%s: %v", r.Output, err)
	}
	return a
}

// Package fetch owns the tool that fetches what is at a URL, for a harness and its
// model, who say where to. So it trusts neither them nor who answers: a request goes
// where the rules of the operator let it, and each redirect is a request that they must
// allow; an address that is not public is no place to go to, whatever name stands for
// it; and what comes back is bounded in size and time.
//
// The requests of a rule have a transport of their own, and no connection outlives its
// request, so that none is used under another rule than the one it was made under. No
// proxy is used: what it would connect to nobody here could check.
//
// The package imports host/tool, host/config and sdk/abi, and never the host.
package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Name is what the tool is called.
const Name = "fetch"

// The defaults of what the configuration may say.
const (
	DefaultConnect      = 10 * time.Second
	DefaultTotal        = 30 * time.Second
	DefaultBodyBytes    = 256 << 10
	DefaultRequestBytes = 256 << 10
	DefaultRedirects    = 5
)

// ErrRefused reports a request that is not allowed.
var ErrRefused = errors.New("not allowed")

// Options are what the tool needs beside its configuration.
type Options struct {
	// Getenv and Secret look up what headers of the operator refer to, for each
	// request; nil finds none.
	Getenv func(name string) string
	Secret func(name string) (string, error)
	// Resolve gives the addresses of a name, and Dial connects to an address and
	// port that was found good; nil means the machine's.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// Fetcher is the tool. It is safe for concurrent use, and holds nothing open between
// calls.
type Fetcher struct {
	cfg       config.Fetch
	o         Options
	rules     []*rule
	connect   time.Duration
	total     time.Duration
	redirects int
	may       map[string]bool // headers that a model may set
}

var (
	_ tool.Executor = (*Fetcher)(nil)
	_ tool.Source   = (*Fetcher)(nil)
)

// New makes the tool of a configuration as config.Parse gives it. Nothing is called,
// and no secret looked up.
func New(cfg config.Fetch, o Options) *Fetcher {
	f := &Fetcher{cfg: cfg, o: o, connect: time.Duration(cfg.Timeouts.Connect), total: time.Duration(cfg.Timeouts.Total), redirects: DefaultRedirects}
	if f.connect == 0 {
		f.connect = DefaultConnect
	}
	if f.total == 0 {
		f.total = DefaultTotal
	}
	if f.cfg.Limits.BodyBytes == 0 {
		f.cfg.Limits.BodyBytes = DefaultBodyBytes
	}
	if f.cfg.Limits.RequestBytes == 0 {
		f.cfg.Limits.RequestBytes = DefaultRequestBytes
	}
	if r := cfg.Limits.Redirects; r != nil {
		f.redirects = *r
	}
	f.may = map[string]bool{}
	for _, name := range append(usualHeaders(), cfg.Headers...) {
		f.may[textproto.CanonicalMIMEHeaderKey(name)] = true
	}
	for _, r := range cfg.Rules {
		f.rules = append(f.rules, f.newRule(r))
	}
	return f
}

// usualHeaders are those that every model may set.
func usualHeaders() []string {
	return []string{"Accept", "Accept-Language", "Content-Type", "If-Match", "If-Modified-Since", "If-None-Match", "If-Unmodified-Since", "Range"}
}

// Tools implements tool.Source: it is one tool.
func (f *Fetcher) Tools(context.Context) ([]tool.Tool, error) {
	t := tool.Tool{
		Definition: abi.ToolDefinition{Name: Name, Description: f.description(), InputSchema: f.schema()},
		OnCrash:    f.onCrash(), Executor: f, From: "fetch",
	}
	if f.cfg.Approval {
		t.Mediation = abi.MediationRequiresApproval
	}
	return []tool.Tool{t}, nil
}

// onCrash: a GET or HEAD may be made again, as HTTP has it. Of a tool that can do more
// nobody knows which call it was that the host died in.
func (f *Fetcher) onCrash() abi.OnCrash {
	for _, m := range f.methods() {
		if m != http.MethodGet && m != http.MethodHead {
			return abi.OnCrashUnknown
		}
	}
	return abi.OnCrashRetry
}

// methods are those of all rules, GET first.
func (f *Fetcher) methods() []string {
	var all []string
	for _, r := range f.cfg.Rules {
		all = append(all, r.Methods...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// description tells a model what it may ask for, since it learns it one way or another.
func (f *Fetcher) description() string {
	var b strings.Builder
	b.WriteString("Fetches what is at a URL over HTTP. Answers with the status, headers and body; an error status is an answer too. Allowed:")
	for i, r := range f.cfg.Rules {
		if i == maxDescribed {
			fmt.Fprintf(&b, " and %d more", len(f.cfg.Rules)-i)
			break
		}
		fmt.Fprintf(&b, "\n%s %s://%s", strings.Join(r.Methods, " "), strings.Join(r.Schemes, "/"), r.Host)
		if len(r.Ports) > 0 {
			fmt.Fprintf(&b, " ports %s", strings.Trim(fmt.Sprint(r.Ports), "[]"))
		}
	}
	return b.String()
}

// maxDescribed is of how many rules a model is told.
const maxDescribed = 50

func (f *Fetcher) schema() abi.Struct {
	object := func(members map[string]any) map[string]any {
		members["type"] = "object"
		return members
	}
	b, err := json.Marshal(object(map[string]any{
		"properties": map[string]any{
			"url":     map[string]any{"type": "string", "description": "an absolute URL"},
			"method":  map[string]any{"type": "string", "enum": f.methods(), "description": "GET if it is left out"},
			"headers": object(map[string]any{"additionalProperties": map[string]any{"type": "string"}}),
			"body":    map[string]any{"type": "string"},
		},
		"required":             []string{"url"},
		"additionalProperties": false,
	}))
	if err != nil {
		panic(err) // it has words and lists of words in it
	}
	return b
}

// arguments are those of a call.
type arguments struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Call implements tool.Executor.
func (f *Fetcher) Call(ctx context.Context, c tool.Call) (abi.ToolResult, error) {
	if ctx.Err() != nil {
		return abi.ToolResult{}, fmt.Errorf("fetch: %w", ctx.Err())
	}
	limited, cancel := context.WithTimeout(ctx, f.total)
	defer cancel()
	var sent secrets
	result, err := f.call(limited, c.Args, &sent)
	switch {
	case err == nil:
		return result, nil
	case ctx.Err() != nil:
		return abi.ToolResult{}, fmt.Errorf("fetch: %w", ctx.Err())
	case limited.Err() != nil:
		return abi.ToolResult{}, fmt.Errorf("fetch: no whole answer within %s", f.total)
	case sent.in(err.Error()):
		err = errEchoed
	}
	return abi.ToolResult{}, fmt.Errorf("fetch: %w", err)
}

// call makes the requests of a call, and adds to sent the secrets that they have.
func (f *Fetcher) call(ctx context.Context, args abi.Struct, sent *secrets) (abi.ToolResult, error) {
	r, err := f.request(args)
	if err != nil {
		return abi.ToolResult{}, err
	}
	for range f.redirects + 1 {
		resp, err := f.send(ctx, r, sent)
		if err != nil {
			return abi.ToolResult{}, err
		}
		next, err := r.redirected(resp)
		if next == nil && err == nil {
			defer resp.Body.Close()
			return f.result(r, resp, *sent)
		}
		resp.Body.Close()
		if err != nil {
			return abi.ToolResult{}, err
		}
		r = next
	}
	return abi.ToolResult{}, fmt.Errorf("%w: more than %d redirects", ErrRefused, f.redirects)
}

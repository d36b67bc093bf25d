// Package mcp owns the tools of servers that speak the Model Context Protocol. It starts
// or reaches the servers that the configuration has, offers their tools as
// "server.tool", and performs calls of them.
//
// A server is someone else's program: it may never answer, flood, die, or change
// what it offers. All that it can do to a host is that its calls fail: what it says is
// bounded before it is read, what it asks of the host is refused, and one that has
// failed is left alone for a while, longer each time.
//
// Nothing is started before tools are listed or called, and nothing of it is left
// when Servers is closed.
//
// The package imports host/config and host/tool, and never the host, the journal or
// a runtime.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool"
)

// ErrDown reports a server that could not be started or reached, or that has ended.
// The error that wraps it says why, and whether it is tried again.
var ErrDown = errors.New("the MCP server is down")

// What holds where the configuration says nothing.
const (
	DefaultStart       = 30 * time.Second
	DefaultCall        = 2 * time.Minute
	DefaultResultBytes = 8 << 20
	DefaultConcurrent  = 4
	DefaultTools       = 256
)

// Options are what servers need beside the configuration.
type Options struct {
	// Getenv looks up variables of the environment; nil means that of the process.
	Getenv func(name string) string
	// Secret looks up a secret in the secret store; nil means that there is none.
	Secret func(name string) (string, error)
	// Transport carries the requests of servers over HTTP; nil means the network.
	Transport http.RoundTripper
	// Log is told what becomes of the servers, and at the debug level what they write
	// to stderr; nil discards.
	Log *slog.Logger
}

// Servers are the servers of a configuration. It is safe for concurrent use. Close it.
type Servers struct {
	servers map[string]*server
	stop    context.CancelFunc
}

var (
	_ tool.Source  = (*Servers)(nil)
	_ tool.Finder  = (*Servers)(nil)
	_ tool.Granter = (*Servers)(nil)
)

// New makes the servers of a configuration. None is started, and no secret is looked
// up.
func New(conf map[string]config.MCP, o Options) *Servers {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	all := &Servers{servers: map[string]*server{}, stop: func() { stop(errClosed) }}
	for name, c := range conf {
		all.servers[name] = newServer(ctx, name, c, o)
	}
	return all
}

// Tools implements tool.Source: it starts what is not running. A server that is down
// has no tools, or if it is required its error is that of Tools.
func (s *Servers) Tools(ctx context.Context) ([]tool.Tool, error) {
	return s.list(ctx, slices.Sorted(maps.Keys(s.servers)))
}

// Granted implements tool.Granter: a server none of whose tools can be granted is not
// started, and may be down.
func (s *Servers) Granted(ctx context.Context, patterns []string) ([]tool.Tool, error) {
	var names []string
	for name := range s.servers {
		if slices.ContainsFunc(patterns, func(p string) bool { return reaches(p, name+".") }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return s.list(ctx, names)
}

// reaches reports whether a pattern matches anything that begins with prefix: then the
// part of it that has matched when prefix ends is a pattern that matches prefix.
func reaches(pattern, prefix string) bool {
	for i := range len(pattern) + 1 {
		if ok, err := path.Match(pattern[:i], prefix); ok && err == nil {
			return true
		}
	}
	return false
}

// list is what some of the servers offer.
func (s *Servers) list(ctx context.Context, names []string) ([]tool.Tool, error) {
	lists, errs := make([][]tool.Tool, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { lists[i], errs[i] = s.servers[name].tools(ctx) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for i, name := range names {
		required := s.servers[name].conf.Required
		s.servers[name].tell(errs[i], required)
		if errs[i] != nil && required {
			return nil, errs[i]
		}
	}
	return slices.Concat(lists...), nil
}

// Tool implements tool.Finder: it asks the one server, whose list does not count. So a
// turn keeps the tools that it was granted whatever the server offers by now.
func (s *Servers) Tool(ctx context.Context, name string) (tool.Tool, bool, error) {
	server, own, ok := s.find(name)
	if !ok {
		return tool.Tool{}, false, nil
	}
	if _, err := server.connected(ctx); err != nil {
		return tool.Tool{}, false, err
	}
	return server.tool(own), true, nil
}

// find splits the name of a tool.
func (s *Servers) find(name string) (of *server, own string, ok bool) {
	prefix, own, ok := strings.Cut(name, ".")
	of = s.servers[prefix]
	return of, own, ok && of != nil && of.offers(own)
}

// Close stops all servers: calls that are under way fail. It may be called again.
func (s *Servers) Close() error {
	s.stop()
	var wg sync.WaitGroup
	for _, server := range s.servers {
		wg.Go(server.close)
	}
	wg.Wait()
	return nil
}

var errClosed = fmt.Errorf("%w: the host is closed", ErrDown)

package mcp

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

// A server that failed is left alone for firstPause, twice as long each time, and at
// most for maxPause. One that has answered a call before it ended is started again at
// once, the first time.
const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// server is one server, running or not.
type server struct {
	name  string
	conf  config.MCP
	o     Options
	ctx   context.Context // ends when the server is closed for good
	slots chan struct{}   // of the calls that are under way
	pause time.Duration   // the first one

	mu       sync.Mutex
	conn     *conn         // nil while there is none
	starting chan struct{} // closed when the start that is under way is over; nil without one
	failures int           // since the last answer to a call, which counts as one less than none
	until    time.Time     // of the pause
	err      error         // why there is no conn
	told     string        // to the log
	closed   bool          // nothing is started any more
	ends     sync.WaitGroup
}

func newServer(ctx context.Context, name string, c config.MCP, o Options) *server {
	set := func(d *config.Duration, to time.Duration) {
		if *d == 0 {
			*d = config.Duration(to)
		}
	}
	set(&c.Timeouts.Start, DefaultStart)
	set(&c.Timeouts.Call, DefaultCall)
	for n, to := range map[*int]int{
		&c.Limits.ResultBytes: DefaultResultBytes, &c.Limits.Concurrent: DefaultConcurrent, &c.Limits.Tools: DefaultTools,
	} {
		if *n == 0 {
			*n = to
		}
	}
	o.Log = o.Log.With("mcp", name)
	return &server{name: name, conf: c, o: o, ctx: ctx, slots: make(chan struct{}, c.Limits.Concurrent), pause: firstPause}
}

// tell logs that the server's tools are left out, once for each reason.
func (s *server) tell(err error, required bool) {
	text := ""
	if err != nil {
		text = errors.Unwrap(err).Error()
	}
	s.mu.Lock()
	changed := text != s.told
	s.told = text
	s.mu.Unlock()
	switch {
	case !changed:
	case err == nil:
		s.o.Log.Info("tools are back")
	case required:
		s.o.Log.Warn("no turn can begin without the tools of this server", "error", err)
	default:
		s.o.Log.Warn("tools are left out", "error", err)
	}
}

// failed is an error of this server.
func (s *server) failed(err error) error {
	return fmt.Errorf("MCP server %q: %w", s.name, err)
}

// connected is the connection to the server, which is started if need be.
func (s *server) connected(ctx context.Context) (*conn, error) {
	s.mu.Lock()
	if s.closed || s.ctx.Err() != nil {
		s.mu.Unlock()
		return nil, s.failed(errClosed)
	}
	if s.conn != nil {
		defer s.mu.Unlock()
		return s.conn, nil
	}
	if left := time.Until(s.until); s.starting == nil && left > 0 {
		defer s.mu.Unlock()
		return nil, s.failed(fmt.Errorf("%w; it is tried again in %s", s.err, left.Round(100*time.Millisecond)))
	}
	starting := s.starting
	if starting == nil {
		starting = make(chan struct{})
		s.starting = starting
		s.ends.Go(func() { s.start(starting) })
	}
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-starting:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil, s.failed(s.err)
	}
	return s.conn, nil
}

// start makes the connection. It does not end with the turn that wanted it first, as
// others wait for it too.
func (s *server) start(over chan struct{}) {
	began := time.Now()
	c, err := connect(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(over)
	s.starting = nil
	if err != nil {
		s.down(err)
		return
	}
	s.conn = c
	s.ends.Go(func() { s.watch(c) })
	s.o.Log.Info("server is up", "took", time.Since(began).Round(time.Millisecond))
}

// watch sees to it that a connection which ends is taken down.
func (s *server) watch(c *conn) {
	select {
	case <-c.ended:
	case <-c.link.screened().failed:
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	s.conn = nil
	s.down(c.cause())
	s.mu.Unlock()
	c.close()
}

// down notes a failure, after which the server is left alone for a while that grows
// with the number of failures. s.mu is held.
func (s *server) down(err error) {
	s.failures++
	s.err = fmt.Errorf("%w: %w", ErrDown, err)
	s.until = time.Time{}
	if s.failures > 0 {
		s.until = time.Now().Add(min(s.pause<<min(s.failures-1, 10), maxPause))
	}
	if s.ctx.Err() == nil {
		s.o.Log.Warn("server is down", "error", err)
	}
}

// answered notes that the server has answered a call.
func (s *server) answered() {
	s.mu.Lock()
	s.failures = -1
	s.mu.Unlock()
}

// close waits until nothing of the server is left; its context has ended.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.ends.Wait()
}

// offers reports whether the configuration lets a tool through.
func (s *server) offers(name string) bool {
	return name != "" && (len(s.conf.Tools) == 0 || matches(s.conf.Tools, name))
}

func matches(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		ok, err := path.Match(glob, name)
		return ok && err == nil
	})
}

// tool is the tool that the server calls name, without what a model is told of it.
func (s *server) tool(name string) tool.Tool {
	t := tool.Tool{Executor: executor{s, name}, From: "mcp server " + s.name}
	t.Definition.Name = s.name + "." + name
	if matches(s.conf.Approval, name) {
		t.Mediation = abi.MediationRequiresApproval
	}
	switch {
	case matches(s.conf.OnCrash.Ask, name):
		t.OnCrash = abi.OnCrashAsk
	case matches(s.conf.OnCrash.Retry, name):
		t.OnCrash = abi.OnCrashRetry
	}
	return t
}

// tools are those that the server offers now.
func (s *server) tools(ctx context.Context) ([]tool.Tool, error) {
	c, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	list, err := c.tools(ctx)
	if err != nil {
		return nil, s.failed(err)
	}
	return list, nil
}

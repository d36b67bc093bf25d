// Package remote owns the call of a model over HTTP, whatever API it speaks: the
// key, the time-outs, the retries, the circuit breaker, the bounds on what is
// read, and the words for what went wrong. What a request and an answer look like
// is its Protocol's.
//
// An attempt that a provider refuses for now (429), that fails at its end (5xx),
// or that breaks off, before the first byte or in the middle of the answer, is
// made again after a while, as part of one call: the answer is recorded once, and
// a watcher is told that the pieces it has seen are void. What cannot get better
// by itself is not made again: a request that is refused, or an answer that was
// paid for and is no answer.
//
// The package imports host/model and sdk/abi, and never the host, the journal or
// an API.
package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Endpoint is where a provider is and how it is dealt with. What is zero has the
// default that New gives it.
type Endpoint struct {
	// Name is what people call the provider.
	Name string
	// URL is where calls go, with their path and query.
	URL string
	// Header is sent with every call, beside the key.
	Header map[string]string
	// Key is sent in the header Auth, behind Scheme and a space if there is one.
	Key          Key
	Auth, Scheme string

	// Connect bounds the time to make a connection, FirstByte that until the
	// answer begins, Idle the silence in the middle of it.
	Connect, FirstByte, Idle time.Duration
	// Attempts is how often a call is tried. Before the second try there is Delay,
	// and twice as much before each further one, but never more than MaxDelay. A
	// provider that wants more than that is not asked again.
	Attempts        int
	Delay, MaxDelay time.Duration
	// Failures in a row open the circuit: for Pause, calls fail at once. Then one
	// of them tries; the others follow if it works.
	Failures int
	Pause    time.Duration
	// AnswerBytes bounds an answer, Concurrent how many calls are under way; 0
	// means any number.
	AnswerBytes int
	Concurrent  int

	// Transport carries the requests; nil means the network.
	Transport http.RoundTripper
	// Log is told of each attempt, never of what it carried; nil discards.
	Log *slog.Logger
}

// The defaults of an Endpoint.
const (
	DefaultConnect     = 10 * time.Second
	DefaultFirstByte   = 3 * time.Minute
	DefaultIdle        = 2 * time.Minute
	DefaultAttempts    = 4
	DefaultDelay       = 500 * time.Millisecond
	DefaultMaxDelay    = time.Minute
	DefaultFailures    = 5
	DefaultPause       = 30 * time.Second
	DefaultAnswerBytes = 8 << 20
)

// Protocol is the API of a model: how a call is written and an answer read.
type Protocol interface {
	// Encode writes a call. Its error is that of a call which cannot be written.
	Encode(req model.Request) ([]byte, error)
	// Answer reads one answer to req, of at most as many bytes as room has.
	Answer(req model.Request, room *Room) Answer
}

// Answer reads one answer, from a stream of events or from one body.
type Answer interface {
	// Event takes an event of a stream. What it adds to the text of the answer
	// comes back, and whether the stream is over. Data is the caller's.
	Event(name string, data []byte) (text string, over bool, err error)
	// Whole takes the answer of an endpoint that does not stream.
	Whole(body []byte) (text string, err error)
	// Result is the answer, once it is whole; else an error, ErrCut if more of it
	// must have been meant to come.
	Result() (model.Result, error)
}

// Client calls one endpoint. It is safe for concurrent use.
type Client struct {
	endpoint Endpoint
	http     *http.Client
	breaker  breaker
	room     chan struct{} // as many as there are calls, nil for any number
	attempts atomic.Int64
}

// New makes a client. An endpoint that no call can reach is an error.
func New(e Endpoint) (*Client, error) {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("provider %q: its URL cannot be read", e.Name) // the error has it, and what is in it
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("provider %q: want a URL that begins with http:// or https://", e.Name)
	case u.User != nil:
		return nil, fmt.Errorf("provider %q: its URL has a user or password; a key comes from the environment or the secret store", e.Name)
	}
	setDefault(&e.Connect, DefaultConnect)
	setDefault(&e.FirstByte, DefaultFirstByte)
	setDefault(&e.Idle, DefaultIdle)
	setDefault(&e.Attempts, DefaultAttempts)
	setDefault(&e.Delay, DefaultDelay)
	setDefault(&e.MaxDelay, DefaultMaxDelay)
	setDefault(&e.Failures, DefaultFailures)
	setDefault(&e.Pause, DefaultPause)
	setDefault(&e.AnswerBytes, DefaultAnswerBytes)
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{endpoint: e, breaker: breaker{most: e.Failures, pause: e.Pause}}
	if e.Concurrent > 0 {
		c.room = make(chan struct{}, e.Concurrent)
	}
	if e.Transport == nil {
		e.Transport = network(e.Connect)
	}
	c.http = &http.Client{
		Transport: e.Transport,
		// A redirect would take the key elsewhere: net/http keeps back the header
		// Authorization, and knows no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func setDefault[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}

// network is the transport to the world.
func network(connect time.Duration) http.RoundTripper {
	dialer := &net.Dialer{Timeout: connect, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    connect,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Attempts counts the requests that left, those that failed too.
func (c *Client) Attempts() int64 { return c.attempts.Load() }

// URL is where calls go.
func (c *Client) URL() string { return c.endpoint.URL }

// CheckKey reports why the key cannot be had, nil if it can.
func (c *Client) CheckKey() error {
	_, err := c.endpoint.Key.get()
	return err
}

// Complete makes a call in the words of p: see model.Provider.
func (c *Client) Complete(ctx context.Context, p Protocol, req model.Request, deltas func(model.Delta)) (model.Result, error) {
	result, err := c.complete(ctx, p, req, deltas)
	if err == nil {
		return result, nil
	}
	if ctx.Err() != nil {
		return model.Result{}, fmt.Errorf("provider %q: %w", c.endpoint.Name, ctx.Err())
	}
	var stopped *stoppedError
	if errors.As(err, &stopped) {
		return model.Result{}, fmt.Errorf("provider %q: %w", c.endpoint.Name, stopped.error)
	}
	var failure *Failure
	if !errors.As(err, &failure) {
		failure = &Failure{Code: abi.CodeInternal, Text: err.Error()}
	}
	return model.Result{}, &model.Error{Code: failure.Code, Message: fmt.Sprintf("provider %q: %s", c.endpoint.Name, failure.Text), Free: failure.free}
}

// stoppedError is the error of a caller that lets no further attempt be made.
type stoppedError struct{ error }

func (c *Client) complete(ctx context.Context, p Protocol, req model.Request, deltas func(model.Delta)) (model.Result, error) {
	if err := ctx.Err(); err != nil {
		return model.Result{}, err
	}
	body, err := p.Encode(req)
	if err != nil {
		return model.Result{}, err
	}
	key, err := c.endpoint.Key.get()
	if err != nil {
		return model.Result{}, &Failure{Code: abi.CodeFailedPrecondition, Text: err.Error(), free: true}
	}
	leave, err := c.enter(ctx)
	if err != nil {
		return model.Result{}, err
	}
	defer leave()
	out := &pieces{deltas: deltas, attempt: req.Attempt, key: key}
	for tries := 1; ; tries++ {
		result, failure := c.try(ctx, p, req, body, key, out)
		if failure == nil {
			out.done()
			return result, nil
		}
		if err := ctx.Err(); err != nil {
			return model.Result{}, err
		}
		failure.Text = scrub(failure.Text, key)
		if !failure.Retry || tries >= c.endpoint.Attempts {
			return model.Result{}, failure.after(tries)
		}
		if err := c.wait(ctx, tries, failure); err != nil {
			return model.Result{}, err
		}
		if !failure.free && req.Again != nil {
			if err := req.Again(); err != nil {
				return model.Result{}, &stoppedError{err}
			}
		}
		out.restart()
	}
}

// enter waits until the provider may be given one more call.
func (c *Client) enter(ctx context.Context) (leave func(), err error) {
	if c.room == nil {
		return func() {}, nil
	}
	select {
	case c.room <- struct{}{}:
		return func() { <-c.room }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// try makes one attempt, if the circuit is closed, and tells the log and the
// breaker how it went.
func (c *Client) try(ctx context.Context, p Protocol, req model.Request, body []byte, key string, out *pieces) (model.Result, *Failure) {
	if left, ok := c.breaker.enter(); !ok {
		return model.Result{}, &Failure{
			Code: abi.CodeUnavailable,
			Text: fmt.Sprintf("it has failed %d times in a row; it is tried again in %s", c.endpoint.Failures, left.Round(time.Millisecond)),
			free: true,
		}
	}
	begun := time.Now()
	c.attempts.Add(1)
	result, failure := c.attempt(ctx, p, req, body, key, out)
	c.breaker.leave(ctx.Err() != nil, failure != nil && failure.down)
	level, text := slog.LevelInfo, "model call answered"
	facts := []slog.Attr{
		slog.String("provider", c.endpoint.Name), slog.String("model", req.Call.Model), slog.String("session", string(req.Session)),
		slog.Int("attempt", out.attempt), slog.Duration("took", time.Since(begun)),
	}
	switch {
	case failure == nil:
	case ctx.Err() != nil:
		text = "model call given up"
	default:
		level, text = slog.LevelWarn, "model call failed"
		facts = append(facts, slog.Int("status", failure.status), slog.Int("code", int(failure.Code)), slog.Bool("retry", failure.Retry && out.attempt-req.Attempt+1 < c.endpoint.Attempts))
	}
	c.endpoint.Log.LogAttrs(ctx, level, text, facts...)
	return result, failure
}

// wait waits before the next attempt: as long as the provider has asked for, else
// longer each time, with chance, so that many callers do not come back at once.
// There is no waiting for what can only come too late.
func (c *Client) wait(ctx context.Context, tries int, failure *Failure) error {
	delay := c.endpoint.Delay
	for i := 1; i < tries && delay < c.endpoint.MaxDelay; i++ {
		delay *= 2
	}
	delay = min(delay, c.endpoint.MaxDelay)
	delay -= rand.N(delay/2 + 1)
	if asked := failure.wait; asked > 0 {
		if asked > c.endpoint.MaxDelay {
			failure.Text += fmt.Sprintf("; it wants to be asked again in %s, at most %s is waited", asked.Round(time.Second), c.endpoint.MaxDelay)
			return failure.after(tries)
		}
		delay = asked
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= delay {
		return failure.after(tries)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pieces hands the text of an answer on as it arrives.
type pieces struct {
	deltas  func(model.Delta)
	attempt int
	shown   bool // something of this attempt, or of one before that is not void yet
	reset   bool // the next piece voids what was shown

	key  string
	last string // the end of what was shown, in which the key may have begun
}

// text hands on a piece, unless the key is whole with it (S4).
func (p *pieces) text(text string) error {
	if p.key != "" {
		p.last += text
		if strings.Contains(p.last, p.key) {
			return errEchoed
		}
		p.last = p.last[max(0, len(p.last)-len(p.key)):]
	}
	if text != "" && p.deltas != nil {
		p.send(model.Delta{Text: text})
	}
	return nil
}

// restart begins the next attempt.
func (p *pieces) restart() {
	p.attempt++
	p.reset, p.last = p.shown, ""
}

func (p *pieces) done() {
	if p.deltas != nil {
		p.send(model.Delta{Done: true})
	}
}

func (p *pieces) send(d model.Delta) {
	d.Attempt, d.Reset = p.attempt, p.reset
	p.shown, p.reset = true, false
	p.deltas(d)
}

// scrub takes a key out of a text that others have a part in (S4), and what there
// is of it where the text was cut.
func scrub(text, key string) string {
	if key == "" {
		return text
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, key[:minKey])
		b.WriteString(before)
		if !found {
			return b.String()
		}
		rest := key[minKey:]
		for rest != "" && after != "" && rest[0] == after[0] {
			rest, after = rest[1:], after[1:]
		}
		b.WriteString("[key]")
		text = after
	}
}

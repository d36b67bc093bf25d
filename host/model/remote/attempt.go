package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

const (
	// maxStream bounds what is read of an answer beside AnswerBytes: a stream has
	// some hundred bytes around each word.
	maxStream = 128 << 20
	// maxRefusal bounds what is read of an error.
	maxRefusal = 64 << 10
)

// Room is how much of an answer is still taken.
type Room struct{ left int }

// NewRoom has room for n bytes.
func NewRoom(n int) *Room { return &Room{n} }

// Take takes room for n bytes.
func (r *Room) Take(n int) error {
	if r.left -= n; r.left < 0 {
		return fmt.Errorf("%w: its text and tool calls are more than is taken", errTooLarge)
	}
	return nil
}

// attempt makes one request and reads the answer.
func (c *Client) attempt(ctx context.Context, p Protocol, req model.Request, body []byte, key string, out *pieces) (model.Result, *Failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clock := time.AfterFunc(c.endpoint.FirstByte, func() { cancel(errFirstByte) })
	defer func() { clock.Stop() }()
	var conn connection
	r, err := c.request(conn.watched(ctx), body, key)
	if err != nil {
		return model.Result{}, &Failure{Code: abi.CodeInternal, Text: err.Error(), free: true}
	}
	resp, err := c.http.Do(r)
	if err != nil {
		failure := c.broken(ctx, err)
		failure.free = conn.missing()
		return model.Result{}, failure
	}
	defer resp.Body.Close()
	watched := &watchedBody{Reader: resp.Body, left: maxStream, came: func() {
		if clock.Stop() {
			clock = time.AfterFunc(c.endpoint.Idle, func() { cancel(errIdle) })
		}
	}}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(watched, maxRefusal)) // what there is will do
		return model.Result{}, refused(resp, bytes.TrimSpace(text))
	}
	result, err := c.read(ctx, bufio.NewReader(watched), p.Answer(req, NewRoom(c.endpoint.AnswerBytes)), out)
	if err == nil && holdsKey(result, key) {
		err = errEchoed
	}
	if err != nil {
		return model.Result{}, c.broken(ctx, err)
	}
	return result, nil
}

// connection tells whether there was one, so that a request can have left.
type connection struct{ wanted, made atomic.Bool }

func (c *connection) watched(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.wanted.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.made.Store(true) },
	})
}

// missing reports that none was made, and not of a transport that says nothing.
func (c *connection) missing() bool { return c.wanted.Load() && !c.made.Load() }

func (c *Client) request(ctx context.Context, body []byte, key string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the request cannot be made") // the error has the URL
	}
	for name, value := range c.endpoint.Header {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream, application/json")
	r.Header.Set("User-Agent", "agentcell")
	if key != "" {
		if c.endpoint.Scheme != "" {
			key = c.endpoint.Scheme + " " + key
		}
		r.Header.Set(c.endpoint.Auth, key)
	}
	return r, nil
}

// read reads an answer. What it is shows in its first character: endpoints exist
// that stream under any content type, or do not stream although asked to.
func (c *Client) read(ctx context.Context, body *bufio.Reader, a Answer, out *pieces) (model.Result, error) {
	first, err := firstByte(body)
	switch {
	case errors.Is(err, io.EOF):
		return model.Result{}, fmt.Errorf("%w: it is empty", ErrCut)
	case err != nil:
		return model.Result{}, err
	case first == '<':
		page, err := body.Peek(min(body.Size(), 4<<10))
		if err != nil && len(page) == 0 {
			return model.Result{}, err
		}
		return model.Result{}, Garbage("it answered %s where a completion is wanted; look at its base URL", pageText(string(page)))
	case first == '{' || first == '[':
		return c.whole(ctx, body, a, out)
	}
	events := NewEvents(body, c.endpoint.AnswerBytes+maxRefusal)
	seen := false
	for over := false; !over; {
		name, data, err := events.Next()
		if seen && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
			break // the answer knows whether that was all
		}
		if errors.Is(err, io.EOF) {
			return model.Result{}, Garbage("it answered neither JSON nor a stream of events")
		}
		if err != nil {
			return model.Result{}, err
		}
		seen = true
		var text string
		if text, over, err = a.Event(name, data); err != nil {
			return model.Result{}, err
		}
		if err := ctx.Err(); err != nil {
			return model.Result{}, err
		}
		if err := out.text(text); err != nil {
			return model.Result{}, err
		}
		if err := ctx.Err(); err != nil {
			return model.Result{}, err
		}
	}
	return a.Result()
}

// whole reads an answer that comes in one piece.
func (c *Client) whole(ctx context.Context, body io.Reader, a Answer, out *pieces) (model.Result, error) {
	most := c.endpoint.AnswerBytes + maxRefusal
	text, err := io.ReadAll(io.LimitReader(body, int64(most)+1))
	if err != nil {
		return model.Result{}, err
	}
	if len(text) > most {
		return model.Result{}, fmt.Errorf("%w: it has more than %d bytes", errTooLarge, most)
	}
	piece, err := a.Whole(text)
	if err != nil {
		return model.Result{}, err
	}
	result, err := a.Result()
	if err != nil {
		return model.Result{}, err
	}
	if err := out.text(piece); err != nil {
		return model.Result{}, err
	}
	return result, ctx.Err()
}

// firstByte skips white space, and a byte order mark, and looks at what follows.
func firstByte(r *bufio.Reader) (byte, error) {
	const mark = "\xef\xbb\xbf"
	if b, err := r.Peek(len(mark)); err == nil && string(b) == mark {
		if _, err := r.Discard(len(mark)); err != nil {
			return 0, err
		}
	}
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return b, r.UnreadByte()
		}
	}
}

// watchedBody is a body that tells when something came, and that ends with an
// error where it goes on too long.
type watchedBody struct {
	io.Reader
	left int
	came func()
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if n > 0 {
		b.came()
	}
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("%w: it has more than %d bytes", errTooLarge, maxStream)
	}
	return n, err
}

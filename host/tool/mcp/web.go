package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// web is a server over streamable HTTP.
type web struct {
	headers map[string]string
	screen  *screen
	next    http.RoundTripper
	wait    time.Duration // for the head of a stream that the server may have or not
	sdk.StreamableClientTransport

	ctx  context.Context // of all requests
	stop context.CancelFunc
}

var _ link = (*web)(nil)

func newWeb(s *server) (*web, error) {
	headers, secrets, err := values(s.conf.Headers, s.o)
	if err != nil {
		return nil, err
	}
	w := &web{headers: headers, screen: newScreen(s.conf.Limits.ResultBytes, secrets), next: s.o.Transport, wait: time.Duration(s.conf.Timeouts.Start)}
	if w.next == nil {
		w.next = http.DefaultTransport
	}
	w.ctx, w.stop = context.WithCancel(context.Background()) // it outlives the server's, to take leave
	w.StreamableClientTransport = sdk.StreamableClientTransport{
		Endpoint: s.conf.URL, MaxEventSize: -1, // lines are bounded here
		HTTPClient: &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it redirects, and headers are for the url of the configuration alone")
		}},
	}
	return w, nil
}

// leave implements link: closing the session tells the server, which has some time to
// take note.
func (w *web) leave() { time.AfterFunc(closeGrace, w.stop) }

func (w *web) cut() { w.stop() }

func (w *web) screened() *screen { return w.screen }

// RoundTrip implements http.RoundTripper: it adds the headers of the configuration, and
// has what the server answers pass the screen.
func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(w.ctx, cancel)
	release := func() { stop(); cancel() }
	r = r.Clone(ctx)
	for name, value := range w.headers {
		r.Header.Set(name, value)
	}
	if r.Method == http.MethodGet {
		late := time.AfterFunc(w.wait, cancel)
		defer late.Stop()
	}
	response, err := w.next.RoundTrip(r)
	if err != nil {
		release()
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	body := &closing{response.Body, response.Body, release}
	switch {
	case response.StatusCode < 300 && kind == "text/event-stream":
		body.Reader = &events{in: bufio.NewReaderSize(response.Body, 64<<10), screen: w.screen}
	default:
		content, err := w.read(response)
		_ = body.Close()
		if err != nil {
			return nil, err
		}
		body = &closing{bytes.NewReader(content), io.NopCloser(nil), func() {}}
		response.ContentLength = int64(len(content))
	}
	response.Body = body
	return response, nil
}

// read reads a body that is one message, or says why there is none.
func (w *web) read(response *http.Response) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(response.Body, int64(w.screen.limit)+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > w.screen.limit:
		return nil, w.screen.fail(w.screen.tooLong())
	case response.StatusCode == http.StatusOK && len(bytes.TrimSpace(b)) > 0 && response.Request.Method == http.MethodPost:
		message, err := w.screen.message(b)
		if err != nil {
			return nil, w.screen.fail(err)
		}
		return message, nil
	}
	return w.screen.redact(b), nil
}

// closing is a body with what has to be released with it.
type closing struct {
	io.Reader
	body    io.Closer
	release func()
}

func (c *closing) Close() error {
	defer c.release()
	return c.body.Close()
}

// events reads server-sent events, and hands on their fields with the data of each
// having passed the screen, on one line.
type events struct {
	in     *bufio.Reader
	screen *screen
	data   []byte // of the event so far
	rest   []byte
	err    error
}

func (e *events) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.rest, e.err = e.next()
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// next is the next line to hand on, or nothing.
func (e *events) next() ([]byte, error) {
	screen := e.screen
	line, err := readLine(e.in, screen.limit)
	switch {
	case errors.Is(err, errLong):
		return nil, screen.fail(screen.tooLong())
	case err != nil:
		return nil, err // an event that has no end counts for nothing
	}
	line = bytes.TrimRight(line, "\r\n")
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		e.data = append(append(e.data, bytes.TrimPrefix(data, []byte(" "))...), '\n')
		if len(e.data) > screen.limit {
			return nil, screen.fail(screen.tooLong())
		}
		return nil, nil
	}
	if len(line) > 0 || len(e.data) == 0 {
		return append(line, '\n'), nil
	}
	data := bytes.TrimSpace(e.data)
	e.data = nil
	if len(data) == 0 {
		return []byte("\n"), nil
	}
	message, err := screen.message(data)
	if err != nil {
		return nil, screen.fail(err)
	}
	if message == nil {
		return []byte("\n"), nil
	}
	return fmt.Appendf(nil, "data: %s\n\n", bytes.ReplaceAll(message, []byte("\n"), nil)), nil
}

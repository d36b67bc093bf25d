package modeltest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Reply is what a Server does with one request.
type Reply func(w http.ResponseWriter, r *http.Request)

// Server is an HTTP server in memory: it has no socket, so that it works in a
// bubble of testing/synctest too, where nothing takes time. It gives its replies in
// order; to a request beyond them it answers 418.
type Server struct {
	http.RoundTripper

	mu       sync.Mutex
	replies  []Reply
	requests []Request
}

// Request is a request that a Server got.
type Request struct {
	URL    string
	Header http.Header
	Body   string
}

// Serve starts a server, which ends with the test. In a bubble, Close ends it
// before.
func Serve(t testing.TB, replies ...Reply) *Server {
	s := &Server{replies: replies}
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(s.serve)}
	var done sync.WaitGroup
	done.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server of the test ended: %v", err)
		}
	})
	transport := &http.Transport{DialContext: l.dial}
	s.RoundTripper = transport
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		done.Wait()
	})
	return s
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	s.mu.Lock()
	n := len(s.requests)
	s.requests = append(s.requests, Request{URL: r.URL.String(), Header: r.Header, Body: string(body)})
	s.mu.Unlock()
	if n >= len(s.replies) {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	s.replies[n](w, r)
}

// Requests are those that came so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Answer replies with a status, headers as "Name: value", and a body.
func Answer(status int, body string, headers ...string) Reply {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Always gives one reply n times.
func Always(n int, r Reply) []Reply {
	replies := make([]Reply, n)
	for i := range replies {
		replies[i] = r
	}
	return replies
}

// Cut sends a part of a body and breaks the connection.
func Cut(part string) Reply {
	return func(w http.ResponseWriter, _ *http.Request) {
		send(w, part)
		panic(http.ErrAbortHandler)
	}
}

// Stall sends a part of a body, if it is not empty, and then nothing.
func Stall(part string) Reply {
	return func(w http.ResponseWriter, r *http.Request) {
		if part != "" {
			send(w, part)
		}
		<-r.Context().Done()
	}
}

// Flood sends head, and then piece again and again until total bytes were sent.
func Flood(head, piece string, total int) Reply {
	return func(w http.ResponseWriter, _ *http.Request) {
		send(w, head)
		chunk := strings.Repeat(piece, max(1, 64<<10/len(piece)))
		for sent := 0; sent < total; sent += len(chunk) {
			if _, err := io.WriteString(w, chunk); err != nil {
				return // the client has had enough
			}
		}
	}
}

// Echo replies with what it finds in a header of the request, put into the answer
// that make gives.
func Echo(header string, answer func(value string) string) Reply {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, answer(r.Header.Get(header)))
	}
}

func send(w http.ResponseWriter, part string) {
	_, _ = io.WriteString(w, part)
	_ = http.NewResponseController(w).Flush()
}

// pipes is a listener whose connections are pipes in memory.
type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

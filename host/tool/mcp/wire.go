package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// What a server says beside its answers may not come to more than maxChatter in
// chatterTime, each message counted with noticeCost, or requestCost if it wants an
// answer: it waits in memory until it is dealt with.
const (
	maxChatter  = 16 << 20
	chatterTime = time.Minute
	noticeCost  = 1 << 10
	requestCost = 32 << 10
)

// screen is what every message of a server passes before the SDK sees it. It bounds
// messages, takes the secrets out that the server was given (S4), and keeps what the
// SDK would read into maps and doubles as it is written (I2).
type screen struct {
	limit   int      // of a message
	secrets [][]byte // and what stands in their place
	marks   [][]byte
	longest int // of the secrets

	mu      sync.Mutex
	chatter int
	since   time.Time
	failure error // the first one

	failed  chan struct{} // closed with the failure
	changed atomic.Bool   // the server has said that it offers other tools by now
}

func newScreen(limit int, secrets map[string]string) *screen {
	s := &screen{limit: limit, failed: make(chan struct{})}
	for name, secret := range secrets {
		escaped, err := json.Marshal(secret)
		if secret == "" || err != nil {
			continue
		}
		mark := []byte("[" + name + "]")
		s.secrets = append(s.secrets, []byte(secret), escaped[1:len(escaped)-1])
		s.marks = append(s.marks, mark, mark)
		s.longest = max(s.longest, len(escaped))
	}
	return s
}

// fail keeps the first error.
func (s *screen) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
		close(s.failed)
	}
	return s.failure
}

func (s *screen) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// redact takes the secrets out.
func (s *screen) redact(b []byte) []byte {
	for i, secret := range s.secrets {
		b = bytes.ReplaceAll(b, secret, s.marks[i])
	}
	return b
}

// redactStrings is redact for JSON, whose strings can be written in many ways: a server
// may escape what needs it not, such as a slash.
func (s *screen) redactStrings(b []byte) []byte {
	if len(s.secrets) == 0 || bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		begin := bytes.IndexByte(b, '"')
		if begin < 0 {
			break
		}
		end := begin + 1
		for ; b[end] != '"'; end++ {
			if b[end] == '\\' {
				end++
			}
		}
		out = append(append(out, b[:begin]...), s.redactString(b[begin:end+1])...)
		b = b[end+1:]
	}
	return append(out, b...)
}

func (s *screen) redactString(literal []byte) []byte {
	var text string
	if bytes.IndexByte(literal, '\\') < 0 || json.Unmarshal(literal, &text) != nil {
		return literal
	}
	redacted := string(s.redact([]byte(text)))
	if redacted == text {
		return literal
	}
	return quote([]byte(redacted))
}

func (s *screen) tooLong() error {
	return fmt.Errorf("it sent a message of more than %d bytes", s.limit)
}

// message is a message as the SDK may see it, or nothing if it need not.
func (s *screen) message(b []byte) ([]byte, error) {
	b = s.redact(bytes.TrimSpace(b))
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, fmt.Errorf("it sent what is no message: %.60q", b)
	}
	if escaped := s.redactStrings(b); !bytes.Equal(escaped, b) {
		return s.message(escaped)
	}
	if method, ok := fields["method"]; ok {
		cost := noticeCost
		if _, ok := fields["id"]; ok {
			cost = requestCost
		}
		if err := s.count(len(b) + cost); err != nil {
			return nil, err
		}
		var name string
		_ = json.Unmarshal(method, &name) // what is no text has no name
		switch name {
		case "notifications/tools/list_changed":
			s.changed.Store(true)
			return nil, nil
		case "notifications/progress", "notifications/message":
			return nil, nil
		}
		return b, nil
	}
	kept, err := verbatim(fields["result"])
	if err != nil || kept == nil {
		return b, err
	}
	fields["result"] = kept
	return json.Marshal(fields)
}

// count bounds what is no answer.
func (s *screen) count(cost int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.since) > chatterTime {
		s.since, s.chatter = now, 0
	}
	if s.chatter += cost; s.chatter > maxChatter {
		return errors.New("it sent too many messages that are no answers")
	}
	return nil
}

// verbatim puts a string with the text of a value where the SDK has no type for
// the value: structured content, and schemas. It is nil where there is none.
func verbatim(result json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(result, &fields) != nil {
		return nil, nil // the SDK refuses it
	}
	value, structured := fields["structuredContent"]
	_, listing := fields["tools"]
	switch {
	case structured:
		fields["structuredContent"] = quote(value)
	case listing:
		var tools []map[string]json.RawMessage
		if json.Unmarshal(fields["tools"], &tools) != nil {
			return nil, nil
		}
		for _, t := range tools {
			delete(t, "outputSchema")
			if schema, ok := t["inputSchema"]; ok {
				t["inputSchema"] = quote(schema)
			}
		}
		b, err := json.Marshal(tools)
		if err != nil {
			return nil, err
		}
		fields["tools"] = b
	default:
		return nil, nil
	}
	return json.Marshal(fields)
}

func quote(value json.RawMessage) json.RawMessage {
	b, err := json.Marshal(string(value))
	if err != nil {
		return value
	}
	return b
}

// written is the object that verbatim has kept, or nothing.
func written(value any) (abi.Struct, error) {
	if value == nil {
		return nil, nil
	}
	text, ok := value.(string)
	if !ok || text == "" || text == "null" {
		return nil, nil
	}
	if text[0] != '{' {
		return nil, fmt.Errorf("%.40s is no object", text)
	}
	if _, err := abi.Canonical([]byte(text)); err != nil {
		return nil, err
	}
	return abi.Struct(text), nil
}

// lines reads messages that stand on lines, and hands on those that pass the screen.
type lines struct {
	in     *bufio.Reader
	screen *screen
	rest   []byte
	err    error
	end    func() // is called at the end
}

func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err == nil {
			l.rest, l.err = l.next()
		}
		if l.err != nil {
			l.end()
			return 0, l.err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// Close implements io.Closer: what is read from is not l's to close.
func (*lines) Close() error { return nil }

func (l *lines) next() ([]byte, error) {
	line, err := readLine(l.in, l.screen.limit)
	switch {
	case errors.Is(err, errLong):
		return nil, l.screen.fail(l.screen.tooLong())
	case err != nil:
		return nil, io.EOF // a line that has no end counts for nothing
	case len(bytes.TrimSpace(line)) == 0:
		return nil, nil
	}
	b, err := l.screen.message(line)
	if err != nil {
		return nil, l.screen.fail(err)
	}
	if b == nil {
		return nil, nil
	}
	return append(b, '\n'), nil
}

var errLong = errors.New("the line is too long")

// readLine reads a line of at most limit bytes, with its end.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, errLong
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

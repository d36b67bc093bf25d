package wasm

import (
	"bytes"
	"strings"

	"github.com/agentcell/agentcell/sdk/abi"
)

// maxLog is how many bytes a turn may log. What is beyond is dropped, and the
// guest is not told.
const maxLog = 64 << 10

// logger sends what a guest logs to the handler: each log request, and each
// line that it writes to its standard output or error. Nothing of it can be
// noticed by the guest, nor stays after the turn.
type logger struct {
	sent  int
	lines [2]strings.Builder // of stdout and stderr, not ended yet
}

// write logs text. An error is the handler's.
func (l *logger) write(c *call, text string) error {
	text = clip(text, maxLog-l.sent)
	if c.phase != inTurn || text == "" {
		return nil
	}
	l.sent += len(text)
	_, err := c.callHandler(abi.OpLog, []byte(text))
	return err
}

// print logs the lines that text ends, and keeps the rest for later.
func (l *logger) print(c *call, stream int, text []byte) error {
	line := &l.lines[stream]
	for len(text) > 0 && l.sent < maxLog {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			line.Write(text[:min(len(text), maxLog-line.Len())])
			return nil
		}
		line.Write(text[:min(end, maxLog-line.Len())])
		text = text[end+1:]
		if err := l.write(c, l.take(stream)); err != nil {
			return err
		}
	}
	return nil
}

// flush logs the lines that have no end.
func (l *logger) flush(c *call) error {
	for stream := range l.lines {
		if err := l.write(c, l.take(stream)); err != nil {
			return err
		}
	}
	return nil
}

// take empties the line of a stream.
func (l *logger) take(stream int) string {
	s := l.lines[stream].String()
	l.lines[stream].Reset()
	return s
}

package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// errTooLarge reports more than is read of an answer.
var errTooLarge = errors.New("the answer is too large")

// Events reads server-sent events, as the HTML standard has them, but for lines
// that end with a lone carriage return, which no provider writes.
type Events struct {
	r     *bufio.Reader
	limit int
	line  []byte
	data  []byte
}

// NewEvents reads events from r, each of at most limit bytes.
func NewEvents(r *bufio.Reader, limit int) *Events { return &Events{r: r, limit: limit} }

// Next gives the next event that has data. The data are valid until the next
// call. At the end it returns io.EOF; an event that has not ended there counts if
// its last line has.
func (e *Events) Next() (name string, data []byte, err error) {
	e.data = e.data[:0]
	has := false
	for {
		line, err := e.readLine()
		if errors.Is(err, io.EOF) && has {
			return name, bytes.TrimSuffix(e.data, []byte("\n")), nil
		}
		if err != nil {
			return "", nil, err
		}
		if len(line) == 0 {
			if has {
				return name, bytes.TrimSuffix(e.data, []byte("\n")), nil
			}
			name = ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if len(e.data)+len(value) >= e.limit {
				return "", nil, e.tooLarge()
			}
			has = true
			e.data = append(append(e.data, value...), '\n')
		}
	}
}

// readLine reads up to a line break, which is left out. A line that has none is
// the torn end of a stream and is dropped.
func (e *Events) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		piece, err := e.r.ReadSlice('\n')
		if len(e.line)+len(piece) > e.limit {
			return nil, e.tooLarge()
		}
		e.line = append(e.line, piece...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(bytes.TrimSuffix(e.line, []byte("\n")), []byte("\r")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func (e *Events) tooLarge() error {
	return fmt.Errorf("%w: one event has more than %d bytes", errTooLarge, e.limit)
}

package remote

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

type seen struct{ Name, Data string }

// events reads all events of a stream.
func events(r io.Reader, limit int) (all []seen, err error) {
	for e := NewEvents(bufio.NewReaderSize(r, 16), limit); ; {
		name, data, err := e.Next()
		if err != nil {
			return all, err
		}
		all = append(all, seen{name, string(data)})
	}
}

func TestEvents(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, tt := range []struct {
		name, stream string
		want         []seen
		err          error
	}{
		{name: "one", stream: "event: a\ndata: 1\n\n", want: []seen{{"a", "1"}}},
		{name: "lines with CR", stream: "event: a\r\ndata: 1\r\n\r\n", want: []seen{{"a", "1"}}},
		{name: "several lines of data", stream: "data: 1\ndata:2\ndata:  3\n\n", want: []seen{{"", "1\n2\n 3"}}},
		{name: "comments and other fields", stream: ": hi\nid: 7\nretry: 1\ndata: 1\n: ho\n\n", want: []seen{{"", "1"}}},
		{name: "a name without data", stream: "event: a\n\ndata: 1\n\n", want: []seen{{"", "1"}}},
		{name: "empty data", stream: "data\n\ndata:\n\n", want: []seen{{"", ""}, {"", ""}}},
		{name: "no line break at the end", stream: "data: 1\n\ndata: 2", want: []seen{{"", "1"}}},
		{name: "no empty line at the end", stream: "data: 1\n\ndata: 2\n", want: []seen{{"", "1"}, {"", "2"}}},
		{name: "longer than a buffer", stream: "data: " + long + "\n\n", want: []seen{{"", long}}},
		{name: "a line that is too long", stream: "data: 1\n\ndata: " + long + long + "\n\n", want: []seen{{"", "1"}}, err: errTooLarge},
		{name: "data that are too long", stream: strings.Repeat("data: "+long[:50]+"\n", 4) + "\n", err: errTooLarge},
		{name: "nothing", stream: "\n\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.err == nil {
				tt.err = io.EOF
			}
			got, err := events(strings.NewReader(tt.stream), 150)
			if !errors.Is(err, tt.err) {
				t.Errorf("the error is %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever comes, and in whatever pieces: the same events, none too large.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: a\r\ndata: 1\r\n\r\n: c\ndata\ndata: 2\n\nid"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		const limit = 64
		want, wantErr := events(bytes.NewReader(stream), limit)
		got, err := events(iotest.OneByteReader(bytes.NewReader(stream)), limit)
		if diff := cmp.Diff(want, got); diff != "" || err.Error() != wantErr.Error() {
			t.Fatalf("byte by byte: %v, want %v\n%s", err, wantErr, diff)
		}
		for _, e := range want {
			if len(e.Data) > limit {
				t.Fatalf("an event has %d bytes", len(e.Data))
			}
		}
	})
}

package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentcell/agentcell/sdk/abi"
)

// canary is a secret that JSON can be written with in more than one way.
const canary = "sk/canary-\u00fc-0123456789"

// through reads all that a server sends, over stdio or as events.
func through(in io.Reader, web bool) (out []byte, s *screen, err error) {
	const limit = 4 << 10
	s = newScreen(limit, map[string]string{"secret:KEY": canary})
	var r io.Reader = &lines{in: bufio.NewReaderSize(in, 16), screen: s, end: func() {}}
	if web {
		r = &events{in: bufio.NewReaderSize(in, 16), screen: s}
	}
	out, err = io.ReadAll(r)
	return out, s, err
}

// FuzzScreen: whatever a server sends, in whatever pieces it comes, the SDK sees messages
// that are JSON, of bounded size, and without the secret (S4).
func FuzzScreen(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"sk\/canary-\u00fc-0123456789"}],"structuredContent":{"n":12345678901234567890}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[null,{"name":"a","inputSchema":{"a":"` + canary + `"},"outputSchema":[]}]}}`,
		`{"jsonrpc":"2.0","method":"notifications\/tools\/list_changed"}`,
		`{"id":"q","method":"sampling/createMessage","params":{}}`, `{"id":1,"error":{"code":-1,"message":"sk/canary"}}`, `{"method":1}`, "[]", "{", "\r",
	} {
		f.Add([]byte(seed+"\n"), false)
		f.Add([]byte("event: message\ndata: "+seed+"\n\n"), true)
		f.Add([]byte("data:"+strings.ReplaceAll(seed, ",", ",\ndata: ")+"\r\n\r\n: x\nid: 7\n\n"), true)
	}
	f.Fuzz(func(t *testing.T, stream []byte, web bool) {
		out, _, err := through(bytes.NewReader(stream), web)
		again, _, againErr := through(iotest.OneByteReader(bytes.NewReader(stream)), web)
		if diff := cmp.Diff(out, again); diff != "" || (err == nil) != (againErr == nil) {
			t.Fatalf("byte by byte: %v, want %v\n%s", againErr, err, diff)
		}
		for line := range bytes.Lines(out) {
			message, isData := bytes.CutPrefix(line, []byte("data:"))
			if web && !isData {
				continue
			}
			if !json.Valid(message) {
				t.Fatalf("no JSON: %q", message)
			}
			if text := unescaped(t, message); strings.Contains(text, canary) {
				t.Fatalf("the secret is in %q", text)
			}
		}
	})
}

// unescaped is JSON as it is read.
func unescaped(t *testing.T, message []byte) string {
	var text strings.Builder
	d := json.NewDecoder(bytes.NewReader(message))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return text.String()
		}
		if s, ok := token.(string); ok {
			text.WriteString(s + "\n")
		}
	}
}

// FuzzResult: whatever a server answers to a call is a result that can be recorded, with
// its structured content as it was written (I2), or an error.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"a"},{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"audio","data":"","mimeType":"x"}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"a","blob":"AA=="}},{"type":"resource_link","uri":"file:///a","name":"a"}],"isError":true}`,
		`{"structuredContent":{"n":12345678901234567890,"f":1.50},"content":[]}`, `{"structuredContent":{"a":1,"a":2}}`, `{"structuredContent":"{}"}`, `{"content":[null]}`, `{}`, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		message := append(append([]byte(`{"jsonrpc":"2.0","id":1,"result":`), answer...), '}')
		screened, err := newScreen(1<<20, nil).message(message)
		if err != nil {
			return
		}
		var m struct{ Result json.RawMessage }
		var decoded sdk.CallToolResult
		if json.Unmarshal(screened, &m) != nil || json.Unmarshal(m.Result, &decoded) != nil {
			return // the SDK refuses it
		}
		r, err := result(&decoded)
		if err != nil {
			return
		}
		b, err := abi.MarshalLossless(&r)
		if err != nil {
			t.Fatalf("it cannot be recorded: %v", err)
		}
		var back abi.ToolResult
		if err := abi.UnmarshalLossless(b, &back); err != nil {
			t.Fatalf("%s is no result: %v", b, err)
		}
		var want struct{ StructuredContent json.RawMessage }
		if err := json.Unmarshal(answer, &want); err == nil && len(r.Output) > 0 && !bytes.Equal(want.StructuredContent, r.Output) {
			t.Fatalf("output %s, want %s", r.Output, want.StructuredContent)
		}
		if r.IsError && r.Error == "" {
			t.Fatal("an error that says nothing")
		}
	})
}

// S4: a secret is found however a server writes it, and an escape that hides none stays.
func TestS4_Escapes(t *testing.T) {
	s := newScreen(1<<20, map[string]string{"secret:KEY": canary})
	for sent, want := range map[string]string{
		`{"id":1,"a":"x sk/canary-ü-0123456789"}`:                           `{"id":1,"a":"x [secret:KEY]"}`,
		`{"id":1,"a":"sk\/canary-\u00fc-0123456789\n","n":1.50}`:            `{"id":1,"a":"[secret:KEY]\n","n":1.50}`,
		`{"id":1,"\u0073k\/canary-\u00FC-\u0030123456789":["\\\"","\/\""]}`: `{"id":1,"[secret:KEY]":["\\\"","\/\""]}`,
		`{"id":1,"a":"\u0073k\/ \ud800"}`:                                   `{"id":1,"a":"\u0073k\/ \ud800"}`,
	} {
		got, err := s.message([]byte(sent))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sent, diff)
		}
	}
	for _, sent := range []string{`{"id":1,"a":"\`, `{"a":"`, `{"`, `"\"`, ``} {
		if _, err := s.message([]byte(sent)); err == nil {
			t.Errorf("%q was taken", sent)
		}
	}
	if _, _, err := through(strings.NewReader(`{"method":"notifications\/tools\/list_changed"}`+"\n"), false); err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if _, s, _ := through(strings.NewReader(`{"method":"notifications\/tools\/list_changed"}`+"\n"), false); !s.changed.Load() {
		t.Error("a change of the list is not noticed when its slashes are escaped")
	}
}

// S4: no part of a secret is in the log, wherever a line of stderr is cut.
func TestS4_LongLines(t *testing.T) {
	for n := maxLogLine - 40; n < maxLogLine+40; n++ {
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
		w := &stderr{log: log, screen: newScreen(1<<20, map[string]string{"secret:KEY": canary})}
		if _, err := io.WriteString(w, strings.Repeat("x", n)+canary+strings.Repeat("y", 100)+"\n"); err != nil {
			t.Fatal(err)
		}
		if text := said.String(); strings.Contains(text, canary[:3]) || !strings.Contains(text, "xxx") || len(text) > maxLogLine+200 {
			t.Errorf("after %d bytes: %d bytes of log: …%s", n, len(text), text[len(text)-80:])
		}
	}
}

package abi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/sdk/abi"
)

// strict is what encoding/json makes of b, if it knows all members.
func strict[T any](b []byte) (v T, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err = d.Decode(&v); err == nil {
		if _, after := d.Token(); !errors.Is(after, io.EOF) {
			err = errors.New("text after the value")
		}
	}
	return v, err
}

// agrees reports whether b was read quickly, and shows that encoding/json makes the
// same of it.
func agrees[T any](t interface {
	Helper()
	Errorf(format string, args ...any)
}, b []byte,
) bool {
	t.Helper()
	var got T
	quick := abi.ReadPlain(b, &got)
	want, err := strict[T](b)
	switch {
	case quick && err != nil:
		t.Errorf("%q is read; encoding/json: %v", b, err)
	case !quick:
		want = *new(T)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q (-encoding/json +ours):\n%s", b, diff)
	}
	return quick
}

// FuzzPlain shows that what is read quickly is what encoding/json reads.
func FuzzPlain(f *testing.F) {
	for _, seed := range []string{
		`{"inputs":[{"role":"user","parts":[{"text":{"text":"hi\n"}}]}],"cell":{"model":"m","limits":{"depth":20000,"fuel":"-10"}}}`,
		`{"config":"e30=","resume_from_seq":"7","cell":{"tools":[{"name":"a","input_schema":{"type":"object"}}]}}`,
		`{"message":{"parts":[{"tool_call":{"id":"1","args":{"a":[1,"]"]}}},{"data":{"data":{}}}]},"usage":{"input_tokens":"1"}}`,
		`{"role":"a","role":"b","parts":[],"parts":[{}]}`, `{"parts":[{"text":{}},{"text":{},"text":{}}]}`,
		`{"model":"m","params":{"a":"b"},"messages":[{}],"tools":[],"tool_choice":{"mode":"MODE_AUTO"}}`,
		`{}`, `[]`, `null`, `{"Role":"x"}`, `{"role":null}`, `{"x":1}`, ` {}`, `{} `, `{"role":"\u0041"}`, `{"role":"\`, "{\"role\":\"\xff\"}",
		`{"cell":{"limits":{"depth":01}}}`, `{"cell":{"limits":{"fuel":"9223372036854775808"}}}`, `{"cell":{"tools":null}}`, `{"parts":[{"file":{"x":1}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		agrees[abi.Start](t, b)
		agrees[abi.ModelCall](t, b)
		agrees[abi.ModelResult](t, b)
		agrees[abi.Message](t, b)
	})
}

// What crosses the ABI in most turns is read and written quickly, and as by encoding/json.
func TestPlain(t *testing.T) {
	text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,9}`), rapid.StringMatching(`[\n\t"\\/a]{0,5}`), rapid.String())
	count := rapid.Int64Range(-1e18+1, 1e18-1)
	part := rapid.Custom(func(t *rapid.T) (p abi.Part) {
		switch rapid.IntRange(0, 9).Draw(t, "part") {
		case 0:
			p.ToolCall = &abi.ToolCall{ID: text.Draw(t, "id"), Tool: "x", Args: abi.Struct(`{"a":[1e400,"}"]}`)}
		case 1:
			p.ToolResult = &abi.ToolResult{ID: text.Draw(t, "id"), Output: abi.Struct(`{}`)}
		case 2:
			p.Data = &abi.DataPart{Data: abi.Struct(`{"a":null}`)}
		case 3:
			p.Reasoning = &abi.ReasoningPart{OpaqueBytes: []byte("opaque")}
		default:
			p.Text = &abi.TextPart{Text: text.Draw(t, "text")}
		}
		return p
	})
	message := rapid.Custom(func(t *rapid.T) abi.Message {
		return abi.Message{Role: text.Draw(t, "role"), Parts: rapid.SliceOfN(part, 0, 3).Draw(t, "parts")}
	})
	tools := rapid.SampledFrom([][]abi.ToolDefinition{nil, {{Name: "<a>", InputSchema: abi.Struct(`{"type": "object"}`)}}})
	rapid.Check(t, func(t *rapid.T) {
		m, list := message.Draw(t, "message"), rapid.SliceOfN(message, 0, 3).Draw(t, "messages")
		start := abi.Start{
			Config: []byte(text.Draw(t, "config")), Inputs: list, ResumeFromSeq: abi.Seq(count.Draw(t, "seq")),
			Cell: &abi.StartCell{Model: text.Draw(t, "model"), Tools: tools.Draw(t, "tools"), Limits: &abi.Limits{
				Depth: rapid.Int32Range(0, 999_999_999).Draw(t, "depth"), Fuel: abi.Int64(count.Draw(t, "fuel")),
			}},
		}
		call := abi.ModelCall{Model: text.Draw(t, "model"), Messages: list, Tools: tools.Draw(t, "tools")}
		if rapid.Bool().Draw(t, "more") {
			call.Params, call.ToolChoice = map[string]string{"a": "b"}, &abi.ToolChoice{Name: "x"}
		}
		result := abi.ModelResult{Message: m, Usage: &abi.Usage{Model: "m", InputTokens: abi.Int64(count.Draw(t, "tokens"))}, ModelCallID: text.Draw(t, "id")}
		for _, v := range []any{m, call, result, start} {
			want, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			got, err := abi.Marshal(v)
			if err != nil || !bytes.Equal(want, got) {
				t.Fatalf("got %s, %v, want %s", got, err, want)
			}
			quick := true
			switch v.(type) {
			case abi.Message:
				quick = agrees[abi.Message](t, want)
			case abi.ModelCall:
				quick = agrees[abi.ModelCall](t, want)
			case abi.ModelResult:
				quick = agrees[abi.ModelResult](t, want)
			case abi.Start:
				quick = agrees[abi.Start](t, want)
			}
			if !quick && !bytes.Contains(want, []byte(`\u`)) {
				t.Errorf("%s is not read quickly", want)
			}
		}
	})
}

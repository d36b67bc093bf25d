package script_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/modeltest"
	"github.com/agentcell/agentcell/host/model/script"
	"github.com/agentcell/agentcell/sdk/abi"
)

func load(t *testing.T, lines ...string) *script.Provider {
	t.Helper()
	p, err := script.New(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	p := load(
		t,
		`{"text":"plain"}`,
		`{"text":"cut in pieces","chunks":4,"delay_ms":1}`,
		`{"chunks":["given ","as ","","pieces"]}`,
		`{"text":""}`,
		`{"tool_calls":[{"id":"a","tool":"read"}]}`,
	)
	var requests []model.Request
	for i := range p.Len() {
		requests = append(requests, model.Request{Index: int64(i), Attempt: i})
	}
	modeltest.Run(t, p, requests...)
}

func TestComplete(t *testing.T) {
	answer := func(text string) model.Result {
		return model.Result{Message: abi.Text(abi.RoleAssistant, text)}
	}
	for _, tt := range []struct {
		name, line string
		want       model.Result
		deltas     []model.Delta
		wantErr    error
	}{
		{
			name: "text", line: `{"text":"hello"}`,
			want:   answer("hello"),
			deltas: []model.Delta{{Text: "hello", Done: true}},
		},
		{
			name: "a number of pieces", line: `{"text":"hello","chunks":2}`,
			want:   answer("hello"),
			deltas: []model.Delta{{Text: "he"}, {Text: "llo", Done: true}},
		},
		{
			name: "more pieces than characters", line: `{"text":"ab","chunks":99}`,
			want:   answer("ab"),
			deltas: []model.Delta{{Text: "a"}, {Text: "b", Done: true}},
		},
		{
			name: "the pieces", line: `{"chunks":["a","","b"],"text":"ab"}`,
			want:   answer("ab"),
			deltas: []model.Delta{{Text: "a"}, {Text: ""}, {Text: "b", Done: true}},
		},
		{
			name: "usage", line: `{"text":"","usage":{"input_tokens":12,"output_tokens":"3"}}`,
			want: model.Result{
				Message: abi.Text(abi.RoleAssistant, ""),
				Usage:   &abi.Usage{Model: "m", InputTokens: 12, OutputTokens: 3},
			},
			deltas: []model.Delta{{Done: true}},
		},
		{
			name: "tool calls", line: `{"tool_calls":[{"id":"a","tool":"read","args":{"n":12345678901234567890}},{"id":"b","tool":"list"}]}`,
			want: model.Result{Message: abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
				{ToolCall: &abi.ToolCall{ID: "a", Tool: "read", Args: abi.Struct(`{"n":12345678901234567890}`)}},
				{ToolCall: &abi.ToolCall{ID: "b", Tool: "list"}},
			}}},
			deltas: []model.Delta{{Done: true}},
		},
		{
			name: "a text and a tool call", line: `{"text":"Let me see.","chunks":2,"tool_calls":[{"id":"a","tool":"read","args":{}}]}`,
			want: model.Result{Message: abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
				{Text: &abi.TextPart{Text: "Let me see."}},
				{ToolCall: &abi.ToolCall{ID: "a", Tool: "read", Args: abi.Struct(`{}`)}},
			}}},
			deltas: []model.Delta{{Text: "Let m"}, {Text: "e see.", Done: true}},
		},
		{
			name: "error", line: `{"error":"overloaded","delay_ms":1}`,
			wantErr: &model.Error{Code: abi.CodeUnknown, Message: "overloaded"},
		},
		{
			name: "an answer that breaks off", line: `{"chunks":["on the one hand"],"error":"overloaded"}`,
			deltas:  []model.Delta{{Text: "on the one hand"}},
			wantErr: &model.Error{Code: abi.CodeUnknown, Message: "overloaded"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var deltas []model.Delta
			got, err := load(t, tt.line).Complete(t.Context(), model.Request{Call: abi.ModelCall{Model: "m"}},
				func(d model.Delta) { deltas = append(deltas, d) })
			if diff := cmp.Diff(tt.wantErr, err); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.deltas, deltas); diff != "" {
				t.Errorf("deltas (-want +got):\n%s", diff)
			}
		})
	}
}

func TestComplete_LineIsTheCallsNumber(t *testing.T) {
	p := load(t, `{"text":"first"}`, `{"text":"second"}`)
	for _, tt := range []struct {
		index int64
		want  string
		fails string
	}{
		{1, "second", ""},
		{0, "first", ""},
		{1, "second", ""},
		{2, "", "script has 2 lines; call 3 has no answer"},
		{-1, "", "script has 2 lines; call 0 has no answer"},
	} {
		got, err := p.Complete(t.Context(), model.Request{Index: tt.index}, nil)
		var failure *model.Error
		if tt.fails != "" && (!errors.As(err, &failure) || failure.Message != tt.fails || failure.Code != abi.CodeFailedPrecondition) {
			t.Errorf("call %d: the error is %v, want %q", tt.index, err, tt.fails)
		}
		if tt.fails == "" && err != nil {
			t.Errorf("call %d: %v", tt.index, err)
		}
		if got.Message.Text() != tt.want {
			t.Errorf("call %d: the answer is %q, want %q", tt.index, got.Message.Text(), tt.want)
		}
	}
}

// A hang, and a delay however long, end with ctx.
func TestComplete_EndsWithContext(t *testing.T) {
	for _, line := range []string{
		`{"hang":true}`,
		`{"chunks":["a","b"],"hang":true}`,
		`{"text":"late","delay_ms":86400000}`,
		`{"error":"late","delay_ms":86400000}`,
		`{"chunks":["late"],"hang":true,"delay_ms":86400000}`,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		p := load(t, line)
		done := make(chan error)
		go func() {
			_, err := p.Complete(ctx, model.Request{}, nil)
			done <- err
		}()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the error is %v", line, err)
		}
	}
}

func TestNew_Refuses(t *testing.T) {
	const fields = "want an object with text, chunks, tool_calls, delay_ms, error, hang or usage"
	for _, tt := range []struct{ name, text, want string }{
		{"not JSON", `{"text":"a"}` + "\nhello", `line 2: invalid JSON at byte 0: want a value; want an object such as {"text":"hello"}`},
		{"an empty line", "\n" + `{"text":"a"}`, "line 1: invalid JSON"},
		{"a name twice", `{"text":"a","text":"b"}`, `the name "text" stands twice`},
		{"not UTF-8", "{\"text\":\"\xff\"}", "a string is not UTF-8"},
		{"not an object", `"a"`, fields},
		{"unknown field", `{"texts":"a"}`, `unknown field "texts"; ` + fields},
		{"unknown field of usage", `{"text":"a","usage":{"tokens":1}}`, `unknown field "tokens"`},
		{"text a number", `{"text":1}`, "text is of type number; want a string; " + fields},
		{"hang a word", `{"hang":"yes"}`, "hang is of type string; want true or false; " + fields},
		{"half a millisecond", `{"text":"a","delay_ms":0.5}`, "delay_ms is of type number 0.5; want a whole number; " + fields},
		{"usage a list", `{"text":"a","usage":[]}`, "usage is of type array; want an object; " + fields},
		{"a list", `[]`, "the value is of type array; want an object; " + fields},
		{"nothing", `{}`, "no answer; want text, chunks as a list, tool_calls, error, or hang"},
		{"only a delay", `{"delay_ms":5}`, "no answer"},
		{"chunks without text", `{"chunks":2}`, "no text to cut"},
		{"chunks 0", `{"text":"a","chunks":0}`, "chunks is 0; want a number from 1, or a list of strings"},
		{"chunks 1.5", `{"text":"a","chunks":1.5}`, "chunks is 1.5; want"},
		{"chunks a word", `{"text":"a","chunks":"b"}`, `chunks is "b"; want`},
		{"chunks null", `{"text":"a","chunks":null}`, `chunks is null; want`},
		{"no chunks", `{"chunks":[]}`, "empty list"},
		{"null in chunks", `{"chunks":["a",null]}`, "null at 1"},
		{"number in chunks", `{"chunks":[1]}`, "chunks is [1]; want"},
		{"chunks differ from text", `{"text":"ab","chunks":["a","c"]}`, `chunks join to "ac", text is "ab"; want them equal`},
		{"negative delay", `{"text":"a","delay_ms":-1}`, "delay_ms is -1; want 0 to 86400000"},
		{"endless delay", `{"text":"a","delay_ms":9223372036854775}`, "want 0 to 86400000"},
		{"empty error", `{"error":""}`, "error is empty"},
		{"hang and error", `{"hang":true,"error":"a"}`, "exclude each other"},
		{"usage of a failure", `{"error":"a","usage":{}}`, "usage stands beside a failure"},
		{"no tool calls", `{"tool_calls":[]}`, "tool_calls is an empty list"},
		{"tool calls null", `{"tool_calls":null}`, "no answer"},
		{"a tool call without id", `{"tool_calls":[{"tool":"t"}]}`, `tool_calls has the id "" at 0; want one that no other call has`},
		{"an id twice", `{"tool_calls":[{"id":"a","tool":"t"},{"id":"a","tool":"u"}]}`, `tool_calls has the id "a" at 1`},
		{"a tool call without tool", `{"tool_calls":[{"id":"a"}]}`, "tool_calls has no tool at 0"},
		{"args a list", `{"tool_calls":[{"id":"a","tool":"t","args":[1]}]}`, "tool_calls has the args [1] at 0; want an object"},
		{"unknown field of a tool call", `{"tool_calls":[{"id":"a","tool":"t","name":"x"}]}`, `unknown field "name"`},
		{"tool calls of a failure", `{"text":"a","hang":true,"tool_calls":[{"id":"a","tool":"t"}]}`, "tool_calls stand beside a failure"},
		{"negative usage", `{"text":"a","usage":{"input_tokens":-1}}`, "usage is negative"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := script.New(strings.NewReader(tt.text))
			if !errors.Is(err, script.ErrScript) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want ErrScript and %q", err, tt.want)
			}
		})
	}
}

func TestNew_LongLine(t *testing.T) {
	long := io.MultiReader(
		strings.NewReader("{\"text\":\"a\"}\n{\"text\":\""),
		strings.NewReader(strings.Repeat("x", 16<<20)),
		strings.NewReader("\"}\n"),
	)
	if _, err := script.New(long); !errors.Is(err, script.ErrScript) || !strings.Contains(err.Error(), "line 2: longer than") {
		t.Errorf("the error is %v", err)
	}
}

func TestNew_BrokenReader(t *testing.T) {
	broken := errors.New("broken")
	if _, err := script.New(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "answers.jsonl")
	if _, err := script.Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: the error is %v", err)
	}
	if err := os.WriteFile(path, []byte("{\"text\":\"a\"}\n{\"text\":\"b\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := script.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if p.Len() != 2 {
		t.Errorf("%d lines, want 2", p.Len())
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := script.Load(path); !errors.Is(err, script.ErrScript) || !strings.Contains(err.Error(), path) {
		t.Errorf("a bad file: the error is %v", err)
	}
}

func FuzzNew(f *testing.F) {
	for _, seed := range []string{
		`{"text":"a","chunks":2,"delay_ms":1,"usage":{"input_tokens":1}}`,
		`{"chunks":["a","b"],"error":"c"}`,
		`{"hang":true}`,
		`{"text":"a","tool_calls":[{"id":"a","tool":"t","args":{"n":1}}]}`,
		"\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := script.New(strings.NewReader(text))
		if err != nil {
			if !errors.Is(err, script.ErrScript) {
				t.Errorf("the error is %v, want ErrScript", err)
			}
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range p.Len() {
			if _, err := p.Complete(ctx, model.Request{Index: int64(i)}, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("call %d: the error is %v", i, err)
			}
		}
	})
}

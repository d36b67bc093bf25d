package anthropic_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/anthropic"
	"github.com/agentcell/agentcell/host/model/modeltest"
	"github.com/agentcell/agentcell/host/model/remote"
	"github.com/agentcell/agentcell/sdk/abi"
)

// provider calls a model through transport.
func provider(transport http.RoundTripper, o anthropic.Options) model.Provider {
	return limited(transport, o, 0)
}

// limited is provider with a number of attempts.
func limited(transport http.RoundTripper, o anthropic.Options, attempts int) model.Provider {
	c, err := remote.New(remote.Endpoint{
		Name: "fake", URL: "http://fake.invalid/v1/messages", Transport: transport,
		Header: map[string]string{anthropic.VersionHeader: anthropic.Version},
		Key:    remote.Key{Name: "env:KEY", Get: func() (string, error) { return modeltest.Canary, nil }},
		Auth:   anthropic.DefaultAuth, FirstByte: modeltest.FirstByte, Idle: modeltest.Idle, Attempts: attempts,
	})
	if err != nil {
		panic(err)
	}
	if o.Model == "" {
		o.Model = "m-1"
	}
	return anthropic.New(c, o)
}

func event(name, data string) string {
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", name, name, data)
}

var (
	begun = event("message_start", `,"message":{"type":"message","role":"assistant","model":"m-1","content":[],"usage":{"input_tokens":10,"output_tokens":1}}`)
	text  = begun + event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`) + event("ping", "")
	ended = event("content_block_stop", `,"index":0`) + stopped
	// stopped ends a message.
	stopped = event("message_delta", `,"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}`) + event("message_stop", "")
)

func piece(s string) string {
	return event("content_block_delta", fmt.Sprintf(`,"index":0,"delta":{"type":"text_delta","text":%q}`, s))
}

func calls(args string) string {
	return begun + event("content_block_start", `,"index":0,"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}}`) +
		event("content_block_delta", fmt.Sprintf(`,"index":0,"delta":{"type":"input_json_delta","partial_json":%q}`, args)) + ended
}

func TestFaults(t *testing.T) {
	modeltest.Faults(t, modeltest.API{
		New:        func(rt http.RoundTripper) model.Provider { return provider(rt, anthropic.Options{}) },
		AuthHeader: "X-Api-Key",
		Stream:     text + piece("hello ") + piece("world") + ended,
		Whole:      `{"type":"message","model":"m-1","content":[{"type":"text","text":"hello world"}],"stop_reason":"end_turn"}`,
		Empty:      begun + stopped,
		NoChoice:   `{"hello":"world"}`,
		BadArgs:    calls(`{"a":`),
		Overloaded: text + piece("hel") + event("error", `,"error":{"type":"overloaded_error","message":"busy"}`),
		Rejected:   text + piece("hel") + event("error", `,"error":{"type":"invalid_request_error","message":"no"}`),
		Head:       text,
		Piece:      piece("All work and no play makes Jack a dull boy."),
		Says:       func(s string) string { return text + piece("you sent ") + piece(s) + ended },
		Calls:      func(s string) string { return calls(fmt.Sprintf(`{"a":%q}`, s)) },
	})
}

func TestContract(t *testing.T) {
	stream := modeltest.Answer(200, text+piece("hello ")+piece("world")+ended)
	s := modeltest.Serve(t, modeltest.Always(100, stream)...)
	modeltest.Run(t, provider(s, anthropic.Options{}), model.Request{
		Call: abi.ModelCall{Model: "m", Messages: []abi.Message{abi.Text(abi.RoleUser, "hi")}},
	})
}

// The API takes nothing but text of a tool that has failed.
func TestFailedTool(t *testing.T) {
	s := modeltest.Serve(t, modeltest.Answer(200, text+piece("hi")+ended))
	failed := abi.Part{ToolResult: &abi.ToolResult{ID: "c1", IsError: true, Error: "no", Content: []abi.Part{
		{Text: &abi.TextPart{Text: "see"}}, {File: &abi.FilePart{MIME: "image/png", Name: "a.png", Bytes: []byte("png")}},
	}}}
	call := abi.ModelCall{Messages: []abi.Message{{Role: abi.RoleTool, Parts: []abi.Part{failed}}}}
	if _, err := provider(s, anthropic.Options{}).Complete(t.Context(), model.Request{Call: call}, nil); err != nil {
		t.Fatal(err)
	}
	want := `{"max_tokens":8192,"messages":[{"content":[{"content":[{"text":"error: no\nsee","type":"text"},` +
		`{"text":"[a file that cannot be shown: type \"image/png\", a.png, 3 bytes]","type":"text"}],"is_error":true,"tool_use_id":"c1","type":"tool_result"}],"role":"user"}],"model":"m-1","stream":true}` + "\n"
	if diff := cmp.Diff(want, s.Requests()[0].Body); diff != "" {
		t.Error(diff)
	}
}

// Where calls of tools stand in the messages and there is no tool any more, the API wants
// to be told of those that were called all the same.
func TestToolsThatAreGone(t *testing.T) {
	s := modeltest.Serve(t, modeltest.Always(2, modeltest.Answer(200, text+piece("hi")+ended))...)
	call := func(id, name string) abi.Message {
		return abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{{ToolCall: &abi.ToolCall{ID: id, Tool: name}}}}
	}
	done := func(id string) abi.Message {
		return abi.Message{Role: abi.RoleTool, Parts: []abi.Part{{ToolResult: &abi.ToolResult{ID: id}}}}
	}
	p := provider(s, anthropic.Options{})
	for _, messages := range [][]abi.Message{
		{abi.Text(abi.RoleUser, "hi")},
		{abi.Text(abi.RoleUser, "hi"), call("a", "web.get"), done("a"), call("b", "now"), done("b"), call("c", "now"), done("c")},
	} {
		if _, err := p.Complete(t.Context(), model.Request{Call: abi.ModelCall{Messages: messages}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	type body struct {
		Tools []struct {
			Name   string         `json:"name"`
			Schema map[string]any `json:"input_schema"`
		} `json:"tools"`
		Choice map[string]string `json:"tool_choice"`
	}
	var got [2]string
	for i, r := range s.Requests() {
		var b body
		if err := json.Unmarshal([]byte(r.Body), &b); err != nil {
			t.Fatal(err)
		}
		got[i] = fmt.Sprint(b)
	}
	want := [2]string{"{[] map[]}", "{[{" + remote.APIName("web.get") + " map[type:object]} {now map[type:object]}] map[type:none]}"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An answer counts, whatever its provider says of the tokens that it took.
func TestUsage(t *testing.T) {
	for usage, want := range map[string]*abi.Usage{
		`{"output_tokens":5}`:   {Model: "m-1", InputTokens: 10, OutputTokens: 5},
		`{"output_tokens":5.0}`: {Model: "m-1", InputTokens: 10, OutputTokens: 5},
		`null`:                  {Model: "m-1", InputTokens: 10, OutputTokens: 1},
		`{"output_tokens":"x"}`: nil,
		`{"output_tokens":-5}`:  nil,
		`"many"`:                nil,
	} {
		end := event("message_delta", `,"delta":{"stop_reason":"end_turn"},"usage":`+usage) + event("message_stop", "")
		s := modeltest.Serve(t, modeltest.Answer(200, text+piece("hi")+event("content_block_stop", `,"index":0`)+end))
		got, err := provider(s, anthropic.Options{}).Complete(t.Context(), model.Request{}, nil)
		if diff := cmp.Diff(want, got.Usage); err != nil || diff != "" || got.Message.Text() != "hi" {
			t.Errorf("%s: %q, %v (-want +got):\n%s", usage, got.Message.Text(), err, diff)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	once := func(rt http.RoundTripper) model.Provider { return limited(rt, anthropic.Options{}, 1) }
	modeltest.FuzzAnswers(f, once,
		text+piece("hello")+ended, calls(`{"a":9007199254740993}`),
		begun+event("content_block_start", `,"index":0,"content_block":{"type":"thinking","thinking":"a"}`)+event("content_block_delta", `,"index":0,"delta":{"type":"signature_delta","signature":"b"}`)+ended,
		`{"type":"message","content":[{"type":"other","x":{}},{"type":"text","text":"b"}],"usage":{"input_tokens":1}}`,
		event("error", `,"error":{"type":"overloaded_error"}`), "<html><title>x</title>",
	)
}

package openai_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/modeltest"
	"github.com/agentcell/agentcell/host/model/openai"
	"github.com/agentcell/agentcell/host/model/remote"
	"github.com/agentcell/agentcell/sdk/abi"
)

// provider calls model m through transport.
func provider(transport http.RoundTripper, o openai.Options) model.Provider {
	return limited(transport, o, 0)
}

// limited is provider with a number of attempts.
func limited(transport http.RoundTripper, o openai.Options, attempts int) model.Provider {
	c, err := remote.New(remote.Endpoint{
		Name: "fake", URL: "http://fake.invalid/v1/chat/completions", Transport: transport,
		Key:  remote.Key{Name: "env:KEY", Get: func() (string, error) { return modeltest.Canary, nil }},
		Auth: openai.DefaultAuth, Scheme: openai.DefaultScheme,
		FirstByte: modeltest.FirstByte, Idle: modeltest.Idle, Attempts: attempts,
	})
	if err != nil {
		panic(err)
	}
	if o.Model == "" {
		o.Model = "m-1"
	}
	return openai.New(c, o)
}

const (
	role  = `data: {"model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	ended = `data: {"model":"m-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
)

func piece(text string) string {
	return fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":%q}}]}`, text) + "\n\n"
}

func calls(args string) string {
	return role + fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":%q}}]}}]}`, args) + "\n\n" + ended
}

func TestFaults(t *testing.T) {
	modeltest.Faults(t, modeltest.API{
		New:        func(rt http.RoundTripper) model.Provider { return provider(rt, openai.Options{}) },
		AuthHeader: "Authorization",
		Stream:     role + piece("hello ") + piece("world") + ended,
		Whole:      `{"model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":"hello world"},"finish_reason":"stop"}]}`,
		Empty:      role + ended,
		NoChoice:   `{"model":"m-1","choices":[]}`,
		BadArgs:    calls(`{"a":`),
		Overloaded: role + piece("hel") + `data: {"error":{"message":"busy","type":"server_error"}}` + "\n\n",
		Rejected:   role + piece("hel") + `data: {"error":{"message":"no","type":"invalid_request_error"}}` + "\n\n",
		Head:       role,
		Piece:      piece("All work and no play makes Jack a dull boy."),
		Says:       func(text string) string { return role + piece("you sent ") + piece(text) + ended },
		Calls:      func(text string) string { return calls(fmt.Sprintf(`{"a":%q}`, text)) },
	})
}

func TestContract(t *testing.T) {
	stream := modeltest.Answer(200, role+piece("hello ")+piece("world")+ended)
	s := modeltest.Serve(t, modeltest.Always(100, stream)...)
	modeltest.Run(t, provider(s, openai.Options{}), model.Request{
		Call: abi.ModelCall{Model: "m", Messages: []abi.Message{abi.Text(abi.RoleUser, "hi")}},
	})
}

// Tool calls come in many forms, and errors in the middle of a stream too.
func TestForms(t *testing.T) {
	piece := func(calls string) string {
		return `data: {"choices":[{"index":0,"delta":{"tool_calls":[` + calls + "]}}]}\n\n"
	}
	const end = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n"
	for name, tt := range map[string]struct {
		stream string
		want   string // of the calls, or the error
	}{
		"in pieces": {
			piece(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}},{"index":1,"id":"b","function":{"name":"g","arguments":""}}`) +
				piece(`{"index":1,"function":{"arguments":"{}"}}`) + piece(`{"index":0,"function":{"arguments":"1}"}}`) + end,
			`a f {"x":1}; b g {}; `,
		},
		"with the id in each piece": {
			piece(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}`) + piece(`{"index":0,"id":"a","function":{"name":"f","arguments":"1}"}}`) + end,
			`a f {"x":1}; `,
		},
		"none numbered": {
			piece(`{"id":"a","function":{"name":"f","arguments":"{}"}}`) + piece(`{"id":"b","function":{"name":"g","arguments":{"y":2}}}`) + end,
			`a f {}; b g {"y":2}; `,
		},
		"all numbered 0": {
			piece(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`) + piece(`{"index":0,"id":"b","function":{"name":"g","arguments":"{\"y\":"}}`) +
				piece(`{"index":0,"function":{"arguments":"2}"}}`) + end,
			`a f {}; b g {"y":2}; `,
		},
		"the last one first": {
			piece(`{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}`) + piece(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`) + end,
			`a f {}; b g {}; `,
		},
		"an event that is an error":   {"event: error\ndata: {\"message\":\"no such thing\",\"type\":\"invalid_request_error\"}\n\n", "no such thing"},
		"an object that is an error":  {role + `data: {"object":"error","message":"too long","code":400}` + "\n\n", "too long"},
		"an error that is only words": {role + `data: {"error":"out of memory"}` + "\n\n", "out of memory"},
	} {
		s := modeltest.Serve(t, modeltest.Answer(200, tt.stream))
		r, err := limited(s, openai.Options{}, 1).Complete(t.Context(), model.Request{}, nil)
		got := ""
		for _, p := range r.Message.Parts {
			got += fmt.Sprintf("%s %s %s; ", p.ToolCall.ID, p.ToolCall.Tool, p.ToolCall.Args)
		}
		if err != nil && strings.Contains(err.Error(), tt.want) {
			got = tt.want
		}
		if got != tt.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, tt.want)
		}
	}
}

// S4: an answer that has the key in a place where nobody looks is not taken either.
func TestS4_KeyInAnyPlace(t *testing.T) {
	const quoted = `sk-"canary"\0123456789`
	escaped := `sk-\"canary\"\\0123456789`
	for name, answer := range map[string]string{
		"its model":        `{"model":"KEY","choices":[{"message":{"reasoning_content":"r","content":"hi"}}]}`,
		"its reasoning":    `{"choices":[{"message":{"reasoning_content":"KEY","content":"hi"}}]}`,
		"a detail":         `{"choices":[{"message":{"reasoning_details":[{"type":"x","data":"KEY"}],"content":"hi"}}]}`,
		"a type":           `{"choices":[{"message":{"content":"hi","images":[{"image_url":{"url":"data:image/KEY;base64,AA=="}}]}}]}`,
		"the id of a call": `{"choices":[{"message":{"tool_calls":[{"id":"KEY","function":{"name":"f","arguments":"{}"}}]}}]}`,
		"an argument":      `{"choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"a":"KEY"}}}]}}]}`,
	} {
		c, err := remote.New(remote.Endpoint{
			Name: "fake", URL: "http://fake.invalid/", Transport: modeltest.Serve(t, modeltest.Answer(200, strings.ReplaceAll(answer, "KEY", escaped))),
			Key: remote.Key{Name: "env:KEY", Get: func() (string, error) { return quoted, nil }}, Auth: "X-Key",
		})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := openai.New(c, openai.Options{}).Complete(t.Context(), model.Request{}, nil); err == nil || !strings.Contains(err.Error(), "holds the key") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// An answer counts, whatever its provider says of the tokens that it took.
func TestUsage(t *testing.T) {
	for text, want := range map[string]*abi.Usage{
		`{"prompt_tokens":10,"completion_tokens":3}`:                                                         {Model: "m-1", InputTokens: 10, OutputTokens: 3},
		`{"prompt_tokens":10.0,"completion_tokens":"3","completion_tokens_details":null}`:                    {Model: "m-1", InputTokens: 10, OutputTokens: 3},
		`{"prompt_tokens":10,"completion_tokens":null,"completion_tokens_details":{"reasoning_tokens":1e0}}`: {Model: "m-1", InputTokens: 10, ReasoningTokens: 1},
		`{"prompt_tokens":10.5,"completion_tokens":3}`:                                                       nil,
		`{"prompt_tokens":-1,"completion_tokens":3}`:                                                         nil,
		`{"prompt_tokens":{},"completion_tokens":3}`:                                                         nil,
		`{"prompt_tokens":1e300}`:                                                                            nil,
		`"many"`:                                                                                             nil,
		`[]`:                                                                                                 nil,
		`null`:                                                                                               nil,
	} {
		answer := role + piece("hi") + `data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":` + text + "}\n\ndata: [DONE]\n\n"
		s := modeltest.Serve(t, modeltest.Answer(200, answer))
		got, err := provider(s, openai.Options{}).Complete(t.Context(), model.Request{}, nil)
		if diff := cmp.Diff(want, got.Usage); err != nil || diff != "" || got.Message.Text() != "hi" {
			t.Errorf("%s: %q, %v (-want +got):\n%s", text, got.Message.Text(), err, diff)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	once := func(rt http.RoundTripper) model.Provider { return limited(rt, openai.Options{}, 1) }
	modeltest.FuzzAnswers(f, once,
		role+piece("hello")+ended, calls(`{"a":9007199254740993}`),
		`data: {"choices":[{"delta":{"content":[{"text":"a"}],"reasoning":"b","reasoning_details":[{"index":0,"type":"x","text":"c"}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`+"\n\n",
		`data: {"choices":[{"delta":{"reasoning_details":[{"index":0,"type":"x","text":"a"},{"index":0,"type":"x","text":"b","id":null},{"index":1,"type":"x"}]}}]}`+"\n\n"+piece("c")+ended,
		`{"choices":[{"message":{"images":[{"image_url":{"url":"data:image/png;base64,AA=="}}],"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}}]}`,
		`data: {"error":{"code":429}}`+"\n\n", "<html><title>x</title>",
	)
}

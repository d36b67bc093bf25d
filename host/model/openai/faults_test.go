package openai_test

import (
	"fmt"
	"net/http"
	"testing"

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

func FuzzAnswer(f *testing.F) {
	once := func(rt http.RoundTripper) model.Provider { return limited(rt, openai.Options{}, 1) }
	modeltest.FuzzAnswers(f, once,
		role+piece("hello")+ended, calls(`{"a":9007199254740993}`),
		`data: {"choices":[{"delta":{"content":[{"text":"a"}],"reasoning":"b","reasoning_details":[{"index":0,"type":"x","text":"c"}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`+"\n\n",
		`{"choices":[{"message":{"images":[{"image_url":{"url":"data:image/png;base64,AA=="}}],"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}}]}`,
		`data: {"error":{"code":429}}`+"\n\n", "<html><title>x</title>",
	)
}

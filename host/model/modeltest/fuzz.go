package modeltest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Body is a transport that answers every request with one body.
type Body []byte

// RoundTrip implements http.RoundTripper.
func (b Body) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, nil
}

// FuzzAnswers gives the provider that make makes any body for an answer. Whatever
// it is, the call ends with an error that can be recorded, or with a message that
// can, and that can go back with the next call. The provider must not retry.
func FuzzAnswers(f *testing.F, make func(http.RoundTripper) model.Provider, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p := make(Body(body))
		var shown strings.Builder
		got, err := p.Complete(t.Context(), prompt(), func(d model.Delta) { shown.WriteString(d.Text) })
		if err != nil {
			var failure *model.Error
			if !errors.As(err, &failure) || failure.Code == 0 || failure.Message == "" {
				t.Fatalf("the error is %#v; want a *model.Error with a code and words", err)
			}
			return
		}
		if shown.String() != got.Message.Text() {
			t.Fatalf("shown is %q, answered %q", shown.String(), got.Message.Text())
		}
		if len(got.Message.Parts) == 0 || got.Message.Role != abi.RoleAssistant {
			t.Fatalf("the answer is empty: %+v", got.Message)
		}
		event, err := abi.EncodeEvent(&abi.Event{Kind: abi.EventOutput, Message: &got.Message, Usage: got.Usage})
		if err != nil {
			t.Fatalf("the answer cannot be recorded: %v", err)
		}
		again, err := abi.DecodeEvent(event)
		if err != nil {
			t.Fatal(err)
		}
		next := prompt()
		next.Call.Messages = append(next.Call.Messages, *again.Message)
		var invalid *model.Error
		if _, err := p.Complete(t.Context(), next, nil); errors.As(err, &invalid) && invalid.Code == abi.CodeInvalidArgument {
			t.Fatalf("the answer cannot go back: %v", err)
		}
	})
}

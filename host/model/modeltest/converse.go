package modeltest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Converse makes calls one after the other, each behind all that was said before,
// as it comes out of the journal (I2), and compares what they come to.
func Converse(t *testing.T, p model.Provider, calls []abi.ModelCall, want []model.Result) {
	t.Helper()
	var history []abi.Message
	for i, call := range calls {
		call.Messages = append(history, call.Messages...)
		got, err := p.Complete(t.Context(), model.Request{Index: int64(i), Call: recorded(t, call)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("answer %d (-want +got):\n%s", i, diff)
		}
		history = append(call.Messages, got.Message)
	}
}

// recorded is a call as it comes out of the journal.
func recorded(t *testing.T, call abi.ModelCall) abi.ModelCall {
	t.Helper()
	text, err := abi.MarshalLossless(&call)
	if err != nil {
		t.Fatal(err)
	}
	var again abi.ModelCall
	if err := abi.UnmarshalLossless(text, &again); err != nil {
		t.Fatal(err)
	}
	return again
}

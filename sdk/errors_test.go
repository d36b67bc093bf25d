package sdk_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// answer is a transport that gives one answer to all requests but start.
type answer struct {
	status abi.Status
	body   string
	err    error
}

func (a answer) Call(_ context.Context, op abi.Op, _ []byte) (abi.Status, []byte, error) {
	if op == abi.OpStart {
		return abi.StatusOK, []byte(`{}`), nil
	}
	return a.status, []byte(a.body), a.err
}

func (answer) Random([]byte) {}

func TestErrors(t *testing.T) {
	model := run(func(ctx context.Context, turn *sdk.Turn) error {
		_, err := turn.Model(ctx, abi.ModelCall{})
		return err
	})
	tests := []struct {
		name   string
		answer answer
		is     error
		want   sdk.Error
		text   string
	}{
		{
			"failed",
			answer{status: abi.StatusFailed, body: `{"code":14,"description":"no answer"}`},
			sdk.ErrFailed,
			sdk.Error{Status: abi.StatusFailed, Code: abi.CodeUnavailable, Description: "no answer"},
			"model: failed: no answer",
		},
		{
			"failed, without a code",
			answer{status: abi.StatusFailed, body: `{}`},
			sdk.ErrFailed,
			sdk.Error{Status: abi.StatusFailed, Code: abi.CodeUnknown},
			"model: failed",
		},
		{
			"failed, in plain text",
			answer{status: abi.StatusFailed, body: `what`},
			sdk.ErrFailed,
			sdk.Error{Status: abi.StatusFailed, Code: abi.CodeUnknown, Description: "what"},
			"model: failed: what",
		},
		{
			"invalid",
			answer{status: abi.StatusInvalid, body: "no role"},
			sdk.ErrInvalid,
			sdk.Error{Status: abi.StatusInvalid, Code: abi.CodeInvalidArgument, Description: "no role"},
			"model: invalid request: no role",
		},
		{
			"refused",
			answer{status: abi.StatusRefused},
			sdk.ErrRefused,
			sdk.Error{Status: abi.StatusRefused, Code: abi.CodeFailedPrecondition},
			"model: refused",
		},
		{
			"denied",
			answer{status: abi.StatusDenied},
			sdk.ErrDenied,
			sdk.Error{Status: abi.StatusDenied, Code: abi.CodeFailedPrecondition},
			"model: denied",
		},
		{
			"limit",
			answer{status: abi.StatusLimit, body: "1000 effects"},
			sdk.ErrLimit,
			sdk.Error{Status: abi.StatusLimit, Code: abi.CodeResourceExhausted, Description: "1000 effects"},
			"model: limit reached: 1000 effects",
		},
		{
			"unknown status",
			answer{status: 77, body: "new"},
			nil,
			sdk.Error{Status: 77, Code: abi.CodeUnknown, Description: "new"},
			"model: status 77: new",
		},
	}
	sentinels := []error{sdk.ErrFailed, sdk.ErrInvalid, sdk.ErrRefused, sdk.ErrDenied, sdk.ErrLimit}
	for _, test := range tests {
		err := sdk.RunTurn(t.Context(), model, test.answer)
		var got *sdk.Error
		if !errors.As(err, &got) {
			t.Errorf("%s: got %v, want an *sdk.Error", test.name, err)
			continue
		}
		test.want.Op = abi.OpModel
		if diff := cmp.Diff(test.want, *got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if err.Error() != test.text {
			t.Errorf("%s: got text %q, want %q", test.name, err, test.text)
		}
		for _, sentinel := range sentinels {
			if want := sentinel == test.is; errors.Is(err, sentinel) != want {
				t.Errorf("%s: errors.Is(err, %q) is %v", test.name, sentinel, !want)
			}
		}
	}
}

// What is not an answer of the host is no *Error.
func TestTransportErrors(t *testing.T) {
	gone := errors.New("gone")
	model := run(func(ctx context.Context, turn *sdk.Turn) error {
		_, err := turn.Model(ctx, abi.ModelCall{})
		return err
	})
	for _, test := range []struct {
		answer answer
		want   string
	}{
		{answer{err: gone}, "model: gone"},
		{answer{body: "{"}, "model: the host's answer: unexpected end of JSON input"},
	} {
		err := sdk.RunTurn(t.Context(), model, test.answer)
		if hostError := (*sdk.Error)(nil); err == nil || err.Error() != test.want || errors.As(err, &hostError) {
			t.Errorf("got error %v, want %s", err, test.want)
		}
	}
	if err := sdk.RunTurn(t.Context(), model, answer{err: gone}); !errors.Is(err, gone) {
		t.Errorf("%v does not wrap the transport's error", err)
	}
}

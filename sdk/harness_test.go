package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// run makes a harness of a function.
type run func(ctx context.Context, t *sdk.Turn) error

func (run) Describe() abi.HarnessDescriptor                 { return abi.HarnessDescriptor{ID: "test"} }
func (r run) Run(ctx context.Context, turn *sdk.Turn) error { return r(ctx, turn) }
func texts(messages []abi.Message) (out []string) {
	for _, m := range messages {
		out = append(out, m.Role+": "+m.Text())
	}
	return out
}

func TestTurn(t *testing.T) {
	host := &sdktest.Host{
		Config: []byte(`{"name":"x"}`),
		Limits: &abi.Limits{Effects: 7},
	}
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		var config struct{ Name string }
		if err := turn.DecodeConfig(&config); err != nil {
			return err
		}
		result, err := turn.Model(ctx, abi.ModelCall{Model: "m", Messages: turn.Inputs()})
		if err != nil {
			return err
		}
		turn.Logf("effects %d", turn.Limits().Effects)
		if err := turn.OutputText(ctx, config.Name+result.Message.Text()); err != nil {
			return err
		}
		if err := turn.Output(ctx, abi.Message{Role: "tool"}); err != nil {
			return err
		}
		return turn.Usage(ctx, abi.Usage{InputTokens: 1 << 60})
	})
	outputs, err := host.Run(t.Context(), h, "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"assistant: echo:b", "assistant: xecho:b", "tool: "}, texts(outputs)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"effects 7"}, host.Logs); diff != "" {
		t.Error(diff)
	}
	var kinds []abi.EventKind
	for _, r := range host.Records {
		kinds = append(kinds, r.Event.Kind)
	}
	want := []abi.EventKind{
		abi.EventExecutionStart, abi.EventInput, abi.EventInput, abi.EventModelCall, abi.EventOutput,
		abi.EventOutput, abi.EventOutput, abi.EventUsage, abi.EventEnd,
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	if got := host.Records[7].Event.Usage.InputTokens; got != 1<<60 {
		t.Errorf("usage recorded %d input tokens", got)
	}
}

// A panic must come back as a failed turn, with the text for END and the stack
// for the operator, and leave the harness able to run on.
func TestRunTurnPanic(t *testing.T) {
	host := new(sdktest.Host)
	var times map[string]int
	h := run(func(context.Context, *sdk.Turn) error {
		times["x"]++
		return nil
	})
	_, err := host.Run(t.Context(), h, "hi")
	if err == nil || err.Error() != "panic: assignment to entry in nil map" {
		t.Fatalf("got error %v", err)
	}
	if len(host.Logs) != 1 || !strings.Contains(host.Logs[0], "harness_test.go") {
		t.Errorf("the log has no stack: %q", host.Logs)
	}
	times = map[string]int{}
	if _, err := host.Run(t.Context(), h, "hi"); err != nil || times["x"] != 1 {
		t.Errorf("the next turn: %v, %v", err, times)
	}
}

func TestRunTurnWithoutHarness(t *testing.T) {
	if _, err := new(sdktest.Host).Run(t.Context(), nil); !errors.Is(err, sdk.ErrNoHarness) {
		t.Errorf("got error %v", err)
	}
}

// The calls of a harness whose context is done must not reach the host.
func TestTurnContext(t *testing.T) {
	host := new(sdktest.Host)
	cause := errors.New("enough")
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(cause)
		for _, err := range turn.History(ctx, sdk.HistoryQuery{}) {
			if !errors.Is(err, cause) {
				t.Errorf("history: got error %v", err)
			}
		}
		_, err := turn.Model(ctx, abi.ModelCall{})
		return err
	})
	if _, err := host.Run(t.Context(), h); !errors.Is(err, cause) {
		t.Errorf("got error %v, want %v", err, cause)
	}
	if len(host.Calls) != 0 || host.Pages != 0 {
		t.Errorf("the host got %d calls and %d pages", len(host.Calls), host.Pages)
	}
}

func TestDecodeConfig(t *testing.T) {
	type config struct{ A int }
	tests := []struct {
		text string
		want config
		err  string
	}{
		{text: "", want: config{A: 1}},
		{text: " \n", want: config{A: 1}},
		{text: `{}`, want: config{A: 1}},
		{text: `{"a":2} `, want: config{A: 2}},
		{text: `{"b":2}`, err: `config: unknown field "b"`},
		{text: `{"a":"2"}`, err: "config: A is of type string; want a whole number"},
		{text: `[]`, err: "config: the value is of type array; want an object"},
		{text: `{"a":2} x`, err: "config: text after the value"},
		{text: `{"a":2}{}`, err: "config: text after the value"},
		{text: `{"a"`, err: "config: unexpected EOF"},
	}
	for _, test := range tests {
		got := config{A: 1}
		h := run(func(_ context.Context, turn *sdk.Turn) error { return turn.DecodeConfig(&got) })
		_, err := (&sdktest.Host{Config: []byte(test.text)}).Run(t.Context(), h)
		if test.err != "" {
			if err == nil || err.Error() != test.err || sdk.Failure(err).Code != abi.CodeInvalidArgument {
				t.Errorf("%q: got error %v, want %s", test.text, err, test.err)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%q: %v %s", test.text, err, diff)
		}
	}
}

// TestM6_RandDiffersPerTurn: no two turns get the same stream, and one turn has
// one generator.
func TestM6_RandDiffersPerTurn(t *testing.T) {
	host := new(sdktest.Host)
	seen := map[uint64]bool{}
	h := run(func(_ context.Context, turn *sdk.Turn) error {
		if first, second := turn.Rand(), turn.Rand(); first != second {
			t.Error("two generators in one turn")
		}
		for range 100 {
			seen[turn.Rand().Uint64()] = true
		}
		return nil
	})
	for range 10 {
		if _, err := host.Run(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 1000 {
		t.Errorf("%d different numbers of 1000", len(seen))
	}
}

func TestFailure(t *testing.T) {
	host := &sdk.Error{Op: abi.OpModel, Status: abi.StatusFailed, Code: abi.CodeUnavailable, Description: "down"}
	tests := []struct {
		name string
		err  error
		want abi.Error
	}{
		{"plain", errors.New("no"), abi.Error{Code: abi.CodeUnknown, Description: "no"}},
		{"own code", fmt.Errorf("x: %w", &abi.Error{Code: abi.CodeNotFound, Description: "y"}), abi.Error{Code: abi.CodeNotFound, Description: "x: y"}},
		{"host's code", fmt.Errorf("x: %w", host), abi.Error{Code: abi.CodeUnavailable, Description: "x: model: failed: down"}},
		{"not UTF-8", errors.New("a\xffb"), abi.Error{Code: abi.CodeUnknown, Description: "a\uFFFDb"}},
		{"long", errors.New(strings.Repeat("é", 4<<10)), abi.Error{Code: abi.CodeUnknown, Description: strings.Repeat("é", 2<<10) + " …"}},
		{"cut in a rune", errors.New("a" + strings.Repeat("é", 4<<10)), abi.Error{Code: abi.CodeUnknown, Description: "a" + strings.Repeat("é", 2<<10-1) + "\uFFFD …"}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(&test.want, sdk.Failure(test.err)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestRegister(t *testing.T) {
	refuses := func(what string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", what)
			}
		}()
		f()
	}
	refuses("nil", func() { sdk.Register(nil) })
	sdk.Register(run(nil))
	refuses("twice", func() { sdk.Register(run(nil)) })
}

package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// toolHost has two tools: echo answers with its arguments, fail does not.
func toolHost() *sdktest.Host {
	return &sdktest.Host{Tools: map[string]func(abi.ToolCall) (abi.ToolResult, error){
		"echo": func(c abi.ToolCall) (abi.ToolResult, error) { return abi.ToolResult{Output: c.Args}, nil },
		"fail": func(abi.ToolCall) (abi.ToolResult, error) { return abi.ToolResult{}, errors.New("no such file") },
	}}
}

// toolCalls are the calls that are in the record.
func toolCalls(host *sdktest.Host) (calls []abi.ToolCall) {
	for _, r := range host.Records {
		if r.Event.Kind == abi.EventToolCall {
			calls = append(calls, *r.Event.Tool)
		}
	}
	return calls
}

func TestCallTools(t *testing.T) {
	host := toolHost()
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		if diff := cmp.Diff([]abi.ToolDefinition{{Name: "echo"}, {Name: "fail"}}, turn.Tools()); diff != "" {
			t.Errorf("tools: %s", diff)
		}
		got, err := turn.CallTools(
			ctx,
			abi.ToolCall{Tool: "echo", Args: abi.Struct(`{"n":12345678901234567890}`)},
			abi.ToolCall{Tool: "fail", ID: "own", IdempotencyKey: "key", Mediation: abi.MediationRequiresApproval},
			abi.ToolCall{Tool: "echo"},
		)
		if err != nil {
			return err
		}
		want := []abi.ToolResult{
			{ID: "tool-1", Output: abi.Struct(`{"n":12345678901234567890}`)},
			{ID: "own", IsError: true, Error: "no such file", Code: abi.ToolExecutorError},
			{ID: "tool-3"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("results: %s", diff)
		}
		one, err := turn.CallTool(ctx, "echo", map[string]int{"n": 4})
		if diff := cmp.Diff(abi.ToolResult{ID: "tool-4", Output: abi.Struct(`{"n":4}`)}, one); diff != "" {
			t.Errorf("the result of one call: %s", diff)
		}
		return err
	})
	if _, err := host.Run(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	calls := toolCalls(host)
	if calls[1].IdempotencyKey != "key" || calls[1].Mediation != abi.MediationRequiresApproval {
		t.Errorf("what the harness chose came to the host as %+v", calls[1])
	}
	if calls[3].Args == nil || calls[2].Args != nil {
		t.Errorf("arguments came to the host as %s and %s", calls[3].Args, calls[2].Args)
	}
}

// TestI3_KeysKnowTheirCall: a key that the SDK makes is the same when the turn is
// run again, and that of no other call or turn.
func TestI3_KeysKnowTheirCall(t *testing.T) {
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		if _, err := turn.CallTools(ctx, abi.ToolCall{Tool: "echo"}, abi.ToolCall{Tool: "echo"}); err != nil {
			return err
		}
		_, err := turn.CallTool(ctx, "echo", nil)
		return err
	})
	var runs [2][]abi.ToolCall
	for i := range runs {
		host := toolHost()
		for range 2 {
			if _, err := host.Run(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
		runs[i] = toolCalls(host)
	}
	if diff := cmp.Diff(runs[0], runs[1]); diff != "" {
		t.Errorf("run again, the calls differ: %s", diff)
	}
	seen := map[string]bool{}
	for _, call := range runs[0] {
		seen[call.IdempotencyKey] = true
	}
	if len(seen) != 6 || seen[""] {
		t.Errorf("6 calls have the keys %v", seen)
	}
}

func TestCallTools_InSeveralRequests(t *testing.T) {
	host := toolHost()
	const n = 2*abi.MaxToolCalls + 1
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		if none, err := turn.CallTools(ctx); err != nil || len(none) != 0 {
			t.Errorf("no calls: %v, %v", none, err)
		}
		calls := make([]abi.ToolCall, n)
		for i := range calls {
			calls[i] = abi.ToolCall{Tool: "echo", Args: abi.Struct(fmt.Sprint(i))}
		}
		got, err := turn.CallTools(ctx, calls...)
		for i, r := range got {
			if string(r.Output) != fmt.Sprint(i) {
				t.Errorf("result %d is %s", i, r.Output)
			}
		}
		if len(got) != n || err != nil {
			t.Errorf("%d results, %v", len(got), err)
		}
		// What was done before a request was refused was done.
		calls[n-1].Tool = "none"
		got, err = turn.CallTools(ctx, calls...)
		if len(got) != n-1 || !errors.Is(err, sdk.ErrRefused) {
			t.Errorf("with a tool that is not granted: %d results, %v", len(got), err)
		}
		return nil
	})
	if _, err := host.Run(t.Context(), h); err != nil {
		t.Fatal(err)
	}
}

func TestCallTools_Refused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		calls []abi.ToolCall
		want  error
	}{
		{"not granted", []abi.ToolCall{{Tool: "echo"}, {Tool: "none"}}, sdk.ErrRefused},
		{"one id for two calls", []abi.ToolCall{{Tool: "echo", ID: "a"}, {Tool: "echo", ID: "a"}}, sdk.ErrInvalid},
		{"an id of a call before", []abi.ToolCall{{Tool: "echo", ID: "first"}}, sdk.ErrInvalid},
		{"reported", []abi.ToolCall{{Tool: "echo", Mediation: abi.MediationInHarnessReported}}, sdk.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := toolHost()
			h := run(func(ctx context.Context, turn *sdk.Turn) error {
				if _, err := turn.CallTools(ctx, abi.ToolCall{Tool: "echo", ID: "first"}); err != nil {
					return err
				}
				got, err := turn.CallTools(ctx, tt.calls...)
				if len(got) != 0 || !errors.Is(err, tt.want) {
					t.Errorf("%v, %v; want %v", got, err, tt.want)
				}
				return nil
			})
			if _, err := host.Run(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if n := len(toolCalls(host)); n != 1 {
				t.Errorf("%d calls are recorded, want the first alone", n)
			}
		})
	}
}

// What JSON cannot carry never leaves the harness.
func TestCallTool_Args(t *testing.T) {
	host := toolHost()
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		_, err := turn.CallTool(ctx, "echo", map[string]float64{"n": math.Inf(1)})
		return err
	})
	_, err := host.Run(t.Context(), h)
	if wrong := (*json.UnsupportedValueError)(nil); !errors.As(err, &wrong) {
		t.Errorf("the error is %v", err)
	}
	if calls := toolCalls(host); len(calls) != 0 {
		t.Errorf("the host was asked for %+v", calls)
	}
}

func TestCallTools_WrongAnswer(t *testing.T) {
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		_, err := turn.CallTool(ctx, "echo", nil)
		return err
	})
	err := sdk.RunTurn(t.Context(), h, answer{body: `{"results":[]}`})
	if err == nil || err.Error() != "tool_call: the host's answer: 0 results for 1 calls" {
		t.Errorf("the error is %v", err)
	}
}

func TestReport(t *testing.T) {
	host := toolHost()
	result := abi.ToolResult{ID: "a", Output: abi.Struct(`{"x":1}`)}
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		for _, bad := range []abi.ToolResult{{}, {ID: "a", Code: abi.ToolApprovalDenied}, {ID: "a", ApprovalRequestSeq: 1}} {
			if err := turn.Report(ctx, bad); !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		return turn.Report(ctx, result)
	})
	if _, err := host.Run(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&result, host.Records[1].Event.Result); diff != "" || len(host.Records) != 3 {
		t.Errorf("%d records: %s", len(host.Records), diff)
	}
}

func TestWait(t *testing.T) {
	until := time.Date(2030, 1, 2, 3, 4, 5, 6789, time.FixedZone("there", 3600))
	for _, tt := range []struct {
		name   string
		until  time.Time
		signal string
		host   func(abi.WaitRequest) abi.WaitResponse
		want   abi.WaitResponse
	}{
		{"a time", until, "", nil, abi.WaitResponse{}},
		{"a signal", time.Time{}, "go", nil, abi.WaitResponse{Signal: "go"}},
		{"both", until, "go", nil, abi.WaitResponse{}},
		{
			"a payload", until, "go",
			func(r abi.WaitRequest) abi.WaitResponse {
				return abi.WaitResponse{Signal: r.Signal, Payload: json.RawMessage(`{"until":"` + r.Until.String() + `"}`)}
			},
			abi.WaitResponse{Signal: "go", Payload: json.RawMessage(`{"until":"2030-01-02T02:04:05.000006Z"}`)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := &sdktest.Host{Wait: tt.host}
			h := run(func(ctx context.Context, turn *sdk.Turn) error {
				got, err := turn.Wait(ctx, tt.until, tt.signal)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
				return err
			})
			if _, err := host.Run(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		})
	}
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		_, err := turn.Wait(ctx, time.Time{}, "")
		return err
	})
	if _, err := new(sdktest.Host).Run(t.Context(), h); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("a wait for nothing: %v", err)
	}
}

func TestSleep(t *testing.T) {
	var asked []abi.WaitRequest
	host := &sdktest.Host{Wait: func(r abi.WaitRequest) abi.WaitResponse {
		asked = append(asked, r)
		return abi.WaitResponse{}
	}}
	start := time.Now()
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		for _, d := range []time.Duration{-1, 0, 24 * time.Hour} {
			if err := turn.Sleep(ctx, d); err != nil {
				return err
			}
		}
		return nil
	})
	if _, err := host.Run(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 1 || asked[0].Signal != "" || asked[0].Until.Before(start.Add(24*time.Hour).Truncate(time.Microsecond)) {
		t.Errorf("waits %+v, from %s", asked, start)
	}
}

package sdktest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// every does a bit of everything that a turn can.
type every struct{}

func (every) Describe() abi.HarnessDescriptor { return abi.HarnessDescriptor{ID: "every"} }

func (every) Run(ctx context.Context, t *sdk.Turn) error {
	if len(t.Inputs()) == 0 {
		return &abi.Error{Code: abi.CodeInvalidArgument, Description: "nothing to do"}
	}
	messages := append([]abi.Message{abi.Text(abi.RoleSystem, "Be brief.\n\nBe kind.")}, t.Inputs()...)
	if _, err := t.Model(ctx, abi.ModelCall{Model: "m", Params: map[string]string{"top": "1"}, Messages: messages}); err != nil {
		return t.OutputText(ctx, "no answer")
	}
	return t.Usage(ctx, abi.Usage{InputTokens: 3})
}

func everything(t *testing.T) *sdktest.Host {
	t.Helper()
	host := new(sdktest.Host)
	reasoning := abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
		{Reasoning: &abi.ReasoningPart{Provider: "p", OpaqueBytes: []byte{1}}},
		{Text: &abi.TextPart{Text: "hello  "}},
	}}
	answers := []abi.ModelResult{{Message: reasoning}}
	host.Model = func(abi.ModelCall) (abi.ModelResult, error) {
		if len(answers) == 0 {
			return abi.ModelResult{}, errors.New("overloaded")
		}
		answer := answers[0]
		answers = answers[1:]
		return answer, nil
	}
	host.Records = []abi.LogRecord{{Seq: 1, Event: &abi.Event{
		Kind: abi.EventLifecycle, SchemaVersion: 1, Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleCreate},
	}}, {Seq: 2}}
	for _, inputs := range [][]string{{"hi", "two\nlines"}, {"again"}} {
		if _, err := host.Run(t.Context(), every{}, inputs...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := host.Run(t.Context(), every{}); err == nil {
		t.Fatal("a turn without input completed")
	}
	return host
}

func TestTranscript(t *testing.T) {
	want := `EVENT_LIFECYCLE        {"lifecycle":{"kind":"LIFECYCLE_CREATE"}}

EVENT_EXECUTION_START
EVENT_INPUT            user: hi
EVENT_INPUT            user: two
                       lines
EVENT_MODEL_CALL       {"model":"m","params":{"top":"1"}}
                       system: Be brief.

                       Be kind.
                       user: hi
                       user: two
                       lines
EVENT_OUTPUT           assistant: {"reasoning":{"provider":"p","opaque_bytes":"AQ=="}}
                       hello
EVENT_USAGE            {"input_tokens":"3"}
EVENT_END              COMPLETED

EVENT_EXECUTION_START
EVENT_INPUT            user: again
EVENT_MODEL_CALL       {"model":"m","params":{"top":"1"}}
                       system: Be brief.

                       Be kind.
                       user: again
EVENT_ERROR            code=2 overloaded
EVENT_OUTPUT           assistant: no answer
EVENT_END              COMPLETED

EVENT_EXECUTION_START
EVENT_END              FAILED code=3 nothing to do
`
	if diff := cmp.Diff(want, everything(t).Transcript()); diff != "" {
		t.Error(diff)
	}
	if got := new(sdktest.Host).Transcript(); got != "" {
		t.Errorf("a session without records has the transcript %q", got)
	}
}

// verdict is a test that Golden reports to.
type verdict struct {
	testing.TB
	text  string
	fatal bool
}

func (v *verdict) Helper() {}

func (v *verdict) Errorf(format string, args ...any) { v.text += fmt.Sprintf(format, args...) }

func (v *verdict) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	v.Fatal()
}

func (v *verdict) Fatal(args ...any) {
	v.text += fmt.Sprint(args...)
	v.fatal = true
	panic(v)
}

// golden is what Golden says.
func golden(host *sdktest.Host, file string) (v *verdict) {
	v = new(verdict)
	defer func() {
		if r := recover(); r != nil && r != v {
			panic(r)
		}
	}()
	host.Golden(v, file)
	return v
}

func TestGolden(t *testing.T) {
	t.Setenv(sdktest.UpdateVariable, "")
	host := everything(t)
	file := filepath.Join(t.TempDir(), "testdata", "all.txt")
	if v := golden(host, file); !v.fatal || !strings.Contains(v.text, "SDKTEST_UPDATE=1 go test writes it") {
		t.Errorf("without a file: %q", v.text)
	}
	t.Setenv(sdktest.UpdateVariable, "1")
	if v := golden(host, file); v.text != "" {
		t.Errorf("update: %q", v.text)
	}
	t.Setenv(sdktest.UpdateVariable, "")
	if v := golden(host, file); v.text != "" {
		t.Errorf("after the update: %q", v.text)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, text, want string }{
		{"line ends of Windows", strings.ReplaceAll(string(text), "\n", "\r\n"), ""},
		{"another line", strings.Replace(string(text), "user: hi", "user: ho", 1), "line 4\nwant: EVENT_INPUT            user: ho\ngot:  EVENT_INPUT            user: hi\n"},
		{"a line more", string(text) + "more\n", "want: more\ngot:  \n"},
		{"nothing", "", "line 1\nwant: \ngot:  EVENT_LIFECYCLE"},
	} {
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		v := golden(host, file)
		if v.fatal || (v.text == "") != (test.want == "") || !strings.Contains(v.text, test.want) {
			t.Errorf("%s: %q", test.name, v.text)
		}
	}
	if v := golden(host, filepath.Dir(file)); !v.fatal {
		t.Error("a directory is no golden file")
	}
}

// patient calls a tool, reports one of its own, and waits.
type patient struct{}

func (patient) Describe() abi.HarnessDescriptor { return abi.HarnessDescriptor{ID: "patient"} }

func (patient) Run(ctx context.Context, t *sdk.Turn) error {
	_, err := t.CallTools(ctx, abi.ToolCall{ID: "a", Tool: "read", Args: abi.Struct(`{"n":1}`), IdempotencyKey: "k"})
	if err != nil {
		return err
	}
	if err := t.Report(ctx, abi.ToolResult{ID: "b", IsError: true, Error: "no"}); err != nil {
		return err
	}
	for _, until := range []time.Time{{}, time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)} {
		if _, err := t.Wait(ctx, until, "go"); err != nil {
			return err
		}
	}
	return nil
}

func TestTranscript_ToolsAndWaits(t *testing.T) {
	host := &sdktest.Host{Tools: map[string]func(abi.ToolCall) (abi.ToolResult, error){
		"read": func(c abi.ToolCall) (abi.ToolResult, error) { return abi.ToolResult{Output: c.Args}, nil },
	}}
	if _, err := host.Run(t.Context(), patient{}); err != nil {
		t.Fatal(err)
	}
	want := `EVENT_EXECUTION_START
EVENT_TOOL_CALL        {"id":"a","tool":"read","args":{"n":1},"mediation":"MEDIATION_CONTROLLER_MEDIATED","idempotency_key":"k"}
EVENT_TOOL_RESULT      {"id":"a","output":{"n":1}}
EVENT_TOOL_RESULT      {"id":"b","is_error":true,"error":"no"}
EVENT_WAIT             signal=go
EVENT_SIGNAL           signal=go
EVENT_WAIT             until=2030-01-02T03:04:05Z signal=go
EVENT_SIGNAL
EVENT_END              COMPLETED
`
	if diff := cmp.Diff(want, host.Transcript()); diff != "" {
		t.Error(diff)
	}
}

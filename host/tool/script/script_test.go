package script_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/script"
	"github.com/agentcell/agentcell/host/tool/tooltest"
	"github.com/agentcell/agentcell/sdk/abi"
)

func load(t *testing.T, lines ...string) *script.Script {
	t.Helper()
	s, err := script.New(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func call(name, key, args string) tool.Call {
	c := tool.Call{ToolCall: abi.ToolCall{ID: "id-" + key, Tool: name, IdempotencyKey: key}}
	if args != "" {
		c.Args = abi.Struct(args)
	}
	return c
}

func TestConformance(t *testing.T) {
	quick, slow := call("t", "k", `{"n":1}`), call("t", "k", "")
	for _, tt := range []struct{ quick, slow string }{
		{`{"name":"t","echo":true}`, `{"name":"t","hang":true}`},
		{`{"name":"t","output":{"ok":true},"delay_ms":1}`, `{"name":"t","echo":true,"delay_ms":86400000}`},
	} {
		tooltest.Run(t, both{load(t, tt.quick).Tools()["t"].Executor, load(t, tt.slow).Tools()["t"].Executor}, quick, slow)
	}
}

// both performs calls with arguments by the one and others by the other.
type both struct{ quick, slow tool.Executor }

func (b both) Call(ctx context.Context, c tool.Call) (abi.ToolResult, error) {
	if c.Args == nil {
		return b.slow.Call(ctx, c)
	}
	return b.quick.Call(ctx, c)
}

func TestCall(t *testing.T) {
	for _, tt := range []struct {
		name, line, args string
		want             string
		wantErr          string
	}{
		{"output", `{"name":"t","output":{"ok":true}}`, `{}`, `{"ok":true}`, ""},
		{"a number beyond a double", `{"name":"t","output":{"n":12345678901234567890,"x":0.10}}`, `{}`, `{"n":12345678901234567890,"x":0.10}`, ""},
		{"echo", `{"name":"t","echo":true}`, `{"n":1.50}`, `{"n":1.50}`, ""},
		{"echo of nothing", `{"name":"t","echo":true}`, "", "", ""},
		{"error", `{"name":"t","error":"no such file","delay_ms":1}`, `{}`, "", "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := load(t, tt.line)
			for range 2 {
				got, err := s.Tools()["t"].Executor.Call(t.Context(), call("t", "k", tt.args))
				if text := errorText(err); text != tt.wantErr {
					t.Errorf("the error is %q, want %q", text, tt.wantErr)
				}
				if string(got.Output) != tt.want {
					t.Errorf("the output is %s, want %s", got.Output, tt.want)
				}
			}
			if n := s.Calls("k"); n != 2 {
				t.Errorf("%d calls are counted, want 2", n)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCalls_ByKeyOverAllTools(t *testing.T) {
	s := load(t, `{"name":"a","echo":true}`, `{"name":"b","error":"no"}`, `{"name":"c","hang":true}`)
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		ctx  context.Context
		tool string
		key  string
	}{
		{t.Context(), "a", "1"},
		{t.Context(), "b", "1"},
		{t.Context(), "a", "2"},
		{ended, "a", "3"}, // never made
		{ended, "c", "4"},
	} {
		_, _ = s.Tools()[c.tool].Executor.Call(c.ctx, call(c.tool, c.key, ""))
	}
	got := map[string]int{}
	for _, key := range []string{"1", "2", "3", "4"} {
		got[key] = s.Calls(key)
	}
	if diff := cmp.Diff(map[string]int{"1": 2, "2": 1, "3": 0, "4": 0}, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestTools(t *testing.T) {
	s := load(
		t,
		`{"name":"read","description":"Reads a file.","input_schema":{"type":"object"},"output":{},"on_crash":"retry"}`,
		`{"name":"drop","approval":true,"echo":true}`,
		`{"name":"pay","on_crash":"ask","hang":true}`,
	)
	want := map[string]abi.ToolGrant{
		"read": {
			ToolDefinition: abi.ToolDefinition{Name: "read", Description: "Reads a file.", InputSchema: abi.Struct(`{"type":"object"}`)},
			Mediation:      abi.MediationControllerMediated, OnCrash: abi.OnCrashRetry,
		},
		"drop": {
			ToolDefinition: abi.ToolDefinition{Name: "drop"},
			Mediation:      abi.MediationRequiresApproval, OnCrash: abi.OnCrashUnknown,
		},
		"pay": {
			ToolDefinition: abi.ToolDefinition{Name: "pay"},
			Mediation:      abi.MediationControllerMediated, OnCrash: abi.OnCrashAsk,
		},
	}
	got := map[string]abi.ToolGrant{}
	tools := s.Tools()
	for name, tool := range tools {
		got[name] = tool.Grant()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
	clear(tools)
	if len(s.Tools()) != len(want) {
		t.Error("the map is not the caller's own")
	}
}

func TestNew_Refuses(t *testing.T) {
	for _, tt := range []struct{ name, script, want string }{
		{"no JSON", "read", "line 1: invalid JSON"},
		{"an empty line", `{"name":"a","echo":true}` + "\n\n", "line 2: invalid JSON"},
		{"a list", `[]`, "line 1: the value is of type array; want an object"},
		{"a name that stands twice", `{"name":"a","name":"b","echo":true}`, "line 1: invalid JSON"},
		{"an unknown field", `{"name":"a","echo":true,"retries":3}`, `line 1: unknown field "retries"; want an object with name`},
		{"a field of another type", `{"name":"a","echo":"yes"}`, "line 1: echo is of type string; want true or false"},
		{"two values", `{"name":"a","echo":true}{}`, "line 1: invalid JSON"},
		{"no name", `{"echo":true}`, "line 1: malformed tool: its name is"},
		{"a tool that is there", `{"name":"a","echo":true}` + "\n" + `{"name":"a","hang":true}`, "line 2: there is a tool a already"},
		{"no answer", `{"name":"a"}`, "it has 0 of output, echo, error and hang"},
		{"two answers", `{"name":"a","echo":true,"output":{}}`, "it has 2 of output, echo, error and hang"},
		{"an output that is no object", `{"name":"a","output":[1]}`, "output is [1]; want an object"},
		{"a null output", `{"name":"a","output":null}`, "output is null; want an object"},
		{"an empty error", `{"name":"a","error":""}`, "error is empty"},
		{"a negative delay", `{"name":"a","echo":true,"delay_ms":-1}`, "delay_ms is -1; want 0 to 86400000"},
		{"a delay too long", `{"name":"a","echo":true,"delay_ms":86400001}`, "delay_ms is 86400001"},
		{"a rule that is none", `{"name":"a","echo":true,"on_crash":"again"}`, "on_crash is"},
		{"a schema that is no object", `{"name":"a","echo":true,"input_schema":"x"}`, "input_schema is"},
		{"a line too long", strings.Repeat(" ", 17<<20), "line 1: longer than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := script.New(strings.NewReader(tt.script))
			if !errors.Is(err, script.ErrScript) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v; want ErrScript with %q", err, tt.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tools.jsonl")
	if _, err := script.Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for text, want := range map[string]error{`{"name":"a","echo":true}` + "\n": nil, `{}`: script.ErrScript} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := script.Load(path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	broken := errors.New("broken")
	if _, err := script.New(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a broken reader: %v", err)
	}
}

// FuzzNew: whatever a script has in it is tools that can be offered, or ErrScript.
func FuzzNew(f *testing.F) {
	for _, seed := range []string{
		`{"name":"read","description":"d","input_schema":{"type":"object"},"output":{"n":9007199254740993}}`,
		`{"name":"a.b","approval":true,"on_crash":"retry","echo":true}` + "\n" + `{"name":"c","error":"no","delay_ms":1}`,
		`{"name":"x","hang":true}`, `{"name":"x","output":[]}`, "\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := script.New(strings.NewReader(text))
		if err != nil {
			if !errors.Is(err, script.ErrScript) {
				t.Errorf("the error is %v, want ErrScript", err)
			}
			return
		}
		for name, x := range s.Tools() {
			if err := x.Check(); err != nil || x.Definition.Name != name {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

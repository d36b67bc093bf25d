package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

type nothing struct{}

func (nothing) Call(context.Context, tool.Call) (abi.ToolResult, error) {
	return abi.ToolResult{}, nil
}

func TestTool_Grant(t *testing.T) {
	definition := abi.ToolDefinition{Name: "read", Description: "Reads.", InputSchema: json.RawMessage(`{}`)}
	for _, tt := range []struct {
		name string
		tool tool.Tool
		want abi.ToolGrant
	}{
		{"defaults", tool.Tool{Definition: definition}, abi.ToolGrant{
			ToolDefinition: definition, Mediation: abi.MediationControllerMediated, OnCrash: abi.OnCrashUnknown,
		}},
		{
			"as set",
			tool.Tool{Definition: definition, Mediation: abi.MediationRequiresApproval, OnCrash: abi.OnCrashAsk},
			abi.ToolGrant{ToolDefinition: definition, Mediation: abi.MediationRequiresApproval, OnCrash: abi.OnCrashAsk},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.tool.Grant()); diff != "" {
				t.Errorf("Grant (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTool_Check(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*tool.Tool)
		want string // "" if it is fine
	}{
		{"fine", func(*tool.Tool) {}, ""},
		{"everything set", func(x *tool.Tool) {
			x.Definition.InputSchema = json.RawMessage(" {\"type\":\"object\"}\n")
			x.Mediation, x.OnCrash = abi.MediationRequiresApproval, abi.OnCrashRetry
		}, ""},
		{"the longest name", func(x *tool.Tool) { x.Definition.Name = strings.Repeat("aZ0_-b7.", 16) }, ""},
		{"a name too long", func(x *tool.Tool) { x.Definition.Name = strings.Repeat("a", 129) }, "its name is"},
		{"no name", func(x *tool.Tool) { x.Definition.Name = "" }, "its name is"},
		{"a space within", func(x *tool.Tool) { x.Definition.Name = "read file" }, "its name is"},
		{"a letter that is not ASCII", func(x *tool.Tool) { x.Definition.Name = "lösche" }, "its name is"},
		{"reported", func(x *tool.Tool) { x.Mediation = abi.MediationInHarnessReported }, "mediation is"},
		{"a rule that is none", func(x *tool.Tool) { x.OnCrash = "again" }, "on_crash is"},
		{"a schema that is a list", func(x *tool.Tool) { x.Definition.InputSchema = json.RawMessage(`[]`) }, "input_schema is"},
		{"a schema that is not JSON", func(x *tool.Tool) { x.Definition.InputSchema = json.RawMessage(`{`) }, "input_schema is"},
		{"a schema of spaces", func(x *tool.Tool) { x.Definition.InputSchema = json.RawMessage(`  `) }, "input_schema is"},
		{"no executor", func(x *tool.Tool) { x.Executor = nil }, "no executor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := tool.Tool{Definition: abi.ToolDefinition{Name: "read"}, Executor: nothing{}}
			tt.edit(&x)
			switch err := x.Check(); {
			case tt.want == "" && err != nil:
				t.Errorf("Check: %v", err)
			case tt.want != "" && (!errors.Is(err, tool.ErrTool) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Check: %v; want ErrTool with %q", err, tt.want)
			}
		})
	}
}

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// variables are what a condition may speak of.
func variables() []cel.EnvOption {
	text := cel.StringType
	return []cel.EnvOption{
		cel.VariableWithDoc("tool", text, "the name of the tool"),
		cel.VariableWithDoc("args", cel.MapType(text, cel.DynType), "the arguments"),
		cel.VariableWithDoc("labels", cel.MapType(text, text), "the labels of the session"),
		cel.VariableWithDoc("session.uid", text, "the session"),
		cel.VariableWithDoc("session.name", text, "its name, which may be empty"),
		cel.VariableWithDoc("session.project", text, "the project that the name belongs to"),
		cel.VariableWithDoc("harness", text, "the name of the harness"),
		cel.VariableWithDoc("model", text, "the model of the turn"),
		cel.VariableWithDoc("approval", cel.BoolType, "whether the tool, or the harness, asks for approval by itself"),
		cel.VariableWithDoc("on_crash", text, "unknown, retry or ask"),
	}
}

// facts are the values of the variables for one call. It serves one decision, and is
// not safe for concurrent use.
type facts struct {
	subject turn.Subject
	call    abi.ToolCall
	grant   abi.ToolGrant
	args    ref.Val // nil until a rule asks for them
}

var _ cel.Activation = (*facts)(nil)

// ResolveName implements cel.Activation.
func (f *facts) ResolveName(name string) (any, bool) {
	switch name {
	case "tool":
		return f.call.Tool, true
	case "args":
		if f.args == nil {
			f.args = readArgs(f.call.Args)
		}
		return f.args, true
	case "labels":
		return f.subject.Labels, true
	case "session.uid":
		return string(f.subject.Session), true
	case "session.name":
		return f.subject.Name, true
	case "session.project":
		return f.subject.Project, true
	case "harness":
		return f.subject.Harness, true
	case "model":
		return f.subject.Model, true
	case "approval":
		return abi.MediationRequiresApproval == f.call.Mediation || abi.MediationRequiresApproval == f.grant.Mediation, true
	case "on_crash":
		if f.grant.OnCrash == "" {
			return string(abi.OnCrashUnknown), true
		}
		return string(f.grant.OnCrash), true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (f *facts) Parent() cel.Activation { return nil }

// readArgs makes CEL's values of arguments. Each is made once, as CEL keeps in a value
// what it has found out about its size.
func readArgs(text []byte) ref.Val {
	if len(text) == 0 {
		text = []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var args map[string]any
	if err := d.Decode(&args); err != nil {
		return types.WrapErr(fmt.Errorf("args: %w", err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return types.NewErr("args: more than one object")
	}
	v, err := value(args, 0)
	if err != nil {
		return types.WrapErr(fmt.Errorf("args: %w", err))
	}
	return v
}

// value makes CEL's value of a JSON value. An error is one of the arguments as a whole:
// within a value CEL would take it for equal to anything.
func value(v any, depth int) (ref.Val, error) {
	if depth > abi.MaxDepth {
		return nil, fmt.Errorf("nested deeper than %d", abi.MaxDepth)
	}
	switch v := v.(type) {
	case bool:
		return types.Bool(v), nil
	case string:
		return types.String(v), nil
	case json.Number:
		return number(string(v))
	case []any:
		list := make([]ref.Val, len(v))
		for i, e := range v {
			var err error
			if list[i], err = value(e, depth+1); err != nil {
				return nil, err
			}
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list), nil
	case map[string]any:
		m := make(map[ref.Val]ref.Val, len(v))
		for k, e := range v {
			member, err := value(e, depth+1)
			if err != nil {
				return nil, err
			}
			m[types.String(k)] = member
		}
		return types.NewRefValMap(types.DefaultTypeAdapter, m), nil
	}
	return types.NullValue, nil
}

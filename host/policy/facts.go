package policy

import (
	"cel.dev/cel-go/cel"
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

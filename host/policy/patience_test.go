package policy

import (
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// What CEL's cost leaves out ends with the time that a decision may take.
func TestPolicy_Patience(t *testing.T) {
	p, err := Parse("policy.yaml", []byte(`rules: [{name: r, then: allow, when: 'args.many.all(x, x == 1)'}]`))
	if err != nil {
		t.Fatal(err)
	}
	p.patience = 0 // it is over before it begins
	v := p.For(turn.Subject{})(abi.ToolCall{Args: abi.Struct(`{"many":[1,1,1]}`)}, abi.ToolGrant{})
	if v.Action != turn.Deny || v.Rule != "r" || !strings.Contains(v.Reason, "it takes longer than 5s") {
		t.Errorf("%+v, want a denial for the time it takes", v)
	}
}

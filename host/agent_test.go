package host_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/model/script"
	toolscript "github.com/agentcell/agentcell/host/tool/script"
	"github.com/agentcell/agentcell/sdk/abi"
)

// The bundled agent, from question to answer: it parks for an approval in the
// middle, goes on in another process, remembers, and calls each tool once.
func TestAgent(t *testing.T) {
	models, err := script.New(strings.NewReader(`{"text":"Let me see.","tool_calls":[{"id":"a","tool":"read","args":{"file":"notes"}},{"id":"b","tool":"drop"},{"id":"c","tool":"gone"}]}
{"tool_calls":[{"id":"d","tool":"fails"}]}
{"text":"It is done."}
{"text":"You are welcome."}
`))
	if err != nil {
		t.Fatal(err)
	}
	tools, err := toolscript.New(strings.NewReader(`{"name":"read","description":"Reads a file.","output":{"n":12345678901234567890},"on_crash":"retry"}
{"name":"drop","approval":true,"output":{"dropped":3}}
{"name":"fails","error":"no such file"}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.models["echo"], r.tools = models, tools.Tools()
	r.open()
	s := r.create("tools")

	r.park(s.UID, "Tidy up.")
	r.open()
	r.decide(s.UID, "b", true)
	// "Let me see." is in the record already.
	if diff := cmp.Diff([]string{"", "It is done."}, r.resume(s.UID)); diff != "" {
		t.Errorf("the turn that parked put out: %s", diff)
	}
	if diff := cmp.Diff([]string{"You are welcome."}, r.exec(s.UID, "Thanks.")); diff != "" {
		t.Errorf("the next turn put out: %s", diff)
	}
	r.verify(s.UID)

	keys := map[string]string{}
	for rec, err := range r.Replay(t.Context(), s.UID, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e := rec.Event; e.Kind == abi.EventToolCall {
			keys[e.Tool.IdempotencyKey] = e.Tool.ID
		}
	}
	for key, id := range keys {
		if n := tools.Calls(key); n != 1 {
			t.Errorf("I1: call %s was made %d times", id, n)
		}
	}
	if len(keys) != 3 {
		t.Errorf("3 calls have the keys %v", keys)
	}
}

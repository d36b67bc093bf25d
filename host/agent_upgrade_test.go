package host_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// The bundled agent hands its conversation to another build of itself.
func TestAgentUpgrade(t *testing.T) {
	old := harness(t, "agent")
	// An empty section makes another module of it, which does the same.
	other := host.Harness{Name: "agent", Code: append(bytes.Clone(old.Code), 0, 2, 1, 'x')}
	r := newRig(t).open()
	s := r.createFrom(old)
	r.exec(s.UID, "one")
	r.upgrade(s.UID, other)
	r.exec(s.UID, "two")
	if v := r.verify(s.UID); v.Reexecuted != 2 || v.Upgrades != 1 {
		t.Errorf("verified %+v", v)
	}
	var last abi.Seq
	for rec, err := range r.Replay(t.Context(), s.UID, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Event.Kind == abi.EventModelCall {
			last = rec.Seq
		}
	}
	call, err := r.Prompt(t.Context(), s.UID, last)
	if err != nil {
		t.Fatal(err)
	}
	want := []abi.Message{abi.Text(abi.RoleUser, "one"), abi.Text(abi.RoleAssistant, "echo:one"), abi.Text(abi.RoleUser, "two")}
	if diff := cmp.Diff(want, call.Messages); diff != "" {
		t.Error(diff)
	}
}

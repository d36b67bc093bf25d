package host_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// What Prompt rebuilds is what the provider got, in a fork too.
func TestPrompt(t *testing.T) {
	r := newRig(t)
	var sent []abi.ModelCall
	r.models["echo"] = providerFunc(func(_ context.Context, req model.Request, _ func(model.Delta)) (model.Result, error) {
		sent = append(sent, req.Call)
		return model.Result{Message: abi.Text("", "ok")}, nil
	})
	r.open()
	s := r.create("steps")
	r.exec(s.UID, "model one; model two")
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	r.exec(child.UID, "model three")
	var got []abi.ModelCall
	for rec, err := range r.Replay(t.Context(), child.UID, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		call, err := r.Prompt(t.Context(), child.UID, rec.Seq)
		if rec.Event.Kind != abi.EventModelCall {
			if !errors.Is(err, host.ErrInvalid) {
				t.Errorf("%s: %v", rec.Event.Kind, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, call)
		call.ID, call.InputHash = "", ""
		whole, err := abi.MarshalLossless(&call)
		if err != nil {
			t.Fatal(err)
		}
		if digest := abi.DigestOf(whole).String(); digest != rec.Event.Model.InputHash {
			t.Errorf("seq %d: digest %s, input_hash %s", rec.Seq, digest, rec.Event.Model.InputHash)
		}
	}
	if diff := cmp.Diff(sent, got); diff != "" || len(sent) != 3 {
		t.Errorf("%d calls (-sent +got):\n%s", len(sent), diff)
	}
	for seq, want := range map[abi.Seq]error{0: host.ErrInvalid, 1000: host.ErrNotFound} {
		if _, err := r.Prompt(t.Context(), child.UID, seq); !errors.Is(err, want) {
			t.Errorf("seq %d: %v, want %v", seq, err, want)
		}
	}
	if _, err := r.Prompt(t.Context(), "sess-none", 1); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("unknown session: %v", err)
	}
}

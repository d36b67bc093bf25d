package host_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	hostturn "github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// While the policy cannot be had no turn begins or goes on, with nothing recorded of the
// attempt; all else goes on, and a parked turn can be decided on and given up.
func TestPolicyThatCannotBeHad(t *testing.T) {
	r, tools := toolRig(t)
	ctx := t.Context()
	uid := r.create("steps").UID
	r.park(uid, "tools d:drop")
	before := r.transcript(uid)

	want := errors.New("no policy")
	r.policy = func(hostturn.Subject) (hostturn.Policy, error) { return nil, want }
	r.open()
	if _, err := r.Exec(ctx, host.ExecRequest{Session: r.create("steps").UID, Inputs: say("tools a:read")}); !errors.Is(err, want) {
		t.Errorf("a turn that begins: %v, want %v", err, want)
	}
	if _, err := r.Decide(ctx, host.DecideRequest{Session: uid, CallID: "d", Approved: true, Args: abi.Struct(`{"n":2}`)}); !errors.Is(err, want) {
		t.Errorf("other arguments, which the policy is asked about: %v, want %v", err, want)
	}
	if diff := cmp.Diff(before, r.transcript(uid)); diff != "" {
		t.Errorf("the record has changed:\n%s", diff)
	}
	r.decide(uid, "d", true)
	after := r.transcript(uid)
	if _, err := r.Resume(ctx, uid, nil); !errors.Is(err, want) {
		t.Errorf("a turn that goes on: %v, want %v", err, want)
	}
	if diff := cmp.Diff(after, r.transcript(uid)); diff != "" {
		t.Errorf("the record has changed:\n%s", diff)
	}
	if _, err := r.Get(ctx, uid); err != nil {
		t.Error(err)
	}
	r.verify(uid)
	e, err := r.Exec(ctx, host.ExecRequest{Session: uid, Abandon: true})
	if err != nil || e.State != abi.StateCanceled {
		t.Errorf("a turn that is given up: %+v, %v", e, err)
	}
	if n := tools.called("d"); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

func TestPolicyStore(t *testing.T) {
	r := newRig(t).open()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	store := host.NewPolicyStore(r.store, func() time.Time { return at })
	texts := []string{"rules: []\n", "default: ask\n"}
	for _, text := range texts {
		for range 2 { // the second time changes nothing
			if err := store.Keep(t.Context(), []byte(text)); err != nil {
				t.Fatal(err)
			}
			at = at.Add(time.Hour)
		}
	}
	if _, err := r.Collect(context.Background()); err != nil {
		t.Fatal(err)
	}
	all, err := store.List()
	if err != nil || len(all) != 2 {
		t.Fatalf("list: %+v, %v", all, err)
	}
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, text := range texts {
		digest := abi.DigestOf([]byte(text))
		if got, err := store.Get(digest); err != nil || string(got) != text {
			t.Errorf("get: %q, %v; want %q", got, err, text)
		}
		want := host.KeptPolicy{Digest: digest, Size: int64(len(text)), Since: begun.Add(time.Duration(2*i) * time.Hour)}
		if all[0] != want && all[1] != want {
			t.Errorf("list: %+v, want %+v there", all, want)
		}
	}
	if _, err := store.Get(abi.Digest{}); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("a policy that is not there: %v", err)
	}
}

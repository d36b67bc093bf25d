package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	hostturn "github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// rules are a policy for tests: what it says of each tool, and how often it was asked.
type rules struct {
	says  map[string]hostturn.Verdict
	asked atomic.Int64
}

func (p *rules) of(hostturn.Subject) (hostturn.Policy, error) {
	return func(call abi.ToolCall, _ abi.ToolGrant) hostturn.Verdict {
		p.asked.Add(1)
		v := p.says[call.Tool]
		if string(call.Args) == `{"table":"users"}` {
			v = hostturn.Verdict{Action: hostturn.Deny, Rule: "users stay", Reason: "they are the last"}
		}
		v.Policy = abi.DigestOf([]byte("rules"))
		return v
	}, nil
}

// ruledRig is a rig with tools and a policy, and a clock that a test moves.
func ruledRig(t *testing.T, says map[string]hostturn.Verdict) (*rig, *toolbox, *rules) {
	r, b := newRig(t), new(toolbox)
	p := &rules{says: says}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r.tools, r.policy = b.tools(), p.of
	r.now = func() time.Time { return now.Add(r.late) }
	return r.open(), b, p
}

func by(name string) *abi.IdentityRef { return &abi.IdentityRef{Principal: name} }

// A policy allows and denies in the commit of the intent, and a proof asks it nothing.
func TestPolicyDecides(t *testing.T) {
	r, b, p := ruledRig(t, nil)
	commits := map[string]int64{}
	for _, tt := range []struct {
		name, input, want, record string
		says                      map[string]hostturn.Verdict
	}{
		{"no verdict", "tools a:read", "a=" + big, "TOOL_CALL TOOL_RESULT", nil},
		{
			"allowed", "tools a:read", "a=" + big, "TOOL_CALL APPROVAL_RESULT TOOL_RESULT",
			map[string]hostturn.Verdict{"read": {Action: hostturn.Allow, Rule: "reads"}},
		},
		{
			"allowed although the tool asks", "tools a:drop", "a=" + big, "TOOL_CALL APPROVAL_RESULT TOOL_RESULT",
			map[string]hostturn.Verdict{"drop": {Action: hostturn.Allow, Rule: "sandbox"}},
		},
		{
			"denied", "tools a:read", `a=denied by the policy's rule "closed": not now`, "TOOL_CALL APPROVAL_RESULT TOOL_RESULT",
			map[string]hostturn.Verdict{"read": {Action: hostturn.Deny, Rule: "closed", Reason: "not now"}},
		},
	} {
		p.says = tt.says
		s := r.create("steps")
		before, calls := int64(r.store.Commits()), b.called("a")
		if got := r.exec(s.UID, tt.input); !cmp.Equal(got, []string{tt.want}) {
			t.Errorf("%s: put out %q", tt.name, got)
		}
		commits[tt.name] = int64(r.store.Commits()) - before
		if got, want := kinds(t, r, s.UID), "LIFECYCLE EXECUTION_START INPUT "+tt.record+" OUTPUT END"; got != want {
			t.Errorf("%s: the record is %s", tt.name, got)
		}
		if made := b.called("a") - calls; made != 1 && tt.name != "denied" || made != 0 && tt.name == "denied" {
			t.Errorf("%s: %d calls were made", tt.name, made)
		}
		asked := p.asked.Load()
		p.says = map[string]hostturn.Verdict{"read": {Action: hostturn.Deny, Rule: "other"}, "drop": {Action: hostturn.Deny, Rule: "other"}}
		if v := r.verify(s.UID); v.Reexecuted != 1 || p.asked.Load() != asked {
			t.Errorf("%s: verified %+v, the policy was asked %d times", tt.name, v, p.asked.Load()-asked)
		}
	}
	want := map[string]int64{"no verdict": 2, "allowed": 2, "allowed although the tool asks": 2, "denied": 1}
	if diff := cmp.Diff(want, commits); diff != "" {
		t.Errorf("commits (-want +got)\n%s", diff)
	}
}

// A request that nobody answers in time is taken up by itself: the call is denied, or
// people are asked again. A decision that comes too late says so.
func TestApprovalExpires(t *testing.T) {
	r, b, _ := ruledRig(t, map[string]hostturn.Verdict{
		"drop":      {Expires: time.Hour},
		"drop-once": {Expires: time.Hour, OnExpiry: hostturn.ExpiryAsks},
	})
	s := r.create("steps")
	at := abi.NewTime(r.now().Add(time.Hour))
	want := []host.Waiting{{CallID: "a", Tool: "drop", Until: at}, {CallID: "b", Tool: "drop-once", Until: at}}
	if diff := cmp.Diff(want, r.park(s.UID, "tools a:drop b:drop-once")); diff != "" {
		t.Error(diff)
	}
	old, err := r.Approvals(t.Context(), s.UID)
	if err != nil || len(old) != 2 || !old[0].Until.Equal(at.Time) || old[0].AsksAgain || !old[1].AsksAgain {
		t.Fatalf("approvals %+v: %v", old, err)
	}
	decide := func(id string, request abi.Seq) error {
		_, err := r.Decide(t.Context(), host.DecideRequest{Session: s.UID, CallID: id, Approved: true, Request: request})
		return err
	}
	r.late = time.Hour
	if got := mustGet(t, r, s.UID).State; got != host.ExecInterrupted {
		t.Errorf("expired, it is %s", got)
	}
	for id, next := range map[string]string{"a": "the call is denied", "b": "people are asked again"} {
		if err := decide(id, 0); !errors.Is(err, host.ErrConflict) || !errors.Is(err, host.ErrExpired) || !strings.Contains(err.Error(), next) {
			t.Errorf("%s, too late: %v", id, err)
		}
	}
	// Whoever recovers takes it up, with nobody's help.
	if err := r.Recover(t.Context(), host.RecoverRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := kinds(t, r, s.UID); !strings.HasSuffix(got, "APPROVAL_REQUEST APPROVAL_REQUEST APPROVAL_RESULT APPROVAL_REQUEST TOOL_RESULT") {
		t.Error(got)
	}
	parked := mustGet(t, r, s.UID)
	if diff := cmp.Diff([]host.Waiting{{CallID: "b", Tool: "drop-once", Until: abi.NewTime(r.now().Add(time.Hour))}}, parked.Waiting); diff != "" || parked.State != host.ExecAwaiting {
		t.Errorf("%s: %s", parked.State, diff)
	}
	// Who has looked at the old request is told that there is a new one.
	if err := decide("b", old[1].Seq); !errors.Is(err, host.ErrConflict) || !strings.Contains(err.Error(), "asked about anew") {
		t.Errorf("on the old request: %v", err)
	}
	pending, err := r.Approvals(t.Context(), s.UID)
	if err != nil || len(pending) != 1 {
		t.Fatalf("approvals %+v: %v", pending, err)
	}
	if err := decide("b", pending[0].Seq); err != nil {
		t.Fatal(err)
	}
	// It came in time, whenever the turn goes on; and the same again is no news.
	r.late = 100 * time.Hour
	if err := decide("b", 0); err != nil {
		t.Error(err)
	}
	if got := r.resume(s.UID); !cmp.Equal(got, []string{"a=denied: the request for approval expired b=" + big}) {
		t.Errorf("put out %q", got)
	}
	if b.called("a") != 0 || b.called("b") != 1 {
		t.Errorf("called %v", b.calls)
	}
	r.verify(s.UID)
}

// A host that follows takes up what expires while it runs.
func TestApprovalExpiresWhileFollowed(t *testing.T) {
	r, _, _ := ruledRig(t, map[string]hostturn.Verdict{"drop": {Expires: 20 * time.Millisecond}})
	r.now = nil // its timers go by the machine's clock
	r.open()
	s := r.create("steps")
	if e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("tools a:drop")}); err != nil || len(e.Waiting) != 1 {
		t.Fatalf("%+v: %v", e, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan host.Recovery, 1)
	if err := r.Recover(ctx, host.RecoverRequest{Follow: true, Report: func(rec host.Recovery) {
		done <- rec
		cancel()
	}}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if rec := <-done; rec.Session != s.UID || rec.Err != nil || rec.Execution.State != abi.StateCompleted {
		t.Errorf("%+v", rec)
	}
}

// A clock that was set back makes a request wait longer and nothing else.
func TestApprovalsAndSetClocks(t *testing.T) {
	r, _, _ := ruledRig(t, map[string]hostturn.Verdict{"drop": {Expires: time.Hour}})
	s := r.create("steps")
	r.park(s.UID, "tools a:drop")
	r.late = -10 * time.Hour
	if e, err := r.Resume(t.Context(), s.UID, nil); err != nil || len(e.Waiting) != 1 {
		t.Errorf("set back: %+v, %v", e, err)
	}
	r.decide(s.UID, "a", true)
	r.late = 0
	if got := r.resume(s.UID); !cmp.Equal(got, []string{"a=" + big}) {
		t.Errorf("put out %q", got)
	}
	r.verify(s.UID)
}

// Where several must approve, the call is made when so many different people have, for
// equal arguments; one who denies is enough.
func TestSeveralApprovers(t *testing.T) {
	r, b, _ := ruledRig(t, map[string]hostturn.Verdict{"read": {Action: hostturn.Ask, Rule: "three", Approvers: 3, Reason: "sure?"}})
	s := r.create("steps")
	parent := r.park(s.UID, "tools a:read")
	if diff := cmp.Diff([]host.Waiting{{CallID: "a", Tool: "read", Reason: "sure?", Approvers: 3}}, parent); diff != "" {
		t.Error(diff)
	}
	edited := abi.Struct(`{ "b": 18446744073709551616, "a": 1.0 }`)
	for i, tt := range []struct {
		who      string
		args     abi.Struct
		want     error
		approved []string
	}{
		{"", nil, host.ErrInvalid, nil},
		{"policy", nil, host.ErrInvalid, nil},
		{"Policy", nil, host.ErrInvalid, nil},
		{"ann ", nil, host.ErrInvalid, nil},
		{"a\u200bnn", nil, host.ErrInvalid, nil},
		{"\u202enna", nil, host.ErrInvalid, nil},
		{strings.Repeat("x", 2000), nil, host.ErrInvalid, nil},
		{"ann", nil, nil, []string{"ann"}},
		{"ann", nil, nil, []string{"ann"}},
		{"bob", abi.Struct(big), nil, []string{"ann", "bob"}}, // as they were asked for
		{"cid", edited, nil, []string{"cid"}},
		{"cid", edited, nil, []string{"cid"}},
		{"ann", abi.Struct(`{"a":1,"b":18446744073709551616}`), nil, []string{"cid", "ann"}},
	} {
		req := host.DecideRequest{Session: s.UID, Approved: true, Args: tt.args, Actor: by(tt.who)}
		head := mustGet(t, r, s.UID).Head
		after, err := r.Decide(t.Context(), req)
		if !errors.Is(err, tt.want) {
			t.Errorf("%d, %s: %v", i, tt.who, err)
		}
		got := mustGet(t, r, s.UID)
		if diff := cmp.Diff(tt.approved, got.Waiting[0].Approved); diff != "" || got.State != host.ExecAwaiting {
			t.Errorf("%d, %s: it is %s, approved (-want +got)\n%s", i, tt.who, got.State, diff)
		}
		if err == nil && after.Head.Seq > head.Seq+1 {
			t.Errorf("%d: wrote %d records", i, after.Head.Seq-head.Seq)
		}
		// Nothing goes on with that, and it survives.
		if e, err := r.open().Resume(t.Context(), s.UID, nil); err != nil || len(e.Waiting) != 1 {
			t.Errorf("%d: resumed: %+v, %v", i, e, err)
		}
	}
	pending, err := r.Approvals(t.Context(), s.UID)
	want := []abi.IdentityRef{*by("cid"), *by("ann")}
	if err != nil || len(pending) != 1 || !cmp.Equal(pending[0].Approvals, want) || pending[0].Rule != "three" ||
		string(pending[0].Proposed) != `{"a":1,"b":18446744073709551616}` || string(pending[0].Call.Args) != big {
		t.Errorf("approvals %+v: %v", pending, err)
	}
	// A child has its own gate, with who has approved so far, however it gets there.
	children := fork(t, r, host.ForkRequest{Session: s.UID, At: mustGet(t, r, s.UID).Head.Seq, Count: 2})
	for _, c := range children {
		if diff := cmp.Diff(mustGet(t, r, s.UID).Waiting, c.Waiting); diff != "" {
			t.Errorf("child %s", diff)
		}
	}
	if _, err := r.Decide(t.Context(), host.DecideRequest{Session: children[0].UID, Reason: "no", Actor: by("bob")}); err != nil {
		t.Fatal(err)
	}
	if got := r.resume(children[0].UID); !cmp.Equal(got, []string{"a=denied: no"}) {
		t.Errorf("denied by one: put out %q", got)
	}
	if _, err := r.Decide(t.Context(), host.DecideRequest{Session: children[1].UID, Approved: true, Args: edited, Actor: by("bob")}); err != nil {
		t.Fatal(err)
	}
	for _, late := range []host.DecideRequest{
		{Session: children[1].UID, CallID: "a", Approved: true, Actor: by("bob")},
		{Session: children[1].UID, CallID: "a", Approved: false, Actor: by("dan")},
	} {
		if _, err := r.Decide(t.Context(), late); !errors.Is(err, host.ErrConflict) {
			t.Errorf("%+v: %v", late, err)
		}
	}
	if got := r.resume(children[1].UID); !cmp.Equal(got, []string{`a{"a":1,"b":18446744073709551616}={"a":1,"b":18446744073709551616}`}) {
		t.Errorf("put out %q", got)
	}
	if b.called("a") != 1 {
		t.Errorf("called %v", b.calls)
	}
	if got := mustGet(t, r, s.UID).State; got != host.ExecAwaiting {
		t.Errorf("the parent is %s", got)
	}
	for _, uid := range []abi.SessionID{children[0].UID, children[1].UID, s.UID} {
		r.verify(uid)
	}
}

// A person gives a call other arguments: numbers that no double holds survive (I2), and
// so do arguments that are too long for a record's line.
func TestI2_EditedArguments(t *testing.T) {
	r, _, _ := ruledRig(t, nil)
	long := `{"n":12345678901234567890,"text":"` + strings.Repeat("x", abi.MaxInlineBytes) + `"}`
	for _, args := range []string{`{}`, `{"n":12345678901234567890,"x":0.1}`, long} {
		s := r.create("steps")
		r.park(s.UID, "tools a:drop")
		req := host.DecideRequest{Session: s.UID, Approved: true, Args: abi.Struct(" " + args + "\n"), Actor: by("ann")}
		for range 2 { // the same again is no news
			if _, err := r.Decide(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			req.CallID = "a"
		}
		for _, other := range []string{"", `{"n":1}`} {
			req.Args = abi.Struct(other)
			if _, err := r.Decide(t.Context(), req); !errors.Is(err, host.ErrConflict) {
				t.Errorf("then with %q: %v", other, err)
			}
		}
		if got := r.resume(s.UID); !cmp.Equal(got, []string{"a" + args + "=" + args}) {
			t.Errorf("put out %.200q", got)
		}
		if v := r.verify(s.UID); v.Reexecuted != 1 {
			t.Errorf("verified %+v", v)
		}
	}
}

// What cannot be the arguments of a call is refused, and so is what the policy denies.
func TestEditedArgumentsRefused(t *testing.T) {
	r, b, _ := ruledRig(t, nil)
	s := r.create("steps")
	r.park(s.UID, "tools a:drop")
	head := mustGet(t, r, s.UID).Head
	for args, want := range map[string]string{
		`[1]`:               "want a JSON object",
		`{`:                 "unexpected end",
		`{"n":1e400}`:       "outside the range",
		`{"a":1,"a":2}`:     "stands twice",
		"{\"a\":\"\xff\"}":  "",
		`{"table":"users"}`: `the policy's rule "users stay" denies call "a" with these arguments: they are the last`,
		`{"n":"` + strings.Repeat("1", host.MaxArgsBytes) + `"}`: "at most",
	} {
		_, err := r.Decide(t.Context(), host.DecideRequest{Session: s.UID, Approved: true, Args: abi.Struct(args)})
		if !errors.Is(err, host.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v", args, err)
		}
	}
	if _, err := r.Decide(t.Context(), host.DecideRequest{Session: s.UID, Args: abi.Struct(`{}`)}); !errors.Is(err, host.ErrInvalid) {
		t.Errorf("denied with other arguments: %v", err)
	}
	if got := mustGet(t, r, s.UID); got.Head != head || b.called("a") != 0 {
		t.Errorf("something was recorded: %+v", got.Head)
	}
}

// The policy under which people were asked has a say in other arguments, whichever there
// is when they decide, if any; where it is not at hand there are none.
func TestEditedArgumentsUnderTheKeptPolicy(t *testing.T) {
	p, b := &rules{}, new(toolbox)
	r := newRig(t)
	r.tools, r.policy = b.tools(), p.of
	r.open()
	none := func(hostturn.Subject) (hostturn.Policy, error) { return nil, nil }
	lax := func(hostturn.Subject) (hostturn.Policy, error) {
		return func(abi.ToolCall, abi.ToolGrant) hostturn.Verdict {
			return hostturn.Verdict{Policy: abi.DigestOf([]byte("lax"))}
		}, nil
	}
	keeps := func(digest abi.Digest, s hostturn.Subject) (hostturn.Policy, error) {
		if digest != abi.DigestOf([]byte("rules")) {
			return nil, host.ErrNotFound
		}
		return p.of(s)
	}
	for _, tt := range []struct {
		name   string
		policy func(hostturn.Subject) (hostturn.Policy, error)
		kept   func(abi.Digest, hostturn.Subject) (hostturn.Policy, error)
		args   string
		want   string
	}{
		{"no policy", none, keeps, `{"table":"users"}`, `rule "users stay", of when people were asked (policy `},
		{"no policy at all", nil, keeps, `{"table":"users"}`, `denies call "a" with these arguments: they are the last`},
		{"another", lax, keeps, `{"table":"users"}`, `rule "users stay", of when`},
		{"none is kept", none, nil, `{"table":"old"}`, "give it with --policy: policy "},
		{"the same", p.of, nil, `{"table":"old"}`, ""},
		{"no policy, and harmless", none, keeps, `{"table":"old"}`, ""},
	} {
		r.policy, r.kept = p.of, nil
		uid := r.open().create("steps").UID
		r.park(uid, "tools a:drop!")
		head := mustGet(t, r, uid).Head
		r.policy, r.kept = tt.policy, tt.kept
		r.open()
		s, err := r.Decide(t.Context(), host.DecideRequest{Session: uid, Approved: true, Args: abi.Struct(tt.args)})
		if tt.want == "" {
			if err != nil || s.Head.Seq != head.Seq+1 {
				t.Errorf("%s: %v, at seq %d", tt.name, err, s.Head.Seq)
			}
			continue
		}
		if !errors.Is(err, host.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if got := mustGet(t, r, uid).Head; got != head {
			t.Errorf("%s: something was recorded: %+v", tt.name, got)
		}
		r.decide(uid, "a", true) // as it was asked about, whatever there is
	}
}

// A session that waits travels, with what was decided so far.
func TestApprovalsTravel(t *testing.T) {
	r, _, _ := ruledRig(t, map[string]hostturn.Verdict{"drop": {Action: hostturn.Ask, Rule: "two", Approvers: 2, Expires: time.Hour}})
	s := r.create("steps")
	r.park(s.UID, "tools a:drop b:read!")
	r.decide(s.UID, "b", true)
	if _, err := r.Decide(t.Context(), host.DecideRequest{Session: s.UID, CallID: "a", Approved: true, Actor: by("ann")}); err != nil {
		t.Fatal(err)
	}
	other, _, _ := ruledRig(t, nil)
	other.load(r.export(s.UID))
	if diff := cmp.Diff(mustGet(t, r, s.UID).Waiting, mustGet(t, other, s.UID).Waiting); diff != "" {
		t.Error(diff)
	}
	if _, err := other.Decide(t.Context(), host.DecideRequest{Session: s.UID, CallID: "a", Approved: true, Actor: by("bob")}); err != nil {
		t.Fatal(err)
	}
	if got := other.resume(s.UID); !cmp.Equal(got, []string{fmt.Sprintf("a=%s b=%s", big, big)}) {
		t.Errorf("put out %q", got)
	}
	other.verify(s.UID)
}

// A call that is denied, that expires or that waits takes nothing from a budget, and
// nothing is set aside for it; one that is allowed is paid for like any other.
func TestBudget_UndecidedCalls(t *testing.T) {
	r, b, _ := ruledRig(t, map[string]hostturn.Verdict{
		"read": {Action: hostturn.Deny, Rule: "closed"},
		"drop": {Expires: time.Hour},
		"pay":  {Action: hostturn.Allow, Rule: "open"},
	})
	s, err := r.Create(t.Context(), host.CreateRequest{
		Harness: harness(t, "steps"), Budget: host.Amounts{ToolCalls: 2}, TreeBudget: host.Amounts{ToolCalls: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	spent := func(when string, want int64) {
		t.Helper()
		got, err := r.Spending(t.Context(), s.UID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Held != (host.Amounts{}) || got.TreeHeld != (host.Amounts{}) || got.Used.ToolCalls != want || got.TreeUsed.ToolCalls != want {
			t.Errorf("%s: %+v, want %d calls and nothing held", when, got, want)
		}
	}
	r.exec(s.UID, "tools a:read b:read")
	spent("denied by the policy", 0)
	r.park(s.UID, "tools a:drop b:drop c:drop")
	spent("waiting for people", 0)
	r.decide(s.UID, "a", false)
	r.late = time.Hour
	r.resume(s.UID)
	spent("denied, and expired", 0)
	r.exec(s.UID, "tools a:pay")
	spent("allowed by the policy", 1)
	r.park(s.UID, "tools d:drop")
	r.decide(s.UID, "d", true)
	spent("approved", 1)
	r.resume(s.UID)
	spent("made", 2)
	e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("tools e:pay")})
	if err != nil || e.Reason != abi.ReasonBudget || b.called("e") != 0 {
		t.Errorf("one more: %+v, %v, called %v", e, err, b.calls)
	}
	spent("refused", 2)
	r.verify(s.UID)
}

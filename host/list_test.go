package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// pages walks all pages of a list, each of which must be full but the last.
func pages(t *testing.T, r *rig, req host.ListRequest) []abi.SessionID {
	t.Helper()
	var uids []abi.SessionID
	for {
		page, err := r.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sessions {
			uids = append(uids, s.UID)
		}
		if page.Next == "" {
			return uids
		}
		if len(page.Sessions) != req.Limit {
			t.Fatalf("a page of %d sessions, and there is another one; want %d", len(page.Sessions), req.Limit)
		}
		req.Token = page.Next
	}
}

func TestListFilters(t *testing.T) {
	r := newRig(t).open()
	ran, idle := r.create("steps"), r.create("echo")
	r.exec(ran.UID, "output x")
	children := fork(t, r, host.ForkRequest{Session: ran.UID, Count: 2})
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: children[0].UID, Inputs: say("fail no")}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		filter host.Filter
		want   map[abi.SessionID]bool
	}{
		"nothing":      {host.Filter{}, map[abi.SessionID]bool{ran.UID: true, idle.UID: true, children[0].UID: true, children[1].UID: true}},
		"harness":      {host.Filter{Harnesses: []string{"echo"}}, map[abi.SessionID]bool{idle.UID: true}},
		"harnesses":    {host.Filter{Harnesses: []string{"chat", "steps"}}, map[abi.SessionID]bool{ran.UID: true, children[0].UID: true, children[1].UID: true}},
		"state":        {host.Filter{States: []host.ExecState{host.ExecFailed, host.ExecPending}}, map[abi.SessionID]bool{idle.UID: true, children[0].UID: true}},
		"parent":       {host.Filter{Parent: ran.UID}, map[abi.SessionID]bool{children[0].UID: true, children[1].UID: true}},
		"both":         {host.Filter{Parent: ran.UID, States: []host.ExecState{host.ExecFailed}}, map[abi.SessionID]bool{children[0].UID: true}},
		"model":        {host.Filter{Model: "none"}, nil},
		"not the kind": {host.Filter{Harnesses: []string{"echo"}, Parent: ran.UID}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for limit := 1; limit <= 5; limit++ {
				var got map[abi.SessionID]bool
				for _, uid := range pages(t, r, host.ListRequest{Limit: limit, Filter: tt.filter}) {
					if got[uid] {
						t.Errorf("limit %d: %s stands twice", limit, uid)
					}
					if got == nil {
						got = map[abi.SessionID]bool{}
					}
					got[uid] = true
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("limit %d (-want +got):\n%s", limit, diff)
				}
			}
		})
	}
}

// Filtered pages come from walking many unfiltered ones.
func TestListFiltersMany(t *testing.T) {
	r := newRig(t).open()
	model := r.create("echo")
	stored, err := r.store.Session(model.UID)
	if err != nil {
		t.Fatal(err)
	}
	var want []abi.SessionID
	for i := range 1201 {
		stored.UID = abi.NewSessionID([12]byte{byte(i >> 8), byte(i)})
		stored.Created = model.Created.Add(-time.Duration(i) * time.Second)
		stored.Parent = ""
		s := stored
		if i%300 == 0 { // 0, 300, 600, 900, 1200: one at the end of a walk, too
			s.Meta = []byte(`{"harness":"rare"}`)
			want = append(want, s.UID)
		}
		if _, err := r.store.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		got := pages(t, r, host.ListRequest{Limit: limit, Filter: host.Filter{Harnesses: []string{"rare"}}})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.List(ctx, host.ListRequest{Filter: host.Filter{Model: "none"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled walk: %v", err)
	}
}

// A filter is first held against the bytes of a session's rows. Whatever these are like,
// that leaves out nothing that it takes.
func TestListFilters_Rows(t *testing.T) {
	r := newRig(t).open()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	put := func(uid abi.SessionID, meta, summary string) {
		s := journal.Session{UID: uid, Project: "rows", Created: at, Meta: []byte(meta), Summary: []byte(summary)}
		if _, err := r.store.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	odd := "a<b>&\u2028\"\\é"
	labels, err := json.Marshal(map[string]any{"harness": "one", "model": odd, "labels": map[string]string{odd: odd, "team": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	put("labels", string(labels), `{}`)
	put("upgraded", `{"harness":"one"}`, `{"state":"COMPLETED","upgraded":{"harness":"two","seq":7}}`)
	put("open", `{"harness":"three"}`, `{"state":"FAILED","open":9}`)
	put("due", `{"harness":"three"}`, `{"open":3,"waiting":[{"until":"2026-01-01T00:00:00Z"}]}`)
	put("parked", `{"harness":"three"}`, `{"open":3,"waiting":[{"until":"2999-01-01T00:00:00Z"}]}`)
	put("canceled", `{"harness":"three","labels":{"state":"FAILED"}}`, `{"state":"CANCELED"}`)
	for name, tt := range map[string]struct {
		filter host.Filter
		want   []abi.SessionID
	}{
		"label":             {host.Filter{Labels: map[string]string{odd: odd}}, []abi.SessionID{"labels"}},
		"any value":         {host.Filter{Labels: map[string]string{odd: ""}}, []abi.SessionID{"labels"}},
		"another value":     {host.Filter{Labels: map[string]string{odd: "a"}}, nil},
		"the value of one":  {host.Filter{Labels: map[string]string{"a": ""}}, nil},
		"no label":          {host.Filter{Labels: map[string]string{"model": odd}}, nil},
		"model":             {host.Filter{Model: odd}, []abi.SessionID{"labels"}},
		"made with":         {host.Filter{Harnesses: []string{"one"}}, []abi.SessionID{"labels"}},
		"upgraded to":       {host.Filter{Harnesses: []string{"two", "none"}}, []abi.SessionID{"upgraded"}},
		"completed":         {host.Filter{States: []host.ExecState{host.ExecCompleted}}, []abi.SessionID{"upgraded"}},
		"failed":            {host.Filter{States: []host.ExecState{host.ExecFailed}}, nil},
		"canceled":          {host.Filter{States: []host.ExecState{host.ExecFailed, host.ExecCanceled}}, []abi.SessionID{"canceled"}},
		"interrupted":       {host.Filter{States: []host.ExecState{host.ExecInterrupted}}, []abi.SessionID{"due", "open"}},
		"awaiting":          {host.Filter{States: []host.ExecState{host.ExecAwaiting}}, []abi.SessionID{"parked"}},
		"pending":           {host.Filter{States: []host.ExecState{host.ExecCanceled, host.ExecPending}}, []abi.SessionID{"canceled", "labels"}},
		"running":           {host.Filter{States: []host.ExecState{host.ExecRunning}}, nil},
		"state and harness": {host.Filter{States: []host.ExecState{host.ExecCanceled}, Harnesses: []string{"three"}}, []abi.SessionID{"canceled"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := pages(t, r, host.ListRequest{Project: "rows", Limit: 10, Filter: tt.filter})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

package edge_test

import (
	"context"
	"errors"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/model"
)

// silent is a model that is asked and does not answer.
type silent struct{ asked chan struct{} }

// Complete implements model.Provider.
func (s silent) Complete(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Result, error) {
	close(s.asked)
	<-ctx.Done()
	return model.Result{}, ctx.Err()
}

// A host that is opened where another one was closed in mid-turn finishes the turn,
// unless it is paused.
func TestOpenRecovers(t *testing.T) {
	dir := t.TempDir()
	open := func(paused bool, m model.Provider, recovered func(host.Recovery)) *edge.Host {
		t.Helper()
		o := edge.Options{CacheDir: testCache(t), Paused: paused, Recovered: recovered}
		if m != nil {
			o.Models = map[string]model.Provider{edge.EchoModel: m}
		}
		h, err := edge.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	closed := func(h *edge.Host) {
		t.Helper()
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	asked := make(chan struct{})
	h := open(true, silent{asked}, nil)
	s, err := h.Create(t.Context(), host.CreateRequest{Harness: bundled(t, "echo")})
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error)
	go func() {
		_, err := h.Exec(context.Background(), host.ExecRequest{Session: s.UID, Inputs: hello})
		left <- err
	}()
	<-asked
	closed(h)
	if err := <-left; !errors.Is(err, host.ErrClosed) {
		t.Fatal(err)
	}

	told := make(chan host.Recovery, 2)
	h = open(true, nil, func(r host.Recovery) { told <- r })
	if got, err := h.Get(t.Context(), s.UID); err != nil || got.State != host.ExecInterrupted {
		t.Errorf("%s, %v", got.State, err)
	}
	closed(h)
	if len(told) != 0 {
		t.Errorf("a paused host told %+v", <-told)
	}
	h = open(false, nil, func(r host.Recovery) { told <- r })
	if r := <-told; r.Session != s.UID || r.Err != nil || r.Execution.Session.State != host.ExecCompleted {
		t.Errorf("told %+v", r)
	}
	closed(h)
}

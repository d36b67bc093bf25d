// Package modeltest owns the conformance suite that every model.Provider passes, and
// what those that call over HTTP are tested with: a server that misbehaves, and tapes
// of what was said.
//
// It is imported by tests alone and imports host/model and sdk/abi, and never a
// provider.
package modeltest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Run checks p against the contract of model.Provider. Each request must be one
// that p answers; at least one of the answers must come in several deltas.
func Run(t *testing.T, p model.Provider, requests ...model.Request) {
	t.Helper()
	var streamed []model.Request
	for _, req := range requests {
		if len(complete(t, p, req)) > 1 {
			streamed = append(streamed, req)
		}
	}
	if len(streamed) == 0 {
		t.Fatal("no request has an answer of several deltas; the suite needs one")
	}
	t.Run("Concurrent", func(t *testing.T) { concurrent(t, p, requests) })
	t.Run("NobodyWatches", func(t *testing.T) { nobodyWatches(t, p, requests[0]) })
	t.Run("DoneBefore", func(t *testing.T) { doneBefore(t, p, requests[0]) })
	t.Run("DoneInStream", func(t *testing.T) { doneInStream(t, p, streamed[0]) })
}

// complete makes one call and checks its deltas against its result.
func complete(t *testing.T, p model.Provider, req model.Request) []model.Delta {
	t.Helper()
	var deltas []model.Delta
	returned := false
	got, err := p.Complete(t.Context(), req, func(d model.Delta) {
		if returned {
			t.Error("a delta came after Complete had returned")
		}
		deltas = append(deltas, d)
	})
	returned = true
	if err != nil {
		t.Errorf("call %d: %v", req.Index, err)
		return nil
	}
	if got.Message.Role != abi.RoleAssistant {
		t.Errorf("call %d: the answer's role is %q", req.Index, got.Message.Role)
	}
	var text strings.Builder
	attempt := req.Attempt
	for i, d := range deltas {
		if d.Reset {
			text.Reset()
		}
		text.WriteString(d.Text)
		if last := i == len(deltas)-1; d.Done != last {
			t.Errorf("call %d: delta %d of %d has Done %v", req.Index, i+1, len(deltas), d.Done)
		}
		if d.Attempt < attempt {
			t.Errorf("call %d: delta %d has attempt %d after %d", req.Index, i+1, d.Attempt, attempt)
		}
		attempt = d.Attempt
	}
	if diff := cmp.Diff(got.Message.Text(), text.String()); diff != "" {
		t.Errorf("call %d: the deltas do not join to the answer (-answer +deltas):\n%s", req.Index, diff)
	}
	return deltas
}

func concurrent(t *testing.T, p model.Provider, requests []model.Request) {
	var wg sync.WaitGroup
	for range 8 {
		for _, req := range requests {
			wg.Go(func() { complete(t, p, req) })
		}
	}
	wg.Wait()
}

func nobodyWatches(t *testing.T, p model.Provider, req model.Request) {
	if _, err := p.Complete(t.Context(), req, nil); err != nil {
		t.Error(err)
	}
}

func doneBefore(t *testing.T, p model.Provider, req model.Request) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Complete(ctx, req, func(d model.Delta) { t.Errorf("a delta %+v although ctx was done", d) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v; want one that wraps ctx.Err()", err)
	}
}

func doneInStream(t *testing.T, p model.Provider, req model.Request) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := p.Complete(ctx, req, func(d model.Delta) {
		if d.Done {
			t.Error("the answer was finished although ctx was done")
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v; want one that wraps ctx.Err()", err)
	}
}

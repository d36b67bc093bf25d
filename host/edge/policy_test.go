package edge_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// A host that would run turns by itself is not made without its policy; one that runs
// none is, and refuses each until it is opened with a policy that can be read.
func TestPolicy(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	path := filepath.Join(dir, config.PolicyFileName)
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(o edge.Options) (*edge.Host, error) {
		o.CacheDir = testCache(t)
		h, err := edge.Open(dir, o)
		if err == nil {
			t.Cleanup(func() { _ = h.Close() })
		}
		return h, err
	}
	write("rules: [{name: a, when: tol, then: deny}]")
	if _, err := open(edge.Options{}); !errors.Is(err, config.ErrConfig) {
		t.Fatalf("a policy that cannot be read: %v, want %v", err, config.ErrConfig)
	}
	if _, err := open(edge.Options{PolicyFile: path + "x"}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a policy that is not there: %v, want %v", err, fs.ErrNotExist)
	}

	h, err := open(edge.Options{Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Create(ctx, host.CreateRequest{Harness: bundled(t, "echo")})
	if err != nil {
		t.Fatal(err)
	}
	turn := host.ExecRequest{Session: s.UID, Inputs: []abi.Message{abi.Text(abi.RoleUser, "x")}}
	if _, err := h.Exec(ctx, turn); !errors.Is(err, config.ErrConfig) {
		t.Errorf("a turn: %v, want %v", err, config.ErrConfig)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	const good = "default: ask\n"
	write(good)
	if h, err = open(edge.Options{}); err != nil {
		t.Fatal(err)
	}
	if kept, err := h.PolicyStore().List(); err != nil || len(kept) != 0 {
		t.Errorf("before any turn: %+v, %v", kept, err)
	}
	if e, err := h.Exec(ctx, turn); err != nil || e.State != abi.StateCompleted {
		t.Errorf("a turn: %+v, %v", e, err)
	}
	if text, err := h.PolicyStore().Get(abi.DigestOf([]byte(good))); err != nil || string(text) != good {
		t.Errorf("the policy that is kept: %q, %v", text, err)
	}
}

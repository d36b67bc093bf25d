package edge_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

func testCache(t testing.TB) string {
	if dir := os.Getenv("AGENTCELL_TEST_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "agentcell-test")
}

func bundled(t testing.TB, name string) host.Harness {
	h, err := edge.Bundled(name)
	if err != nil {
		if os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return h
}

// The main job, on the real parts: turns, memory that lasts over processes,
// replay, fork and proof by running again.
func TestMainJob(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	open := func() *edge.Host {
		h, err := edge.Open(dir, edge.Options{CacheDir: testCache(t)})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := open()
	s, err := h.Create(ctx, host.CreateRequest{Name: "sum", Harness: bundled(t, "counter")})
	if err != nil {
		t.Fatal(err)
	}
	say := func(uid abi.SessionID, text string) (out string, e host.Execution) {
		t.Helper()
		e, err := h.Exec(ctx, host.ExecRequest{
			Session: uid, Inputs: []abi.Message{abi.Text(abi.RoleUser, text)},
			Observe: func(u host.Update) {
				if u.Record != nil && u.Record.Event.Kind == abi.EventOutput {
					out = u.Record.Event.Message.Text()
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return out, e
	}
	say(s.UID, "3")
	say(s.UID, "4")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	h = open()
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	if out, e := say(s.UID, "total"); out != "7" || e.State != abi.StateCompleted {
		t.Fatalf("total: %q, %+v", out, e)
	}
	children, err := h.Fork(ctx, host.ForkRequest{Session: s.UID, Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range children {
		say(c.UID, []string{"10", "20", "30"}[i])
		if out, _ := say(c.UID, "total"); out != []string{"17", "27", "37"}[i] {
			t.Errorf("child %d: %q", i, out)
		}
		v, err := h.Verify(ctx, host.VerifyRequest{Session: c.UID, Reexecute: true, Strict: true})
		if err != nil || v.Reexecuted != 5 || v.ProviderCalls != 0 {
			t.Errorf("child %d: verified %+v, %v", i, v, err)
		}
	}
	if out, _ := say(s.UID, "total"); out != "7" {
		t.Errorf("parent: %q", out)
	}
	records := 0
	for _, err := range h.Replay(ctx, s.UID, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		records++
	}
	// CREATE, and START, INPUT, OUTPUT, END of each of four turns.
	if records != 17 {
		t.Errorf("%d records", records)
	}
}

// Where compiled modules cannot be kept, work goes on and the reason is told.
func TestNoPlaceForTheCache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var told []string
	h, err := edge.OpenMemory(edge.Options{
		CacheDir: filepath.Join(file, "below"), Interpreter: true,
		Progress: func(text string) { told = append(told, text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || !strings.HasPrefix(told[0], "compiled modules are not kept: ") {
		t.Errorf("told %q", told)
	}
}

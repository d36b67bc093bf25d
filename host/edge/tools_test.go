package edge_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/extism"
	"github.com/agentcell/agentcell/host/tool/script"
	"github.com/agentcell/agentcell/sdk/abi"
)

// plugin is one of the plug-ins that the SDK of Extism comes with.
func plugin(t testing.TB, name string) []byte {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	code, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "wasm", name))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// asker is a model that answers a user with a call of a tool, and its result with ok.
type asker struct{ call abi.ToolCall }

func (a asker) Complete(_ context.Context, r model.Request, _ func(model.Delta)) (model.Result, error) {
	if r.Call.Messages[len(r.Call.Messages)-1].Role == abi.RoleTool {
		return model.Result{Message: abi.Text(abi.RoleAssistant, "ok")}, nil
	}
	call := a.call
	return model.Result{Message: abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{{ToolCall: &call}}}}, nil
}

// count is a call of the tool that counts vowels.
var count = asker{abi.ToolCall{ID: "c1", Tool: "vowels", Args: abi.Struct(`{"text":"hello world"}`)}}

// From a file to a tool, to a turn that calls it, to a record that replays without it:
// over processes, and with a secret that stays where it is (S4).
func TestS4_PluginToReplay(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	const canary = "sk-canary-1234567890"
	asked := 0
	open := func() *edge.Host {
		h, err := edge.Open(dir, edge.Options{
			CacheDir: testCache(t), Models: map[string]model.Provider{"asker": count}, DefaultModel: "asker", ManualCollect: true,
			Secret: func(name string) (string, error) {
				asked++
				return canary, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	code := plugin(t, "count_vowels.wasm")
	manifest := extism.Manifest{Export: "count_vowels", Input: "text", Config: map[string]string{"vowels": "secret:KEY"}}
	grant := abi.ToolGrant{ToolDefinition: abi.ToolDefinition{Name: "vowels"}}
	h := open()
	for name, bad := range map[string]struct {
		manifest extism.Manifest
		code     []byte
		want     error
	}{
		"no such function": {extism.Manifest{Export: "nope"}, code, extism.ErrModule},
		"no plug-in":       {manifest, []byte("text"), extism.ErrModule},
		"no function":      {extism.Manifest{}, code, extism.ErrManifest},
	} {
		if _, err := h.AddPlugin(ctx, grant, bad.manifest, bad.code); !errors.Is(err, bad.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := h.AddPlugin(ctx, abi.ToolGrant{}, manifest, code); !errors.Is(err, tool.ErrTool) {
		t.Errorf("without a name: %v", err)
	}
	if list, err := h.Tools(ctx); err != nil || len(list) != 0 {
		t.Errorf("of what was refused there are %v, %v", list, err)
	}
	stored, err := h.AddPlugin(ctx, grant, manifest, code)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"properties":{"text":{"type":"string"}},"required":["text"],"type":"object"}`; string(stored.InputSchema) != want {
		t.Errorf("a model is told %s", stored.InputSchema)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	h = open()
	if asked != 0 {
		t.Errorf("the secret was looked up %d times before any call", asked)
	}
	s, err := h.Create(ctx, host.CreateRequest{Harness: bundled(t, "tools")})
	if err != nil {
		t.Fatal(err)
	}
	results := func() (all []abi.ToolResult) {
		for r, err := range h.Replay(ctx, s.UID, 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Event.Result != nil {
				all = append(all, *r.Event.Result)
			}
		}
		return all
	}
	if e, err := h.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: hello}); err != nil || e.State != abi.StateCompleted {
		t.Fatalf("%+v, %v", e, err)
	}
	if asked != 1 {
		t.Errorf("the secret was looked up %d times for one call", asked)
	}
	// The plug-in was told that the vowels are those of the secret, and says so. (It
	// has an r, as has the text.)
	want := []abi.ToolResult{{ID: "c1", Output: abi.Struct(`{"count":1,"total":1,"vowels":"[secret]"}`)}}
	if diff := cmp.Diff(want, results()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := h.ToolStore().Remove(ctx, "vowels"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Collect(ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	h = open()
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	if diff := cmp.Diff(want, results()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	v, err := h.Verify(ctx, host.VerifyRequest{Session: s.UID, Reexecute: true, Strict: true})
	if err != nil || v.Reexecuted != 1 || v.ProviderCalls != 0 || asked != 1 {
		t.Errorf("verified %+v, %v; the secret was looked up %d times", v, err, asked)
	}
}

// BenchmarkToolTurn is a turn in which a model calls a tool once and then answers: with a
// tool that does nothing, for comparison, and with a plug-in that counts vowels.
func BenchmarkToolTurn(b *testing.B) {
	nothing, err := script.New(strings.NewReader(`{"name":"vowels","output":{"count":3}}`))
	if err != nil {
		b.Fatal(err)
	}
	run := func(b *testing.B, tools map[string]tool.Tool) {
		ctx := context.Background()
		h, err := edge.OpenMemory(edge.Options{
			CacheDir: testCache(b), Models: map[string]model.Provider{"asker": count}, DefaultModel: "asker", Tools: tools,
		})
		if err != nil {
			b.Fatal(err)
		}
		defer h.Close()
		if tools == nil {
			manifest := extism.Manifest{Export: "count_vowels", Input: "text"}
			grant := abi.ToolGrant{ToolDefinition: abi.ToolDefinition{Name: "vowels"}}
			if _, err := h.AddPlugin(ctx, grant, manifest, plugin(b, "count_vowels.wasm")); err != nil {
				b.Fatal(err)
			}
		}
		var uid abi.SessionID
		var took []time.Duration
		b.ReportAllocs()
		for b.Loop() {
			// A session remembers its turns, which makes them longer.
			const most = 8
			if len(took)%most == 0 {
				uid = benchSession(b, h, "tools")
			}
			start := time.Now()
			benchTurn(b, h, uid)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	}
	b.Run("nothing", func(b *testing.B) { run(b, nothing.Tools()) })
	b.Run("plugin", func(b *testing.B) { run(b, nil) })
}

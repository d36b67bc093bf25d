package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/script"
	"github.com/agentcell/agentcell/sdk/abi"
)

// nothing performs no calls.
type nothing struct{}

func (nothing) Call(context.Context, tool.Call) (abi.ToolResult, error) {
	return abi.ToolResult{}, errors.New("not here")
}

func TestToolStore(t *testing.T) {
	r := newRig(t).open()
	store := host.NewToolStore(r.store, r.now)
	ctx := t.Context()
	add := func(name, module string) host.StoredTool {
		t.Helper()
		offered := tool.Tool{
			Definition: abi.ToolDefinition{Name: name, Description: "Does <it>.", InputSchema: abi.Struct(`{"maximum":12345678901234567890}`)},
			OnCrash:    abi.OnCrashAsk, Executor: nothing{},
		}
		got, err := store.Add(ctx, offered, json.RawMessage(`{"export":"run"}`), []byte(module))
		if err != nil {
			t.Fatal(err)
		}
		want := host.StoredTool{
			ToolGrant: offered.Grant(), Module: abi.DigestOf([]byte(module)), Size: int64(len(module)),
			Manifest: json.RawMessage(`{"export":"run"}`), Added: got.Added,
		}
		if diff := cmp.Diff(want, got); diff != "" || got.Added.IsZero() {
			t.Errorf("(-want +got):\n%s", diff)
		}
		return got
	}
	list := func(want ...host.StoredTool) {
		t.Helper()
		// What this store knows, and what the next one reads.
		for _, s := range []*host.ToolStore{store, host.NewToolStore(r.store, nil)} {
			got, err := s.List()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append([]host.StoredTool{}, want...), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}
	has := func(want bool, modules ...abi.Digest) {
		t.Helper()
		for _, m := range modules {
			if there, _ := r.has(m, abi.Digest{}); there != want {
				t.Errorf("module %s is there: %t", m.Short(), there)
			}
		}
	}

	list()
	one, other := add("x.one", "module 1"), add("a-"+strings.Repeat("n", 126), "module 2")
	list(other, one)
	if got, err := store.Get("x.one"); err != nil || got.Module != one.Module {
		t.Errorf("%+v, %v", got, err)
	}

	// M5: what a tool needs stays, and no longer.
	r.collect()
	has(true, one.Module, other.Module)
	if code, err := store.Module(one.Module); err != nil || string(code) != "module 1" {
		t.Errorf("%q, %v", code, err)
	}
	replaced := add("x.one", "module 3")
	list(other, replaced)
	r.collect()
	has(false, one.Module)
	has(true, other.Module, replaced.Module)
	if err := store.Remove(ctx, "x.one"); err != nil {
		t.Fatal(err)
	}
	list(other)
	r.collect()
	has(false, replaced.Module)
	has(true, other.Module)

	for _, err := range []error{store.Remove(ctx, "x.one"), store.Remove(ctx, "no/name")} {
		if !errors.Is(err, host.ErrNotFound) {
			t.Errorf("removed: %v", err)
		}
	}
	if _, err := store.Get("x.one"); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("got: %v", err)
	}
	bad := tool.Tool{Definition: abi.ToolDefinition{Name: "no/name"}, Executor: nothing{}}
	if _, err := store.Add(ctx, bad, nil, []byte("x")); !errors.Is(err, tool.ErrTool) {
		t.Errorf("added: %v", err)
	}
	bad.Definition = abi.ToolDefinition{Name: "large", Description: strings.Repeat("x", 256<<10)}
	if _, err := store.Add(ctx, bad, nil, []byte("x")); !errors.Is(err, host.ErrInvalid) {
		t.Errorf("added: %v", err)
	}
	list(other)
}

// A call outside of any session is made as a turn's is, and leaves nothing.
func TestTryTool(t *testing.T) {
	r := newRig(t)
	tools, err := script.New(strings.NewReader(`{"name":"echo","echo":true}` + "\n" + `{"name":"broken","error":"no such file"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.tools = tools.Tools()
	r.open()
	before := r.store.Commits()
	got, err := r.TryTool(t.Context(), "echo", abi.Struct(` {"n":12345678901234567890} `))
	if diff := cmp.Diff(abi.ToolResult{Output: abi.Struct(`{"n":12345678901234567890}`)}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := r.TryTool(t.Context(), "broken", nil); err == nil || err.Error() != "call broken: no such file" {
		t.Errorf("the error is %v", err)
	}
	if _, err := r.TryTool(t.Context(), "nope", nil); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("the error is %v", err)
	}
	for _, args := range []string{`[1]`, `{`, `{"a":1,"a":2}`} {
		if _, err := r.TryTool(t.Context(), "echo", abi.Struct(args)); !errors.Is(err, host.ErrInvalid) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if n := r.store.Commits() - before; n != 0 {
		t.Errorf("%d commits", n)
	}
	offered, err := r.Tools(t.Context())
	if err != nil || len(offered) != 2 || offered[0].Definition.Name != "broken" {
		t.Errorf("%+v, %v", offered, err)
	}
}

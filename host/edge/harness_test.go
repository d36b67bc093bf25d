package edge_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

func TestHarnessByName(t *testing.T) {
	h, err := edge.OpenMemory(edge.Options{CacheDir: testCache(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	echo, counter := bundled(t, "echo"), bundled(t, "counter")
	code, err := counter.Module().Code()
	if err != nil {
		t.Fatal(err)
	}
	find := func(name string, want host.Harness) {
		t.Helper()
		got, err := h.Harness(t.Context(), name)
		if err != nil || got.Name != name || got.Module().Digest != want.Module().Digest {
			t.Errorf("%q: got %q, %v", name, got.Name, err)
		}
	}
	missing := func(hint string) {
		t.Helper()
		_, err := h.Harness(t.Context(), "nope")
		if !errors.Is(err, harnesses.ErrNotBundled) || !strings.HasSuffix(err.Error(), hint) {
			t.Errorf("got error %v, want one that ends with %q", err, hint)
		}
	}
	find("echo", echo)
	missing("or pass --harness FILE.wasm")
	for _, name := range []string{"mine", "yours"} {
		if _, err := h.PushHarness(t.Context(), host.Harness{Name: name, Code: code}); err != nil {
			t.Fatal(err)
		}
	}
	find("mine", counter)
	missing("; pushed were mine, yours")
	if _, err := h.PushHarness(t.Context(), host.Harness{Name: "echo", Code: code}); !errors.Is(err, host.ErrInvalid) {
		t.Errorf("got error %v, want ErrInvalid", err)
	}
	// A store from before the name was bundled: the bundled one wins.
	if _, err := h.Host.PushHarness(t.Context(), host.Harness{Name: "echo", Code: code}); err != nil {
		t.Fatal(err)
	}
	find("echo", echo)
}

package wasm

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// A module that the cache has is loaded without its code; a cache that is broken
// is made good, and never believed.
func TestLoadFromTheCache(t *testing.T) {
	dir := t.TempDir()
	code := guest{run: "i32.const 0", module: wasmtest.Module{
		Memories: []wasmtest.Memory{{Min: 1, Export: "memory"}},
		Globals:  []wasmtest.Global{{Type: "i32", Mutable: true, Init: "i32.const 1"}},
		Datas:    []wasmtest.Data{{Offset: 5, Bytes: []byte("begins")}, {Offset: 5000, Bytes: []byte("with")}},
	}}.bytes()
	digest := abi.DigestOf(code)
	var file string
	load := func() (c *Compiled, reads int) {
		t.Helper()
		e := newEngine(t, Config{CacheDir: dir})
		file = e.cacheFile(digest)
		c, err := e.LoadDigest(t.Context(), "begins", digest, func() ([]byte, error) {
			reads++
			return code, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return c, reads
	}
	first, reads := load()
	if reads != 1 {
		t.Errorf("without a cache the code was read %d times", reads)
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	again, reads := load()
	if reads != 0 {
		t.Errorf("with a cache the code was read %d times", reads)
	}
	facts := func(c *Compiled) []any {
		return []any{c.Size(), c.Imports(), c.start, c.minimum, c.types, c.Golden().Globals, abi.DigestOf(memoryOf(t, c.Golden(), nil))}
	}
	if diff := cmp.Diff(facts(first), facts(again)); diff != "" {
		t.Errorf("from the cache (-first +again):\n%s", diff)
	}
	for what, broken := range map[string][]byte{
		"empty": {}, "cut short": kept[:len(kept)-1], "longer": append(kept[:len(kept):len(kept)], 0), "no header": kept[10:],
		"data beyond memory": bytes.Replace(kept, []byte(`"Offset":5,`), []byte(`"Offset":65533,`), 1),
		"another byte":       append(kept[:len(kept)-1:len(kept)-1], kept[len(kept)-1]^1),
	} {
		if err := os.WriteFile(file, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, reads := load(); reads != 1 {
			t.Errorf("%s: the code was read %d times", what, reads)
		}
		if mended, err := os.ReadFile(file); err != nil || !cmp.Equal(kept, mended) {
			t.Errorf("%s: the cache was not made good: %v", what, err)
		}
	}
}

func TestLoadRefusesOtherCode(t *testing.T) {
	dir := t.TempDir()
	lost := errors.New("lost")
	for _, test := range []struct {
		name string
		code func() ([]byte, error)
		want error
	}{
		{"another digest", func() ([]byte, error) { return bump(false), nil }, ErrModule},
		{"not readable", func() ([]byte, error) { return nil, lost }, lost},
	} {
		e := newEngine(t, Config{CacheDir: dir})
		if _, err := e.LoadDigest(t.Context(), test.name, abi.DigestOf(bump(true)), test.code); !errors.Is(err, test.want) {
			t.Errorf("%s: error %v, want %v", test.name, err, test.want)
		}
	}
}

package rewrite_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/wasm/rewrite"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// FuzzLoad: any bytes are refused or rewritten, and what is rewritten compiles
// if the original does, and does the same.
func FuzzLoad(f *testing.F) {
	f.Add(everything().Bytes())
	modules := rapid.Custom(func(t *rapid.T) wasmtest.Module { return genModule(t, false) })
	for seed := range 40 {
		f.Add(modules.Example(seed).Bytes())
	}
	for _, body := range []string{
		"loop br 0 end", "call $run", "block block i32.const 1 br_table 0 1 2 end end",
		"i32.const 0 i32.const 0 i32.const -1 memory.fill", "i32.const -1 memory.grow drop", "ref.func $run drop",
	} {
		f.Add(function("", "", body).Bytes())
	}
	engines := newEngines(f)
	f.Fuzz(func(t *testing.T, code []byte) {
		o := rewrite.Options{MaxBytes: 1 << 16, MaxMemoryPages: testPages, Allowed: func(module, name string, _ rewrite.FuncType) error {
			if module != "env" || name != "next" {
				return errors.New("unknown")
			}
			return nil
		}}
		m, err := rewrite.Rewrite(code, o)
		if err != nil {
			if !errors.Is(err, rewrite.ErrRefused) {
				t.Fatalf("not a refusal: %v", err)
			}
			return
		}
		if err := compare(engines, code, m, !seesNaN(m.Code)); err != nil && !errors.Is(err, errInvalid) {
			t.Fatal(err)
		}
	})
}

// seesNaN says whether a NaN was made canonical, so that the module need not do
// what the original did.
func seesNaN(rewritten []byte) bool {
	return bytes.Contains(rewritten, []byte{0x44, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f, 0x20}) ||
		bytes.Contains(rewritten, []byte{0x43, 0, 0, 0xc0, 0x7f, 0x20})
}

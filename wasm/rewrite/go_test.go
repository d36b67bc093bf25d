package rewrite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/agentcell/agentcell/wasm/rewrite"
)

// goGuest is an ordinary Go program: maps, reflection, JSON, sorting, hashing,
// floats, recursion, a recovered panic, goroutines.
const goGuest = `package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"sort"
)

var turns int

//go:wasmexport run
func run() uint32 {
	turns++
	m := map[string]any{}
	for i := range 500 {
		m[fmt.Sprint("k", i)] = math.Sqrt(float64(i)) + float64(turns)
	}
	text, _ := json.Marshal(m)
	var back map[string]any
	if err := json.Unmarshal(text, &back); err != nil {
		return 0
	}
	keys := make([]string, 0, len(back))
	for k := range back {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	values := make(chan string)
	go func() {
		for _, k := range keys {
			values <- fmt.Sprintf("%s=%v", k, back[k])
		}
		close(values)
	}()
	h := sha256.New()
	for v := range values {
		h.Write([]byte(v))
	}
	fmt.Fprint(h, fib(12), caught(nil), math.Inf(1)-math.Inf(1))
	sum := h.Sum(nil)
	return uint32(sum[0])<<16 | uint32(sum[1])<<8 | uint32(sum[2])
}

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

func caught(m map[string]int) (s string) {
	defer func() { s = fmt.Sprint(recover()) }()
	m["x"] = 1
	return "no panic"
}

func main() {}
`

// buildGo compiles the guest with the toolchain that runs the test.
func buildGo(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": goGuest, "go.mod": "module guest\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", "guest.wasm", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	code, err := os.ReadFile(filepath.Join(dir, "guest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// startGo instantiates the guest and initialises it.
func startGo(t testing.TB, config wazero.RuntimeConfig, code []byte) *guest {
	g := startGuest(t, config, code)
	if got := g.call("_initialize"); got.Err != "" {
		t.Fatal(got.Err)
	}
	return g
}

// startGuest instantiates a guest in a runtime of its own, which also has what
// hosts give it.
func startGuest(t testing.TB, config wazero.RuntimeConfig, code []byte, hosts ...*agentHost) *guest {
	t.Helper()
	ctx := t.Context()
	r := wazero.NewRuntimeWithConfig(ctx, config)
	t.Cleanup(func() { r.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	if _, err := r.NewHostModuleBuilder(rewrite.Reserved).NewFunctionBuilder().WithFunc(check).Export(rewrite.CheckName).Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		h.instantiate(t, r)
	}
	compiled, err := r.CompileModule(ctx, code)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{Module: mod, compiled: compiled, budget: testFuel, frames: 10_000, pages: rewrite.MaxPages}
	_, g.metered = mod.ExportedGlobal(rewrite.ExportFuel).(api.MutableGlobal)
	return g
}

// A module of the Go toolchain does what it did, with the same memory and fuel
// under both engines.
func TestGoToolchain(t *testing.T) {
	original := buildGo(t)
	rewritten := mustRewrite(t, original).Code
	var all []string
	for _, config := range []wazero.RuntimeConfig{wazero.NewRuntimeConfigCompiler(), wazero.NewRuntimeConfigInterpreter()} {
		want, got := startGo(t, config, original), startGo(t, config, rewritten)
		for range 3 {
			w, g := want.call("run"), got.call("run")
			if g.Err != "" || g.Frames != 10_000 || g.Fuel <= 0 || w.Results[0] == 0 || w.Results[0] != g.Results[0] {
				t.Errorf("rewritten: %+v\noriginal: %+v", g, w)
			}
			all = append(all, fmt.Sprintf("%+v", g))
		}
	}
	for i := range 3 {
		if all[i] != all[i+3] {
			t.Errorf("call %d: the engines differ:\n%s\n%s", i, all[i], all[i+3])
		}
	}
}

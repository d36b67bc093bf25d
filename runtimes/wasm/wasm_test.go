package wasm_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/runtimes/runtimetest"
	"github.com/agentcell/agentcell/runtimes/wasm"
	"github.com/agentcell/agentcell/sdk/abi"
	engine "github.com/agentcell/agentcell/wasm"
)

// cacheDir is one compile cache for the tests of all packages.
func cacheDir(t testing.TB) string {
	if dir := os.Getenv("AGENTCELL_TEST_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "agentcell-test")
}

// bundled is a bundled harness as a module.
func bundled(t testing.TB, name string) runtimes.Module {
	t.Helper()
	code, err := harnesses.Module(name)
	if err != nil {
		if os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" {
			t.Fatal(err)
		}
		t.Skipf("run `make harnesses` first: %v", err)
	}
	return module(name, code)
}

func module(name string, code []byte) runtimes.Module {
	return runtimes.Module{
		Name: name, Digest: abi.DigestOf(code),
		Code: func() ([]byte, error) { return code, nil },
	}
}

func open(interpreter bool) runtimetest.Open {
	return func(t testing.TB) runtimetest.Fixture {
		t.Helper()
		if testing.Short() {
			t.Skip("compiles big modules")
		}
		f := runtimetest.Fixture{Echo: bundled(t, "echo"), Counter: bundled(t, "counter"), Bad: module("bad", []byte("#!/bin/sh\n"))}
		e, err := engine.New(engine.Config{
			Interpreter: interpreter, CacheDir: cacheDir(t), Memory: engine.Memory(os.Getenv("AGENTCELL_TEST_MEMORY")),
		})
		if err != nil {
			t.Fatal(err)
		}
		f.Runtime = wasm.New(e)
		return f
	}
}

func TestConformance(t *testing.T) {
	for name, interpreter := range map[string]bool{"compiler": false, "interpreter": true} {
		t.Run(name, func(t *testing.T) { runtimetest.Run(t, open(interpreter)) })
	}
}

func BenchmarkWasm(b *testing.B) { runtimetest.Benchmark(b, open(false)) }

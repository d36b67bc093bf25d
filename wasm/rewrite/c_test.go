package rewrite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
)

// cGuest has what C compilers make of it: a jump table, calls through the
// function table, bulk memory, floats, a stack pointer, recursion.
const cGuest = `
typedef unsigned u32;
static u32 seen;
static unsigned char block[3 << 20];
static double sums[16];

static u32 twice(u32 x) { return x * 2; }
static u32 plus(u32 x) { return x + 7; }
static u32 mix(u32 x) { return x ^ (x << 13) ^ (x >> 7); }
static u32 (*volatile table[])(u32) = {twice, plus, mix};

static u32 depth(u32 n) {
	volatile u32 here[8] = {n};
	return n ? here[0] + depth(n - 1) : 1;
}

static u32 choose(u32 n) {
	switch (n % 9) {
	case 0: return seen;
	case 1: return table[n % 3](n);
	case 2: return depth(n % 20);
	case 3: __builtin_memset(block + n % 1000, (int)n, 2 << 20); return block[n % 4096];
	case 4: __builtin_memcpy(block, block + (1 << 20), 1 << 20); return block[n % 77];
	case 5: sums[n % 16] += __builtin_sqrt((double)(int)(n - 40)); return sums[n % 16] > 3;
	case 6: return n / (seen % 5 + 1);
	case 7: return (u32)(float)n;
	}
	return n;
}

__attribute__((export_name("run"))) u32 run(void) {
	for (u32 i = 0; i < 100; i++)
		seen = mix(seen + choose(i + (seen & 31)));
	return seen;
}
`

// A module of clang does what it did, with the same memory and fuel under both
// engines.
func TestClang(t *testing.T) {
	if _, err := clang(t, "void run(void) {}"); err != nil {
		t.Skipf("no clang that links wasm32: %v", err)
	}
	original, err := clang(t, cGuest)
	if err != nil {
		t.Fatal(err)
	}
	rewritten := mustRewrite(t, original).Code
	var all []string
	for _, config := range []wazero.RuntimeConfig{wazero.NewRuntimeConfigCompiler(), wazero.NewRuntimeConfigInterpreter()} {
		want, got := startGuest(t, config, original), startGuest(t, config, rewritten)
		for range 3 {
			w, g := want.call("run"), got.call("run")
			all = append(all, fmt.Sprintf("%+v", g))
			if g.Fuel <= 0 {
				t.Error("no fuel was used")
			}
			// A root of a negative number is stored, so the memories differ.
			w.Fuel, w.Frames, w.Memory = g.Fuel, g.Frames, g.Memory
			if fmt.Sprint(w) != fmt.Sprint(g) {
				t.Errorf("rewritten: %+v\noriginal: %+v", g, w)
			}
		}
	}
	for i := range 3 {
		if all[i] != all[i+3] {
			t.Errorf("call %d: the engines differ:\n%s\n%s", i, all[i], all[i+3])
		}
	}
}

func clang(t *testing.T, source string) ([]byte, error) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "guest.c"), filepath.Join(dir, "guest.wasm")
	if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("clang", "--target=wasm32", "-O1", "-mbulk-memory", "-nostdlib", "-Wl,--no-entry", "-o", out, in)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	return os.ReadFile(out)
}

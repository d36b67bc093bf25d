package rewrite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"

	"github.com/agentcell/agentcell/wasm/rewrite"
)

// tallies are the sources of one harness in three languages.
var tallies = []string{"rust/tally.rs", "c/tally.c", "assemblyscript/tally.ts"}

// tallyTurns are inputs, and what each harness says to them.
var tallyTurns = []struct{ input, answer string }{
	{"one two, three two!", "4 words, 3 different, most often two (2), mean length 3.50"},
	{"keep", "1 kept"},
	{"three three four five six seven eight nine ten", "13 words, 10 different, most often three (3), mean length 4.00"},
	{"keep", "2 kept"},
	{"", "13 words, 10 different, most often three (3), mean length 4.00"},
	{"fail", `{"code":3,"description":"asked to fail"}`},
	{"keep", "3 kept"},
	{"ten ten ten", "16 words, 10 different, most often ten (4), mean length 3.81"},
}

// buildTally runs the command in the first line of a source, in a copy of it.
func buildTally(t *testing.T, source string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", source))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	command, ok := strings.CutPrefix(first, "// build: ")
	if !ok {
		t.Fatalf("the first line of %s does not say how to build it", source)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(source)), text, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("sh", "-c", command)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("the module in testdata is tested, but cannot be built here: %v\n%s", err, out)
	}
	code, err := os.ReadFile(filepath.Join(dir, "tally.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// startTally instantiates and initialises a tally.
func startTally(t *testing.T, config wazero.RuntimeConfig, code []byte) (*guest, *agentHost) {
	h := new(agentHost)
	g := startGuest(t, config, code, h)
	if g.ExportedFunction(rewrite.ExportStart) != nil {
		if got := g.call(rewrite.ExportStart); got.Err != "" {
			t.Fatal(got.Err)
		}
	}
	return g, h
}

// bothEngines compile a module once, however many guests are made of it.
func bothEngines() map[string]wazero.RuntimeConfig {
	return map[string]wazero.RuntimeConfig{
		"compiler":    wazero.NewRuntimeConfigCompiler().WithCompilationCache(wazero.NewCompilationCache()),
		"interpreter": wazero.NewRuntimeConfigInterpreter().WithCompilationCache(wazero.NewCompilationCache()),
	}
}

// onTallies runs a test on each module in testdata.
func onTallies(t *testing.T, test func(t *testing.T, code []byte)) {
	for _, source := range tallies {
		language := filepath.Dir(source)
		t.Run(language, func(t *testing.T) {
			code, err := os.ReadFile(filepath.Join("testdata", language, "tally.wasm"))
			if err != nil {
				t.Fatal(err)
			}
			test(t, code)
		})
	}
}

// M2: modules of Rust, C and AssemblyScript do what they did, with the same
// memory, and the same fuel under both engines.
func TestM2_Toolchains(t *testing.T) { onTallies(t, compareTally) }

// What the toolchains that are here make of the sources does so too.
func TestRebuilt(t *testing.T) {
	for _, source := range tallies {
		t.Run(filepath.Dir(source), func(t *testing.T) { compareTally(t, buildTally(t, source)) })
	}
}

// compareTally runs a tally as it was and rewritten, under both engines.
func compareTally(t *testing.T, original []byte) {
	rewritten := mustRewrite(t, original).Code
	fuel := map[int]int64{}
	for name, config := range bothEngines() {
		before, beforeHost := startTally(t, config, original)
		after, afterHost := startTally(t, config, rewritten)
		for i, turn := range tallyTurns {
			beforeHost.input, afterHost.input = turn.input, turn.input
			want, got := before.call("agent_run"), after.call("agent_run")
			if !strings.Contains(afterHost.said, turn.answer) || afterHost.said != beforeHost.said {
				t.Errorf("%s: turn %d: said %q, before %q, want %q", name, i, afterHost.said, beforeHost.said, turn.answer)
			}
			if known, ok := fuel[i]; ok && known != got.Fuel || got.Fuel <= 0 {
				t.Errorf("turn %d: fuel %d and %d", i, known, got.Fuel)
			}
			fuel[i] = got.Fuel
			want.Fuel, want.Frames = got.Fuel, 10_000
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: turn %d: original and rewritten: %s", name, i, diff)
			}
		}
		beforeHost.input, afterHost.input = "trap", "trap"
		if want, got := before.call("agent_run"), after.call("agent_run"); got.Err == "" || got.Err != want.Err || got.Memory != want.Memory {
			t.Errorf("%s: trap: %+v, in the original %+v", name, got, want)
		}
	}
}

// S2, M2: whatever the budget, it is used up at the same point under both engines
// and each time, with the same memory.
func TestM2_OutOfFuel(t *testing.T) {
	onTallies(t, func(t *testing.T, original []byte) {
		rewritten := mustRewrite(t, original).Code
		// used is what a turn takes that runs to its end.
		g, h := startTally(t, wazero.NewRuntimeConfigCompiler(), rewritten)
		h.input = tallyTurns[2].input
		used := uint64(g.call("agent_run").Fuel)
		engines := bothEngines()
		var first []string
		for range 2 {
			for name, config := range engines {
				var all []string
				for _, input := range []string{tallyTurns[2].input, "keep", "spin"} {
					for _, budget := range []uint64{0, 1, used / 7, used / 2, used - 2, used - 1, used, 3 * used} {
						g, h := startTally(t, config, rewritten)
						g.budget, h.input = budget, input
						got := g.call("agent_run")
						if enough := budget >= used && input == tallyTurns[2].input; enough != (got.Err == "") && input != "keep" {
							t.Errorf("%s: %q with %d of %d units: %+v", name, input, budget, used, got)
						}
						all = append(all, fmt.Sprintf("%q with %d units: %+v, said %q", input, budget, got, h.said))
					}
				}
				if first == nil {
					first = all
				}
				if diff := cmp.Diff(first, all); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
			}
		}
	})
}

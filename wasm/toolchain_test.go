package wasm

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

// M2, S2: harnesses of other toolchains run as those in Go do, say the same in
// each language, and come to the same ends under both engines: images, fuel and
// reasons, whatever the budget.
func TestM2_Toolchains(t *testing.T) {
	inputs := []string{"one two, three two!", "keep", "ten ten ten", "keep"}
	answers := []string{
		"4 words, 3 different, most often two (2), mean length 3.50", "1 kept",
		"7 words, 4 different, most often ten (3), mean length 3.29", "2 kept",
	}
	ends := map[string]struct {
		reason abi.EndReason
		text   string
	}{
		"fail": {abi.ReasonError, "asked to fail"},
		"trap": {abi.ReasonTrap, "trap: "},
	}
	for _, language := range []string{"rust", "c", "assemblyscript"} {
		t.Run(language, func(t *testing.T) {
			code, err := os.ReadFile("rewrite/testdata/" + language + "/tally.wasm")
			if err != nil {
				t.Fatal(err)
			}
			compiler, interpreter := newEngine(t, Config{}), newEngine(t, Config{Interpreter: true})
			d, err := loaded(t, compiler, code).Describe(t.Context())
			if err != nil || d.ID != "tally" || d.Version != language || d.Capabilities.Resumability != abi.RequiresMemorySnapshot {
				t.Errorf("described as %+v, %v", d, err)
			}
			for last, end := range ends {
				want := transcript(t, compiler, code, append(inputs, last))
				if diff := cmp.Diff(want, transcript(t, interpreter, code, append(inputs, last))); diff != "" {
					t.Errorf("%s: the engines differ (-compiler +interpreter):\n%s", last, diff)
				}
				for i, answer := range answers {
					step := want[i+1]
					if asked := step.Asked[len(step.Asked)-1]; step.Outcome.Reason != abi.ReasonCompleted || !strings.Contains(asked, `"`+answer+`"`) {
						t.Errorf("%s: turn %d: %v, asked %s; want %q", last, i, step.Outcome, asked, answer)
					}
				}
				if out := want[len(inputs)+1].Outcome; out.Reason != end.reason || !strings.Contains(out.Err.Description, end.text) {
					t.Errorf("%s: ended %v: %v; want %v: %q", last, out.Reason, out.Err, end.reason, end.text)
				}
			}
			for _, fuel := range []abi.Int64{1, 5_000, sliceFuel, 3*sliceFuel + 1, 1_000_000} {
				spin := func(e *Engine) Outcome {
					in := instantiate(t, loaded(t, e, code))
					out, err := in.Run(t.Context(), Turn{Limits: abi.Limits{Fuel: fuel}}, &chatWorld{input: "spin"})
					if err != nil || out.Reason != abi.ReasonFuel {
						t.Errorf("%d units: %v, %v", fuel, out, err)
					}
					return out
				}
				if diff := cmp.Diff(spin(compiler), spin(interpreter)); diff != "" {
					t.Errorf("%d units: the engines differ (-compiler +interpreter):\n%s", fuel, diff)
				}
			}
		})
	}
}

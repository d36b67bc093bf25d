package rewrite_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/wasm/rewrite"
)

// M2: a random module does the same under both engines, fuel included, and what
// the original does.
func TestM2_Behaviour(t *testing.T) {
	engines := newEngines(t)
	for name, quiet := range map[string]bool{"original and rewritten": true, "engines": false} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			module := genModule(t, quiet)
			code := module.Bytes()
			m, err := rewrite.Rewrite(code, rewrite.Options{Allowed: allowAll})
			if err != nil {
				t.Fatal(err)
			}
			if err := compare(engines, code, m, quiet); err != nil {
				t.Fatalf("%v\n%+v", err, module)
			}
		}))
	}
}

// errInvalid reports an original that the engine itself refuses.
var errInvalid = errors.New("original does not compile")

// compare runs the exports that take nothing, one after the other, as far as the
// fuel goes, under all engines; then the original's too, if they should do
// alike.
func compare(engines []engine, original []byte, m *rewrite.Module, alike bool) error {
	var exports []string
	if m.HasStart {
		exports = append(exports, rewrite.ExportStart)
	}
	for _, x := range m.Exports {
		if x.Kind == rewrite.KindFunc && len(x.Type.Params) == 0 && !slices.ContainsFunc(x.Type.Results, func(v byte) bool { return v < 0x7b }) {
			exports = append(exports, x.Name)
		}
	}
	var first []outcome
	var ran int
	for i, e := range engines {
		got, err := e.runAll(m.Code, exports)
		if err != nil {
			if _, o := e.runAll(original, nil); o != nil {
				return fmt.Errorf("%w: %w", errInvalid, o)
			}
			return fmt.Errorf("%s: rewritten: %w", e.name, err)
		}
		if i == 0 {
			first = got
			ran = len(got)
		}
		if diff := cmp.Diff(first, got); diff != "" {
			return fmt.Errorf("%s and %s: %s", engines[0].name, e.name, diff)
		}
	}
	if !alike || ran > 0 && limited(first[ran-1]) {
		return nil
	}
	for _, e := range engines {
		names := exports
		if m.HasStart {
			names = exports[1:]
		}
		want, err := e.runAll(original, names)
		if m.HasStart && err != nil {
			if !strings.Contains(err.Error(), first[0].Err) || first[0].Err == "" {
				return fmt.Errorf("%s: start: %q, in the original: %w", e.name, first[0].Err, err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errInvalid, err)
		}
		got := first
		if m.HasStart {
			got = first[1:]
		}
		for i := range want {
			want[i].Fuel, want[i].Frames = got[i].Fuel, got[i].Frames
			if diff := cmp.Diff(want[i], got[i]); diff != "" {
				return fmt.Errorf("%s: %s: original and rewritten: %s", e.name, names[i], diff)
			}
		}
	}
	return nil
}

func limited(o outcome) bool { return o.Err == errFuel.Error() || o.Err == errFrames.Error() }

// runAll calls exports until one meets a limit.
func (e engine) runAll(code []byte, exports []string) ([]outcome, error) {
	g, err := e.instantiate(code)
	if err != nil {
		return nil, err
	}
	defer g.close()
	g.budget = 300_000
	g.frames = 50
	var list []outcome
	for _, name := range exports {
		list = append(list, g.call(name))
		if limited(list[len(list)-1]) {
			break
		}
	}
	return list, nil
}

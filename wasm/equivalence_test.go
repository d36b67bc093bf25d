package wasm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/sdk/abi"
)

// bundledModule is a harness written in Go.
func bundledModule(t testing.TB, name string) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles big modules")
	}
	code, err := harnesses.Module(name)
	if err != nil {
		if os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" {
			t.Fatal(err)
		}
		t.Skipf("run `make harnesses` first: %v", err)
	}
	return code
}

// chatWorld gives one input and answers a model call; it notes all requests.
type chatWorld struct {
	input string
	asked []string
}

func (w *chatWorld) Call(_ context.Context, op abi.Op, request []byte) (Response, error) {
	w.asked = append(w.asked, fmt.Sprintf("%s %s", op, request))
	answer := func(v any) (Response, error) {
		body, err := json.Marshal(v)
		return Response{Body: body, Now: time.Unix(1_700_000_100, 0)}, err
	}
	switch op {
	case abi.OpStart:
		return answer(abi.Start{Inputs: []abi.Message{abi.Text(abi.RoleUser, w.input)}, Cell: &abi.StartCell{Model: "echo"}})
	case abi.OpModel:
		return answer(abi.ModelResult{Message: abi.Text(abi.RoleAssistant, "echo: "+w.input)})
	case abi.OpHistory:
		return answer([]abi.LogRecord{})
	default:
		return Response{}, nil
	}
}

// step is all that can be told of a turn.
type step struct {
	Outcome Outcome
	Asked   []string
	Size    uint64
	Globals []abi.Global
	Clock   int64
	Changed []uint32
	Memory  abi.Digest
}

// transcript runs turns in one instance. Only the last turn may fail.
func transcript(t *testing.T, e *Engine, code []byte, inputs []string) (steps []step) {
	t.Helper()
	c := loaded(t, e, code)
	memory := memoryOf(t, c.Golden(), nil)
	steps = append(steps, step{Memory: abi.DigestOf(memory), Globals: c.Golden().Globals, Size: c.Golden().Size})
	in := instantiate(t, c)
	for i, input := range inputs {
		w := &chatWorld{input: input}
		out, err := in.Run(t.Context(), Turn{Seed: [32]byte{byte(i)}, Start: time.Unix(1_700_000_000, 0)}, w)
		if err != nil {
			t.Fatal(err)
		}
		s := step{Outcome: out, Asked: w.asked}
		if out.Reason == abi.ReasonCompleted {
			img, err := in.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			memory = memoryOf(t, img, memory)
			s.Size, s.Globals, s.Clock, s.Changed, s.Memory = img.Size, img.Globals, img.Clock, img.Changed, abi.DigestOf(memory)
		}
		steps = append(steps, s)
	}
	return steps
}

func TestM2_EnginesAgree(t *testing.T) {
	for name, inputs := range map[string][]string{
		"echo":    {"hi", "and again", ""},
		"counter": {"1", "2, 3", "times 2", "total", "no number"},
		"chat":    {"hi", "what did I say?", "thanks"},
	} {
		t.Run(name, func(t *testing.T) {
			code := bundledModule(t, name)
			compiler := newEngine(t, Config{CacheDir: testCacheDir(t)})
			want := transcript(t, compiler, code, inputs)
			got := transcript(t, newEngine(t, Config{Interpreter: true}), code, inputs)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the engines differ (-compiler +interpreter):\n%s", diff)
			}
			if diff := cmp.Diff(want, transcript(t, compiler, code, inputs)); diff != "" {
				t.Errorf("the same again differs (-first +second):\n%s", diff)
			}
			if n := len(want); n != len(inputs)+1 || want[1].Outcome.Reason != abi.ReasonCompleted {
				t.Errorf("%d steps, the first turn ended %v", n, want[1].Outcome)
			}
		})
	}
}

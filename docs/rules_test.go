package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/runtimes"
	wasmruntime "github.com/agentcell/agentcell/runtimes/wasm"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm"
)

// What harness-authoring.md says of a cell, shown by testdata/rules in one. It is also the
// test of the SDK's guest side.
func TestHarnessRules(t *testing.T) {
	create := startRules(t)
	// Two sessions and a turn of each, with seeds that differ.
	once := func(seed byte, input string) (runtimes.Outcome, string) {
		return turn(t, create(), seed, input)
	}
	same := func(input string, a, b string) {
		t.Helper()
		if a != b || a == "" {
			t.Errorf("%s: %q and %q, want the same", input, a, b)
		}
	}

	// Each turn of its own, whatever the seed.
	for _, input := range []string{"top-level math/rand", "map order", "goroutines"} {
		_, a := once(1, input)
		_, b := once(2, input)
		same(input, a, b)
	}
	// By the seed, and the same again on replay.
	for _, input := range []string{"crypto/rand", "turn rand"} {
		_, a := once(1, input)
		_, b := once(2, input)
		_, again := once(1, input)
		same(input, a, again)
		if a == b {
			t.Errorf("%s: two turns got %q", input, a)
		}
	}

	// What comes out, or how the turn ends.
	for _, test := range []struct {
		input, output string
		reason        abi.EndReason
		err           string
	}{
		{"now", "2026-01-02T03:04:05Z 2µs", abi.ReasonCompleted, ""},
		{"sleep", "1h0m0s", abi.ReasonCompleted, ""},
		{"environment", "[] []", abi.ReasonCompleted, ""},
		{"print", "", abi.ReasonCompleted, ""},
		{"deadline", "", abi.ReasonError, "model: context deadline exceeded"},
		{"file", "", abi.ReasonError, "open /etc/hostname: "},
		{"socket", "", abi.ReasonError, "dial tcp 127.0.0.1:80: "},
		{"panic", "", abi.ReasonError, "panic: no way on"},
		{"exit", "", abi.ReasonExit, ""},
		{"deadlock", "", abi.ReasonTrap, ""},
		{"panic elsewhere", "", abi.ReasonTrap, ""},
	} {
		outcome, output := once(1, test.input)
		if outcome.Reason != test.reason || output != test.output {
			t.Errorf("%s: got %q, ended by %s, want %q, %s", test.input, output, outcome.Reason, test.output, test.reason)
		}
		if test.err != "" && (outcome.Err == nil || !strings.HasPrefix(outcome.Err.Description, test.err)) {
			t.Errorf("%s: got error %v, want %s", test.input, outcome.Err, test.err)
		}
	}

	// A variable is kept from turn to turn, and a goroutine left behind goes on
	// with a later one.
	session := create()
	var got []string
	for i, input := range []string{"remember", "remember", "leave a goroutine", "remember", "sleep", "remember"} {
		_, output := turn(t, session, byte(i), input)
		got = append(got, output)
	}
	if diff := cmp.Diff([]string{"1", "2", "", "3", "1h0m0s", "104"}, got); diff != "" {
		t.Error(diff)
	}
}

// startRules builds testdata/rules and gives a function that starts a session of it.
func startRules(t *testing.T) func() runtimes.Incarnation {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.wasm")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, "./testdata/rules")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := wasm.New(wasm.Config{CacheDir: os.Getenv("AGENTCELL_TEST_CACHE")})
	if err != nil {
		t.Fatal(err)
	}
	runtime := wasmruntime.New(engine)
	t.Cleanup(func() {
		if err := runtime.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	module := runtimes.Module{Name: "rules", Digest: abi.DigestOf(code), Code: func() ([]byte, error) { return code, nil }}
	return func() runtimes.Incarnation {
		t.Helper()
		in, err := runtime.Create(t.Context(), module)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
}

// turn runs one turn and returns what it put out.
func turn(t *testing.T, in runtimes.Incarnation, seed byte, input string) (runtimes.Outcome, string) {
	t.Helper()
	p := &port{input: input}
	outcome, err := in.Run(t.Context(), runtimes.Turn{
		Seed: [32]byte{seed}, Start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Limits: abi.DefaultLimits(),
	}, p)
	if err != nil {
		t.Fatalf("%s: %v", input, err)
	}
	return outcome, p.output
}

// port is a host that gives an input and takes an output.
type port struct{ input, output string }

func (p *port) Call(_ context.Context, op abi.Op, request []byte) (runtimes.Response, error) {
	switch op {
	case abi.OpStart:
		body, err := json.Marshal(abi.Start{Inputs: []abi.Message{abi.Text(abi.RoleUser, p.input)}})
		return runtimes.Response{Body: body}, err
	case abi.OpOutput:
		var m abi.Message
		err := json.Unmarshal(request, &m)
		p.output = m.Text()
		return runtimes.Response{}, err
	case abi.OpLog:
		return runtimes.Response{}, nil
	}
	return runtimes.Response{}, fmt.Errorf("%s: %s called %s", p.input, "testdata/rules", op)
}

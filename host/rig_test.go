package host_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/echo"
	"github.com/agentcell/agentcell/host/tool"
	hostturn "github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	runtime "github.com/agentcell/agentcell/runtimes/wasm"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		fmt.Fprintln(os.Stderr, runChild(dir))
		os.Exit(1)
	}
	if spec := os.Getenv(crashEnv); spec != "" {
		fmt.Fprintln(os.Stderr, runCrash(spec))
		os.Exit(1)
	}
	if spec := os.Getenv(soakEnv); spec != "" {
		if err := runSoaked(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(cleanup))
}

// parts are what all tests of the package share: engines and compiled modules
// cost too much to make anew for each.
var parts struct {
	sync.Mutex
	runtimes map[bool]*runtime.Runtime // by interpreter
	dir      string
	modules  map[string]host.Harness
}

func cleanup(code int) {
	for _, r := range parts.runtimes {
		if err := r.Close(context.Background()); err != nil {
			code = max(code, 1)
		}
	}
	if parts.dir != "" {
		if err := os.RemoveAll(parts.dir); err != nil {
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func engine(t testing.TB, interpreter bool) *runtime.Runtime {
	parts.Lock()
	defer parts.Unlock()
	if r := parts.runtimes[interpreter]; r != nil {
		return r
	}
	e, err := wasm.New(wasm.Config{
		Interpreter: interpreter, CacheDir: compileCache(t), Memory: wasm.Memory(os.Getenv("AGENTCELL_TEST_MEMORY")),
	})
	if err != nil {
		t.Fatal(err)
	}
	if parts.runtimes == nil {
		parts.runtimes = map[bool]*runtime.Runtime{}
	}
	parts.runtimes[interpreter] = runtime.New(e)
	return parts.runtimes[interpreter]
}

// compileCache is the one that the tests of all packages share.
func compileCache(t testing.TB) string {
	if dir := os.Getenv("AGENTCELL_TEST_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "agentcell-test")
}

// harness is a bundled harness, or steps, which is built for the tests.
func harness(t testing.TB, name string) host.Harness {
	t.Helper()
	if name != "steps" {
		code, err := harnesses.Module(name)
		if err != nil && os.Getenv("AGENTCELL_TEST_REQUIRE") != "all" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return host.Harness{Name: name, Code: code}
	}
	return built(t, name, "./testdata/"+name)
}

// built is a harness that is built for the tests from the package in dir, as make
// does it unless flags for the linker say otherwise.
func built(t testing.TB, name, dir string, ldflags ...string) host.Harness {
	t.Helper()
	parts.Lock()
	defer parts.Unlock()
	if h, ok := parts.modules[name]; ok {
		return h
	}
	if parts.dir == "" {
		made, err := os.MkdirTemp("", "agentcell-host-test-")
		if err != nil {
			t.Fatal(err)
		}
		parts.dir = made
	}
	if ldflags == nil {
		ldflags = []string{"-s", "-w"}
	}
	out := filepath.Join(parts.dir, name+".wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags="+strings.Join(ldflags, " "), "-o", out, dir)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build harness %s: %v\n%s", name, err, text)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if parts.modules == nil {
		parts.modules = map[string]host.Harness{}
	}
	parts.modules[name] = host.Harness{Name: name, Code: code}
	return parts.modules[name]
}

// rig is a host on a store that outlives it, with everything still that can be
// held still.
type rig struct {
	t          testing.TB
	store      *journal.Journal
	runtimes   []runtimes.Runtime
	models     map[string]model.Provider
	routes     model.Router
	def        string
	flush      time.Duration
	limits     abi.Limits
	turns      int // at once; 0: the default
	queue      int // for one session; 0: the default
	tools      map[string]tool.Tool
	sources    []tool.Source
	policy     func(hostturn.Subject) (hostturn.Policy, error)
	kept       func(abi.Digest, hostturn.Subject) (hostturn.Policy, error)
	prices     func(string) (host.Price, bool)
	log        *slog.Logger     // nil: discarded
	harnessLog *slog.Logger     // the same
	now        func() time.Time // nil: the machine's
	late       time.Duration    // that a clock of a test may add
	still      bool             // clock and randomness stand still
	retention  host.Retention   // of sessions that create and createFrom make
	rebuilding func(host.Rebuild)
	*host.Host
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{
		t: t, store: journal.OpenMemory(), runtimes: []runtimes.Runtime{engine(t, false)},
		models: map[string]model.Provider{"echo": echo.Provider{}}, def: "echo", flush: -1,
	}
	t.Cleanup(func() {
		if r.Host != nil {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// open makes a new host on the store, as a process that starts does.
func (r *rig) open() *rig {
	r.t.Helper()
	cfg := host.Config{
		Journal: r.store, Runtimes: r.runtimes, Models: r.models, Routes: r.routes, DefaultModel: r.def, FlushDelay: r.flush, Limits: r.limits,
		Tools: r.tools, ToolSources: r.sources, Policy: r.policy, KeptPolicy: r.kept, Prices: r.prices, Log: r.log, HarnessLog: r.harnessLog, Now: r.now, MaxTurns: r.turns, MaxQueue: r.queue,
		Paused: true, Rebuilding: r.rebuilding,
	}
	if r.still {
		at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
		cfg.Now = func() time.Time { return at }
		cfg.Random = readerFunc(sameAgain)
	}
	h, err := host.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Host = h
	return r
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// still randomness: every seed and every id is the same.
func sameAgain(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte{0x5e}, len(p)))
	return len(p), nil
}

func (r *rig) create(name string) host.Session {
	r.t.Helper()
	s, err := r.Create(context.Background(), host.CreateRequest{Harness: harness(r.t, name), Retention: r.retention})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func say(text string) []abi.Message { return []abi.Message{abi.Text(abi.RoleUser, text)} }

// exec runs a turn that must end COMPLETED and returns its outputs.
func (r *rig) exec(uid abi.SessionID, input string) []string {
	r.t.Helper()
	var out []string
	e, err := r.Exec(context.Background(), host.ExecRequest{Session: uid, Inputs: say(input), Observe: func(u host.Update) {
		if u.Record != nil && u.Record.Event.Kind == abi.EventOutput {
			out = append(out, u.Record.Event.Message.Text())
		}
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	if e.State != abi.StateCompleted {
		r.t.Fatalf("%q ended %s: %v", input, e.State, e.Err)
	}
	return out
}

// resume runs the open turn to its end, which must be COMPLETED, and returns its
// new outputs.
func (r *rig) resume(uid abi.SessionID) []string {
	r.t.Helper()
	var out []string
	e, err := r.Resume(context.Background(), uid, func(u host.Update) {
		if u.Record != nil && u.Record.Event.Kind == abi.EventOutput {
			out = append(out, u.Record.Event.Message.Text())
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if e.State != abi.StateCompleted {
		r.t.Fatalf("%s ended %s: %v", uid, e.State, e.Err)
	}
	return out
}

func (r *rig) verify(uid abi.SessionID) host.Verification {
	r.t.Helper()
	v, err := r.Verify(context.Background(), host.VerifyRequest{Session: uid, Reexecute: true, Strict: true})
	if err != nil {
		r.t.Fatal(err)
	}
	if v.ProviderCalls != 0 {
		r.t.Fatalf("verify made %d provider calls (I1)", v.ProviderCalls)
	}
	return v
}

// transcript is a session's record, as stored.
func (r *rig) transcript(uid abi.SessionID) []string {
	r.t.Helper()
	var lines []string
	for rec, err := range r.Replay(context.Background(), uid, 0, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		lines = append(lines, string(rec.Line))
	}
	return lines
}

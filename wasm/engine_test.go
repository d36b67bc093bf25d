package wasm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testCacheDir is one compile cache for the tests of all packages.
func testCacheDir(t testing.TB) string {
	if dir := os.Getenv("AGENTCELL_TEST_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "agentcell-test")
}

// newEngine makes an engine. The environment may say how it holds memories if cfg
// does not.
func newEngine(t testing.TB, cfg Config) *Engine {
	t.Helper()
	if cfg.Memory == MemoryAuto {
		cfg.Memory = Memory(os.Getenv("AGENTCELL_TEST_MEMORY"))
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// onEngines runs a test on both engines, and ends it by showing that the engine
// still works.
func onEngines(t *testing.T, test func(t *testing.T, e *Engine)) {
	t.Helper()
	for name, interpreter := range map[string]bool{"compiler": false, "interpreter": true} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, Config{Interpreter: interpreter})
			test(t, e)
			out, err := runOnce(t, e, guest{run: "i32.const 0"}, Turn{}, nil)
			if err != nil || out.Reason != abi.ReasonCompleted {
				t.Errorf("the next guest: %v, %v", out, err)
			}
		})
	}
}

// memories are the ways to hold memories on this system.
func memories(t testing.TB) (list []Memory) {
	t.Helper()
	for _, way := range backends() {
		if _, err := ProbeMemory(way.name); err == nil {
			list = append(list, way.name)
			continue
		} else if os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" {
			t.Fatal(err)
		}
	}
	return list
}

// onMemories runs a test on both engines with each way to hold memories.
func onMemories(t *testing.T, test func(t *testing.T, e *Engine)) {
	t.Helper()
	for _, memory := range memories(t) {
		for name, interpreter := range map[string]bool{"compiler": false, "interpreter": true} {
			t.Run(fmt.Sprintf("%s/%s", memory, name), func(t *testing.T) {
				test(t, newEngine(t, Config{Interpreter: interpreter, Memory: memory}))
			})
		}
	}
}

// guest is a module of the ABI: run is the body of agent_run, and what else it
// has stands in module.
type guest struct {
	run    string
	locals string
	// imports are "module.name" of the ABI or WASI; their types are filled in.
	imports []string
	module  wasmtest.Module
}

func (g guest) bytes() []byte {
	m := g.module
	known := map[string]hostFunc{}
	for _, f := range hostFuncs() {
		known[f.module+"."+f.name] = f
	}
	for _, name := range g.imports {
		f := known[name]
		m.Imports = append(m.Imports, wasmtest.Import{Module: f.module, Name: f.name, Type: wasmtest.Type(typeText(f))})
	}
	m.Funcs = append(m.Funcs,
		wasmtest.Func{Export: exportMarker},
		wasmtest.Func{Export: exportRun, Type: "-> i32", Locals: g.locals, Body: g.run})
	for _, f := range m.Funcs {
		if f.Export == exportDescribe {
			return m.Bytes()
		}
	}
	m.Funcs = append(m.Funcs, wasmtest.Func{Export: exportDescribe, Type: "-> i32", Body: "i32.const 0"})
	return m.Bytes()
}

// typeText is a host function's type in wasmtest's words.
func typeText(f hostFunc) (text string) {
	name := func(v byte) string { return map[byte]string{0x7f: "i32", 0x7e: "i64"}[v] }
	for _, p := range f.params {
		text += name(p) + " "
	}
	text += "->"
	for _, r := range f.results {
		text += " " + name(r)
	}
	return text
}

func loaded(t testing.TB, e *Engine, code []byte) *Compiled {
	t.Helper()
	c, err := e.Load(t.Context(), t.Name(), code)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func instantiate(t testing.TB, c *Compiled) *Instance {
	t.Helper()
	in, err := c.Instantiate()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Stop)
	return in
}

// runOnce runs one turn of a guest in a fresh instance.
func runOnce(t testing.TB, e *Engine, g guest, turn Turn, h Handler) (Outcome, error) {
	t.Helper()
	in := instantiate(t, loaded(t, e, g.bytes()))
	if h == nil {
		h = &world{}
	}
	out, err := in.Run(t.Context(), turn, h)
	if wantReady := err == nil && out.Reason == abi.ReasonCompleted; (in.Status() == Ready) != wantReady {
		t.Errorf("status %d after %v, %v", in.Status(), out.Reason, err)
	}
	in.Stop()
	return out, err
}

// completes runs a turn that must.
func completes(t *testing.T, in *Instance) {
	t.Helper()
	if out, err := in.Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
		t.Errorf("outcome %v %v, %v", out.Reason, out.Err, err)
	}
}

// world is a handler that notes what it is asked and answers with what was put
// into it.
type world struct {
	mu      sync.Mutex
	asked   []string
	answers map[abi.Op]Response
	err     map[abi.Op]error
	before  func(op abi.Op)
}

func (w *world) Call(_ context.Context, op abi.Op, request []byte) (Response, error) {
	if w.before != nil {
		w.before(op)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, fmt.Sprintf("%s %s", op, request))
	return w.answers[op], w.err[op]
}

func TestLoadOnce(t *testing.T) {
	e := newEngine(t, Config{})
	code := guest{run: "i32.const 0"}.bytes()
	var wg sync.WaitGroup
	all := make([]*Compiled, 16)
	for i := range all {
		wg.Go(func() { all[i] = loaded(t, e, code) })
	}
	wg.Wait()
	for _, c := range all {
		if c != all[0] {
			t.Fatal("a module was loaded twice")
		}
	}
	if c, ok := e.Loaded(abi.DigestOf(code)); !ok || c != all[0] {
		t.Error("Loaded does not know the module")
	}
	if _, ok := e.Loaded(abi.Digest{}); ok {
		t.Error("Loaded knows a module that was never loaded")
	}
}

// endless is a guest whose golden run does not end by itself within a test.
func endless() []byte {
	g := guest{run: "i32.const 0"}
	g.module.Funcs = []wasmtest.Func{{Export: exportInitialize, Body: "loop br 0 end"}}
	return g.bytes()
}

func TestLoadEndsWithItsLastWaiter(t *testing.T) {
	e := newEngine(t, Config{Interpreter: true})
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(enough) })
	if _, err := e.Load(ctx, "endless", endless()); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	// Close waits for loads; it returns because nobody waits for this one.
}

func TestCloseEndsLoadsAndTurns(t *testing.T) {
	e := newEngine(t, Config{})
	in := instantiate(t, loaded(t, e, guest{run: "loop br 0 end i32.const 0"}.bytes()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := in.Run(t.Context(), Turn{}, &world{}); !errors.Is(err, ErrStopped) {
			t.Errorf("run: %v", err)
		}
	})
	wg.Go(func() {
		if _, err := e.Load(t.Context(), "endless", endless()); !errors.Is(err, ErrStopped) {
			t.Errorf("load: %v", err)
		}
	})
	time.Sleep(10 * time.Millisecond)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if _, err := e.Load(t.Context(), "late", guest{run: "i32.const 0"}.bytes()); !errors.Is(err, ErrStopped) {
		t.Errorf("load after close: %v", err)
	}
	if _, err := in.Run(t.Context(), Turn{}, &world{}); !errors.Is(err, ErrStopped) {
		t.Errorf("run after close: %v", err)
	}
}

func TestCloseGivesUpOnABusyHandler(t *testing.T) {
	e := newEngine(t, Config{})
	in := instantiate(t, loaded(t, e, guest{imports: []string{"agent.start"}, run: "i32.const 0 i32.const 0 call $start drop i32.const 0"}.bytes()))
	asked, answer := make(chan struct{}), make(chan struct{})
	h := handlerFunc(func(ctx context.Context) {
		close(asked)
		<-answer
		<-ctx.Done()
	})
	ended := make(chan error)
	go func() {
		_, err := in.Run(context.Background(), Turn{}, h)
		ended <- err
	}()
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	close(answer)
	if err := <-ended; !errors.Is(err, ErrStopped) {
		t.Errorf("run: %v", err)
	}
}

// handlerFunc is a handler that answers nothing, after it has done something.
type handlerFunc func(ctx context.Context)

func (f handlerFunc) Call(ctx context.Context, _ abi.Op, _ []byte) (Response, error) {
	f(ctx)
	return Response{}, nil
}

func TestProgress(t *testing.T) {
	var mu sync.Mutex
	var told []Progress
	ctx, cancel := context.WithCancel(t.Context())
	e := newEngine(t, Config{Interpreter: true, Progress: func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, p)
		cancel()
	}})
	if _, err := e.Load(ctx, "endless", endless()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[0].Done || !told[1].Done || told[1].Err == nil || told[0].Name != "endless" || told[0].Size == 0 {
		t.Errorf("progress: %+v", told)
	}
}

// A compile cache that is damaged, or cannot be written, costs time only.
func TestBadCache(t *testing.T) {
	code := guest{run: "i32.const 0"}.bytes()
	run := func(t *testing.T, e *Engine) {
		t.Helper()
		c := loaded(t, e, code)
		if out, err := instantiate(t, c).Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
			t.Errorf("outcome %v, %v", out, err)
		}
	}
	// files gives the directory of the cached code, and what is in it.
	files := func(t *testing.T, dir string) (string, []string) {
		t.Helper()
		inner, err := filepath.Glob(filepath.Join(dir, "wazero-*"))
		if err != nil || len(inner) != 1 {
			t.Fatal(inner, err)
		}
		entries, err := filepath.Glob(filepath.Join(inner[0], "*"))
		if err != nil {
			t.Fatal(err)
		}
		return inner[0], entries
	}
	t.Run("damaged", func(t *testing.T) {
		dir := t.TempDir()
		run(t, newEngine(t, Config{CacheDir: dir}))
		_, entries := files(t, dir)
		if len(entries) == 0 {
			t.Fatal("nothing was cached; the test shows nothing")
		}
		for _, name := range entries {
			if err := os.WriteFile(name, []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		run(t, newEngine(t, Config{CacheDir: dir}))
	})
	t.Run("gone", func(t *testing.T) {
		dir := t.TempDir()
		e := newEngine(t, Config{CacheDir: dir})
		inner, _ := files(t, dir)
		if err := os.Remove(inner); err != nil {
			t.Fatal(err)
		}
		run(t, e)
	})
	t.Run("not a directory", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{CacheDir: file}); err == nil {
			t.Error("no error")
		}
	})
}

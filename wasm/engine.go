package wasm

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/rewrite"
)

// Config says how an engine works. The zero value is a good one.
type Config struct {
	// Interpreter runs modules with the interpreter instead of compiling them.
	// It is slower by a factor of 10 to 100 and reaches the same ends, images
	// and fuel figures.
	Interpreter bool
	// CacheDir keeps rewritten and compiled code from one process to the next;
	// "" keeps none. Whoever can write there runs code in this process.
	CacheDir string
	// Workers is how many goroutines compile one module; 0 means GOMAXPROCS.
	Workers int
	// MaxModuleBytes bounds the size of a module; 0 means 64 MiB.
	MaxModuleBytes int
	// LoadTimeout bounds the time that a load takes; 0 means 10 minutes. Code can
	// be made so that compiling it takes very long.
	LoadTimeout time.Duration
	// Memory is how the memories of cells are held; the zero value takes the best
	// way that works on this system. New fails if one that is named does not.
	Memory Memory
	// HostBytes is the memory that the process may have; 0 means that nobody knows, and
	// that it is enough for the defaults of what follows.
	HostBytes uint64
	// MaxIdle is how many idle instances of a module are kept for the next
	// ones, until they have not been needed for some seconds; 0 means 512, or 32
	// where addresses have 32 bits, a negative number none. They hold no more
	// than a 16th of the memory that there is, and 256 MiB.
	MaxIdle int
	// MaxFlatBytes bounds the large images of a module that are kept whole in memory
	// for cells to be mapped from, but for those in use; 0 means 512 MiB, or an 8th of
	// the memory that there is if that is less, a negative number none: then each
	// cell has a copy.
	MaxFlatBytes int
	// Progress, if set, is told of modules that are compiled, not taken from
	// the cache, and take long: once when they do, and once when they are done.
	Progress func(Progress)
}

// Progress tells of a load that takes longer than a person likes to wait.
type Progress struct {
	Name    string
	Size    int
	Done    bool
	Err     error // of a load that is done, and failed
	Elapsed time.Duration
}

// progressAfter is how long a load takes before Progress is called.
const progressAfter = 300 * time.Millisecond

// Engine loads modules. It is safe for concurrent use.
type Engine struct {
	cfg     Config
	backend backend
	// idleBytes is what the idle cells of a module may hold.
	idleBytes int
	host      []hostFunc
	rt        wazero.Runtime
	cache     wazero.CompilationCache // nil without CacheDir
	allowed   func(module, name string, t rewrite.FuncType) error
	golden    abi.Limits // goldenLimits, but in tests
	// ctx ends, with ErrStopped, when the engine closes.
	ctx  context.Context
	stop context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	loads  map[abi.Digest]*load
	plain  wazero.Runtime // without cache; made when it is needed
	// busy counts what must end before the code and memories may be freed.
	busy sync.WaitGroup
}

// load is a module that is loaded, or is being.
type load struct {
	done     chan struct{}
	waiters  int // guarded by Engine.mu
	cancel   context.CancelCauseFunc
	compiled *Compiled
	err      error
}

// New makes an engine.
func New(cfg Config) (*Engine, error) {
	if cfg.MaxModuleBytes <= 0 {
		cfg.MaxModuleBytes = rewrite.DefaultMaxBytes
	}
	if cfg.Workers <= 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	if cfg.LoadTimeout == 0 {
		cfg.LoadTimeout = 10 * time.Minute
	}
	room := defaultRoom(cfg.HostBytes, bits.UintSize)
	if cfg.MaxIdle == 0 {
		cfg.MaxIdle = room.idle
	}
	if cfg.MaxFlatBytes == 0 {
		cfg.MaxFlatBytes = room.flatBytes
	}
	e := &Engine{cfg: cfg, idleBytes: room.idleBytes, host: hostFuncs(), golden: goldenLimits(), loads: map[abi.Digest]*load{}}
	e.allowed = allowImports(e.host)
	e.ctx, e.stop = context.WithCancelCause(experimental.WithCompilationWorkers(context.Background(), cfg.Workers))
	if cfg.CacheDir != "" {
		var err error
		if e.cache, err = wazero.NewCompilationCacheWithDir(cfg.CacheDir); err != nil {
			return nil, fmt.Errorf("compile cache: %w", err)
		}
	}
	var err error
	if e.rt, err = e.newRuntime(e.cache); err != nil {
		return nil, err
	}
	if e.backend, err = newBackend(cfg.Memory); err != nil {
		return nil, errors.Join(err, e.rt.Close(e.ctx))
	}
	return e, nil
}

// Memory tells how the engine holds the memories of cells.
func (e *Engine) Memory() MemoryFacts { return e.backend.facts() }

// newRuntime makes a wazero runtime with the host functions.
func (e *Engine) newRuntime(cache wazero.CompilationCache) (wazero.Runtime, error) {
	rc := wazero.NewRuntimeConfig()
	if e.cfg.Interpreter {
		rc = wazero.NewRuntimeConfigInterpreter()
	}
	// What the rewriting refuses, SIMD for one, is switched off here as well.
	rc = rc.WithCoreFeatures(api.CoreFeaturesV2 &^ api.CoreFeatureSIMD).
		WithDebugInfoEnabled(false).WithCustomSections(false)
	if cache != nil {
		rc = rc.WithCompilationCache(cache)
	}
	rt := wazero.NewRuntimeWithConfig(e.ctx, rc)
	if err := instantiateHost(e.ctx, rt, e.host); err != nil {
		return nil, errors.Join(err, rt.Close(e.ctx))
	}
	return rt, nil
}

// withoutCache gives the runtime that has no cache.
func (e *Engine) withoutCache() (wazero.Runtime, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var err error
	if e.plain == nil {
		e.plain, err = e.newRuntime(nil)
	}
	return e.plain, err
}

// translate compiles rewritten code. A cache that cannot be read or written
// costs time and nothing else: if it cannot be written, wazero has the code in
// memory, where a second try finds it; else the code is compiled without it.
func (e *Engine) translate(ctx context.Context, code []byte) (wazero.Runtime, wazero.CompiledModule, error) {
	m, err := e.rt.CompileModule(ctx, code)
	if err == nil || e.cache == nil {
		return e.rt, m, err
	}
	if m, err = e.rt.CompileModule(ctx, code); err == nil {
		return e.rt, m, nil
	}
	plain, err := e.withoutCache()
	if err != nil {
		return nil, nil, err
	}
	m, err = plain.CompileModule(ctx, code)
	return plain, m, err
}

// Loaded gives a module that Load has loaded before.
func (e *Engine) Loaded(digest abi.Digest) (*Compiled, bool) {
	e.mu.Lock()
	l := e.loads[digest]
	e.mu.Unlock()
	if l == nil {
		return nil, false
	}
	select {
	case <-l.done:
		return l.compiled, l.err == nil
	default:
		return nil, false
	}
}

// Load checks, rewrites and compiles code, and runs it to its golden image. It
// does so once for each digest, however many ask, and gives up when none of
// them waits any more. The name is for messages. Load keeps no part of code.
//
// The error wraps ErrModule if the module cannot be taken, ErrShortage if the
// host lacks memory or Config.LoadTimeout has passed, ErrStopped if the engine is
// closed, else ctx's cause.
func (e *Engine) Load(ctx context.Context, name string, code []byte) (*Compiled, error) {
	code = slices.Clone(code) // the load may go on when nobody waits
	return e.LoadDigest(ctx, name, abi.DigestOf(code), func() ([]byte, error) { return code, nil })
}

// LoadDigest is Load for code that is known by its digest. It is read only where
// the cache does not have the module, perhaps after LoadDigest has returned;
// what code returns is not changed any more.
func (e *Engine) LoadDigest(ctx context.Context, name string, digest abi.Digest, code func() ([]byte, error)) (*Compiled, error) {
	l, err := e.join(name, digest, code)
	if err != nil {
		return nil, fmt.Errorf("load %q: %w", name, err)
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		e.abandon(l, digest, context.Cause(ctx))
		return nil, fmt.Errorf("load %q: %w", name, context.Cause(ctx))
	}
	if l.err != nil {
		return nil, fmt.Errorf("load %q: %w", name, l.err)
	}
	return l.compiled, nil
}

// join begins the load of a module, or waits for one that has begun.
func (e *Engine) join(name string, digest abi.Digest, code func() ([]byte, error)) (*load, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("engine: %w", ErrStopped)
	}
	l := e.loads[digest]
	if l == nil {
		l = &load{done: make(chan struct{})}
		var ctx context.Context
		ctx, l.cancel = context.WithCancelCause(e.ctx)
		e.loads[digest] = l
		e.busy.Add(1)
		go e.run(ctx, l, name, digest, code)
	}
	l.waiters++
	return l, nil
}

// abandon stops waiting for l, and ends it if nobody else waits.
func (e *Engine) abandon(l *load, digest abi.Digest, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.waiters--
	select {
	case <-l.done:
	default:
		if l.waiters == 0 {
			l.cancel(cause)
			e.forget(l, digest)
		}
	}
}

// forget makes room for another try. The caller holds mu.
func (e *Engine) forget(l *load, digest abi.Digest) {
	if e.loads[digest] == l {
		delete(e.loads, digest)
	}
}

// run performs a load.
func (e *Engine) run(ctx context.Context, l *load, name string, digest abi.Digest, code func() ([]byte, error)) {
	defer e.busy.Done()
	defer l.cancel(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, e.cfg.LoadTimeout,
		fmt.Errorf("%w: loading it takes longer than %s", ErrShortage, e.cfg.LoadTimeout))
	defer cancel()
	l.compiled, l.err = e.compile(ctx, name, digest, code)
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.err != nil {
		e.forget(l, digest)
	}
	close(l.done)
}

// watch tells Progress of a module that takes long to compile. The function it
// returns must be called when that is done.
func (e *Engine) watch(name string, size int) (finished func(err error)) {
	if e.cfg.Progress == nil {
		return func(error) {}
	}
	begin, told := time.Now(), make(chan struct{})
	timer := time.AfterFunc(progressAfter, func() {
		defer close(told)
		e.cfg.Progress(Progress{Name: name, Size: size, Elapsed: time.Since(begin)})
	})
	return func(err error) {
		if !timer.Stop() {
			<-told
			e.cfg.Progress(Progress{Name: name, Size: size, Done: true, Err: err, Elapsed: time.Since(begin)})
		}
	}
}

// enter announces work that needs the engine's code and memories; leave must
// follow.
func (e *Engine) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("engine: %w", ErrStopped)
	}
	e.busy.Add(1)
	return nil
}

func (e *Engine) leave() { e.busy.Done() }

// Close stops every instance, waits until nothing runs, and frees all the
// engine holds. If ctx ends first, it gives up waiting and frees nothing.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stop(fmt.Errorf("engine: %w", ErrStopped))
	idle := make(chan struct{})
	go func() {
		e.busy.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		return fmt.Errorf("close engine: a handler is still busy: %w", context.Cause(ctx))
	}
	err := e.rt.Close(ctx)
	if e.plain != nil {
		err = errors.Join(err, e.plain.Close(ctx))
	}
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(ctx))
	}
	for _, l := range e.loads {
		l.compiled.pool.close()
		l.compiled.flats.close()
		l.compiled.memory.close()
	}
	e.backend.close()
	return err
}

package extism

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	sdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/agentcell/agentcell/sdk/abi"
)

// MaxModule is the size of the largest module, and MaxCompiled how many compiled ones
// are kept.
const (
	MaxModule   = 64 << 20
	MaxCompiled = 16
)

// variant is a compiled module with what is decided when it is compiled.
type variant struct {
	module abi.Digest
	memory int64
	wasi   bool
}

// compiled is a module that sandboxes can be made of, once ready is closed.
type compiled struct {
	variant
	ready  chan struct{}
	plugin *sdk.CompiledPlugin
	cache  wazero.CompilationCache // its own: what is compiled goes with it
	err    error
	users  int
	gone   bool // from the library: the last user closes it
}

func (c *compiled) close() error {
	if c.plugin == nil {
		return nil
	}
	return errors.Join(c.plugin.Close(context.Background()), c.cache.Close(context.Background()))
}

// library keeps the compiled modules that were used last. The zero value is empty.
type library struct {
	options   Options
	functions []sdk.HostFunction

	mu   sync.Mutex
	kept []*compiled // the one that was used last is last
}

// get gives a compiled module until put, and compiles it if it is not there. Who waits
// for another's compiling gives up with ctx; what was begun is done and kept.
func (l *library) get(ctx context.Context, m Module, manifest Manifest) (*compiled, error) {
	v := variant{m.Digest, manifest.MemoryLimit(), manifest.WASI}
	l.mu.Lock()
	i := slices.IndexFunc(l.kept, func(c *compiled) bool { return c.variant == v })
	var c *compiled
	if i >= 0 {
		c = l.kept[i]
		l.kept = append(slices.Delete(l.kept, i, i+1), c)
	} else {
		c = &compiled{variant: v, ready: make(chan struct{})}
		l.kept = append(l.kept, c)
	}
	c.users++
	over := l.shrink()
	l.mu.Unlock()
	_ = closeAll(over) // they hold nothing but memory
	if i < 0 {
		l.compile(c, m)
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		l.put(c)
		return nil, context.Cause(ctx)
	}
	if c.err != nil {
		l.forget(c)
		l.put(c)
		return nil, c.err
	}
	return c, nil
}

// put gives back what get gave.
func (l *library) put(c *compiled) {
	l.mu.Lock()
	c.users--
	last := c.gone && c.users == 0
	l.mu.Unlock()
	if last {
		_ = c.close() // it holds nothing but memory
	}
}

// shrink takes out what is too much, and gives what nobody uses of it.
func (l *library) shrink() (unused []*compiled) {
	for len(l.kept) > MaxCompiled {
		if c := l.kept[0]; l.drop(c) {
			unused = append(unused, c)
		}
	}
	return unused
}

// drop takes c out, and reports whether nobody uses it.
func (l *library) drop(c *compiled) bool {
	if c.gone {
		return false
	}
	c.gone = true
	l.kept = slices.DeleteFunc(l.kept, func(k *compiled) bool { return k == c })
	return c.users == 0
}

// forget takes out what could not be compiled, which is tried again.
func (l *library) forget(c *compiled) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(c)
}

func (l *library) close() error {
	l.mu.Lock()
	var unused []*compiled
	for _, c := range slices.Clone(l.kept) {
		if l.drop(c) {
			unused = append(unused, c)
		}
	}
	l.mu.Unlock()
	return closeAll(unused)
}

func closeAll(all []*compiled) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// compile makes c ready.
func (l *library) compile(c *compiled, m Module) {
	defer close(c.ready)
	c.err = errors.New("the plug-in could not be compiled") // if the engine panics
	code, err := m.Code()
	switch {
	case err != nil:
		c.err = fmt.Errorf("module: %w", err)
		return
	case abi.DigestOf(code) != m.Digest:
		c.err = fmt.Errorf("%w: its SHA-256 is not %s, to which it is pinned", ErrModule, m.Digest.Short())
		return
	case len(code) > MaxModule:
		c.err = fmt.Errorf("%w: it has %d bytes, at most %d are taken", ErrModule, len(code), MaxModule)
		return
	}
	if code, err = mend(code); err != nil {
		c.err = err
		return
	}
	cache := newCache(l.options.CacheDir)
	const page = 64 << 10
	rc := wazero.NewRuntimeConfig()
	if l.options.Interpreter {
		rc = wazero.NewRuntimeConfigInterpreter()
	}
	rc = rc.WithCloseOnContextDone(true).WithDebugInfoEnabled(false).WithCompilationCache(cache)
	manifest := sdk.Manifest{
		Wasm: []sdk.Wasm{sdk.WasmData{Data: code}},
		Memory: &sdk.ManifestMemory{
			MaxPages:             uint32(max(1, c.memory/page)),
			MaxHttpResponseBytes: c.memory / 2,
			MaxVarBytes:          1 << 20,
		},
	}
	config := sdk.PluginConfig{RuntimeConfig: rc, EnableWasi: c.wasi, EnableHttpResponseHeaders: true}
	ctx := experimental.WithCompilationWorkers(context.Background(), 1)
	plugin, err := sdk.NewCompiledPlugin(ctx, manifest, config, l.functions)
	if err != nil {
		c.err = errors.Join(fmt.Errorf("%w: %s", ErrModule, problem(err)), cache.Close(ctx))
		return
	}
	c.plugin, c.cache, c.err = plugin, cache, nil
}

// newCache is a cache of compiled code. One that cannot be in its directory is in
// memory: it saves time and nothing else.
func newCache(dir string) wazero.CompilationCache {
	if dir != "" {
		if cache, err := wazero.NewCompilationCacheWithDir(dir); err == nil {
			return cache
		}
	}
	return wazero.NewCompilationCache()
}

// Package extism owns tools that are Extism plug-ins: WebAssembly modules, which may
// be anybody's, each call in a sandbox of its own.
//
// A sandbox is made for a call and gone after it, so that nothing passes from one
// session to another; what is kept is the compiled module. It may use what its
// Manifest says and nothing else: no host, no directory, no environment, so much
// memory, so much time. A plug-in that panics, loops, eats memory or asks for more
// than it may have is an error of the call.
//
// Two things are done here in another way than by the SDK, because of what a plug-in
// could reach with its own. HTTP requests go directly, without a proxy, and stay among
// the allowed hosts wherever an answer sends them on to; what is named by an address,
// and localhost, is allowed by that very name alone, and no other name may turn out
// to stand for a private address. And no link leads out of a directory.
//
// Plug-ins know no idempotency keys.
//
// It imports host/tool, sdk/abi, the SDK of Extism and wazero, and never the host, the
// journal or a runtime of cells.
package extism

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	sdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Options change the defaults; the zero value is all defaults.
type Options struct {
	// CacheDir keeps compiled plug-ins from one process to the next; empty keeps
	// none. Whoever can write there runs code in this process.
	CacheDir string
	// Interpreter runs plug-ins without compiling them to machine code.
	Interpreter bool
	// Secret looks up a secret; nil means that there are none. Its errors name it, and
	// hold nothing secret.
	Secret func(name string) (string, error)
}

// Plugins performs calls of plug-ins. Make it with New. It is safe for concurrent use.
type Plugins struct {
	options Options
	client  *http.Client
	slots   chan struct{} // has an element for each sandbox that is there
	library library
}

// MaxSandboxes is how many calls run at once; more wait.
const MaxSandboxes = 32

// New makes a Plugins. It costs nothing before a plug-in is loaded.
func New(o Options) *Plugins {
	p := &Plugins{options: o, client: newClient(), slots: make(chan struct{}, MaxSandboxes)}
	p.library.options = o
	p.library.functions = []sdk.HostFunction{httpFunction(p.client)}
	return p
}

// Close gives back what is kept. A sandbox that runs still goes with its call.
func (p *Plugins) Close() error {
	p.client.CloseIdleConnections()
	return p.library.close()
}

// Module is a plug-in's module: its digest, to which it is pinned, and how to come by
// its bytes, which are checked against it whenever they are loaded.
type Module struct {
	Digest abi.Digest
	Code   func() ([]byte, error)
}

// Executor makes the executor of one tool. The manifest is looked at when it is called.
func (p *Plugins) Executor(module Module, m Manifest) tool.Executor {
	return &executor{plugins: p, module: module, manifest: m}
}

// Check reports why a plug-in cannot be the tool that a manifest makes of it, with
// ErrManifest or ErrModule. It loads it, and calls nothing but what a module starts with.
func (p *Plugins) Check(ctx context.Context, code []byte, m Manifest) error {
	if err := m.Check(); err != nil {
		return err
	}
	module := Module{Digest: abi.DigestOf(code), Code: func() ([]byte, error) { return code, nil }}
	e := &executor{plugins: p, module: module, manifest: m}
	_, err := e.within(ctx, func(ctx context.Context) (abi.ToolResult, error) {
		return abi.ToolResult{}, e.sandbox(ctx, func(plugin *sdk.Plugin) error {
			if plugin.FunctionExists(m.Export) {
				return nil
			}
			exports := slices.Sorted(maps.Keys(plugin.Module().ExportedFunctions()))
			return fmt.Errorf("%w: it exports no %q; it exports %s", ErrModule, m.Export, strings.Join(exports, ", "))
		})
	})
	return err
}

// executor performs the calls of one tool.
type executor struct {
	plugins  *Plugins
	module   Module
	manifest Manifest
}

var _ tool.Executor = (*executor)(nil)

// Call calls the plug-in's function in a sandbox of its own.
func (e *executor) Call(ctx context.Context, c tool.Call) (abi.ToolResult, error) {
	if err := e.manifest.Check(); err != nil {
		return abi.ToolResult{}, err
	}
	input, err := e.manifest.input(c.Args)
	if err != nil {
		return abi.ToolResult{}, err
	}
	// The call may be over before the plug-in is.
	input = bytes.Clone(input)
	return e.within(ctx, func(ctx context.Context) (abi.ToolResult, error) { return e.perform(ctx, input) })
}

// errTimeout is the error of a call that took too long.
var errTimeout = errors.New("no answer in time")

// within does work until the time of a call is over. Work that does not heed its
// context, such as reading a pipe in a directory, is left behind: it holds its sandbox
// and nobody else.
func (e *executor) within(ctx context.Context, work func(context.Context) (abi.ToolResult, error)) (abi.ToolResult, error) {
	limit := e.manifest.Timeout()
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	over := func() (abi.ToolResult, error) {
		if err := ctx.Err(); err != nil {
			return abi.ToolResult{}, fmt.Errorf("plug-in: %w", err)
		}
		return abi.ToolResult{}, fmt.Errorf("%w: it had %s", errTimeout, limit)
	}
	if timed.Err() != nil {
		return over()
	}
	select {
	case e.plugins.slots <- struct{}{}:
	case <-timed.Done():
		return over()
	}
	type outcome struct {
		result abi.ToolResult
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-e.plugins.slots }()
		var o outcome
		defer func() {
			if r := recover(); r != nil {
				o.err = fmt.Errorf("the plug-in's host panicked: %v", r)
			}
			done <- o
		}()
		o.result, o.err = work(timed)
	}()
	select {
	case o := <-done:
		if o.err != nil && timed.Err() != nil {
			return over()
		}
		return o.result, o.err
	case <-timed.Done():
		return over()
	}
}

// perform makes a call.
func (e *executor) perform(ctx context.Context, input []byte) (r abi.ToolResult, err error) {
	config, secrets, err := e.config()
	if err != nil {
		return r, err
	}
	err = e.sandbox(ctx, func(plugin *sdk.Plugin) error {
		plugin.Config = config
		code, output, err := plugin.CallWithContext(ctx, e.manifest.Export, input)
		switch {
		case err != nil:
			return errors.New(secrets.problem(err))
		case code != 0:
			return fmt.Errorf("it ended with code %d", int32(code))
		}
		r, err = result([]byte(secrets.hide(string(output))))
		return err
	})
	return r, err
}

// config is what the plug-in may ask for, with the secrets in it.
func (e *executor) config() (map[string]string, secrets, error) {
	config := maps.Clone(e.manifest.Config)
	var found secrets
	for key, value := range config {
		name, is := strings.CutPrefix(value, secretPrefix)
		if !is {
			continue
		}
		if e.plugins.options.Secret == nil {
			return nil, nil, fmt.Errorf("config %q: there are no secrets here, such as %q", key, name)
		}
		secret, err := e.plugins.options.Secret(name)
		if err != nil {
			return nil, nil, fmt.Errorf("config %q: %w", key, err)
		}
		config[key] = secret
		found = append(found, secret)
	}
	return config, found, nil
}

// secrets are those that a plug-in was given.
type secrets []string

// hide takes them out of a text: a plug-in that says what it was told must not make it
// part of a record. It helps against carelessness, not against a plug-in that is bent on it.
func (s secrets) hide(text string) string {
	const least = 8 // shorter ones stand in anything
	// The longest first: another one may be a part of it.
	longest := func(a, b string) int { return cmp.Compare(len(b), len(a)) }
	for _, secret := range slices.SortedFunc(slices.Values(s), longest) {
		if len(secret) >= least {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	return text
}

// sandbox makes a sandbox for work, in which nothing is configured.
func (e *executor) sandbox(ctx context.Context, work func(*sdk.Plugin) error) error {
	made, err := e.plugins.library.get(ctx, e.module, e.manifest)
	if err != nil {
		return err
	}
	defer e.plugins.library.put(made)
	mounts, roots, err := mount(e.manifest.Paths)
	if err != nil {
		return err
	}
	defer closeRoots(roots)
	config := wazero.NewModuleConfig().WithFSConfig(mounts).
		WithSysWalltime().WithSysNanotime().WithRandSource(rand.Reader).
		WithNanosleep(func(ns int64) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(ns)):
			}
		})
	plugin, err := made.plugin.Instance(ctx, sdk.PluginInstanceConfig{ModuleConfig: config})
	if err != nil {
		return fmt.Errorf("%w: %s", ErrModule, problem(err))
	}
	// With a context that lasts: whatever became of the call, it goes.
	defer func() { _ = plugin.CloseWithContext(context.WithoutCancel(ctx)) }()
	plugin.AllowedHosts = e.manifest.Hosts
	return work(plugin)
}

// maxProblem bounds what a plug-in may say of its failure.
const maxProblem = 4 << 10

// problem is what an error of a plug-in says, without the engine's own remarks.
func problem(err error) string { return secrets(nil).problem(err) }

// problem leaves the secrets out as well, before the text is cut: of one that is cut a
// part would be left.
func (s secrets) problem(err error) string {
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		return fmt.Sprintf("it exited with code %d", exit.ExitCode())
	}
	text, _, _ := strings.Cut(err.Error(), "\nwasm stack trace:")
	text = s.hide(strings.TrimSuffix(text, " (recovered by wazero)"))
	if len(text) > maxProblem {
		text = text[:maxProblem] + " …"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// ParseManifest reads a manifest as it is stored.
func ParseManifest(b []byte) (Manifest, error) {
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("%w: %s", ErrManifest, abi.JSONProblem(err))
	}
	return m, nil
}

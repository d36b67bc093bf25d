// Package edge owns the default wiring of a host: the embedded journal in one
// directory, the WebAssembly runtime, the bundled harnesses, the echo model,
// the models, the servers of tools and the tool fetch that agentcell.yaml has, the policy
// beside it, and the tools that the store has.
// It is what agentctl uses and what an embedder begins with:
//
//	h, err := edge.Open(dir, edge.Options{})
//
// It only puts parts together; it imports all of them and decides nothing.
package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/echo"
	"github.com/agentcell/agentcell/host/model/route"
	"github.com/agentcell/agentcell/host/secret"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/fetch"
	"github.com/agentcell/agentcell/host/tool/mcp"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	runtime "github.com/agentcell/agentcell/runtimes/wasm"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm"
)

// EchoModel is the name of the model that needs no network and no key.
const EchoModel = "echo"

// Options change the defaults; the zero value is all defaults.
type Options struct {
	// ConfigFile is the configuration; empty means agentcell.yaml in the directory of
	// the store, which need not be there.
	ConfigFile string
	// PolicyFile has the rules over calls of tools; empty means the one that the
	// configuration names, or policy.yaml in the directory of the store, which need not
	// be there. It is read once, by Open, or by the first turn of a Paused host.
	PolicyFile string
	// Getenv and Secret look up the keys that the configuration names, in the
	// environment and in a secret store; nil means those of the process and of the
	// directory, without which there is none.
	Getenv func(name string) string
	Secret func(name string) (string, error)
	// ModelLog is told of each attempt of a model call, never of what it carried; nil
	// means Log.
	ModelLog *slog.Logger
	// Models are added to the built-in echo model, and go before those of the
	// configuration.
	Models map[string]model.Provider
	// DefaultModel serves turns that name none; empty means that of the configuration,
	// or else EchoModel.
	DefaultModel string
	// Tools are what turns may call, by name; ToolSources offer more, and go before
	// the tools that the store has.
	Tools       map[string]tool.Tool
	ToolSources []tool.Source
	// CacheDir keeps compiled modules from one process to the next; empty, or
	// where nothing can be kept, keeps none. Whoever can write there runs code in this process.
	CacheDir string
	// Interpreter runs modules without compiling them to machine code.
	Interpreter bool
	// LockWait is how long Open waits for another process that has the
	// directory.
	LockWait time.Duration
	// Limits bound a turn, Deadline and CallTimeout its time, MaxTurns how many run
	// at once, MaxQueue how many wait for one session, Warm what is kept for the
	// next turn: as in host.Config. For zero values its defaults hold, and less on a
	// small machine: see Fitted.
	Limits                abi.Limits
	Deadline, CallTimeout time.Duration
	MaxTurns, MaxQueue    int
	Warm                  host.WarmLimits
	// Paused makes a host that runs no turn by itself until Release; else it
	// recovers what a process has left and fires timers, RecoverParallel turns at
	// once, and tells Recovered: see host.Config.
	Paused          bool
	RecoverParallel int
	Recovered       func(host.Recovery)
	// ManualCollect leaves what nobody needs any more in the store until Collect is
	// called; else the host sees to it: see host.Config.AutoCollect.
	ManualCollect bool
	// FlushDelay is the longest a staged record stays volatile while its turn
	// goes on; 0 means host.FlushDelay, a negative value turns the flush off.
	FlushDelay time.Duration
	// Rebuilding, if set, is told of turns that are run again: see host.Config.
	Rebuilding func(host.Rebuild)
	// Progress, if set, is told in words of work that takes long.
	Progress func(text string)
	// Log receives what an operator may want to know; nil discards.
	Log *slog.Logger
	// HarnessLog receives what harnesses log, word for word; nil discards. See
	// host.Config.
	HarnessLog *slog.Logger
	// Now is the clock; nil means the machine's.
	Now func() time.Time
}

// Host is a host with the parts it is made of.
type Host struct {
	*host.Host
	journal *journal.Journal
	runtime *runtime.Runtime
	stored  *storedTools
	servers *mcp.Servers

	policy   policyFile
	policies *host.PolicyStore
}

// Open opens the store in dir, which it creates if need be, and makes a host on
// it. No engine is started before a turn, or a look at a module, needs one, and no
// server of tools before a turn, a call or a list of tools does.
func Open(dir string, o Options) (*Host, error) {
	settled, err := settle(dir, o)
	if err != nil {
		return nil, err
	}
	store, err := journal.Open(dir, journal.Options{LockWait: o.LockWait, Beside: Beside()})
	if err != nil {
		return nil, err
	}
	h, err := over(store, settled)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return h, nil
}

// Beside are the names of the files that may stand in a directory before there is a
// store in it: see journal.Options.
func Beside() []string { return append(secret.Files(), config.FileName, config.PolicyFileName) }

// OpenMemory is Open with a store that ends with the process, for tests. It has no
// configuration but a ConfigFile.
func OpenMemory(o Options) (*Host, error) {
	s, err := settle("", o)
	if err != nil {
		return nil, err
	}
	return over(journal.OpenMemory(), s)
}

// Models is the table of models that the configuration has, of the directory dir
// or of o. It needs no store.
func Models(dir string, o Options) (*route.Table, error) {
	s, err := settle(dir, o)
	return s.routes, err
}

// settled are options with what they leave to the process, and the configuration.
type settled struct {
	Options
	file   config.File
	routes *route.Table
	policy policyFile
}

// settle reads the configuration of the directory dir or of o.
func settle(dir string, o Options) (settled, error) {
	var file config.File
	if dir != "" || o.ConfigFile != "" {
		var err error
		if file, err = config.Load(dir, o.ConfigFile); err != nil {
			return settled{}, err
		}
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Secret == nil && dir != "" {
		o.Secret = secret.In(dir, o.Now).Get
	}
	if o.ModelLog == nil {
		o.ModelLog = o.Log
	}
	routes, err := route.New(file, route.Options{Getenv: o.Getenv, Secret: o.Secret, Log: o.ModelLog})
	if err == nil {
		err = checkNames(file, routes, o.Models)
	}
	return settled{o, file, routes, findPolicy(dir, o, file)}, err
}

// checkNames refuses names of models that would not be what a configuration says: a
// default that is nobody's, and a line for what is built in.
func checkNames(file config.File, routes *route.Table, others map[string]model.Provider) error {
	if i := slices.Index(routes.Names(), EchoModel); i >= 0 {
		return file.Wrong(fmt.Errorf("model %q is built in; want another name", EchoModel), "models", strconv.Itoa(i), "name")
	}
	name := file.DefaultModel
	_, routed := routes.Find(name)
	if name == "" || name == EchoModel || others[name] != nil || routed {
		return nil
	}
	names := slices.Concat([]string{EchoModel}, slices.Sorted(maps.Keys(others)), routes.Names())
	return file.Wrong(fmt.Errorf("default_model: there is no model %q; those there are: %s", name, strings.Join(names, ", ")), "default_model")
}

func over(store *journal.Journal, s settled) (*Host, error) {
	o, routes := Fitted(s.Options), s.routes
	if !o.Paused { // else the first turn wants it
		if _, err := s.policy.load(); err != nil {
			return nil, err
		}
	}
	engine, err := newEngine(o)
	if err != nil {
		return nil, err
	}
	prices := func(name string) (host.Price, bool) {
		input, output, ok := routes.Price(name)
		return host.Price{Input: input, Output: output}, ok || name == EchoModel
	}
	models := map[string]model.Provider{EchoModel: echo.Provider{}}
	maps.Copy(models, o.Models)
	if o.DefaultModel == "" {
		o.DefaultModel = routes.DefaultModel()
	}
	if o.DefaultModel == "" {
		o.DefaultModel = EchoModel
	}
	rt := runtime.New(engine)
	stored := newStoredTools(store, o)
	servers := mcp.New(s.file.MCP, mcp.Options{Getenv: o.Getenv, Secret: o.Secret, Log: o.Log})
	sources := append(slices.Clip(o.ToolSources), stored, servers)
	if s.file.Fetch != nil {
		sources = append(sources, fetch.New(*s.file.Fetch, fetch.Options{Getenv: o.Getenv, Secret: o.Secret}))
	}
	policies := host.NewPolicyStore(store, o.Now)
	h, err := host.New(host.Config{
		Policy: s.policy.keeping(policies), KeptPolicy: keptPolicy(policies),
		Journal: store, Runtimes: []runtimes.Runtime{rt},
		Models: models, Routes: routes, DefaultModel: o.DefaultModel, Tools: o.Tools, ToolSources: sources, Prices: prices, Log: o.Log, HarnessLog: o.HarnessLog, Now: o.Now,
		FlushDelay: o.FlushDelay, Limits: o.Limits, Deadline: o.Deadline, CallTimeout: o.CallTimeout,
		MaxTurns: o.MaxTurns, MaxQueue: o.MaxQueue, Warm: o.Warm,
		AutoCollect: !o.ManualCollect, Paused: o.Paused, RecoverParallel: o.RecoverParallel, Recovered: o.Recovered,
		Rebuilding: o.Rebuilding,
	})
	if err != nil {
		return nil, errors.Join(err, rt.Close(context.Background()))
	}
	return &Host{Host: h, journal: store, runtime: rt, stored: stored, servers: servers, policy: s.policy, policies: policies}, nil
}

// newEngine makes the engine. A cache saves time and nothing else: where there
// can be none, as in a container without a home directory, it goes without.
func newEngine(o Options) (*wasm.Engine, error) {
	cfg := wasm.Config{Interpreter: o.Interpreter, CacheDir: o.CacheDir, HostBytes: uint64(memory()), Progress: progress(o)}
	engine, err := wasm.New(cfg)
	if err == nil || cfg.CacheDir == "" {
		return engine, err
	}
	if o.Log != nil {
		o.Log.Warn("compiled modules are not kept", "dir", o.CacheDir, "error", err)
	}
	if o.Progress != nil {
		o.Progress(fmt.Sprintf("compiled modules are not kept: %v", err))
	}
	cfg.CacheDir = ""
	return wasm.New(cfg)
}

// Journal is the host's journal, for callers that need what is below the
// control API.
func (h *Host) Journal() *journal.Journal { return h.journal }

// Close drops the turns that run, which leaves them resumable, and closes every
// part.
func (h *Host) Close() error {
	return errors.Join(h.Host.Close(), h.servers.Close(), h.stored.plugins.Close(), h.runtime.Close(context.Background()), h.journal.Close())
}

// progress puts what the engine tells into words.
func progress(o Options) func(wasm.Progress) {
	once := ", once on this machine"
	if o.CacheDir == "" {
		once = ""
	}
	tell := func(format string, args ...any) {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf(format, args...))
		}
	}
	return func(p wasm.Progress) {
		switch {
		case !p.Done:
			tell("compiling %s (%.1f MB)%s …", p.Name, float64(p.Size)/1e6, once)
		case p.Err == nil:
			tell("compiled %s in %s", p.Name, p.Elapsed.Round(time.Millisecond))
			if o.Log != nil {
				o.Log.Info("module compiled", "harness", p.Name, "bytes", p.Size, "took", p.Elapsed.Round(time.Millisecond))
			}
		}
	}
}

// Package host owns the control API: sessions, their turns, and everything a
// turn asks of the world. It places a harness on a runtime, performs its effects,
// journals them, saves memory images, recovers what a crash interrupted, and
// proves turns by running them again.
//
// The rules of a turn are in host/turn, which decides and never acts; this
// package acts and never decides. It imports the seams (host/turn, host/model,
// journal, runtimes, sdk/abi) and never an engine, a concrete runtime, a concrete
// provider or badger.
package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// The errors of the control API; test with errors.Is. The journal's sentinels
// (ErrFull, ErrCorrupt, ErrPoisoned, ErrFenced …) and those of runtimes
// (ErrModule, ErrShortage) pass through wrapped.
var (
	// ErrInvalid: the request itself is wrong.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound: no such session, harness, model or record.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken in its project.
	ErrExists = errors.New("already exists")
	// ErrAmbiguous: several sessions match.
	ErrAmbiguous = errors.New("ambiguous session")
	// ErrBusy: a turn of this session is running in this host, and it was not
	// asked to wait, or too many wait already.
	ErrBusy = errors.New("session busy")
	// ErrConflict: the session is not at the seq the caller expected, or another
	// writer took it over.
	ErrConflict = errors.New("session conflict")
	// ErrOpenTurn: an interrupted turn is open; recover or abandon it first.
	ErrOpenTurn = errors.New("interrupted turn is open")
	// ErrNothingOpen: there is neither input nor an open turn to recover.
	ErrNothingOpen = errors.New("no open turn")
	// ErrPlacement: no runtime can honour what the harness needs (P1).
	ErrPlacement = errors.New("placement refused")
	// ErrNotPortable: what a session remembers cannot be carried into another module;
	// the text says what is missing.
	ErrNotPortable = errors.New("state cannot be carried over")
	// ErrMidTurn: the fork point lies inside a turn.
	ErrMidTurn = errors.New("fork point inside a turn")
	// ErrDivergence: running a turn again did not do what the record says. The
	// error is a *turn.Divergence.
	ErrDivergence = errors.New("divergence from the record")
	// ErrClosed: the host was closed.
	ErrClosed = errors.New("host closed")
)

// DefaultProject is the project of a session that names none.
const DefaultProject = "default"

// What bounds a host where its Config says nothing.
const (
	DefaultDeadline    = 10 * time.Minute
	DefaultCallTimeout = 10 * time.Minute
	DefaultMaxTurns    = 1024
	DefaultMaxQueue    = 64
)

// FlushDelay is the longest that a staged record stays volatile while its turn
// goes on (see docs/turn.md).
const FlushDelay = 20 * time.Millisecond

// Harness is the code of a harness under the name people use for it.
type Harness struct {
	Name string
	Code []byte
	// Where Code is nil, Read gives it, and Digest is the digest it has: for code
	// that takes time to be had. It is read if neither the runtime nor the store has it.
	Read   func() ([]byte, error)
	Digest abi.Digest
}

// Module is the harness as runtimes and the store want it.
func (h Harness) Module() runtimes.Module {
	if h.Code == nil && h.Read != nil {
		return runtimes.Module{Digest: h.Digest, Name: h.Name, Code: h.Read}
	}
	return runtimes.Module{
		Digest: abi.DigestOf(h.Code), Name: h.Name,
		Code: func() ([]byte, error) { return h.Code, nil },
	}
}

// Config is what a Host is made of. Journal, Runtimes and Models are required.
type Config struct {
	Journal *journal.Journal
	// Runtimes are tried in order; the first that can honour a harness's needs
	// gets it.
	Runtimes []runtimes.Runtime
	// Models are the providers by model name. Routes, if set, is asked for a name
	// that is not among them. DefaultModel serves a turn that names none; one of the
	// two must have it.
	Models       map[string]model.Provider
	Routes       model.Router
	DefaultModel string
	// Tools are what a turn may call through the host, by name, and ToolSources offer
	// more. Each turn is granted those of its session as they are when it opens; of two
	// with one name the one that comes first, Tools before all.
	Tools       map[string]tool.Tool
	ToolSources []tool.Source
	// Policy makes the policy by which a session's calls of tools are decided on; nil
	// leaves each to its tool's mediation, and so does a policy that is nil. Its error
	// is that of each turn that would begin or go on, with nothing recorded; a turn can
	// be given up without it.
	Policy func(turn.Subject) (turn.Policy, error)
	// KeptPolicy makes the one that has a digest, of which a request for approval says
	// that it was made under it; ErrNotFound if its text is not at hand. Nil has none.
	KeptPolicy func(abi.Digest, turn.Subject) (turn.Policy, error)

	// Limits bound a turn; the zero value means abi.DefaultLimits.
	Limits abi.Limits
	// Deadline bounds the wall time of a turn, but for the time its calls of
	// models and tools take, which CallTimeout bounds one by one; 0 means
	// DefaultDeadline and DefaultCallTimeout.
	Deadline    time.Duration
	CallTimeout time.Duration
	// MaxTurns is how many turns may run at once, on this host; those beyond it
	// wait. 0 means DefaultMaxTurns.
	MaxTurns int
	// MaxQueue is how many turns may wait for one session (ExecRequest.Wait); 0
	// means DefaultMaxQueue.
	MaxQueue int
	// Prices tells what a model's tokens cost, in the same currency for all; false
	// that nobody knows, which a session with a budget of cost does not go on with.
	// nil knows no price.
	Prices func(model string) (Price, bool)
	// Warm bounds the cells that are kept for the next turn.
	Warm WarmLimits
	// FlushDelay is the longest a staged record stays volatile while its turn
	// goes on: 0 means the constant FlushDelay, a negative value turns the
	// background flush off.
	FlushDelay time.Duration

	// AutoCollect makes a host that collects by itself when CollectPays, from a minute
	// after New on and until Close: it prefers moments without a turn, and takes a small
	// part of one processor. What goes wrong is logged, and tried again later.
	AutoCollect bool
	// Paused makes a host that runs no turn by itself until Release. Else it
	// recovers the turns that a process has left open, and takes up parked ones as
	// their times come, from the start on and in the background: see Recover.
	Paused bool
	// RecoverParallel is how many turns the host takes up by itself at once; 0
	// means DefaultRecoverParallel. With Limits it bounds the memory that takes.
	RecoverParallel int
	// Recovered, if set, is told of each turn that the host took up by itself, by
	// one call at a time, the first perhaps before New has returned. A slow one
	// holds up others; it must not call Close.
	Recovered func(Recovery)
	// Rebuilding, if set, is told before turns are run again because an image is
	// not stored. It may be called by several goroutines at once.
	Rebuilding func(Rebuild)

	// Log receives what an operator may want to know, never payloads; nil
	// discards.
	Log *slog.Logger
	// HarnessLog receives what harnesses log, word for word: whatever they were told may
	// be in it, and no secret, since they are told none. What a turn logs again because
	// it runs again is at the debug level, the rest at info; proofs log nothing. nil
	// discards.
	HarnessLog *slog.Logger
	// Now and Random are the clock and the source of ids and seeds; nil means
	// the machine's.
	Now    func() time.Time
	Random io.Reader
}

// provider is what serves the named model, nil if nothing does.
func (c *Config) provider(name string) model.Provider {
	if p := c.Models[name]; p != nil || c.Routes == nil {
		return p
	}
	return c.Routes.Route(name)
}

// Host runs sessions. It is safe for concurrent use; one session runs one turn
// at a time.
type Host struct {
	cfg     Config
	journal *journal.Journal
	log     *slog.Logger

	ctx   context.Context // ends with the host
	close context.CancelCauseFunc

	room chan struct{} // as many as there are running turns

	mu      sync.Mutex
	claims  claims
	modules map[abi.Digest]*module
	images  *imageCache
	warm    *warmCache
	closed  bool
	turns   sync.WaitGroup
	watches watches
	growth  growth

	recoveries map[*recovery]struct{} // under mu: who wants to hear of parked turns
	released   sync.Once

	providerCalls atomic.Int64

	// fault, set by tests only, is asked at every point where the process could
	// die; an error drops the turn there as a dead process would.
	fault func(point string) error
}

// New makes a host on the given parts. It owns none of them: Close leaves them
// open. Unless it is Paused, the host goes to work at once.
func New(cfg Config) (*Host, error) {
	switch {
	case cfg.Journal == nil:
		return nil, fmt.Errorf("new host: %w: no journal", ErrInvalid)
	case len(cfg.Runtimes) == 0:
		return nil, fmt.Errorf("new host: %w: no runtime", ErrInvalid)
	case cfg.provider(cfg.DefaultModel) == nil:
		return nil, fmt.Errorf("new host: %w: the default model %q has no provider", ErrInvalid, cfg.DefaultModel)
	}
	if cfg.MaxTurns < 0 || cfg.MaxQueue < 0 || cfg.RecoverParallel < 0 || cfg.CallTimeout < 0 || cfg.Deadline < 0 {
		return nil, fmt.Errorf("new host: %w: a bound below zero", ErrInvalid)
	}
	for name, t := range cfg.Tools {
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("new host: %w: tool %q: %w", ErrInvalid, name, err)
		}
		if t.Definition.Name != name {
			return nil, fmt.Errorf("new host: %w: tool %q calls itself %q", ErrInvalid, name, t.Definition.Name)
		}
	}
	if cfg.Limits == (abi.Limits{}) {
		cfg.Limits = abi.DefaultLimits()
	}
	if cfg.Deadline == 0 {
		cfg.Deadline = DefaultDeadline
	}
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = DefaultCallTimeout
	}
	if cfg.MaxTurns == 0 {
		cfg.MaxTurns = DefaultMaxTurns
	}
	if cfg.MaxQueue == 0 {
		cfg.MaxQueue = DefaultMaxQueue
	}
	if cfg.RecoverParallel == 0 {
		cfg.RecoverParallel = DefaultRecoverParallel
	}
	if cfg.FlushDelay == 0 {
		cfg.FlushDelay = FlushDelay
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.HarnessLog == nil {
		cfg.HarnessLog = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	ctx, stop := context.WithCancelCause(context.Background())
	h := &Host{
		cfg: cfg, journal: cfg.Journal, log: cfg.Log,
		ctx: ctx, close: stop,
		room:    make(chan struct{}, cfg.MaxTurns),
		claims:  newClaims(),
		modules: map[abi.Digest]*module{},
		images:  newImageCache(256),
		warm:    newWarmCache(cfg.Warm, cfg.Log),

		growth: newGrowth(), recoveries: map[*recovery]struct{}{},
	}
	if cfg.AutoCollect {
		h.turns.Add(1)
		go h.collectByItself()
	}
	if !cfg.Paused {
		h.Release()
	}
	return h, nil
}

// Close drops the turns that run, which leaves them interrupted and resumable,
// ends a collection, and waits until they are gone.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.close(ErrClosed)
	h.turns.Wait()
	h.watches.close()
	h.warm.close()
	return nil
}

// ProviderCalls counts the model calls that left this host.
func (h *Host) ProviderCalls() int64 { return h.providerCalls.Load() }

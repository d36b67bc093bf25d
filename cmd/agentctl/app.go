package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/script"
	tools "github.com/agentcell/agentcell/host/tool/script"
)

// app is one run of agentctl: the streams, the global flags, and the way to a
// host. Commands get nothing from elsewhere.
type app struct {
	*output
	stdin  io.Reader
	getenv func(string) string
	now    func() time.Time

	dataDir    string
	configFile string // empty: agentcell.yaml in the data directory
	policyFile string // empty: that of the configuration, or of the data directory
	project    string
	logFrom    string // empty: as verbose says
	verbose    int

	// callTimeout is how long a call of a model or tool may take; 0: the host's.
	callTimeout time.Duration

	// tools is the file of --tools, of commands that run a turn.
	tools string

	// ref is how the session that the command is about was named.
	ref string

	// waits is set by --wait: the store is waited for as long as it takes.
	waits bool

	// stays is set by commands that may run for hours: they collect what nobody needs
	// beside their work.
	stays bool

	// adds is set by commands that leave nothing to collect, however much they store, if
	// they succeed.
	adds bool

	// turning is set while a turn runs, so that Ctrl-C can say what it does.
	turning atomic.Bool

	// helpErr is why --help had nothing to show, which cobra does not ask for.
	helpErr error

	// exit ends the process at once; beforeExit, if set, gives back what it holds
	// of a terminal.
	exit       func(code int)
	beforeExit atomic.Pointer[func()]
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) *app {
	return &app{
		output: newOutput(stdout, stderr, getenv),
		stdin:  stdin, getenv: getenv, now: time.Now,
	}
}

// run executes one command line and returns its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.helpErr
	}
	switch ferr := a.flush(); {
	case errors.Is(err, errReaderGone) || err == nil && errors.Is(ferr, errReaderGone):
		return exitOK
	case err == nil:
		err = ferr
	}
	if err != nil && context.Cause(ctx) != nil && errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	code := exitCode(err)
	var reported *reportedError
	if err != nil && !errors.As(err, &reported) {
		a.report(err, code)
	}
	return code
}

// interrupts gives the context of a run: the first Ctrl-C ends it, so that a
// running turn is canceled; a second one leaves at once.
func (a *app) interrupts(exit func(int)) (context.Context, func()) {
	a.exit = func(code int) {
		if f := a.beforeExit.Load(); f != nil {
			briefly(*f)
		}
		exit(code)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go a.heed(signals, cancel)
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
	}
}

// heed does what signals ask for. Only a person's second one leaves at once:
// timeout and supervisors send SIGTERM twice in one breath, and SIGKILL when they
// are out of patience.
func (a *app) heed(signals <-chan os.Signal, cancel context.CancelCauseFunc) {
	if _, ok := <-signals; !ok {
		return
	}
	if a.turning.Load() {
		a.noteCancel()
	}
	cancel(errInterrupted)
	for s := range signals {
		if s == os.Interrupt {
			a.exit(exitInterrupted)
			return
		}
	}
}

// noteCancel says what Ctrl-C does.
func (a *app) noteCancel() {
	briefly(func() {
		if a.errTerminal {
			a.note("") // the terminal has just shown ^C
		}
		a.note("canceling the turn; Ctrl-C now leaves at once, and the session can be resumed")
	})
}

// briefly waits only a moment for f, which writes: a reader that does not read
// must not keep anybody from leaving.
func briefly(f func()) {
	const moment = 100 * time.Millisecond
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(moment):
	}
}

// options are those of every host that agentctl opens. scriptFile, if not empty,
// is the file that answers every model call that does not name a model.
func (a *app) options(ctx context.Context, scriptFile string) (edge.Options, error) {
	o := edge.Options{
		ConfigFile: a.configFile, PolicyFile: a.policyFile, Getenv: a.getenv,
		CacheDir: a.cacheDirectory(),
		Now:      a.now,
		// A command does what it was asked to, and nothing else; but one that stays
		// leaves the others no time to collect.
		Paused: true, ManualCollect: !a.stays,
		CallTimeout: a.callTimeout,
		// For tests: both engines must reach the same roots (M2).
		Interpreter: a.getenv("AGENTCELL_INTERPRETER") != "",
	}
	if err := a.logs(&o); err != nil {
		return edge.Options{}, err
	}
	o.Rebuilding = a.rebuilding
	if a.errTerminal && !a.json {
		o.Progress = func(text string) { a.note("%s", text) }
	}
	if scriptFile != "" {
		provider, err := wait(ctx, func() (*script.Provider, error) { return script.Load(scriptFile) })
		if err != nil {
			return edge.Options{}, err
		}
		o.Models = map[string]model.Provider{scriptModel: provider}
		o.DefaultModel = scriptModel
	}
	if a.tools != "" {
		script, err := wait(ctx, func() (*tools.Script, error) { return tools.Load(a.tools) })
		if err != nil {
			return edge.Options{}, err
		}
		o.Tools = script.Tools()
	}
	return o, nil
}

// rebuilding says why something takes longer than usual.
func (a *app) rebuilding(r host.Rebuild) {
	if r.Turns > 0 {
		a.note("the image of seq %d is not stored; running %s again to rebuild it", r.At, count(r.Turns, "turn", "turns"))
	}
}

// scriptModel is the model that --script makes.
const scriptModel = "script"

// with opens the host, does work with it, and closes it.
func (a *app) with(ctx context.Context, scriptFile string, work func(*edge.Host) error) error {
	dir, err := a.dataDirectory()
	if err != nil {
		return err
	}
	options, err := a.options(ctx, scriptFile)
	if err != nil {
		return err
	}
	h, err := a.hold(ctx, dir, options)
	if err != nil {
		return err
	}
	small := !pays(h)
	err = work(h.Host)
	if added := a.adds && err == nil; small && !added && !a.stays && pays(h) {
		a.note("the store has grown since it was last collected; %s gives back what nobody needs", a.inPlace("gc"))
	}
	return errors.Join(err, h.Close())
}

// pays reports whether there may be enough to collect. Who wants to know it for sure
// asks du.
func pays(h *held) bool {
	yes, err := h.CollectPays()
	return yes && err == nil
}

// withSession is with for work on one session, which ref names.
func (a *app) withSession(ctx context.Context, scriptFile, ref string, work func(*edge.Host, host.Session) error) error {
	if dir, missing := a.noData(); missing {
		return fmt.Errorf("session %q: %w: there is no data in %q yet", ref, host.ErrNotFound, dir)
	}
	return a.with(ctx, scriptFile, func(h *edge.Host) error {
		uid, err := h.Resolve(ctx, a.project, ref)
		if errors.Is(err, host.ErrNotFound) {
			return &adviceError{err, a.inPlace("list") + " shows the sessions there; --project names another project"}
		}
		if err != nil {
			return err
		}
		a.ref = ref
		s, err := h.Get(ctx, uid)
		if err != nil {
			return err
		}
		return work(h, s)
	})
}

// noData reports that the data directory is not there, or empty. Who only looks for a
// session does not make one.
func (a *app) noData() (dir string, missing bool) {
	dir, err := a.dataDirectory()
	if err != nil {
		return "", false // with says so better
	}
	f, err := os.Open(dir)
	if err != nil {
		return dir, errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	_, err = f.ReadDir(1)
	return dir, errors.Is(err, io.EOF)
}

// dataDirectory is where the store is: --data, or the XDG data directory.
func (a *app) dataDirectory() (string, error) {
	if a.dataDir != "" {
		return a.dataDir, nil
	}
	if dir := a.homeDirectory("XDG_DATA_HOME", ".local", "share"); dir != "" {
		return dir, nil
	}
	return "", usagef("no place for the data: HOME is not set; name a directory with --data or AGENTCTL_DATA")
}

// cacheDirectory is where compiled modules are kept, empty for nowhere.
func (a *app) cacheDirectory() string {
	if dir := a.getenv("AGENTCELL_CACHE"); dir != "" {
		return dir
	}
	return a.homeDirectory("XDG_CACHE_HOME", ".cache")
}

// homeDirectory is agentcell's directory below what the XDG variable names, or
// else below its default in the home directory; empty if there is none.
func (a *app) homeDirectory(variable string, standard ...string) string {
	const name = "agentcell"
	if dir := a.getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, name)
	}
	if home := a.getenv("HOME"); home != "" {
		return filepath.Join(home, filepath.Join(standard...), name)
	}
	return ""
}

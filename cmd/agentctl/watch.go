package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

type watchOptions struct {
	session string
	from    int64
	all     bool
	noWait  bool
}

func newWatchCommand(a *app) *cobra.Command {
	var opts watchOptions
	cmd := &cobra.Command{
		Use:   "watch [S] [--from N]",
		Short: "Follow what is committed, also while another agentctl runs it",
		Long: `watch prints the records of a session, or of all sessions of the project, and then
each further one as it becomes durable, in order and once, whichever agentctl commits
it. Of a forked session the project's view shows what its parent does not have.

It never keeps the store: while another agentctl has it open, that one is asked; while
none has, watch waits for the next. With --no-wait it ends where nothing more is
committed.

Ctrl-C ends it with exit code 0: that is how a watch ends.`,
		Example: `  agentctl watch demo
  agentctl watch --session demo --from 3 --json
  agentctl watch
  agentctl watch --all --no-wait`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && opts.session == "":
				opts.session = args[0]
			case len(args) > 0:
				return usagef("watch takes one session, not also %q; see %s --help", args[len(args)-1], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runWatch(cmd.Context(), a, opts) },
	}
	f := cmd.Flags()
	f.Var(text(&opts.session, ""), "session", "only session `S`: its uid, a unique prefix of it, or its name")
	f.Int64Var(&opts.from, "from", 1, "first seq `N` of each session")
	f.BoolVar(&opts.all, "all", false, "the sessions of all projects")
	f.BoolVar(&opts.noWait, "no-wait", false, "end where nothing more is committed")
	return cmd
}

func runWatch(ctx context.Context, a *app, opts watchOptions) error {
	switch {
	case opts.from < 1:
		return usagef("bad seq %d for --from: the first record is seq 1", opts.from)
	case opts.all && opts.session != "":
		return usagef("one session is of one project; leave --all or the session out")
	}
	dir, err := a.dataDirectory()
	if err != nil {
		return err
	}
	w := watcher{app: a, dir: dir, question: question{
		Op: opWatch, Project: a.project, Ref: opts.session, All: opts.all,
		Watch: &host.WatchRequest{From: abi.Seq(opts.from), After: map[abi.SessionID]abi.Seq{}, Present: opts.noWait},
	}}
	err = w.run(ctx)
	if errors.Is(err, host.ErrNotFound) && opts.session != "" {
		return &adviceError{err, a.inPlace("list") + " shows the sessions there; --project names another project"}
	}
	if errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// watcher is one run of watch. What it has shown is in its question, so that it
// goes on there whoever has the store next.
type watcher struct {
	*app
	dir      string
	question question
	shown    abi.SessionID // whose record was shown last

	looked bool   // into the store, when its door had this mark
	mark   string // of the door then

	// waiting is for a process that has the store and cannot be asked: who
	// follows waits for its end.
	waiting *waiting
}

// watchPoll is how often a watch looks for a process that has the store.
const watchPoll = 50 * time.Millisecond

func (w *watcher) run(ctx context.Context) error {
	if _, missing := w.noData(); missing {
		switch {
		case w.question.Ref != "":
			return fmt.Errorf("session %q: %w: there is no data in %q yet", w.question.Ref, host.ErrNotFound, w.dir)
		case w.question.Watch.Present:
			return nil
		}
		w.note("there is no data in %q yet; waiting", w.dir)
	}
	w.waiting = w.newWait()
	for {
		if _, missing := w.noData(); !missing && (!w.looked || w.mark != doorMark(w.dir)) {
			err := w.attend(ctx)
			if !errors.Is(err, errNobody) {
				return err
			}
			switch err := w.look(ctx); {
			case errors.Is(err, journal.ErrLocked):
				if err := w.waiting.wait(ctx, err); err != nil {
					return err
				}
				continue
			case err != nil:
				return err
			case w.looked && w.question.Watch.Present:
				return nil
			}
			w.waiting = w.newWait()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(watchPoll):
		}
	}
}

func (w *watcher) newWait() *waiting {
	p := w.app.waitFor(w.dir)
	p.waits = !w.question.Watch.Present
	return p
}

// attend follows the process that has the store, until it leaves: errNobody.
func (w *watcher) attend(ctx context.Context) error {
	c, err := knock(ctx, w.dir, w.question)
	if err != nil {
		return err
	}
	defer c.close()
	defer func() { w.waiting = w.newWait() }()
	for {
		r, err := c.next()
		if err != nil || r.Done {
			return err
		}
		if err := errors.Join(w.show(r), w.flush()); err != nil {
			return err
		}
	}
}

// What one look into the store takes at most: others want it.
const (
	lookRecords = 1000
	lookBytes   = 4 << 20
)

// errEnough ends a look.
var errEnough = errors.New("enough for now")

// look opens the store, which nobody has, for a moment, and shows what was
// committed since the last time.
func (w *watcher) look(ctx context.Context) error {
	options, err := w.options(ctx, "")
	if err != nil {
		return err
	}
	h, err := edge.Open(w.dir, options)
	if err != nil {
		return err
	}
	w.mark = doorMark(w.dir)
	var (
		q     = w.question
		watch = *q.Watch
		found []answer
		size  int
	)
	watch.Present = true
	q.Watch = &watch
	err = follow(ctx, h, q, func(r answer) error {
		found = append(found, r)
		if r.Record != nil {
			size += len(r.Record.Event)
		}
		if len(found) == lookRecords || size > lookBytes {
			return errEnough
		}
		return nil
	})
	if w.looked = !errors.Is(err, errEnough); !w.looked {
		err = nil
	}
	err = errors.Join(err, h.Close())
	for _, r := range found {
		if err := w.show(r); err != nil {
			return err
		}
	}
	return errors.Join(err, w.flush())
}

// show prints a record, under its session where there are several.
func (w *watcher) show(r answer) error {
	if r.Session != nil {
		w.question.Ref = string(r.Session.UID) // names may change hands
	}
	if r.Record == nil {
		return nil
	}
	record, err := r.Record.record()
	if err != nil {
		return err
	}
	if w.question.Ref == "" && !w.json && w.shown != record.Session {
		w.line("==> " + spaced(string(record.Session), r.Record.Name) + " <==")
	}
	w.shown = record.Session
	w.record(record)
	w.question.Watch.After[record.Session] = record.Seq
	return w.failed()
}

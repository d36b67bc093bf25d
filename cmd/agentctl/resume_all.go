package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// resumeAllFlags are those of resume without a session.
type resumeAllFlags struct {
	all      bool
	follow   bool
	parallel int
	given    func(flag string) bool
}

func (r *resumeAllFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&r.all, "all", false, "every turn that can go on, in all projects or in that of --project")
	f.BoolVar(&r.follow, "follow", false, "with --all: stay, and take up parked turns as their times come")
	f.IntVar(&r.parallel, "parallel", host.DefaultRecoverParallel, "with --all: run `N` turns at once")
	r.given = cmd.Flags().Changed
}

// check refuses what goes with --all, and what goes only with it.
func (r *resumeAllFlags) check(ref string, args []string) error {
	if ref == "" && len(args) > 0 {
		ref = args[0]
	}
	switch {
	case !r.all && (r.follow || r.given("parallel")):
		return usagef("--follow and --parallel are for --all; leave them out, or the session")
	case r.all && ref != "":
		return usagef("--all is every session; leave it or session %q out", ref)
	case r.parallel < 1:
		return usagef("--parallel is %d; want 1 or more", r.parallel)
	}
	return nil
}

func runResumeAll(ctx context.Context, a *app, opts resumeOptions) error {
	if _, missing := a.noData(); missing && !opts.follow {
		a.note("nothing to resume: there is no data yet")
		return nil
	}
	a.stays = opts.follow
	return a.with(ctx, opts.files.script, func(h *edge.Host) error {
		b := batch{app: a, host: h, opts: opts, failed: map[abi.SessionID]int{}}
		return b.run(ctx)
	})
}

// batch resumes many sessions.
type batch struct {
	*app
	host    *edge.Host
	opts    resumeOptions
	resumed int                   // sessions that went on
	left    int                   // that did not come to their end
	failed  map[abi.SessionID]int // exit codes of those that did not end COMPLETED
}

func (b *batch) run(ctx context.Context) error {
	everywhere := !b.opts.given("project")
	if err := b.showWaiting(ctx, everywhere); err != nil {
		return err
	}
	req := host.RecoverRequest{
		Forks: true, Parallel: b.opts.parallel, Follow: b.opts.follow,
		Report: func(r host.Recovery) { b.report(context.WithoutCancel(ctx), r) },
	}
	if !everywhere {
		req.Project = b.project
	}
	if b.opts.follow {
		b.note("turns go on as their times come; Ctrl-C ends that, and leaves what runs to be resumed")
	}
	err := b.host.Recover(ctx, req)
	if b.left > 0 {
		b.note("turns left open: %d; %s --all goes on with them", b.left, b.inPlace("resume"))
	}
	stopped := errors.Is(err, errInterrupted) && b.opts.follow && b.left == 0
	switch {
	case err != nil && !stopped:
		return err
	case len(b.failed) > 0:
		return b.worst()
	case b.resumed == 0 && !b.opts.follow:
		b.note("nothing to resume")
	}
	return nil
}

// showWaiting lists the parked turns that cannot go on yet.
func (b *batch) showWaiting(ctx context.Context, everywhere bool) error {
	sessions, err := awaitingSessions(ctx, b.host, b.project, everywhere)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		if s.State != host.ExecAwaiting {
			continue
		}
		if err := b.show(ctx, "waiting", s, nil); err != nil {
			return err
		}
	}
	return b.flush()
}

// report tells what became of a session.
func (b *batch) report(ctx context.Context, r host.Recovery) {
	if errors.Is(r.Err, host.ErrClosed) {
		b.left++
		return
	}
	s, err := b.host.Get(ctx, r.Session)
	if r.Err != nil {
		err = r.Err
	}
	switch {
	case err == nil && r.Execution.State == "":
		s = r.Execution.Session
		b.resumed++
		if !b.opts.follow {
			b.failed[r.Session] = exitAwaiting
		}
		err = b.show(ctx, "parked", s, nil)
	case err == nil:
		s = r.Execution.Session
		b.resumed++
		if r.Execution.State == abi.StateCompleted {
			delete(b.failed, r.Session)
		} else {
			b.failed[r.Session] = exitCode(&turnError{r.Execution})
		}
		err = b.show(ctx, "resumed", s, &r.Execution)
	}
	if err != nil {
		b.complainOf(r, s, err)
	}
	_ = b.flush() // a failed write is reported at the end
}

// complainOf tells of a session that could not be resumed.
func (b *batch) complainOf(r host.Recovery, s host.Session, err error) {
	code := exitCode(err)
	b.failed[r.Session] = code
	next := ""
	switch {
	case !r.Next.IsZero():
		next = "it is tried again at " + abi.NewTime(r.Next).String()
	case errors.Is(err, host.ErrNotFound):
		next = "--script FILE gives it the model script, --tools FILE the tools"
	}
	e := errorJSON{
		Error: shortened(fmt.Sprintf("session %s: %v", nameOf(r.Session, s), err)), Code: code, Next: next, Session: r.Session,
	}
	switch {
	case b.json:
		b.complainObject(e)
	case next != "":
		b.complain("agentctl: " + e.Error + "\n" + next)
	default:
		b.complain("agentctl: " + e.Error)
	}
}

// nameOf is what a person calls a session.
func nameOf(uid abi.SessionID, s host.Session) string {
	if s.Name != "" {
		return s.Name
	}
	return string(uid)
}

type resumedJSON struct {
	Outcome string `json:"outcome"`
	sessionJSON
}

// show writes the line of a session: its turn has ended, or waits.
func (b *batch) show(ctx context.Context, outcome string, s host.Session, e *host.Execution) error {
	waits, err := waitsOf(ctx, b.host, s)
	if err != nil {
		return err
	}
	if b.json {
		b.object(resumedJSON{outcome, newAwaitingJSON(s, waits)})
		return nil
	}
	line := fmt.Sprintf("%-8s%s", outcome, s.UID)
	if s.Name != "" {
		line += " name=" + s.Name
	}
	if s.Project != b.project {
		line += " project=" + s.Project
	}
	if e != nil {
		line += " " + string(s.State)
		if e.State == abi.StateCompleted {
			line += " root=" + e.Root.Short()
		} else {
			line += " " + spaced(string(e.Reason), descriptionOf(e.Err))
		}
	}
	for _, w := range waits {
		if !w.Settled {
			line += " " + w.String()
		}
	}
	b.line(line)
	return nil
}

func descriptionOf(e *abi.Error) string {
	if e == nil {
		return ""
	}
	return e.Description
}

// batchError is that of a command that did many things, of which some went wrong
// and were told of.
type batchError struct {
	text string
	code int // of the worst
}

func (e *batchError) Error() string { return e.text }

// worst is the error of the sessions that did not end COMPLETED.
func (b *batch) worst() error {
	// What needs a person most comes first.
	order := []int{
		exitFailure, exitUnverified, exitRefused, exitNotFound, exitConflict, exitUsage,
		exitTurnFailed, exitInterrupted, exitAwaiting,
	}
	rank := len(order) - 1
	for _, code := range b.failed {
		rank = min(rank, max(0, slices.Index(order, code)))
	}
	return &batchError{fmt.Sprintf("of the turns resumed, %d did not end COMPLETED", len(b.failed)), order[rank]}
}

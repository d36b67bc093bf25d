package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
)

type cancelOptions struct{ session sessionFlag }

func newCancelCommand(a *app) *cobra.Command {
	var opts cancelOptions
	cmd := &cobra.Command{
		Use:   "cancel --session S",
		Short: "End a session's turn as CANCELED, also one that another agentctl runs",
		Long: `cancel ends the turn of a session as CANCELED and returns when it has ended: one that
runs in another agentctl, which then ends with exit code 130, or one that is open and
does not run, interrupted or parked. The session's memory is as before the turn.

It prints the execution and how it ended: a turn that was about to end by itself may
have.`,
		Example: `  agentctl cancel stuck
  agentctl cancel --session gated --json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCancel(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	return cmd
}

func runCancel(ctx context.Context, a *app, opts cancelOptions) error {
	return a.inquireSession(opts.session.ref, func(i *inquiry) error {
		r, err := i.ask(ctx, question{Op: opCancel, Project: a.project, Ref: opts.session.ref})
		if errors.Is(err, host.ErrNothingOpen) && i.cut {
			return canceledBefore(ctx, i, opts.session.ref, err)
		}
		if errors.Is(err, host.ErrNothingOpen) {
			return &adviceError{err, a.agentctl("get") + " shows how its last turn ended"}
		}
		if err != nil {
			return err
		}
		a.canceled(r.Canceled.Session)
		return nil
	})
}

// canceledBefore tells of a turn that the process which ran it was asked to cancel
// before it left; err is what the second try gave.
func canceledBefore(ctx context.Context, i *inquiry, ref string, err error) error {
	r, getErr := i.ask(ctx, question{Op: opGet, Project: i.app.project, Ref: ref})
	if getErr != nil || r.Session.State != host.ExecCanceled {
		return errors.Join(err, getErr)
	}
	i.app.canceled(*r.Session)
	return nil
}

// canceled prints how the turn ended.
func (a *app) canceled(s host.Session) {
	if a.json {
		a.object(newSessionJSON(s))
		return
	}
	a.line(fmt.Sprintf("%s  %s", s.Execution, s.State))
}

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

type deleteOptions struct {
	session sessionFlag
	force   bool
}

func newDeleteCommand(a *app) *cobra.Command {
	var opts deleteOptions
	cmd := &cobra.Command{
		Use:   "delete --session S [--force]",
		Short: "Delete a session",
		Long: `delete removes a session for good: no command knows it any more, and its name is free.
Its forks and what was saved of it stay as they are. The room that nobody else needs
comes back with agentctl gc.

A session with an open turn, interrupted or parked, is not deleted; with --force the
turn is canceled first. There is no way back but a file: agentctl export makes one, and
agentctl import brings the session back from it.`,
		Example: `  agentctl delete demo
  agentctl delete --session stuck --force --json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDelete(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	cmd.Flags().BoolVar(&opts.force, "force", false, "cancel the turn that is open, if there is one")
	return cmd
}

func runDelete(ctx context.Context, a *app, opts deleteOptions) error {
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		gone, err := h.Delete(ctx, s.UID, opts.force)
		if errors.Is(err, host.ErrOpenTurn) {
			return &adviceError{err, a.agentctl("delete") + " --force cancels it and deletes the session"}
		}
		if err != nil {
			return err
		}
		if a.json {
			a.object(newSessionJSON(gone))
			return nil
		}
		a.line("deleted " + string(gone.UID))
		return nil
	})
}

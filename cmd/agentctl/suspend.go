package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

type suspendOptions struct{ session sessionFlag }

func newSuspendCommand(a *app) *cobra.Command {
	var opts suspendOptions
	cmd := &cobra.Command{
		Use:   "suspend --session S",
		Short: "Put a session to rest between turns",
		Long: `suspend lets go of everything that is in memory of a session, and records it. The
session is as it was, and stays so: list and get say that it is suspended. Its next turn
goes on as ever; agentctl resume ends the rest without a turn.

While a turn is open it is refused: an interrupted or parked turn holds no memory anyway.`,
		Example: `  agentctl suspend --session demo
  agentctl resume --session demo`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSuspend(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	return cmd
}

func runSuspend(ctx context.Context, a *app, opts suspendOptions) error {
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		after, err := h.Suspend(ctx, s.UID)
		if err != nil {
			return err
		}
		a.rested("suspended", after)
		return nil
	})
}

// wake ends the rest of a suspended session.
func (a *app) wake(ctx context.Context, h *edge.Host, s host.Session) error {
	after, err := h.Wake(ctx, s.UID)
	if err != nil {
		return err
	}
	a.rested("woken", after)
	return nil
}

func (a *app) rested(how string, s host.Session) {
	if a.json {
		a.object(newSessionJSON(s))
		return
	}
	a.line(how + " " + string(s.UID))
}

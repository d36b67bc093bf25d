package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

type createOptions struct{ newSessionFlags }

func newCreateCommand(a *app) *cobra.Command {
	var opts createOptions
	cmd := &cobra.Command{
		Use:   "create [--harness NAME|FILE] [--name N]",
		Short: "Make a session without running a turn",
		Long: `create makes a session and prints its uid. The harness is kept in the store, and
the session is pinned to it. Its first turn comes with agentctl exec --session.

A --limit bounds what each turn of the session may take: memory, output (of a turn) and
request (the largest) in bytes or with KiB, MiB or GiB; fuel in units; depth in call
frames; effects in calls. What is not named is as agentctl has it, which is also the most.`,
		Example: `  agentctl create
  agentctl create --harness chat --name tutor --config '{"system":"be brief"}'
  agentctl create --name guest --label team=search --limit memory=64MiB --limit effects=50`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCreate(cmd.Context(), a, opts) },
	}
	opts.add(cmd)
	return cmd
}

func runCreate(ctx context.Context, a *app, opts createOptions) error {
	req, err := opts.request(ctx, a)
	if err != nil {
		return err
	}
	return a.with(ctx, "", func(h *edge.Host) error {
		if err := completeHarness(ctx, h, &req.Harness); err != nil {
			return err
		}
		s, err := h.Create(ctx, req)
		if err != nil {
			return err
		}
		a.session(s)
		return nil
	})
}

// session names a session that was just made.
func (o *output) session(s host.Session) {
	if o.json {
		o.object(newSessionJSON(s))
		return
	}
	o.line("session " + string(s.UID))
}

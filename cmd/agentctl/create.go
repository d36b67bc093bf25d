package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

type createOptions struct {
	newSessionFlags
	given func(flag string) bool
}

func newCreateCommand(a *app) *cobra.Command {
	var opts createOptions
	cmd := &cobra.Command{
		Use:   "create [--harness NAME|FILE | --from-snapshot NAME] [--name N]",
		Short: "Make a session without running a turn",
		Long: `create makes a session and prints its uid. The harness is kept in the store, and
the session is pinned to it. Its first turn comes with agentctl exec --session.

With --from-snapshot the session is a fork at the point that agentctl save has kept. It
has the harness, model, config and limits of the session that was saved, which need not
be there any more.

A --limit bounds what each turn of the session may take: memory, output (of a turn) and
request (the largest) in bytes or with KiB, MiB or GiB; fuel in units; depth in call
frames; effects in calls. What is not named is as agentctl has it, which is also the most.
A --budget bounds what all turns of the session together may use, --tree-budget what the
session and its forks may; agentctl budget shows and changes them.
--deadline and --call-timeout bound the time of each turn that names none of its own.

--retain says which images of its past turns a session with memory keeps, beside the last:
those of the last N turns and of every Mth one. agentctl gc takes the others away. Every
turn can be forked nevertheless: an image that is gone is made again by running the turns
from the one before it on, without a model call.`,
		Example: `  agentctl create
  agentctl create --harness chat --name tutor --config '{"system":"be brief"}'
  agentctl create --harness counter --name frugal --retain last=1,every=100
  agentctl create --budget tokens=200000 --tree-budget cost=5.00
  agentctl create --name guest --label team=search --limit memory=64MiB --limit effects=50`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.given = cmd.Flags().Changed
			return runCreate(cmd.Context(), a, opts)
		},
	}
	opts.add(cmd)
	opts.addFrom(cmd)
	f := cmd.Flags()
	f.Var(duration(&opts.deadline), "deadline", "fail each turn after this `TIME`, calls not counted (default 10m)")
	f.Var(duration(&opts.callTimeout), "call-timeout", "let each call of a model or tool take this `TIME` (default 10m)")
	return cmd
}

func runCreate(ctx context.Context, a *app, opts createOptions) error {
	if err := opts.check(opts.given, "model", "config", "deadline", "call-timeout"); err != nil {
		return err
	}
	done := func(_ *edge.Host, s host.Session) error {
		a.session(s)
		return nil
	}
	if opts.from != "" {
		return a.withSnapshot(ctx, "", opts.from, func(h *edge.Host, _ host.Snapshot) error {
			return opts.makeFrom(ctx, a, h, done)
		})
	}
	return opts.make(ctx, a, "", done)
}

// session names a session that was just made.
func (o *output) session(s host.Session) {
	if o.json {
		o.object(newSessionJSON(s))
		return
	}
	o.line("session " + string(s.UID))
}

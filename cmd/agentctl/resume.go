package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

type resumeOptions struct {
	resumeAllFlags
	session sessionFlag
	files   turnFlags
}

func newResumeCommand(a *app) *cobra.Command {
	var opts resumeOptions
	cmd := &cobra.Command{
		Use:   "resume --session S | --all",
		Short: "Take up an interrupted turn where the record ends",
		Long: `resume runs an interrupted turn again from the image it began with. What was
recorded is served from the journal, without a model call; from there it goes on live.
It is what agentctl exec does without --input. A parked turn goes on when its time has come
or what it waits for is there; until then nothing is run and the exit code is 8.

A session that agentctl suspend has put to rest has no open turn: it is woken, and resume
says so.

--all takes up every turn that can go on without anybody, in all projects or in that of
--project: interrupted ones, those whose decision or signal is there, those whose time
has come. A line tells of each how it ended ("resumed") or what it waits for now
("parked"), and one of each that cannot go on yet ("waiting"). The exit code is 0 if all
that went on have ended COMPLETED, or else that of the worst.

--follow stays: turns go on as their times come, and what could not be run is tried
again, until Ctrl-C. So timers fire without a server. Ctrl-C leaves what runs to be
resumed; nothing is canceled. The store is in use meanwhile.`,
		Example: `  agentctl resume --session stuck --script answers.jsonl
  agentctl resume --all --parallel 2 --script answers.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runResume(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	opts.files.add(cmd, a)
	opts.resumeAllFlags.add(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := opts.check(opts.session.ref, args); err != nil || opts.all {
			return err
		}
		return opts.session.argument(cmd, args)
	}
	return cmd
}

func runResume(ctx context.Context, a *app, opts resumeOptions) error {
	if opts.all {
		return runResumeAll(ctx, a, opts)
	}
	return a.withSession(ctx, opts.files.script, opts.session.ref, func(h *edge.Host, s host.Session) error {
		if s.Suspended {
			return a.wake(ctx, h, s)
		}
		return a.turn(ctx, h, opts.files, func() (host.Execution, error) { return a.resume(ctx, h, s.UID, a.update) })
	})
}

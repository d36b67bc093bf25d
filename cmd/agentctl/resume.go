package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

type resumeOptions struct {
	session sessionFlag
	files   turnFlags
}

func newResumeCommand(a *app) *cobra.Command {
	var opts resumeOptions
	cmd := &cobra.Command{
		Use:   "resume --session S",
		Short: "Take up an interrupted turn where the record ends",
		Long: `resume runs an interrupted turn again from the image it began with. What was
recorded is served from the journal, without a model call; from there it goes on live.
It is what agentctl exec does without --input. A parked turn goes on when its time has come
or what it waits for is there; until then nothing is run and the exit code is 8.

A session that agentctl suspend has put to rest has no open turn: it is woken, and resume
says so.`,
		Example: `  agentctl resume --session stuck --script answers.jsonl`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runResume(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	opts.files.add(cmd, a)
	return cmd
}

func runResume(ctx context.Context, a *app, opts resumeOptions) error {
	return a.withSession(ctx, opts.files.script, opts.session.ref, func(h *edge.Host, s host.Session) error {
		if s.Suspended {
			return a.wake(ctx, h, s)
		}
		return a.turn(ctx, h, opts.files, func() (host.Execution, error) { return h.Resume(ctx, s.UID, a.update) })
	})
}

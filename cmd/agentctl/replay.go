package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

type replayOptions struct {
	session  sessionFlag
	from, to int64
	given    func(flag string) bool
}

func newReplayCommand(a *app) *cobra.Command {
	var opts replayOptions
	cmd := &cobra.Command{
		Use:   "replay --session S [--from N] [--to N]",
		Short: "Print a session's records; nothing runs and no model is called",
		Long: `replay prints the record as it is in the journal, a forked session's with that of
its ancestors. No engine is started and no provider is called.`,
		Example: `  agentctl replay --session demo
  agentctl replay demo --from 2 --to 4 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.given = cmd.Flags().Changed
			return runReplay(cmd.Context(), a, opts)
		},
	}
	opts.session.add(cmd)
	cmd.Flags().Int64Var(&opts.from, "from", 1, "first seq `N`")
	cmd.Flags().Int64Var(&opts.to, "to", 0, "last seq `N` (default: the last there is)")
	return cmd
}

func runReplay(ctx context.Context, a *app, opts replayOptions) error {
	switch {
	case opts.from < 1:
		return usagef("bad seq %d for --from: the first record is seq 1", opts.from)
	case opts.given("to") && opts.to < opts.from:
		return usagef("bad seq %d for --to: it is below --from %d", opts.to, opts.from)
	}
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		to, last := s.Head.Seq, s.Head.Seq
		if opts.given("to") {
			to = abi.Seq(opts.to)
		}
		if from := abi.Seq(opts.from); from > 1 && from > last || to > last {
			return fmt.Errorf("bad seq %d: session %s ends at seq %d: %w", max(from, to), s.UID, last, host.ErrNotFound)
		}
		if last == 0 {
			a.note("session %s has no records yet; %s --input TEXT runs its first turn", s.UID, a.agentctl("exec"))
			return nil
		}
		return a.records(h.Replay(ctx, s.UID, abi.Seq(opts.from), to), a.record)
	})
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

type saveOptions struct {
	session sessionFlag
	name    string
	at      int64
	given   func(flag string) bool
}

func newSaveCommand(a *app) *cobra.Command {
	var opts saveOptions
	cmd := &cobra.Command{
		Use:   "save --session S --as NAME [--at N]",
		Short: "Keep a point of a session under a name",
		Long: `save makes a snapshot: a name for a point of a session, from which agentctl create
--from-snapshot makes new sessions. Nothing is copied, and the session neither stops nor
changes. The point is kept, with its memory, until agentctl snapshots rm, even when the
session is deleted.

The points are those of agentctl fork: without --at the last closed one, which is named on
stderr. A name that is taken is refused: nothing is ever overwritten.`,
		Example: `  agentctl save --session demo --as before-the-storm
  agentctl save demo --as early --at 6
  agentctl create --from-snapshot early --name again`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.given = cmd.Flags().Changed
			return runSave(cmd.Context(), a, opts)
		},
	}
	opts.session.add(cmd)
	f := cmd.Flags()
	f.Var(text(&opts.name, ""), "as", "the snapshot's `NAME`, unique in the project")
	f.Int64Var(&opts.at, "at", 0, "save seq `N` (default: the last closed point)")
	return cmd
}

func runSave(ctx context.Context, a *app, opts saveOptions) error {
	switch {
	case opts.name == "":
		return usagef("under which name? Give one with --as; %s shows those that are taken", a.inPlace("snapshots"))
	case opts.given("at") && opts.at < 1:
		return usagef("bad seq %d for --at: the first record is seq 1", opts.at)
	}
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		saved, err := h.Save(ctx, host.SaveRequest{Session: s.UID, At: abi.Seq(opts.at), Name: opts.name})
		if errors.Is(err, host.ErrExists) {
			return &adviceError{err, "choose another name; " + a.inPlace("snapshots") + " shows those that are taken"}
		}
		if err != nil {
			return a.noPoint(err, s)
		}
		if opts.at == 0 {
			point := "the head"
			if saved.At != s.Head.Seq {
				point = "the last closed point; a turn is open after it"
			}
			a.note("saved seq=%d, %s", saved.At, point)
		}
		if saved.Open {
			a.note("the turn is open there: exec without --input runs it on in a session that is made from %s", saved.Name)
		}
		if a.json {
			a.object(newSnapshotJSON(saved))
			return nil
		}
		a.line(fmt.Sprintf("snapshot %s session=%s seq=%d", saved.Name, saved.Session, saved.At))
		return nil
	})
}

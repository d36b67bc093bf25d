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

func newSnapshotsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshots",
		Short: "List a project's snapshots",
		Long: `snapshots lists the points of sessions that agentctl save keeps under names: the name,
the session, which may have been deleted since, the seq, the turns that had ended there,
harness, and age. "open" says that a turn is open there.`,
		Example: `  agentctl snapshots
  agentctl snapshots --json`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSnapshots(cmd.Context(), a) },
	}
	cmd.AddCommand(newSnapshotsRemoveCommand(a))
	return cmd
}

type snapshotJSON struct {
	Snapshot string        `json:"snapshot"`
	Project  string        `json:"project"`
	Session  abi.SessionID `json:"session"`
	Seq      int64         `json:"seq"`
	Hash     abi.Digest    `json:"hash"`
	Open     bool          `json:"open"`
	Root     abi.Digest    `json:"root"`
	Turns    int64         `json:"turns"`
	Harness  string        `json:"harness"`
	Module   abi.Digest    `json:"module"`
	Saved    abi.Time      `json:"saved"`
}

func newSnapshotJSON(s host.Snapshot) snapshotJSON {
	return snapshotJSON{
		Snapshot: s.Name, Project: s.Project, Session: s.Session, Seq: int64(s.At), Hash: s.Hash, Open: s.Open,
		Root: s.Root, Turns: s.Turns, Harness: s.Harness, Module: s.Module, Saved: abi.NewTime(s.Saved),
	}
}

func runSnapshots(ctx context.Context, a *app) error {
	var all []host.Snapshot
	if _, missing := a.noData(); !missing {
		err := a.with(ctx, "", func(h *edge.Host) (err error) {
			all, err = h.Snapshots(ctx, a.project)
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(all) == 0 && !a.json {
		a.note("no snapshots in project %q; %s --session S --as NAME makes one", a.project, a.inPlace("save"))
	}
	t := table{most: a.columns, elastic: []int{0, 4}} // SNAPSHOT, HARNESS
	var rows [][]string
	for _, s := range all {
		if a.json {
			a.object(newSnapshotJSON(s))
			continue
		}
		seq := fmt.Sprint(s.At)
		if s.Open {
			seq += " open"
		}
		rows = append(rows, []string{
			oneLine(s.Name), string(s.Session), seq, fmt.Sprint(s.Turns), oneLine(s.Harness), age(a.now().Sub(s.Saved)),
		})
	}
	if len(rows) > 0 {
		a.data([]byte(t.format([]string{"SNAPSHOT", "SESSION", "SEQ", "TURNS", "HARNESS", "AGE"}, rows)))
	}
	return nil
}

func newSnapshotsRemoveCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Take a snapshot's name away",
		Long: `rm takes the name of a snapshot away. Sessions that were made from it stay as they are;
what only the snapshot kept can be collected from then on.`,
		Example: `  agentctl save demo --as early
  agentctl snapshots rm early`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("which snapshot? Name one; %s shows them", a.inPlace("snapshots"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runSnapshotsRemove(cmd.Context(), a, args[0]) },
	}
}

func runSnapshotsRemove(ctx context.Context, a *app, name string) error {
	return a.withSnapshot(ctx, "", name, func(h *edge.Host, _ host.Snapshot) error {
		if err := h.RemoveSnapshot(ctx, a.project, name); err != nil {
			return err
		}
		a.removed(name)
		return nil
	})
}

// withSnapshot is with for work on a snapshot. Who only looks for one does not make
// a store.
func (a *app) withSnapshot(ctx context.Context, scriptFile, name string, work func(*edge.Host, host.Snapshot) error) error {
	advice := a.inPlace("snapshots") + " shows those there are"
	if dir, missing := a.noData(); missing {
		return &adviceError{fmt.Errorf("snapshot %q: %w: there is no data in %q yet", name, host.ErrNotFound, dir), advice}
	}
	return a.with(ctx, scriptFile, func(h *edge.Host) error {
		saved, err := h.Snapshot(ctx, a.project, name)
		if errors.Is(err, host.ErrNotFound) {
			return &adviceError{err, advice}
		}
		if err != nil {
			return err
		}
		return work(h, saved)
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
)

func newGCCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "gc",
		Short: "Give back the room that nobody needs",
		Long: `gc takes away what nobody needs, in all projects: of deleted sessions everything but
what their forks and snapshots need, images of past turns that sessions do not keep
(create --retain), and what imports left that came to nothing. It then makes the store's
files smaller.

A session that is damaged does not stop it: what that may hold stays, deleted sessions
go, and it is named. agentctl repair mends it, or agentctl delete gives it up.

It may be interrupted, or killed, at any moment: nothing that is needed is ever lost, and
the next gc does the rest. agentctl du shows what takes the room that is left.

Commands that stay (chat, resume --all --follow, fork --run) collect by themselves when it
pays, a little at a time beside their work. The others leave that to gc: the one by which the
store has grown so much that it may pay says so once.`,
		Example: `  agentctl gc
  agentctl delete demo && agentctl gc --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runGC(cmd.Context(), a) },
	}
}

func runGC(ctx context.Context, a *app) error {
	if dir, missing := a.noData(); missing {
		a.note("nothing to collect: there is no data in %q yet", dir)
		return nil
	}
	return a.with(ctx, "", func(h *edge.Host) error {
		c, err := h.Collect(ctx)
		var damage *journal.Unreadable
		switch {
		case errors.As(err, &damage):
			err = &adviceError{err, "blobs, images and pages stay, because of what it may name; " + a.withDamage(damage)}
		case errors.Is(err, journal.ErrCorrupt):
			return &adviceError{err, "nothing was taken away; " + a.nextStep(err)}
		case err != nil:
			return err
		}
		if a.json {
			a.object(c)
			return err
		}
		a.line(collectedText(c))
		if c.Bytes > 0 {
			a.line(fmt.Sprintf("the store takes %s, before it was %s", bytesText(c.After), bytesText(c.Before)))
		}
		return err
	})
}

func collectedText(c journal.Collected) string {
	if c.Bytes == 0 {
		return "nothing to collect"
	}
	var parts []string
	for _, p := range []struct {
		n    int64
		what string
	}{
		{c.Sessions, "session"},
		{c.Records, "record"},
		{c.Blobs, "blob"},
		{c.Images, "image"},
		{c.Pages, "page"},
	} {
		switch p.n {
		case 0:
		case 1:
			parts = append(parts, "1 "+p.what)
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", p.n, p.what))
		}
	}
	parts = append(parts, bytesText(c.Bytes))
	return "collected " + strings.Join(parts, ", ")
}

// withDamage says what can be done about sessions that cannot be read.
func (a *app) withDamage(u *journal.Unreadable) string {
	of := func(command string) string { return a.inPlace(command) + " --session " + string(u.Sessions[0]) }
	return fmt.Sprintf("%s makes damaged memory again; for a damaged record, put a copy of the directory back, import the session from a file, or give it up: %s",
		of("repair"), of("delete"))
}

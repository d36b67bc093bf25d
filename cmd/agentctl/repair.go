package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

type repairOptions struct {
	session sessionFlag
	dryRun  bool
}

func newRepairCommand(a *app) *cobra.Command {
	var opts repairOptions
	cmd := &cobra.Command{
		Use:   "repair --session S [--dry-run]",
		Short: "Write damaged memory of a session again, by running its turns once more",
		Long: `repair reads all images of a session's memory that are stored, and writes again what of
them is missing or is not what its hash says. It has it from the record: the turns from
the nearest earlier image that is whole, or from the first one on, are run once more on
what was recorded, without a call of a model or tool, and only an image whose root is the
recorded one is written. Other sessions that share the pages are repaired with it.

It may be interrupted, or killed, at any moment: nothing is worse than before. A record
that is damaged itself cannot be repaired; agentctl verify finds both.

The exit code is 6 if an image is damaged still, as under --dry-run, which only looks.`,
		Example: `  agentctl repair --session demo
  agentctl repair demo --dry-run`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runRepair(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	cmd.Flags().BoolVar(&opts.dryRun, "dry-run", false, "only tell what is damaged")
	return cmd
}

func runRepair(ctx context.Context, a *app, opts repairOptions) error {
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		r, err := h.Repair(ctx, host.RepairRequest{Session: s.UID, DryRun: opts.dryRun})
		if err == nil || len(r.Damaged) > 0 {
			a.repaired(s, r, opts.dryRun)
		}
		if left := r.Left(); err == nil && left > 0 {
			err = fmt.Errorf("session %s: %w: %s damaged", s.UID, journal.ErrCorrupt, count(left, "image of its memory is", "images of its memory are"))
			if opts.dryRun {
				err = &adviceError{err, a.agentctl("repair") + " repairs what the record allows"}
			} else {
				err = &adviceError{err, "what the record does not give, a copy of the directory has, or a file of export"}
			}
		}
		return err
	})
}

// repairJSON is what repair prints under --json.
type repairJSON struct {
	Session       abi.SessionID `json:"session"`
	Images        int           `json:"images"`
	Damaged       []damagedJSON `json:"damaged"`
	Left          int           `json:"left"`
	ProviderCalls int64         `json:"provider_calls"`
}

// damagedJSON is an image that was damaged, and what became of it.
type damagedJSON struct {
	Root     abi.Digest `json:"root"`
	Seq      int64      `json:"seq"`
	Turn     int64      `json:"turn"`
	Flaws    []string   `json:"flaws"`
	More     int        `json:"more_flaws,omitempty"`
	Repaired bool       `json:"repaired"`
	Rows     int        `json:"rows"`
	Turns    int        `json:"turns"`
	Error    string     `json:"error,omitempty"`
}

// shownFlaws is how many flaws of an image are told one by one.
const shownFlaws = 8

// repaired tells what was found and done.
func (a *app) repaired(s host.Session, r host.Repair, dryRun bool) {
	if a.json {
		out := repairJSON{Session: s.UID, Images: r.Images, Damaged: []damagedJSON{}, Left: r.Left(), ProviderCalls: r.ProviderCalls}
		for _, d := range r.Damaged {
			out.Damaged = append(out.Damaged, newDamagedJSON(d))
		}
		a.object(out)
		return
	}
	for _, d := range r.Damaged {
		a.line(fmt.Sprintf("image %s of turn %d, seq %d, is damaged", d.Root.Short(), d.Turn, d.At))
		shown, more := flawTexts(d.Flaws)
		for _, f := range shown {
			a.line("  " + f)
		}
		if more > 0 {
			a.line(fmt.Sprintf("  and %d more", more))
		}
		switch {
		case d.Repaired:
			a.line(fmt.Sprintf("  repaired: %s written, %s run again", count(d.Rows, "row", "rows"), count(d.Turns, "turn", "turns")))
		case d.Err != nil:
			a.line(fmt.Sprintf("  not repaired: %v", d.Err))
		}
	}
	switch {
	case len(r.Damaged) == 0:
		a.line(fmt.Sprintf("nothing to repair: %s whole", count(r.Images, "image is", "images are")))
	case !dryRun:
		a.line(fmt.Sprintf("%d of %d images were damaged, %d are still; %d provider calls", len(r.Damaged), r.Images, r.Left(), r.ProviderCalls))
	default:
		a.line(fmt.Sprintf("%d of %d images are damaged", len(r.Damaged), r.Images))
	}
}

func newDamagedJSON(d host.DamagedImage) damagedJSON {
	out := damagedJSON{
		Root: d.Root, Seq: int64(d.At), Turn: d.Turn, Repaired: d.Repaired, Rows: d.Rows, Turns: d.Turns,
	}
	out.Flaws, out.More = flawTexts(d.Flaws)
	if d.Err != nil {
		out.Error = d.Err.Error()
	}
	return out
}

// flawTexts are the first flaws, and how many more there are.
func flawTexts(flaws []journal.Flaw) (texts []string, more int) {
	n := min(len(flaws), shownFlaws)
	for _, f := range flaws[:n] {
		texts = append(texts, f.Err.Error())
	}
	return texts, len(flaws) - n
}

// count is a number of things.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

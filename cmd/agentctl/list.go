package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

type listOptions struct {
	limit int
	token string
}

func newListCommand(a *app) *cobra.Command {
	var opts listOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List a project's sessions, newest first",
		Long: `list shows a project's sessions, newest first: uid, name, harness, state of the last
or open turn, ended turns, last seq, age. It lists all of them, page by page; with
--limit it stops early and says on stderr how to go on.`,
		Example: `  agentctl list
  agentctl list --limit 20
  agentctl list --project default --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("limit") && opts.limit < 1 {
				return usagef("--limit is %d; want 1 or more", opts.limit)
			}
			return runList(cmd.Context(), a, opts)
		},
	}
	cmd.Flags().IntVar(&opts.limit, "limit", 0, "stop after `N` sessions (default: all)")
	cmd.Flags().Var(text(&opts.token, ""), "page-token", "go on where a list with --limit stopped: its `TOKEN`")
	return cmd
}

// pageSize is how many sessions are asked for at a time.
const pageSize = 500

func runList(ctx context.Context, a *app, opts listOptions) error {
	if dir, missing := a.noData(); missing {
		if !a.json {
			a.note("no sessions: there is no data in %q yet; agentctl exec --input \"hello\" makes some", dir)
		}
		return nil
	}
	return a.with(ctx, "", func(h *edge.Host) error {
		t := table{most: a.columns, elastic: []int{1, 2}} // NAME, HARNESS
		req := host.ListRequest{Project: a.project, Token: opts.token}
		for left := opts.limit; ; {
			req.Limit = pageSize
			if opts.limit > 0 {
				req.Limit = min(left, pageSize)
			}
			page, err := h.List(ctx, req)
			if err != nil {
				return err
			}
			a.page(&t, page.Sessions)
			if err := a.flush(); err != nil {
				return err
			}
			left -= len(page.Sessions)
			req.Token = page.Next
			switch {
			case page.Next == "":
				if !t.begun && !a.json {
					a.note("no sessions in project %q; agentctl exec --input \"hello\" makes one", a.project)
				}
				return nil
			case opts.limit > 0 && left <= 0:
				a.note("there are more: agentctl list --limit %d --page-token %s", opts.limit, page.Next)
				return nil
			}
		}
	})
}

func (a *app) page(t *table, sessions []host.Session) {
	rows := make([][]string, 0, len(sessions))
	for _, s := range sessions {
		if a.json {
			a.object(newSessionJSON(s))
			continue
		}
		rows = append(rows, []string{
			string(s.UID), oneLine(s.Name), oneLine(s.Harness), string(s.State),
			fmt.Sprint(s.Turns), fmt.Sprint(s.Head.Seq), age(a.now().Sub(s.Created)),
		})
	}
	if len(rows) > 0 {
		a.data([]byte(t.format([]string{"SESSION", "NAME", "HARNESS", "STATE", "TURNS", "SEQ", "AGE"}, rows)))
	}
}

// table formats rows in columns. It may be given its rows in portions: columns
// then only grow wider.
type table struct {
	// most, unless 0, is the width of a line. What is too long for it is taken
	// from the elastic columns, whose cells are then cut.
	most    int
	elastic []int

	begun  bool
	widths []int
}

func (t *table) format(header []string, rows [][]string) string {
	if !t.begun {
		t.begun, t.widths = true, make([]int, len(header))
		rows = append([][]string{header}, rows...)
	}
	for _, row := range rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	t.shrink()
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", t.widths[i], cut(cell, t.widths[i]))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// shrink makes the elastic columns narrower until a line fits, but not so narrow
// that nothing is to be seen.
func (t *table) shrink() {
	const gap, least = 2, 8
	if t.most == 0 {
		return
	}
	over := gap*(len(t.widths)-1) - t.most
	for _, w := range t.widths {
		over += w
	}
	for _, i := range t.elastic {
		if give := min(over, t.widths[i]-least); give > 0 {
			t.widths[i] -= give
			over -= give
		}
	}
}

// cut is a cell of at most width characters.
func cut(cell string, width int) string {
	if runes := []rune(cell); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return cell
}

// age is d in its largest whole unit.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d/day))
}

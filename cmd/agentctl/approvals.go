package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

type approvalsOptions struct{ all bool }

func newApprovalsCommand(a *app) *cobra.Command {
	var opts approvalsOptions
	cmd := &cobra.Command{
		Use:   "approvals [--all]",
		Short: "List the tool calls that wait for a decision",
		Long: `approvals shows every tool call that waits for a person, in all sessions of the project:
session, name, age, id of the call, and the call with its full arguments. agentctl approve
and agentctl deny decide on it.`,
		Example: `  agentctl approvals
  agentctl approvals --all --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runApprovals(cmd.Context(), a, opts) },
	}
	cmd.Flags().BoolVar(&opts.all, "all", false, "in all projects")
	return cmd
}

func runApprovals(ctx context.Context, a *app, opts approvalsOptions) error {
	if _, missing := a.noData(); missing {
		return a.showApprovals(nil)
	}
	return a.inquire(func(i *inquiry) error {
		r, err := i.ask(ctx, question{Op: opApprovals, Project: a.project, All: opts.all})
		if err != nil {
			return err
		}
		return a.showApprovals(r.Approvals)
	})
}

// approval is a call that waits, and whose.
type approval struct {
	Session host.Session     `json:"session"`
	Call    host.PendingCall `json:"call"`
}

type approvalJSON struct {
	Session abi.SessionID `json:"session"`
	Seq     int64         `json:"seq"`
	Time    abi.Time      `json:"time"`
	Project string        `json:"project"`
	Name    string        `json:"name,omitempty"`
	Call    abi.ToolCall  `json:"call"`
	Reason  string        `json:"reason,omitempty"`
}

func (a *app) showApprovals(found []approval) error {
	rows := make([][]string, 0, len(found))
	for _, f := range found {
		s, c := f.Session, f.Call
		if a.json {
			a.object(approvalJSON{
				Session: s.UID, Seq: int64(c.Seq), Time: abi.NewTime(c.Since),
				Project: s.Project, Name: s.Name, Call: c.Call, Reason: c.Reason,
			})
			continue
		}
		rows = append(rows, []string{
			string(s.UID), oneLine(s.Name), age(a.now().Sub(c.Since)), oneLine(c.Call.ID),
			oneLine(spaced(c.Call.Tool, string(c.Call.Args), c.Reason)),
		})
	}
	switch {
	case len(rows) > 0:
		var t table
		a.data([]byte(t.format([]string{"SESSION", "NAME", "AGE", "CALL", "WHAT"}, rows)))
	case !a.json:
		a.note("nothing waits for a decision")
	}
	return nil
}

package main

import (
	"context"
	"slices"

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
session, name, age, id of the call, and the call with its full arguments. Where that matters it
also shows how long a request waits before it expires, and who of several people has approved.
agentctl approve and agentctl deny decide on it.`,
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
	Edited  bool          `json:"edited,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Rule    string        `json:"rule,omitempty"`
	// Of a request that expires.
	Until     abi.Time `json:"until,omitzero"`
	AsksAgain bool     `json:"asks_again,omitempty"`
	// Of one that several must approve.
	Approvers int        `json:"approvers,omitempty"`
	Approved  []string   `json:"approved,omitempty"`
	Proposed  abi.Struct `json:"proposed,omitempty"`
}

func newApprovalJSON(f approval) approvalJSON {
	s, c := f.Session, f.Call
	out := approvalJSON{
		Session: s.UID, Seq: int64(c.Seq), Time: abi.NewTime(c.Since), Project: s.Project, Name: s.Name,
		Call: c.Call, Edited: c.Edited, Reason: c.Reason, Rule: c.Rule,
		Until: abi.NewTime(c.Until), AsksAgain: c.AsksAgain, Proposed: c.Proposed,
	}
	if c.Approvers > 1 {
		out.Approvers, out.Approved = c.Approvers, principals(c.Approvals)
	}
	return out
}

func principals(people []abi.IdentityRef) []string {
	var names []string
	for _, p := range people {
		names = append(names, p.Principal)
	}
	return names
}

func (a *app) showApprovals(found []approval) error {
	if a.json {
		for _, f := range found {
			a.object(newApprovalJSON(f))
		}
		return nil
	}
	if len(found) == 0 {
		a.note("nothing waits for a decision")
		return nil
	}
	expire := slices.ContainsFunc(found, func(f approval) bool { return !f.Call.Until.IsZero() })
	several := slices.ContainsFunc(found, func(f approval) bool { return f.Call.Approvers > 1 })
	columns := func(session, name, age, left, approved, call, what string) []string {
		row := []string{session, name, age}
		if expire {
			row = append(row, left)
		}
		if several {
			row = append(row, approved)
		}
		return append(row, call, what)
	}
	rows := make([][]string, 0, len(found))
	for _, f := range found {
		s, c := f.Session, f.Call
		left, approved, edited := "", "", ""
		switch now := a.now(); {
		case c.Until.IsZero():
		case now.Before(c.Until):
			left = age(c.Until.Sub(now))
		default:
			left = "expired"
		}
		if c.Approvers > 1 {
			approved = oneLine(approvedText(c.Approvers, principals(c.Approvals), c.Proposed))
		}
		if c.Edited {
			edited = "(edited)"
		}
		rows = append(rows, columns(
			string(s.UID), oneLine(s.Name), age(a.now().Sub(c.Since)), left, approved, oneLine(c.Call.ID),
			oneLine(spaced(c.Call.Tool, string(c.Call.Args), edited, c.Reason)),
		))
	}
	var t table
	a.data([]byte(t.format(columns("SESSION", "NAME", "AGE", "LEFT", "APPROVED", "CALL", "WHAT"), rows)))
	return nil
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/policy"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

type policyTestOptions struct {
	tool, args, onCrash string
	approval            bool
	ref                 string
	subject             turn.Subject
}

func newPolicyTestCommand(a *app) *cobra.Command {
	var opts policyTestOptions
	cmd := &cobra.Command{
		Use:   "test [FILE] [--tool T --args JSON|@file] [--session S]",
		Short: "See what a policy says of a call, or of all calls of a session",
		Long: `test asks a policy about a call that nobody makes, and prints the rule that decides and what
it says. Without FILE it is the policy that turns run under. With --session the call would be
one of that session; with --session and no --tool it asks about every call that the session
has made, and prints what was decided then beside it. Nothing is recorded.`,
		Example: `  printf 'rules: [{name: small, when: args.amount < 9, then: allow}]' > rules.yaml
  agentctl policy test rules.yaml --tool pay --args '{"amount":5}' --label team=ops
  agentctl policy test rules.yaml --session demo`,
		Args: a.policyArgument,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPolicyTest(cmd.Context(), a, opts) },
	}
	flags := cmd.Flags()
	flags.Var(text(&opts.tool, ""), "tool", "the name `T` of the tool")
	flags.Var(text(&opts.args, ""), "args", "the arguments: a `JSON` object, or @file")
	flags.BoolVar(&opts.approval, "approval", false, "the tool asks for approval by itself")
	flags.Var(text(&opts.onCrash, ""), "on-crash", "what becomes of a call cut short: `RULE` unknown, retry or ask")
	flags.Var(text(&opts.ref, ""), "session", "the session `S`: its uid, a unique prefix of it, or its name")
	flags.Var(labelsFlag{labels: &opts.subject.Labels}, "label", "a `KEY=VALUE` of the session, once for each")
	flags.Var(text(&opts.subject.Harness, ""), "harness", "the name `H` of the harness")
	flags.Var(text(&opts.subject.Model, ""), "model", "the model `M` of the turn")
	return cmd
}

func runPolicyTest(ctx context.Context, a *app, opts policyTestOptions) error {
	switch {
	case opts.tool == "" && opts.ref == "":
		return usagef("which call? Name a tool with --tool, or a session with --session")
	case opts.tool == "" && (opts.args != "" || opts.approval || opts.onCrash != ""):
		return usagef("--args, --approval and --on-crash are of a call; name its tool with --tool")
	}
	args, err := readJSON(ctx, "--args", opts.args, `{"text":"hello"}`)
	if err != nil {
		return err
	}
	p, _, err := a.policy(ctx)
	if err != nil {
		return err
	}
	if opts.ref == "" {
		opts.subject.Project = a.project
		a.trial(p, opts, args)
		return nil
	}
	return a.withSession(ctx, "", opts.ref, func(h *edge.Host, s host.Session) error {
		opts.subject = subjectOf(s, opts.subject)
		if opts.tool == "" {
			return a.trials(h.Replay(ctx, s.UID, 1, s.Head.Seq), h, p, opts.subject)
		}
		a.trial(p, opts, args)
		return nil
	})
}

// subjectOf is the subject that a session is, but for what is given.
func subjectOf(s host.Session, given turn.Subject) turn.Subject {
	subject := turn.Subject{
		Session: s.UID, Project: s.Project, Name: s.Name,
		Harness: cmp.Or(given.Harness, s.Harness), Model: cmp.Or(given.Model, s.Model), Labels: given.Labels,
	}
	if subject.Labels == nil {
		subject.Labels = s.Labels
	}
	return subject
}

// verdictJSON is what a policy says of a call.
type verdictJSON struct {
	Seq  int64        `json:"seq,omitempty"`
	Call abi.ToolCall `json:"call"`
	// Verdict is empty for a call that is left to its tool.
	Verdict   turn.Action   `json:"verdict"`
	Rule      string        `json:"rule,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Approvers int32         `json:"approvers,omitempty"`
	Expires   string        `json:"expires,omitempty"`
	OnExpiry  turn.OnExpiry `json:"on_expiry,omitempty"`
	Policy    abi.Digest    `json:"policy"`
	// Recorded is the decision in the record, of a call that has one there.
	Recorded string `json:"recorded,omitempty"`
}

func newVerdictJSON(p *policy.Policy, call abi.ToolCall, v turn.Verdict) verdictJSON {
	j := verdictJSON{
		Call: call, Verdict: v.Action, Rule: v.Rule, Reason: v.Reason, Approvers: v.Approvers, Policy: p.Digest(),
	}
	j.Expires, j.OnExpiry = expiry(v.Expires, v.OnExpiry)
	return j
}

// trial asks about one call.
func (a *app) trial(p *policy.Policy, opts policyTestOptions, args abi.Struct) {
	call := abi.ToolCall{Tool: opts.tool, Args: args, Mediation: abi.MediationControllerMediated}
	if opts.approval {
		call.Mediation = abi.MediationRequiresApproval
	}
	v := newVerdictJSON(p, call, p.For(opts.subject)(call, abi.ToolGrant{OnCrash: abi.OnCrash(opts.onCrash)}))
	if a.json {
		a.object(v)
		return
	}
	facts := []fact{{"verdict", actionText(v.Verdict)}, {"rule", v.Rule}, {"reason", v.Reason}}
	if v.Approvers > 0 {
		facts = append(facts, fact{"approvers", fmt.Sprint(v.Approvers)}, fact{"expires", whenAsked(v.Approvers, v.Expires, v.OnExpiry)})
	}
	a.facts(append(facts, fact{"policy", v.Policy.String()}))
}

// trials asks about the calls of a record, as they were asked for.
func (a *app) trials(record iter.Seq2[host.Record, error], h *edge.Host, p *policy.Policy, subject turn.Subject) error {
	var (
		found  []verdictJSON
		latest = map[string]int{} // in found, by the call's id in its turn
		grants = map[string]abi.ToolGrant{}
		turns  = subject
	)
	for r, err := range record {
		if err != nil {
			return err
		}
		switch e := r.Event; {
		case e.ExecutionStart != nil && e.Cell != nil:
			granted, err := h.Granted(e)
			if err != nil {
				return err
			}
			clear(latest)
			clear(grants)
			for _, g := range granted {
				grants[g.Name] = g
			}
			turns.Model = cmp.Or(e.Cell.Model, subject.Model)
		case e.Tool != nil:
			v := newVerdictJSON(p, *e.Tool, p.For(turns)(*e.Tool, grants[e.Tool.Tool]))
			v.Seq = int64(r.Seq)
			latest[e.Tool.ID] = len(found)
			found = append(found, v)
		case e.ApprovalResult != nil:
			if i, ok := latest[e.ApprovalResult.ToolCallID]; ok {
				found[i].Recorded = whoDecided(e)
			}
		}
	}
	var rows [][]string
	for _, v := range found {
		if a.json {
			a.object(v)
			continue
		}
		rows = append(rows, []string{
			fmt.Sprint(v.Seq), actionText(v.Verdict), v.Rule, oneLine(v.Recorded), oneLine(spaced(v.Call.Tool, string(v.Call.Args))), oneLine(v.Reason),
		})
	}
	switch {
	case len(rows) > 0:
		t := table{most: a.columns, elastic: []int{4, 5}} // CALL, REASON
		a.data([]byte(t.format([]string{"SEQ", "VERDICT", "RULE", "RECORDED", "CALL", "REASON"}, rows)))
	case len(found) == 0 && !a.json:
		a.note("the session has called no tool")
	}
	return nil
}

// whoDecided is a decision in a few words.
func whoDecided(e *abi.Event) string {
	text := decided(e.ApprovalResult.Approved)
	switch {
	case e.Cell != nil && e.Cell.Expired:
		return text + ": expired"
	case e.Cell != nil && e.Cell.Rule != "":
		return text + " by rule " + e.Cell.Rule
	case e.Actor != nil && e.Actor.Principal != "":
		return text + " by " + e.Actor.Principal
	}
	return text
}

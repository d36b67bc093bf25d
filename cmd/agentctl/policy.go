package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/policy"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

func newPolicyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check and try the rules over calls of tools",
		Long: `A policy is a file of rules that allow, deny or ask people about each call of a tool, by the
tool, its arguments and the session. It is policy.yaml in the data directory, or the file that
agentcell.yaml or --policy names. docs/policy.md has everything that may stand there.

A decision of the policy is recorded with the rule and the digest of the file, and replays
without either. While the file cannot be read, no turn runs.`,
		Example: `  printf 'rules: [{name: careful, when: tool == "pay", then: ask}]' > rules.yaml
  agentctl policy check rules.yaml
  agentctl policy test rules.yaml --tool pay --args '{"amount":5}'`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyCheckCommand(a), newPolicyTestCommand(a), newPolicyShowCommand(a), newPolicyListCommand(a))
	return cmd
}

// policyArgument takes the file of a policy, which may be left out.
func (a *app) policyArgument(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return usagef("%s takes one file, and there are %d; see %s --help", called(cmd), len(args), cmd.CommandPath())
	case len(args) == 1:
		a.policyFile = args[0]
	}
	return nil
}

// policy is the one that turns would run under now, and where it is. It needs no store.
func (a *app) policy(ctx context.Context) (*policy.Policy, string, error) {
	dir, err := a.dataDirectory()
	if err != nil {
		return nil, "", err
	}
	o, err := a.options(ctx, "")
	if err != nil {
		return nil, "", err
	}
	p, path, err := edge.Policy(dir, o)
	if err == nil && p == nil {
		err = &adviceError{fmt.Errorf("there is no policy: %q: %w", path, host.ErrNotFound), "docs/policy.md says what stands in one"}
	}
	return p, path, err
}

func newPolicyCheckCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a policy, and list its rules",
		Long: `check reads a policy as a turn would and lists its rules, of which the first whose condition
holds decides. If something is wrong it says what, in which lines. Without FILE it is the
policy that turns run under.`,
		Example: `  printf 'rules: [{name: careful, when: tool == "pay", then: ask}]' > rules.yaml
  agentctl policy check rules.yaml
  agentctl policy check rules.yaml --json`,
		Args: a.policyArgument,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPolicyCheck(cmd.Context(), a) },
	}
}

// policyJSON is a policy as check has it.
type policyJSON struct {
	Policy  string     `json:"policy"`
	Digest  abi.Digest `json:"digest"`
	Rules   []ruleJSON `json:"rules"`
	Default ruleJSON   `json:"default"`
}

type ruleJSON struct {
	Rule      string        `json:"rule"`
	Line      int           `json:"line,omitempty"`
	When      string        `json:"when,omitempty"`
	Then      turn.Action   `json:"then,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Approvers int32         `json:"approvers,omitempty"`
	Expires   string        `json:"expires,omitempty"`
	OnExpiry  turn.OnExpiry `json:"on_expiry,omitempty"`
}

func newRuleJSON(r policy.Rule) ruleJSON {
	j := ruleJSON{
		Rule: r.Name, Line: r.Line, When: r.When, Then: r.Action, Reason: r.Reason, Approvers: r.Approvers,
	}
	j.Expires, j.OnExpiry = expiry(r.Expires, r.OnExpiry)
	return j
}

// expiry is how long a request waits, and what then; both empty if it waits forever.
func expiry(after time.Duration, then turn.OnExpiry) (string, turn.OnExpiry) {
	if after == 0 {
		return "", ""
	}
	return after.String(), then
}

func runPolicyCheck(ctx context.Context, a *app) error {
	p, path, err := a.policy(ctx)
	if err != nil {
		return err
	}
	if a.json {
		j := policyJSON{Policy: path, Digest: p.Digest(), Rules: []ruleJSON{}, Default: newRuleJSON(p.Default())}
		for _, r := range p.Rules() {
			j.Rules = append(j.Rules, newRuleJSON(r))
		}
		a.object(j)
		return nil
	}
	a.facts([]fact{{"policy", path}, {"digest", p.Digest().String()}})
	var rows [][]string
	for _, r := range append(p.Rules(), p.Default()) {
		j, line, approvers := newRuleJSON(r), "", ""
		if j.Line > 0 {
			line = fmt.Sprint(j.Line)
		}
		if j.Approvers > 0 {
			approvers = fmt.Sprint(j.Approvers)
		}
		rows = append(rows, []string{
			line, j.Rule, actionText(j.Then), approvers, whenAsked(j.Approvers, j.Expires, j.OnExpiry),
			oneLine(strings.Join(strings.Fields(j.When), " ")),
		})
	}
	t := table{most: a.columns, elastic: []int{5}} // WHEN
	a.data([]byte(t.format([]string{"LINE", "RULE", "THEN", "APPROVERS", "EXPIRES", "WHEN"}, rows)))
	return nil
}

// whenAsked is when a request expires, where people are asked, and what then.
func whenAsked(approvers int32, expires string, then turn.OnExpiry) string {
	switch {
	case approvers == 0:
		return ""
	case expires == "":
		return "never"
	}
	return fmt.Sprintf("%s, then %s", expires, then)
}

// actionText is what a rule says, in a word.
func actionText(action turn.Action) string {
	if action == "" {
		return "as the tool"
	}
	return string(action)
}

type policyShowOptions struct{ digest string }

func newPolicyShowCommand(a *app) *cobra.Command {
	var opts policyShowOptions
	cmd := &cobra.Command{
		Use:   "show [FILE] [--digest D]",
		Short: "Print a policy, also one of the past",
		Long: `show prints the text of the policy that turns run under, or of FILE. With --digest it is that
of a policy under which turns have run, whatever has become of its file: records name the rule
that decided and the digest of its policy, of which the first characters will do.`,
		Example: `  printf 'default: ask\n' > rules.yaml
  agentctl exec --policy rules.yaml --input hi
  agentctl policy show rules.yaml
  agentctl policy show --digest c5ac`,
		Args: a.policyArgument,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPolicyShow(cmd.Context(), a, opts) },
	}
	cmd.Flags().Var(text(&opts.digest, ""), "digest", "the policy whose SHA-256 is, or begins with, `D`")
	return cmd
}

type policyTextJSON struct {
	Digest abi.Digest `json:"digest"`
	Text   string     `json:"text"`
}

func runPolicyShow(ctx context.Context, a *app, opts policyShowOptions) error {
	if opts.digest != "" {
		return a.withPolicies(ctx, func(store *host.PolicyStore, all []host.KeptPolicy) error {
			digest, err := policyDigest(all, opts.digest)
			if errors.Is(err, host.ErrNotFound) {
				err = &adviceError{err, a.inPlace("policy list") + " shows those there are"}
			}
			if err != nil {
				return err
			}
			text, err := store.Get(digest)
			if err == nil {
				a.policyText(digest, text)
			}
			return err
		})
	}
	p, _, err := a.policy(ctx)
	if err == nil {
		a.policyText(p.Digest(), p.Text())
	}
	return err
}

func (a *app) policyText(digest abi.Digest, text []byte) {
	if a.json {
		a.object(policyTextJSON{digest, string(text)})
		return
	}
	a.data([]byte(lines(string(text))))
}

// policyDigest is the digest of the one policy that begins so.
func policyDigest(all []host.KeptPolicy, begins string) (abi.Digest, error) {
	var found []abi.Digest
	for _, p := range all {
		if strings.HasPrefix(p.Digest.String(), strings.ToLower(begins)) {
			found = append(found, p.Digest)
		}
	}
	switch len(found) {
	case 0:
		return abi.Digest{}, fmt.Errorf("policy %.64q: %w", begins, host.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return abi.Digest{}, fmt.Errorf("policy %.64q: %w: %d begin so", begins, host.ErrAmbiguous, len(found))
}

// withPolicies does work with the policies that the store keeps, if there is a store.
func (a *app) withPolicies(ctx context.Context, work func(*host.PolicyStore, []host.KeptPolicy) error) error {
	if _, missing := a.noData(); missing {
		return work(nil, nil)
	}
	return a.with(ctx, "", func(h *edge.Host) error {
		all, err := h.PolicyStore().List()
		if err != nil {
			return err
		}
		return work(h.PolicyStore(), all)
	})
}

func newPolicyListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the policies under which turns have run",
		Long: `list shows the digest of each policy under which a turn of this data directory has run, when
the first one did, and which is the one of now. Their texts are kept: see policy show.`,
		Example: `  agentctl policy list
  agentctl policy list --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPolicyList(cmd.Context(), a) },
	}
}

type keptPolicyJSON struct {
	Digest abi.Digest `json:"digest"`
	Since  abi.Time   `json:"since"`
	Size   int64      `json:"size"`
	// Now: turns run under it now.
	Now bool `json:"now"`
}

func runPolicyList(ctx context.Context, a *app) error {
	p, path, err := a.policy(ctx)
	if err != nil && !errors.Is(err, host.ErrNotFound) && !errors.Is(err, config.ErrConfig) {
		return err // else there is none now
	}
	return a.withPolicies(ctx, func(_ *host.PolicyStore, all []host.KeptPolicy) error {
		var rows [][]string
		for _, k := range all {
			now := p != nil && p.Digest() == k.Digest
			if a.json {
				a.object(keptPolicyJSON{k.Digest, abi.NewTime(k.Since), k.Size, now})
				continue
			}
			file := ""
			if now {
				file = path
			}
			rows = append(rows, []string{k.Digest.String(), k.Since.UTC().Format(time.DateTime), bytesText(k.Size), oneLine(file)})
		}
		switch {
		case len(rows) > 0:
			a.data([]byte(new(table).format([]string{"DIGEST", "SINCE (UTC)", "SIZE", "NOW"}, rows)))
		case len(all) == 0 && !a.json:
			a.note("no turn has run under a policy yet")
		}
		return nil
	})
}

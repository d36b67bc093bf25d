// Package policy owns the rules that an operator has over calls of tools: a condition
// in CEL over the tool, its arguments and the session, and what follows where it holds.
// It is a pure function of those: it knows no time, no chance and no state, takes a
// bounded effort whatever the arguments are, and denies what it cannot decide.
//
// It imports host/turn, host/config and CEL, and never the host.
package policy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Policy is a policy that has been read and compiled. It is immutable, and safe for
// concurrent use.
type Policy struct {
	text   []byte
	digest abi.Digest
	rules  []rule
	rest   Rule // for calls for which no rule holds
	// patience is how long one decision may take: see condition.
	patience time.Duration
}

// Rule is what a policy says of the calls for which a condition holds.
type Rule struct {
	Name string
	// When is the condition, and Line that of the file on which it begins.
	When string
	Line int
	// Action follows; that of the default may be empty, which leaves a call to its tool.
	Action turn.Action
	// Reason is the one that the file gives, if it gives one.
	Reason string
	// Approvers, Expires and OnExpiry are those of the verdict: see turn.Verdict.
	Approvers int32
	Expires   time.Duration
	OnExpiry  turn.OnExpiry
}

type rule struct {
	Rule
	when condition
}

// Parse reads the text of a policy and compiles its rules. name is what errors call it.
// They wrap config.ErrConfig and tell of all rules that are wrong; but of what is no YAML,
// or has other settings than those there are, they tell first.
func Parse(name string, text []byte) (*Policy, error) {
	file, misshapen := config.ParsePolicy(text)
	rules, wrong, err := compile(file)
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", name, err)
	}
	wrong = append(wrong, beyond(config.DefaultRule, file.Approval)...)
	problems := strings.Join(wrong, "\n")
	switch {
	case misshapen != nil && wrong != nil:
		return nil, fmt.Errorf("policy %q: %w\n%s", name, misshapen, problems)
	case misshapen != nil:
		return nil, fmt.Errorf("policy %q: %w", name, misshapen)
	case wrong != nil:
		return nil, fmt.Errorf("policy %q: %w: %s", name, config.ErrConfig, problems)
	}
	return &Policy{text: text, digest: abi.DigestOf(text), rules: rules, rest: newRest(file), patience: patience}, nil
}

// beyond says where a rule asks people for more than a verdict can.
func beyond(name string, a config.Approval) []string {
	v := turn.Verdict{Approvers: max(0, a.Approvers)} // else it has been told
	if a.Expires != nil {
		v.Expires = time.Duration(*a.Expires)
	}
	if err := v.Check(); err != nil {
		return []string{fmt.Sprintf("rule %q: %v", name, err)}
	}
	return nil
}

// Digest is the SHA-256 of the text.
func (p *Policy) Digest() abi.Digest { return p.digest }

// Text is the text, which the caller must not change.
func (p *Policy) Text() []byte { return p.text }

// Rules are the rules in their order.
func (p *Policy) Rules() []Rule {
	rules := make([]Rule, len(p.rules))
	for i, r := range p.rules {
		rules[i] = r.Rule
	}
	return rules
}

// Default is what is done with calls for which no rule holds.
func (p *Policy) Default() Rule { return p.rest }

// For is the policy for the calls of a session.
func (p *Policy) For(s turn.Subject) turn.Policy {
	return func(call abi.ToolCall, grant abi.ToolGrant) turn.Verdict {
		ctx, cancel := context.WithTimeout(context.Background(), p.patience)
		defer cancel()
		facts := &facts{subject: s, call: call, grant: grant}
		left := uint64(maxCost)
		for _, r := range p.rules {
			holds, cost, err := r.when.holds(ctx, facts)
			if err == nil && cost > left {
				err = errCost
			}
			if err != nil {
				return p.failed(r.Name, err)
			}
			if holds {
				return p.verdict(r.Rule)
			}
			left -= cost
		}
		return p.verdict(p.rest)
	}
}

// verdict is what follows from a rule.
func (p *Policy) verdict(r Rule) turn.Verdict {
	v := turn.Verdict{
		Action: r.Action, Policy: p.digest, Reason: r.Reason, Approvers: r.Approvers, Expires: r.Expires, OnExpiry: r.OnExpiry,
	}
	if v.Action != "" {
		v.Rule = r.Name
	}
	return v
}

// failed denies a call because of a rule that cannot be evaluated: nobody knows what
// the rule would have said of it.
func (p *Policy) failed(name string, err error) turn.Verdict {
	return turn.Verdict{
		Action: turn.Deny, Rule: name, Policy: p.digest,
		Reason: "its condition cannot be evaluated: " + words(err),
	}
}

// newRest is the rule of calls for which no other holds.
func newRest(f config.Policy) Rule {
	return newRule(config.Rule{Name: config.Text{Text: config.DefaultRule}, Then: f.Default}, f.Approval)
}

// newRule fills in what a rule leaves to its policy.
func newRule(r config.Rule, standard config.Approval) Rule {
	rule := Rule{
		Name: r.Name.Text, When: r.When.Text, Line: r.When.Line, Action: turn.Action(r.Then), Reason: r.Reason,
	}
	if rule.Action == turn.Allow || rule.Action == turn.Deny {
		return rule
	}
	rule.Approvers, rule.OnExpiry = 1, turn.ExpiryDenies
	for _, a := range []config.Approval{standard, r.Approval} {
		if a.Approvers != 0 {
			rule.Approvers = a.Approvers
		}
		if a.Expires != nil {
			rule.Expires = time.Duration(*a.Expires)
		}
		if a.OnExpiry != "" {
			rule.OnExpiry = turn.OnExpiry(a.OnExpiry)
		}
	}
	return rule
}

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// PolicyFileName is the name of the policy in a data directory.
const PolicyFileName = "policy.yaml"

// MaxRules bounds the rules of a policy.
const MaxRules = 1000

// Policy is what a policy file says: rules over the calls of tools.
type Policy struct {
	// Approval is that of rules that say nothing else, and of calls that ask because
	// their tool does.
	Approval `yaml:",inline"`
	// Rules are in order: the first whose condition holds decides.
	Rules []Rule `yaml:"rules"`
	// Default decides on calls for which no rule holds: "allow", "deny" or "ask"; empty
	// leaves each to its tool.
	Default string `yaml:"default"`
}

// Rule is a rule of a policy.
type Rule struct {
	Name Text `yaml:"name"`
	// When is the condition, an expression in CEL.
	When Text `yaml:"when"`
	// Then is "allow", "deny" or "ask".
	Then string `yaml:"then"`
	// Reason is told to the agent, and to people who are asked.
	Reason string `yaml:"reason"`
	// Approval is only that of a rule that asks.
	Approval `yaml:",inline"`
}

// Approval is how people are asked. What is left out is that of the policy, and has a
// default there.
type Approval struct {
	// Approvers is how many must approve; 0 if that is left out.
	Approvers int32 `yaml:"approvers"`
	// Expires is how long a request waits, nil if that is left out.
	Expires *Expiry `yaml:"expires"`
	// OnExpiry is "deny" or "ask"; empty if that is left out.
	OnExpiry string `yaml:"on_expiry"`
}

// Text is a text of a file, and the line on which it begins.
type Text struct {
	Text string
	Line int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *Text) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: want a text", n.Line)
	}
	*t = Text{n.Value, n.Line}
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		t.Line++ // it begins below its | or >
	}
	return nil
}

// Expiry is how long something waits, 0 forever: "never" in the file.
type Expiry time.Duration

// UnmarshalYAML implements yaml.Unmarshaler.
func (e *Expiry) UnmarshalYAML(n *yaml.Node) error {
	if n.Value == "never" {
		*e = 0
		return nil
	}
	var d Duration
	if d.UnmarshalYAML(n) != nil {
		return fmt.Errorf("line %d: expires: %.40q: want a time above 0, such as 24h, or never", n.Line, n.Value)
	}
	*e = Expiry(d)
	return nil
}

// PolicyPath is where the policy of a host is, with the data directory dir and the
// configuration at configFile, both of which may be empty. given says that it was
// named, and must be there.
func (f *File) PolicyPath(dir, configFile string) (path string, given bool) {
	switch {
	case f.Policy == "" && dir == "":
		return "", false
	case f.Policy == "":
		return filepath.Join(dir, PolicyFileName), false
	case filepath.IsAbs(f.Policy):
		return f.Policy, true
	case configFile != "":
		return filepath.Join(filepath.Dir(configFile), f.Policy), true
	}
	return filepath.Join(dir, f.Policy), true
}

// ReadPolicy is the text of the policy at path. Where it was not given and is not
// there, there is none.
func ReadPolicy(path string, given bool) (text []byte, ok bool, err error) {
	if path == "" {
		return nil, false, nil
	}
	text, err = read(path)
	switch {
	case err == nil:
		return text, true, nil
	case !given && unreachable(path, err) && !dangling(path):
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("policy: %w", err)
}

// dangling reports whether a link at path leads nowhere: somebody wants a policy there.
func dangling(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ParsePolicy reads the text of a policy. Its error wraps ErrConfig. Where the rules are
// wrong and can be looked at all the same, they come with it.
func ParsePolicy(text []byte) (Policy, error) {
	var p Policy
	if _, err := decode(text, &p); err != nil {
		return Policy{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if len(p.Rules) > MaxRules {
		return Policy{}, fmt.Errorf("%w: %d rules: want at most %d", ErrConfig, len(p.Rules), MaxRules)
	}
	if err := p.check(); err != nil {
		return p, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return p, nil
}

var ruleNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// DefaultRule stands for the default where a decision names its rule.
const DefaultRule = "default"

// check finds all that YAML has no rules for.
func (p *Policy) check() error {
	errs := []error{p.Approval.check()}
	if p.Default != "" && !action(p.Default) {
		errs = append(errs, fmt.Errorf("default is %.40q; want allow, deny or ask", p.Default))
	}
	if p.Rules == nil && p.Default == "" {
		// So is a file that was cut short.
		errs = append(errs, errors.New("no rules and no default; write rules: [] to leave each call to its tool"))
	}
	lines := map[string]int{}
	for i, r := range p.Rules {
		name := r.Name.Text
		called := fmt.Sprintf("line %d: rule %.70q", r.Name.Line, name)
		switch {
		case name == "":
			called = fmt.Sprintf("rule %d", i+1)
			errs = append(errs, fmt.Errorf("%s has no name", called))
		case !ruleNames.MatchString(name) || name == DefaultRule:
			errs = append(errs, fmt.Errorf("line %d: %.70q: want a name of letters, digits, _, . and -, up to 64, and not %s", r.Name.Line, name, DefaultRule))
		case lines[name] != 0:
			errs = append(errs, fmt.Errorf("%s stands at line %d already", called, lines[name]))
		}
		lines[name] = r.Name.Line
		if err := r.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", called, err))
		}
	}
	return oneLine(errs)
}

// oneLine joins errors as the YAML package does.
func oneLine(errs []error) error {
	var texts []string
	for _, err := range errs {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	if texts == nil {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

func (r *Rule) check() error {
	switch {
	case strings.TrimSpace(r.When.Text) == "":
		return errors.New("when is missing; true stands for every call")
	case !action(r.Then):
		return fmt.Errorf("then is %.40q; want allow, deny or ask", r.Then)
	case r.Then != "ask" && r.Approval != Approval{}:
		return fmt.Errorf("approvers, expires and on_expiry are for a rule that asks, and this one says %s", r.Then)
	}
	return r.Approval.check()
}

func (a *Approval) check() error {
	switch {
	case a.Approvers < 0:
		return fmt.Errorf("approvers: %d: want 1 or more", a.Approvers)
	case a.OnExpiry != "" && a.OnExpiry != "deny" && a.OnExpiry != "ask":
		return fmt.Errorf("on_expiry is %.40q; want deny or ask", a.OnExpiry)
	}
	return nil
}

func action(word string) bool { return word == "allow" || word == "deny" || word == "ask" }

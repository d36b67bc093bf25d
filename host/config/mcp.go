package config

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MCP is a server of tools that speaks the Model Context Protocol: a program that is
// started, or a URL.
type MCP struct {
	// Command is the program, by path or by name, with its arguments. It is started in
	// Dir, or where the host was, and gets a few variables of the host's environment
	// beside Env.
	Command string           `yaml:"command"`
	Args    []string         `yaml:"args"`
	Env     map[string]Value `yaml:"env"`
	Dir     string           `yaml:"dir"`
	// URL is the endpoint of a server over streamable HTTP, Headers what is sent with
	// every request.
	URL     string           `yaml:"url"`
	Headers map[string]Value `yaml:"headers"`

	// Tools are patterns of the tools that are offered, as the server names them;
	// none means all.
	Tools []string `yaml:"tools"`
	// Approval is the tools that a person decides on.
	Approval Globs `yaml:"approval"`
	// OnCrash is what becomes of a call that was under way when its host died.
	OnCrash OnCrash `yaml:"on_crash"`
	// Required refuses a turn that may be granted its tools while the server is down; else
	// they are left out.
	Required bool `yaml:"required"`

	Timeouts struct {
		Start Duration `yaml:"start"`
		Call  Duration `yaml:"call"`
	} `yaml:"timeouts"`
	Limits struct {
		ResultBytes int `yaml:"result_bytes"`
		Concurrent  int `yaml:"concurrent"`
		Tools       int `yaml:"tools"`
	} `yaml:"limits"`
}

// Value is a text, or one that ends in a secret: "secret:NAME", "env:NAME", or such a
// reference behind a word and a space, as in "Bearer secret:NAME".
type Value struct {
	// Text is the text, or the word and the space before Key.
	Text string
	// Key is where the secret is; empty for a plain text.
	Key Key
}

var valueRule = regexp.MustCompile(`^([A-Za-z]+ )?((?:env|secret):[A-Za-z_][A-Za-z0-9_.-]{0,127})$`)

// UnmarshalYAML implements yaml.Unmarshaler.
func (v *Value) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return wrong(n, "want a text, or where it is: env:NAME or secret:NAME")
	}
	*v = Value{Text: n.Value}
	switch parts := valueRule.FindStringSubmatch(n.Value); {
	case parts != nil:
		*v = Value{Text: parts[1], Key: Key(parts[2])}
	case strings.HasPrefix(n.Value, FromEnv) || strings.HasPrefix(n.Value, FromSecret):
		// It would be sent as it stands.
		return wrong(n, "want env:NAME or secret:NAME, with a NAME of letters, digits, _, . and -")
	}
	return nil
}

// Globs are patterns of the names of tools. In the file true stands for all names,
// and false for none.
type Globs []string

// UnmarshalYAML implements yaml.Unmarshaler.
func (g *Globs) UnmarshalYAML(n *yaml.Node) error {
	var all bool
	if n.Kind == yaml.ScalarNode && n.Decode(&all) == nil {
		if *g = nil; all {
			*g = Globs{"*"}
		}
		return nil
	}
	var list []string
	if n.Decode(&list) != nil {
		return wrong(n, "want true, false, or a list of patterns such as [write_*]")
	}
	*g = list
	return nil
}

// OnCrash is the tools whose calls are made again, and those that a person is asked
// about; of all others the outcome is unknown. In the file retry, ask and unknown stand
// for all tools.
type OnCrash struct {
	Retry Globs `yaml:"retry"`
	Ask   Globs `yaml:"ask"`
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (c *OnCrash) UnmarshalYAML(n *yaml.Node) error {
	*c = OnCrash{}
	switch {
	case n.Kind == yaml.ScalarNode && n.Value == "retry":
		c.Retry = Globs{"*"}
	case n.Kind == yaml.ScalarNode && n.Value == "ask":
		c.Ask = Globs{"*"}
	case n.Kind == yaml.ScalarNode && n.Value == "unknown":
	case n.Kind == yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			key, to := n.Content[i], &c.Retry
			switch key.Value {
			case "retry":
			case "ask":
				to = &c.Ask
			default:
				return wrong(key, "there is no setting %s", key.Value)
			}
			if err := n.Content[i+1].Decode(to); err != nil {
				return err
			}
		}
	default:
		return wrong(n, "want unknown, ask, retry, or {retry: [PATTERN], ask: [PATTERN]}")
	}
	return nil
}

var (
	serverRule  = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,32}$`)
	envRule     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerRule  = regexp.MustCompile(`^[A-Za-z0-9-]+$`)
	secretNames = regexp.MustCompile(`(?i)^(proxy-)?authorization$|api-?key|^cookie$`)
)

// check finds what is wrong with a server of that name.
func (m *MCP) check(name string) error {
	switch {
	case !serverRule.MatchString(name):
		return errors.New("want a name of 1 to 32 letters, digits, _ and -")
	case (m.Command == "") == (m.URL == ""):
		return errors.New("want command or url, one of them")
	case m.URL != "" && (m.Args != nil || m.Env != nil || m.Dir != ""):
		return errors.New("args, env and dir are for a command, and it has a url")
	case m.Command != "" && m.Headers != nil:
		return errors.New("headers are for a url, and it has a command")
	}
	for name := range m.Env {
		if !envRule.MatchString(name) {
			return fmt.Errorf("%.40q is no name of a variable", name)
		}
	}
	for name, v := range m.Headers {
		if !headerRule.MatchString(name) {
			return fmt.Errorf("%.40q is no name of a header", name)
		}
		if v.Key == "" && secretNames.MatchString(name) {
			return fmt.Errorf("the header %s has a secret; want where it is, such as %q", name, "Bearer secret:NAME")
		}
	}
	for _, p := range slices.Concat(m.Tools, m.Approval, m.OnCrash.Retry, m.OnCrash.Ask) {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("%.40q is no pattern; want a name, or a pattern such as read_*", p)
		}
	}
	for _, n := range []int{m.Limits.ResultBytes, m.Limits.Concurrent, m.Limits.Tools} {
		if n < 0 {
			return errors.New("a number is below 0")
		}
	}
	return nil
}

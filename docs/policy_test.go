package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/policy"
)

// TestPolicy checks that the policy of policy.md is one, that each condition there can
// be compiled, and that what it says of functions is so.
func TestPolicy(t *testing.T) {
	text := read(t, "policy.md")
	for kind, wrap := range map[string]func(string) []string{
		"yaml": func(block string) []string { return []string{block} },
		"cel": func(block string) (texts []string) {
			for line := range strings.Lines(block) {
				texts = append(texts, rule(strings.TrimSpace(line)))
			}
			return texts
		},
	} {
		blocks := regexp.MustCompile("(?ms)^```"+kind+"\n(.*?)^```\n").FindAllStringSubmatch(text, -1)
		if len(blocks) == 0 {
			t.Errorf("policy.md has no %s", kind)
		}
		for _, block := range blocks {
			for _, p := range wrap(block[1]) {
				if _, err := policy.Parse("policy.md", []byte(p)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for _, refused := range []string{`args.a.replace("a", "b") == ""`, `args.a.indexOf("b") > 0`, `args.a.matches(args.b)`, `timestamp(args.a).getHours() == 1`} {
		if _, err := policy.Parse("policy.md", []byte(rule(refused))); err == nil {
			t.Errorf("%s is not refused", refused)
		}
	}
}

func rule(when string) string { return fmt.Sprintf("rules: [{name: r, then: deny, when: %q}]", when) }

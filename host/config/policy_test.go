package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/config"
)

func TestParsePolicy(t *testing.T) {
	got, err := config.ParsePolicy([]byte(`
expires: 24h
rules:
  - {name: a, when: true, then: allow}
  - name: b
    when: >
      tool ==
      "x"
    then: ask
    reason: why
    approvers: 2
    expires: never
    on_expiry: ask
default: deny
`))
	if err != nil {
		t.Fatal(err)
	}
	day, never := config.Expiry(seconds(24*60*60)), config.Expiry(0)
	want := config.Policy{
		Approval: config.Approval{Expires: &day},
		Rules: []config.Rule{
			{Name: config.Text{Text: "a", Line: 4}, When: config.Text{Text: "true", Line: 4}, Then: "allow"},
			{
				Name: config.Text{Text: "b", Line: 5}, When: config.Text{Text: "tool == \"x\"\n", Line: 7}, Then: "ask", Reason: "why",
				Approval: config.Approval{Approvers: 2, Expires: &never, OnExpiry: "ask"},
			},
		},
		Default: "deny",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
}

// All that is wrong with the rules is told at once.
func TestParsePolicy_Refuses(t *testing.T) {
	_, err := config.ParsePolicy([]byte(`
on_expiry: shrug
rules:
  - {name: a, when: "", then: allow}
  - {when: "true", then: allow}
  - {name: a, when: "true", then: wave}
`))
	const want = `bad configuration: on_expiry is "shrug"; want deny or ask; ` +
		`line 4: rule "a": when is missing; true stands for every call; rule 2 has no name; ` +
		`line 6: rule "a" stands at line 4 already; line 6: rule "a": then is "wave"; want allow, deny or ask`
	if !errors.Is(err, config.ErrConfig) || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	many := "rules:\n" + strings.Repeat("- {name: a, when: 'true', then: allow}\n", config.MaxRules+1)
	if _, err := config.ParsePolicy([]byte(many)); !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), "want at most 1000") {
		t.Errorf("%d rules: %v", config.MaxRules+1, err)
	}
}

func TestFile_PolicyPath(t *testing.T) {
	abs := filepath.Join(t.TempDir(), "p.yaml")
	for _, tt := range []struct {
		policy, dir, file string
		want              string
		given             bool
	}{
		{"", "", "", "", false},
		{"", "data", "", filepath.Join("data", "policy.yaml"), false},
		{"", "data", "etc/cell.yaml", filepath.Join("data", "policy.yaml"), false},
		{"p.yaml", "data", "", filepath.Join("data", "p.yaml"), true},
		{"p.yaml", "data", "etc/cell.yaml", filepath.Join("etc", "p.yaml"), true},
		{"p.yaml", "", "etc/cell.yaml", filepath.Join("etc", "p.yaml"), true},
		{abs, "data", "etc/cell.yaml", abs, true},
	} {
		f := config.File{Policy: tt.policy}
		if path, given := f.PolicyPath(tt.dir, tt.file); path != tt.want || given != tt.given {
			t.Errorf("%+v: %q, %v", tt, path, given)
		}
	}
}

func TestReadPolicy(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, config.PolicyFileName)
	if text, ok, err := config.ReadPolicy(path, false); ok || err != nil {
		t.Errorf("none: %q, %v, %v", text, ok, err)
	}
	if _, _, err := config.ReadPolicy(path, true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a named file that is missing: %v", err)
	}
	if err := os.Symlink(filepath.Join(dir, "gone"), path); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
	if _, _, err := config.ReadPolicy(path, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link that leads nowhere: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gone"), []byte("rules: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, ok, err := config.ReadPolicy(path, false); !ok || err != nil || string(text) != "rules: []" {
		t.Errorf("one: %q, %v, %v", text, ok, err)
	}
}

package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool/fetch"
)

// TestFetch checks that the configuration of fetch.md is one, and that its defaults are
// those of the code.
func TestFetch(t *testing.T) {
	text := read(t, "fetch.md")
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```\n").FindAllStringSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Fatal("fetch.md has no configuration")
	}
	for _, block := range blocks {
		if _, err := config.Parse([]byte(block[1])); err != nil {
			t.Error(err)
		}
	}
	f, err := config.Parse([]byte("fetch: {rules: [{host: a.example}]}"))
	if err != nil {
		t.Fatal(err)
	}
	for setting, standard := range map[string]string{
		"timeouts.connect":     fmt.Sprint(fetch.DefaultConnect),
		"timeouts.total":       fmt.Sprint(fetch.DefaultTotal),
		"limits.body_bytes":    fmt.Sprintf("%d KiB", fetch.DefaultBodyBytes>>10),
		"limits.request_bytes": fmt.Sprintf("%d KiB", fetch.DefaultRequestBytes>>10),
		"limits.redirects":     fmt.Sprint(fetch.DefaultRedirects),
		"methods":              strings.Join(f.Fetch.Rules[0].Methods, ", "),
		"schemes":              "`" + strings.Join(f.Fetch.Rules[0].Schemes, ", ") + "`",
	} {
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(setting) + "` \\|.* \\| " + regexp.QuoteMeta(standard) + " \\|$")
		if !row.MatchString(text) {
			t.Errorf("fetch.md does not say that %s is %s", setting, standard)
		}
	}
}

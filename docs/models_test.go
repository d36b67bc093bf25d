package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/model/remote"
	"github.com/agentcell/agentcell/host/model/route"
)

// TestModels checks that the configurations of models.md are ones, and that its
// defaults are those of the code.
func TestModels(t *testing.T) {
	text := read(t, "models.md")
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```\n").FindAllStringSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Fatal("models.md has no configuration")
	}
	for _, block := range blocks {
		f, err := config.Parse([]byte(block[1]))
		if err != nil {
			t.Fatal(err)
		}
		table, err := route.New(f, route.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := table.Find(f.DefaultModel); !ok {
			t.Errorf("the default model %q is not in the table", f.DefaultModel)
		}
	}
	if got := remote.APIName("web.search"); !strings.Contains(text, "`"+got+"`") {
		t.Errorf("models.md does not call web.search %s", got)
	}
	for setting, standard := range map[string]any{
		"timeouts.connect":    remote.DefaultConnect,
		"timeouts.first_byte": remote.DefaultFirstByte,
		"timeouts.idle":       remote.DefaultIdle,
		"retry.attempts":      remote.DefaultAttempts,
	} {
		value := strings.Replace(fmt.Sprint(standard), "m0s", "m", 1)
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(setting) + "` \\|.* \\| " + value + " \\|$")
		if !row.MatchString(text) {
			t.Errorf("models.md does not say that %s is %s", setting, value)
		}
	}
}

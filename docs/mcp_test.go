package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool/mcp"
)

// TestMCP checks that the configurations of mcp.md are ones, and that its defaults are
// those of the code.
func TestMCP(t *testing.T) {
	text := read(t, "mcp.md")
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```\n").FindAllStringSubmatch(text, -1) {
		if f, err := config.Parse([]byte(block[1])); err != nil || len(f.MCP) == 0 {
			t.Errorf("%d servers, %v", len(f.MCP), err)
		}
	}
	for setting, standard := range map[string]any{
		"timeouts.start": mcp.DefaultStart, "timeouts.call": mcp.DefaultCall,
		"limits.result_bytes": mcp.DefaultResultBytes, "limits.concurrent": mcp.DefaultConcurrent, "limits.tools": mcp.DefaultTools,
	} {
		value := strings.Replace(fmt.Sprint(standard), "m0s", "m", 1)
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(setting) + "` \\|.* \\| " + value + " \\|$")
		if !row.MatchString(text) {
			t.Errorf("mcp.md does not say that %s is %s", setting, value)
		}
	}
}

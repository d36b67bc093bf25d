package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/tool/extism"
)

// TestTools checks that what tools.md says of limits is what the code has.
func TestTools(t *testing.T) {
	text := read(t, "tools.md")
	for _, want := range []string{
		fmt.Sprintf("| %dMiB |", extism.DefaultMemory>>20),
		fmt.Sprintf("at most %dGiB", extism.MaxMemory>>30),
		fmt.Sprintf("| %s |", extism.DefaultTimeout),
		fmt.Sprintf("more than %d MiB", extism.MaxOutput>>20),
		fmt.Sprintf("At most %d calls run at once", extism.MaxSandboxes),
		fmt.Sprintf("may have %d entries", extism.MaxTableEntries),
		fmt.Sprintf("the %d that were used last", extism.MaxCompiled),
		fmt.Sprintf("at most %d such steps", extism.MaxRedirects),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("tools.md does not say %q", want)
		}
	}
}

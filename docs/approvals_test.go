package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host"
	hostturn "github.com/agentcell/agentcell/host/turn"
)

// TestApprovals checks that what approvals.md says of limits is what the code has.
func TestApprovals(t *testing.T) {
	text := read(t, "approvals.md")
	for _, want := range []string{
		fmt.Sprintf("after %d requests", hostturn.MaxRequests),
		fmt.Sprintf("up to %d MiB", host.MaxArgsBytes>>20),
		fmt.Sprintf("Only `%s` is nobody's name", host.PolicyPrincipal),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("approvals.md does not say %q", want)
		}
	}
}

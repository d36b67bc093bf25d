package edge_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/secret"
)

// What the configuration can name, the secret store can keep, and the other way round.
func TestNamesOfSecrets(t *testing.T) {
	for _, name := range []string{
		"a", "A_b-c.1", "_x", "1a", "-a", ".a", "", "a b", "a:b", "a/b", "ä", "a\n", "a\x00",
		strings.Repeat("n", 128), strings.Repeat("n", 129),
	} {
		_, err := config.Parse([]byte("providers: {p: {api: openai, key: " + strconv.Quote(config.FromSecret+name) + "}}"))
		if kept := secret.CheckName(name); (err == nil) != (kept == nil) {
			t.Errorf("%q: the configuration says %v, the store %v", name, err, kept)
		}
	}
}

package journal

import (
	"os"
	"testing"
)

// childEnv, if set, makes the test binary one of the child processes of the
// fault tests.
const childEnv = "AGENTCELL_JOURNAL_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := faultChild(os.Getenv(childEnv), os.Args[1:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// require ends a test that lacks something of the machine: it is skipped, or,
// where nothing may be skipped, fails.
func require(t *testing.T, missing string) {
	t.Helper()
	if os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" {
		t.Fatalf("needs %s (AGENTCELL_TEST_REQUIRE=all)", missing)
	}
	t.Skipf("needs %s", missing)
}

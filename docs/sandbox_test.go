package docs

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSandbox checks that the tests that sandbox.md names exist, and that it
// lists the guests of TestS3_HostileGuests, all of them and no others.
func TestSandbox(t *testing.T) {
	text := read(t, "sandbox.md")
	tests := testFunctions(t)
	row := regexp.MustCompile("(?m)^\\| ([^|]+) \\|[^|]*\\| (`(?:Test|Fuzz)[^|]*) \\|$")
	name := regexp.MustCompile("`((?:Test|Fuzz)[^`]*)`")
	var listed []string
	for _, match := range row.FindAllStringSubmatch(text, -1) {
		for _, named := range name.FindAllStringSubmatch(match[2], -1) {
			if !tests[named[1]] {
				t.Errorf("%q is tried by %s, which no test file has", match[1], named[1])
			}
			if named[1] == "TestS3_HostileGuests" {
				listed = append(listed, match[1])
			}
		}
	}
	var want []string
	for _, match := range regexp.MustCompile(`\{\s*name: "([^"]+)"`).FindAllStringSubmatch(read(t, "../host/hostile_test.go"), -1) {
		want = append(want, match[1])
	}
	slices.Sort(listed)
	slices.Sort(want)
	if diff := cmp.Diff(want, listed); diff != "" || len(want) == 0 {
		t.Errorf("hostile guests (-tests +sandbox.md):\n%s", diff)
	}
}

package journal

import (
	"os"
	"path/filepath"
	"testing"
)

// What a directory is called means nothing: the brackets of "d[5" and "[ab]" are
// a pattern that is broken, and one that matches other names.
func TestOddDirectoryNames(t *testing.T) {
	for _, name := range []string{"d[5", "[ab]", "a*b?", `back\slash`, "line\nbreak", " "} {
		dir := filepath.Join(t.TempDir(), name)
		for range 2 {
			j, err := Open(dir, Options{})
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			if err := j.Close(); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "00099.mem"), make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := newSpace(dir, 0).sizes(".mem", 40)
		if err != nil || got < 40 || got%40 != 0 {
			t.Errorf("%q: write-ahead files count as %d bytes, %v; want 40 for each", name, got, err)
		}
	}
}

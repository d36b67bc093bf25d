package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks follows every link between documents, headings included.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)]+)\)`)
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range append(documents, readme) {
		for _, match := range link.FindAllStringSubmatch(read(t, from), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			path, heading, _ := strings.Cut(match[1], "#")
			to := from
			if path != "" {
				to = filepath.Join(filepath.Dir(from), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", from, match[1], err)
			} else if heading != "" && !headings(read(t, to))[heading] {
				t.Errorf("%s links to %s, which has no such heading", from, match[1])
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// headings are the anchors of a document, as they are made of its headings.
func headings(text string) map[string]bool {
	dropped := regexp.MustCompile("[^a-z0-9 -]")
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		if title := strings.TrimLeft(line, "#"); title != line {
			anchor := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			found[strings.ReplaceAll(anchor, " ", "-")] = true
		}
	}
	return found
}

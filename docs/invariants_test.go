package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// stage lists the invariants that hold so far.
const stage = "I1 I2 I3 I4 I5 I6 I7 I8 M1 M2 M3 M4 M5 M6 S1 S2 S3 S4 P1 P2"

// TestInvariants checks that the tests that invariants.md names exist, and that
// each invariant of this stage has one that bears its number.
func TestInvariants(t *testing.T) {
	tests := testFunctions(t)
	row := regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \|[^|]*\|([^|]*)\|$`)
	name := regexp.MustCompile("`(Test[^`]*)`")
	var listed []string
	for _, match := range row.FindAllStringSubmatch(read(t, "invariants.md"), -1) {
		number, own := match[1], 0
		listed = append(listed, number)
		for _, held := range name.FindAllStringSubmatch(match[2], -1) {
			if !tests[held[1]] {
				t.Errorf("%s is held by %s, which no test file has", number, held[1])
			}
			if slices.Contains(strings.Split(strings.TrimPrefix(held[1], "Test"), "_"), number) {
				own++
			}
		}
		if own == 0 {
			t.Errorf("%s has no test with its number", number)
		}
	}
	if want := strings.Fields(stage); !slices.Equal(listed, want) {
		t.Errorf("the table has %v, want %v", listed, want)
	}
}

// TestReliability checks that the tests that reliability.md names exist.
func TestReliability(t *testing.T) {
	tests := testFunctions(t)
	for _, name := range regexp.MustCompile("`((?:Test|Fuzz)[^`]*)`").FindAllStringSubmatch(read(t, "reliability.md"), -1) {
		if !tests[name[1]] {
			t.Errorf("reliability.md names %s, which no test file has", name[1])
		}
	}
}

// testFunctions are the names of all tests and fuzzers of the module.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				found[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

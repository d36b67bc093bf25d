package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLibrariesAreSilent checks that no package that others embed writes to the
// process's own output, or to the log that all of a process share.
func TestLibrariesAreSilent(t *testing.T) {
	loud := map[string][]string{
		"fmt":  {"Print", "Printf", "Println"},
		"os":   {"Stdout", "Stderr"},
		"log":  nil, // anything of it
		"slog": {"Default", "SetDefault", "Debug", "Info", "Warn", "Error", "Log"},
	}
	files := 0
	for _, root := range []string{"host", "journal", "runtimes", "wasm", "sdk"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() && d.Name() == "testdata" {
				return fs.SkipDir
			}
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			positions := token.NewFileSet()
			file, err := parser.ParseFile(positions, path, nil, 0)
			if err != nil {
				return err
			}
			files++
			ast.Inspect(file, func(n ast.Node) bool {
				selector, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				// A package and no variable of that name: those are resolved.
				from, ok := selector.X.(*ast.Ident)
				if !ok || from.Obj != nil {
					return true
				}
				names, listed := loud[from.Name]
				if listed && (names == nil || slices.Contains(names, selector.Sel.Name)) {
					t.Errorf("%s: %s.%s", positions.Position(selector.Pos()), from.Name, selector.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were looked at", files)
	}
}

package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// randWarning is a use of a top-level function of math/rand, or of its /v2.
type randWarning struct {
	File string `json:"file"` // in the directory, with slashes
	Line int    `json:"line"`
	What string `json:"what"` // as it stands there
}

func (w randWarning) String() string {
	return fmt.Sprintf("%s:%d: %s: top-level math/rand gives every session and fork the same numbers; use t.Rand()", w.File, w.Line, w.What)
}

// seeded are the names in math/rand and math/rand/v2 that do not draw from the
// generator which all of a program shares.
func seeded(name string) bool {
	return slices.Contains([]string{
		"New", "NewSource", "NewZipf", "NewPCG", "NewChaCha8",
		"Rand", "Source", "Source64", "Zipf", "PCG", "ChaCha8",
	}, name)
}

// findTopLevelRand looks through the Go files below dir that a harness is built
// of, without knowing which of them it imports. It works on syntax alone: a name
// that hides the import is taken for what it hides if it is declared elsewhere than
// around its use.
func findTopLevelRand(dir string) ([]randWarning, error) {
	target := build.Default
	target.GOOS, target.GOARCH, target.CgoEnabled = "wasip1", "wasm", false
	var found []randWarning
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if file != dir && notBuilt(file) {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		if matches, err := target.MatchFile(filepath.Split(file)); err != nil || !matches {
			return nil // what is wrong with it the compiler says better
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		found = append(found, topLevelRand(file, filepath.ToSlash(name))...)
		return nil
	})
	return found, err
}

// notBuilt reports whether the go command leaves a directory out, or takes it for
// another module.
func notBuilt(dir string) bool {
	base := filepath.Base(dir)
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// topLevelRand are the uses in one file, none if it cannot be parsed.
func topLevelRand(file, name string) []randWarning {
	positions := token.NewFileSet()
	f, err := parser.ParseFile(positions, file, nil, 0)
	if err != nil {
		return nil
	}
	var found []randWarning
	warn := func(at token.Pos, what string) {
		found = append(found, randWarning{name, positions.Position(at).Line, what})
	}
	imported := map[string]bool{}
	for _, spec := range f.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil || target != "math/rand" && target != "math/rand/v2" {
			continue
		}
		switch {
		case spec.Name == nil:
			imported["rand"] = true
		case spec.Name.Name == ".":
			warn(spec.Pos(), `import . "`+path.Clean(target)+`"`)
		default:
			imported[spec.Name.Name] = true
		}
	}
	for _, decl := range f.Decls {
		hidden := declared(decl)
		ast.Inspect(decl, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, ok := selector.X.(*ast.Ident)
			if ok && imported[of.Name] && !hidden[of.Name] && selector.Sel.IsExported() && !seeded(selector.Sel.Name) {
				warn(selector.Pos(), of.Name+"."+selector.Sel.Name)
			}
			return true
		})
	}
	return found
}

// declared are the names that a declaration declares within itself, as variables
// and parameters.
func declared(decl ast.Decl) map[string]bool {
	names := map[string]bool{}
	add := func(idents ...*ast.Ident) {
		for _, i := range idents {
			names[i.Name] = true
		}
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			add(n.Names...)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					if i, ok := e.(*ast.Ident); ok {
						add(i)
					}
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if i, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(i)
				}
			}
		}
		return true
	})
	return names
}

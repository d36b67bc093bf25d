package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/agentcell/agentcell"

// TestLayers checks every package of the module, as it is built here and as it
// is built for guests, against layers.txt.
func TestLayers(t *testing.T) {
	text, err := os.ReadFile("layers.txt")
	if err != nil {
		t.Fatal(err)
	}
	found, err := parseLayers(string(text))
	if err != nil {
		t.Fatal(err)
	}
	native := list(t, nil, "./...")
	guest := list(t, []string{"GOOS=wasip1", "GOARCH=wasm"}, "-deps", "./harnesses/...")
	for _, broken := range found.check(native, guest) {
		t.Error(broken)
	}
}

// What the core is built with, to the last package, has no provider of models and no
// tool in it, and no configuration. (Lines of layers.txt speak of direct imports.)
func TestLayers_Core(t *testing.T) {
	core := list(t, nil, "-deps", "./host", "./host/turn", "./journal/...", "./runtimes/...", "./wasm")
	if len(core) < 50 {
		t.Fatalf("go list knows %d packages", len(core))
	}
	for _, p := range core {
		if strings.HasPrefix(p.ImportPath, "host/model/") || strings.HasPrefix(p.ImportPath, "host/tool/") || p.ImportPath == "host/config" {
			t.Errorf("the core is built with %s", p.ImportPath)
		}
	}
}

// The checker itself: a rule that is broken is seen, one that is kept is not.
func TestLayers_Checker(t *testing.T) {
	small, err := parseLayers(`
# A small house.
leaf ->
middle -> leaf
top -> middle
plugin/* -> leaf
wiring -> *
suite -> leaf
tests -> suite
tests:plugin/a -> wiring
guests -> leaf
example.com/db <- middle tests:top
example.com/words <- plugin/a
example.com/assert <- tests
`)
	if err != nil {
		t.Fatal(err)
	}
	house := []pkg{
		{ImportPath: "leaf", Imports: []string{"fmt", "net/http"}},
		{ImportPath: "middle", Imports: []string{"leaf", "example.com/db/v2"}},
		{ImportPath: "top", Imports: []string{"middle", "leaf"}, TestImports: []string{"suite", "example.com/assert", "example.com/db"}},
		{ImportPath: "plugin/a", XTestImports: []string{"wiring"}},
		{ImportPath: "wiring", Imports: []string{"top", "plugin/a"}},
		{ImportPath: "suite"},
	}
	with := func(changed pkg) []pkg {
		changedHouse := slices.Clone(house)
		i := slices.IndexFunc(changedHouse, func(p pkg) bool { return p.ImportPath == changed.ImportPath })
		if i < 0 {
			return append(changedHouse, changed)
		}
		changedHouse[i] = changed
		return changedHouse
	}
	for _, tt := range []struct {
		name          string
		native, guest []pkg
		want          []string
	}{
		{name: "all is well", native: house, guest: []pkg{{ImportPath: "leaf"}, {ImportPath: "fmt", Standard: true}}},
		{
			name:   "upwards",
			native: with(pkg{ImportPath: "leaf", Imports: []string{"top"}}),
			want:   []string{"leaf imports top, which layers.txt does not allow"},
		},
		{
			name:   "sideways",
			native: append(with(pkg{ImportPath: "plugin/a", Imports: []string{"plugin/b"}}), pkg{ImportPath: "plugin/b"}),
			want:   []string{"plugin/a imports plugin/b, which layers.txt does not allow"},
		},
		{
			name:   "a test's imports in code",
			native: with(pkg{ImportPath: "middle", Imports: []string{"suite", "example.com/assert"}}),
			want: []string{
				"middle imports suite, which layers.txt does not allow",
				"middle imports example.com/assert, which layers.txt does not allow",
			},
		},
		{
			name:   "upwards in a test",
			native: with(pkg{ImportPath: "leaf", TestImports: []string{"middle"}, XTestImports: []string{"top"}}),
			want: []string{
				"a test of leaf imports middle, which layers.txt does not allow",
				"a test of leaf imports top, which layers.txt does not allow",
			},
		},
		{
			name:   "a prefix of a name is not the name",
			native: with(pkg{ImportPath: "middle", Imports: []string{"example.com/dbx"}}),
			want:   []string{"middle imports example.com/dbx, which layers.txt does not allow"},
		},
		{
			name:   "a third-party module in the wrong test",
			native: with(pkg{ImportPath: "leaf", TestImports: []string{"example.com/db"}}),
			want:   []string{"a test of leaf imports example.com/db, which layers.txt does not allow"},
		},
		{
			name:   "a third-party module where it must not be",
			native: with(pkg{ImportPath: "top", Imports: []string{"example.com/db"}}),
			want:   []string{"top imports example.com/db, which layers.txt does not allow"},
		},
		{
			name:   "a package nobody knows",
			native: with(pkg{ImportPath: "stranger"}),
			want:   []string{"stranger has no line in layers.txt"},
		},
		{
			name:   "a line without a package",
			native: slices.DeleteFunc(slices.Clone(house), func(p pkg) bool { return p.ImportPath == "plugin/a" }),
			want: []string{
				"wiring imports plugin/a, which layers.txt does not allow",
				"layers.txt has a line for plugin/*, which does not exist",
				"layers.txt has a line for tests:plugin/a, which does not exist",
			},
		},
		{
			name:   "a guest with what its harness may import, and all that this is built with",
			native: house,
			guest: []pkg{
				{ImportPath: "plugin/a", Name: "main", Imports: []string{"leaf", "example.com/words/small", "fmt"}},
				{ImportPath: "leaf"},
				{ImportPath: "example.com/words/small", Imports: []string{"example.com/letters"}},
				{ImportPath: "example.com/letters"},
			},
		},
		{
			name:   "a guest with what the harness of another may import",
			native: house,
			guest:  []pkg{{ImportPath: "plugin/b", Name: "main", Imports: []string{"example.com/words"}}, {ImportPath: "example.com/words"}},
			want:   []string{"a guest is built with example.com/words, which layers.txt does not allow"},
		},
		{
			name:   "a guest with more than it may have",
			native: house,
			guest:  []pkg{{ImportPath: "leaf"}, {ImportPath: "middle"}, {ImportPath: "example.com/db"}},
			want: []string{
				"a guest is built with middle, which layers.txt does not allow",
				"a guest is built with example.com/db, which layers.txt does not allow",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, small.check(tt.native, tt.guest)); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
	for _, text := range []string{"leaf", "a b -> c", "leaf ->\nleaf ->", "leaf -> nobody", "example.com/db <- nobody"} {
		if _, err := parseLayers(text); err == nil {
			t.Errorf("layers %q: no error", text)
		}
	}
}

// pkg is what go list says of a package; paths of ours are without the module's.
type pkg struct {
	ImportPath   string
	Name         string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// list runs go list at the root of the module.
func list(t *testing.T, env []string, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Name,Standard,Imports,TestImports,XTestImports"}, args...)...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), env...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, complaint.Bytes())
	}
	var packages []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = ours(p.ImportPath)
		for _, paths := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			for i := range paths {
				paths[i] = ours(paths[i])
			}
		}
		packages = append(packages, p)
	}
}

func ours(path string) string { return strings.TrimPrefix(path, module+"/") }

// layers are the lines of layers.txt.
type layers struct {
	order   []string            // the left sides of ->, in order
	may     map[string][]string // what may be imported, by left side of ->
	modules map[string][]string // who may import a module, by left side of <-
}

// The names on the left of -> that stand for no package.
const (
	tests  = "tests"
	guests = "guests"
)

// testsOf, before a package, stands for its test files.
const testsOf = "tests:"

func parseLayers(text string) (layers, error) {
	r := layers{may: map[string][]string{}, modules: map[string][]string{}}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) < 2 || words[1] != "->" && words[1] != "<-" {
			return r, fmt.Errorf("line %d: want package -> packages, or module <- packages", i+1)
		}
		left, into := words[0], r.may
		if words[1] == "<-" {
			into = r.modules
		} else {
			r.order = append(r.order, left)
		}
		if _, twice := into[left]; twice {
			return r, fmt.Errorf("line %d: %s has a line already", i+1, left)
		}
		into[left] = words[2:]
	}
	for _, named := range []map[string][]string{r.may, r.modules} {
		for left, names := range named {
			for _, name := range names {
				name = strings.TrimPrefix(name, testsOf)
				if r.line(name) == "" && !slices.ContainsFunc(r.order, func(other string) bool { return matches(name, other) }) {
					return r, fmt.Errorf("%s names %s, which has no line", left, name)
				}
			}
		}
	}
	return r, nil
}

// line is the left side that speaks for path: its own, or that of the nearest
// pattern; empty if there is none.
func (r layers) line(path string) string {
	if _, own := r.may[path]; own {
		return path
	}
	best := ""
	for left := range r.may {
		if len(left) > len(best) && matches(left, path) {
			best = left
		}
	}
	return best
}

// matches reports whether path is what pattern stands for.
func matches(pattern, path string) bool {
	if below, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(path, below)
	}
	return pattern == path
}

// check returns what is wrong: with the packages of the module, and with
// everything that guests are built with.
func (r layers) check(native, guest []pkg) []string {
	var broken []string
	sayf := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	used := map[string]bool{tests: true, guests: true}
	forTests := r.reach(tests, native)
	for _, p := range native {
		line := r.line(p.ImportPath)
		if line == "" {
			sayf("%s has no line in layers.txt", p.ImportPath)
			continue
		}
		used[line], used[testsOf+p.ImportPath] = true, true
		may, inTests := r.reach(line, native), r.reach(testsOf+p.ImportPath, native)
		for _, path := range p.Imports {
			if !may[path] && !r.external(path, p.ImportPath) {
				sayf("%s imports %s, which layers.txt does not allow", p.ImportPath, path)
			}
		}
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			if path != p.ImportPath && !may[path] && !forTests[path] && !inTests[path] && !r.external(path, p.ImportPath) && !r.external(path, tests) && !r.external(path, testsOf+p.ImportPath) {
				sayf("a test of %s imports %s, which layers.txt does not allow", p.ImportPath, path)
			}
		}
	}
	for _, left := range r.order {
		if !used[left] {
			sayf("layers.txt has a line for %s, which does not exist", left)
		}
	}
	lent := r.lent(guest)
	for _, p := range guest {
		harness := p.Name == "main" || p.ImportPath == "harnesses"
		if !p.Standard && !harness && !lent[p.ImportPath] && !slices.Contains(r.may[guests], p.ImportPath) {
			sayf("a guest is built with %s, which layers.txt does not allow", p.ImportPath)
		}
	}
	return broken
}

// lent are the third-party packages that guests may be built with: those that their
// harness may import, and whatever these are built with.
func (r layers) lent(guest []pkg) map[string]bool {
	imports := map[string][]string{}
	lent := map[string]bool{}
	var follow func(path string)
	follow = func(path string) {
		if lent[path] {
			return
		}
		lent[path] = true
		for _, imported := range imports[path] {
			follow(imported)
		}
	}
	for _, p := range guest {
		imports[p.ImportPath] = p.Imports
	}
	for _, p := range guest {
		for _, path := range p.Imports {
			if p.Name == "main" && strings.Contains(path, ".") && r.external(path, p.ImportPath) {
				follow(path)
			}
		}
	}
	return lent
}

// reach is the set of packages that the line left allows: those it names, and
// what their lines allow.
func (r layers) reach(left string, packages []pkg) map[string]bool {
	reached := map[string]bool{}
	var follow func(line string)
	follow = func(line string) {
		for _, pattern := range r.may[line] {
			for _, p := range packages {
				if matches(pattern, p.ImportPath) && !reached[p.ImportPath] {
					reached[p.ImportPath] = true
					follow(r.line(p.ImportPath))
				}
			}
		}
	}
	follow(left)
	return reached
}

// external reports whether path is of the standard library, or a third-party
// package that importer may import. Paths of the standard library have no dot
// in their first element, and no line.
func (r layers) external(path, importer string) bool {
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return r.line(path) == ""
	}
	for mod, importers := range r.modules {
		if path != mod && !strings.HasPrefix(path, mod+"/") {
			continue
		}
		return slices.ContainsFunc(importers, func(pattern string) bool { return matches(pattern, importer) })
	}
	return false
}

package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"unicode"

	"github.com/spf13/cobra"
)

type harnessNewOptions struct {
	dir    string
	module string
	sdk    string
}

func newHarnessNewCommand(a *app) *cobra.Command {
	var opts harnessNewOptions
	cmd := &cobra.Command{
		Use:   "new DIR",
		Short: "Begin a harness of your own, in Go",
		Long: `new writes a small harness that works, with its test, into a directory that is new or
empty: go.mod, main.go, main_test.go, a README that says what to do with it.

The harness is named after the directory. Its module is example.com/NAME unless
--module says otherwise.

go.mod finds the SDK in the source tree that this agentctl lies in or was built from, by
a replace, if the tree is still there; then nothing needs a network. Otherwise it requires
the version that this agentctl is. --sdk names a source tree, or a version, instead.`,
		Example: `  agentctl harness new ./greeter
  agentctl harness new ./critic --module example.com/agents/critic`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("where? Name one directory, which is new or empty")
			}
			opts.dir = args[0]
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return runHarnessNew(a, opts) },
	}
	cmd.Flags().Var(text(&opts.module, ""), "module", "module `PATH` in go.mod (default: example.com/NAME)")
	cmd.Flags().Var(text(&opts.sdk, ""), "sdk", "where the SDK is: a source `TREE` of agentcell, or a version such as v0.1.0")
	return cmd
}

//go:embed starter
var starter embed.FS

// starterFiles are the files of a new harness, by their templates.
var starterFiles = map[string]string{
	"go.mod":               "go.mod.tmpl",
	"main.go":              "main.go.tmpl",
	"main_test.go":         "main_test.go.tmpl",
	"testdata/session.txt": "session.txt.tmpl",
	"README.md":            "README.md.tmpl",
	".gitignore":           "gitignore.tmpl",
}

// starterValues are what the templates need.
type starterValues struct {
	Name, Module, Go string
	sdkSource
	Build string
}

func runHarnessNew(a *app, opts harnessNewOptions) error {
	dir, err := filepath.Abs(opts.dir)
	if err != nil {
		return fmt.Errorf("harness new: %w", err)
	}
	values := starterValues{Name: harnessName(filepath.Base(dir)), Go: sdkGo}
	values.Module, values.Build = opts.module, buildLine(values.Name+".wasm")
	if values.Module == "" {
		values.Module = "example.com/" + values.Name
	}
	if err := checkModulePath(values.Module); err != nil {
		return err
	}
	if values.sdkSource, err = findSDK(opts.sdk, dir); err != nil {
		return err
	}
	if err := checkEmpty(opts.dir); err != nil {
		return err
	}
	if err := writeStarter(dir, values); err != nil {
		return fmt.Errorf("harness new: %w", err)
	}
	if a.json {
		a.object(newHarnessJSON{values.Name, dir, values.Module, values.Tree, values.Version})
		return nil
	}
	a.line(fmt.Sprintf("new harness %s in %s", values.Name, opts.dir))
	if values.Tree == "" {
		a.note("it needs the SDK %s: run `go mod tidy` in %s once", values.Version, opts.dir)
	}
	a.note("%s says how to test, build and run it", filepath.Join(opts.dir, "README.md"))
	return nil
}

type newHarnessJSON struct {
	Harness    string `json:"harness"`
	Dir        string `json:"dir"`
	GoModule   string `json:"go_module"`
	SDKTree    string `json:"sdk_tree,omitempty"`
	SDKVersion string `json:"sdk_version"`
}

// checkEmpty refuses a directory in which something is.
func checkEmpty(dir string) error {
	files, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("directory %q: %w", dir, causeOf(err))
	case len(files) > 0:
		return usagef("directory %q is not empty: it has %q; name a new one", dir, files[0].Name())
	}
	return nil
}

func writeStarter(dir string, values starterValues) error {
	for name, file := range starterFiles {
		t, err := template.ParseFS(starter, "starter/"+file)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := t.Execute(&text, values); err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// harnessName makes of any directory's name one that may stand in a module's path, is
// a harness's name, and is no trouble on Windows.
func harnessName(dir string) string {
	const most = 40
	name := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.", r)) {
			return unicode.ToLower(r)
		}
		return '-'
	}, dir)
	name = strings.Trim(name, "-_.")
	if len(name) > most {
		name = strings.TrimRight(name[:most], "-_.")
	}
	stem, _, _ := strings.Cut(name, ".")
	switch {
	case name == "":
		return "harness"
	case notAlone.MatchString(stem):
		return "harness-" + name
	}
	return name
}

// notAlone are names that mean something else: a device of Windows, or in a
// module's path a major version.
var notAlone = regexp.MustCompile(`^(con|prn|aux|nul|com\d|lpt\d|v\d+|sess-.*)$`)

// checkModulePath refuses what the go command would not take as a module's path, or
// would take for something of its own.
func checkModulePath(path string) error {
	good := regexp.MustCompile(`^[a-zA-Z0-9_~-][a-zA-Z0-9._~-]*(/[a-zA-Z0-9_~-][a-zA-Z0-9._~-]*)*$`)
	if !good.MatchString(path) || slices.ContainsFunc(strings.Split(path, "/"), func(e string) bool { return strings.HasSuffix(e, ".") }) {
		return usagef("--module %q is no module path; want one such as example.com/greeter", path)
	}
	if path == sdkModule || strings.HasPrefix(path, sdkModule+"/") {
		return usagef("--module %q is in agentcell itself; name another", path)
	}
	return nil
}

// Package harnesses owns the bundle: the reference harnesses of this module,
// one directory each, compiled to WebAssembly and embedded, so that agentctl
// runs without a single file beside it.
//
// The modules are built from source into bundle/ before the Go build that embeds
// them, and are not committed; a build without them has an empty bundle and is
// otherwise whole.
//
// The package imports the standard library only; it never runs what it holds.
package harnesses

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// ErrNotBundled reports a harness that this build does not hold.
var ErrNotBundled = errors.New("harness not bundled")

// The README is there so that the pattern matches in a source tree where no
// harness has been built yet.
//
//go:embed bundle
var bundle embed.FS

const extension = ".wasm"

// Names lists the bundled harnesses, sorted.
func Names() []string {
	return namesIn(bundle)
}

// Module returns the WebAssembly module of a bundled harness. The caller owns
// it. For any other name the error wraps ErrNotBundled and says what to do.
func Module(name string) ([]byte, error) {
	return moduleIn(bundle, name)
}

func namesIn(files fs.FS) []string {
	// The pattern is well-formed, which is all that Glob complains about.
	found, _ := fs.Glob(files, "bundle/*"+extension)
	names := make([]string, len(found))
	for i, file := range found {
		names[i] = strings.TrimSuffix(path.Base(file), extension)
	}
	return names
}

func moduleIn(files fs.FS, name string) ([]byte, error) {
	code, err := fs.ReadFile(files, path.Join("bundle", name+extension))
	if err == nil && path.Base(name) == name {
		return code, nil
	}
	names := namesIn(files)
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: %q: this agentctl was built without bundled harnesses; run `make` in the source tree, or pass --harness FILE.wasm", ErrNotBundled, name)
	}
	return nil, fmt.Errorf("%w: %q: there are %s; or pass --harness FILE.wasm", ErrNotBundled, name, strings.Join(names, ", "))
}

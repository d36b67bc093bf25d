// Package harnesses owns the bundle: the reference harnesses of this module,
// one directory each, compiled to WebAssembly and embedded, so that agentctl
// runs without a single file beside it.
//
// The modules are built from source into bundle/ before the Go build that embeds
// them, and are not committed; a build without them has an empty bundle and is
// otherwise whole. A big one is packed: it is known by its digest, and unpacked
// where the code itself is wanted, which is once on each machine.
//
// The package imports the standard library only; it never runs what it holds.
package harnesses

import (
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// ErrNotBundled reports a harness that this build does not hold.
var ErrNotBundled = errors.New("harness not bundled")

// The README is there so that the pattern matches in a source tree where no
// harness has been built yet.
//
//go:embed bundle
var bundle embed.FS

// A file of the bundle is a module, or a packed one.
const (
	extension       = ".wasm"
	packedExtension = extension + ".gz"
)

// Bundled is a harness of the bundle.
type Bundled struct {
	Name string
	// Digest is the SHA-256 of the module, Size its length, Held how much of this
	// program it takes.
	Digest     [sha256.Size]byte
	Size, Held int64

	files  fs.FS
	packed bool
}

// Names lists the bundled harnesses, sorted.
func Names() []string {
	return namesIn(bundle)
}

// Find gives the bundled harness of that name. For any other name the error wraps
// ErrNotBundled and says what to do.
func Find(name string) (Bundled, error) {
	return find(bundle, name)
}

// Module returns the WebAssembly module of a bundled harness. The caller owns
// it. Errors are those of Find.
func Module(name string) ([]byte, error) {
	b, err := Find(name)
	if err != nil {
		return nil, err
	}
	return b.Module()
}

// Module returns the WebAssembly module. The caller owns it.
func (b Bundled) Module() ([]byte, error) {
	if !b.packed {
		return fs.ReadFile(b.files, path.Join("bundle", b.Name+extension))
	}
	code := make([]byte, b.Size)
	err := b.unpack(func(r *gzip.Reader) error {
		_, err := io.ReadFull(r, code)
		return err
	})
	if err == nil && sha256.Sum256(code) != b.Digest {
		err = errors.New("it is not what was packed")
	}
	if err != nil {
		return nil, fmt.Errorf("unpack harness %q: %w", b.Name, err)
	}
	return code, nil
}

// unpack opens what is packed.
func (b Bundled) unpack(read func(*gzip.Reader) error) error {
	f, err := b.files.Open(path.Join("bundle", b.Name+packedExtension))
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	return read(r)
}

// Describe is what is told of a module in the comment of its packed form.
func Describe(module []byte) string {
	return fmt.Sprintf("%x %d", sha256.Sum256(module), len(module))
}

func namesIn(files fs.FS) []string {
	var names []string
	for _, ext := range []string{extension, packedExtension} {
		// The pattern is well-formed, which is all that Glob complains about.
		found, _ := fs.Glob(files, "bundle/*"+ext)
		for _, file := range found {
			names = append(names, strings.TrimSuffix(path.Base(file), ext))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func find(files fs.FS, name string) (Bundled, error) {
	names := namesIn(files)
	switch {
	case slices.Contains(names, name):
		return open(files, name)
	case len(names) == 0:
		return Bundled{}, fmt.Errorf("%w: %q: this agentctl was built without bundled harnesses; run `make` in the source tree, or pass --harness FILE.wasm", ErrNotBundled, name)
	}
	return Bundled{}, fmt.Errorf("%w: %q: there are %s; or pass --harness FILE.wasm", ErrNotBundled, name, strings.Join(names, ", "))
}

// open finds out what a harness is that is there.
func open(files fs.FS, name string) (Bundled, error) {
	b := Bundled{Name: name, files: files}
	code, err := fs.ReadFile(files, path.Join("bundle", name+extension))
	if err == nil {
		b.Digest, b.Size, b.Held = sha256.Sum256(code), int64(len(code)), int64(len(code))
		return b, nil
	}
	b.packed = true
	info, err := fs.Stat(files, path.Join("bundle", name+packedExtension))
	if err != nil {
		return Bundled{}, err
	}
	b.Held = info.Size()
	err = b.unpack(func(r *gzip.Reader) error {
		var digest []byte
		if _, err := fmt.Sscanf(r.Comment, "%x %d", &digest, &b.Size); err != nil || len(digest) != len(b.Digest) {
			return fmt.Errorf("harness %q is packed without its digest", name)
		}
		b.Digest = [sha256.Size]byte(digest)
		return nil
	})
	return b, err
}

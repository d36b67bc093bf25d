package extism

import (
	"errors"
	"io/fs"
	"os"

	"github.com/tetratelabs/wazero"
	experimental "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/sys"
)

// mount gives a plug-in its directories, until the roots are closed. The engine's own
// mounts let a plug-in out of them, over a link that it makes.
func mount(paths []Path) (_ wazero.FSConfig, roots []*os.Root, err error) {
	config := wazero.NewFSConfig()
	for _, p := range paths {
		root, err := os.OpenRoot(p.Host)
		if err != nil {
			closeRoots(roots)
			return nil, nil, errors.Join(err)
		}
		roots = append(roots, root)
		if p.ReadOnly {
			config = config.WithFSMount(root.FS(), p.Guest)
			continue
		}
		config = config.(sysfs.FSConfig).WithSysFSMount(&jail{sysfs.DirFS(p.Host), root}, p.Guest)
	}
	return config, roots, nil
}

func closeRoots(roots []*os.Root) {
	for _, r := range roots {
		_ = r.Close() // which only were looked at
	}
}

// jail is a directory that a plug-in may write, but not leave. It makes no links, and
// follows those that are there no further than to the root. (Who moves such links
// about from outside while a plug-in runs can lead it astray.)
type jail struct {
	experimental.FS
	root *os.Root
}

var _ experimental.FS = (*jail)(nil)

// inside refuses a path that leads out of the root.
func (j *jail) inside(path string) experimental.Errno {
	if path == "" {
		return 0
	}
	if _, err := j.root.Stat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return experimental.EPERM
	}
	return 0
}

// beside is inside for what is done to the last part of a path itself, which may be
// a link to anywhere.
func (j *jail) beside(path string) experimental.Errno {
	if path == "" {
		return 0
	}
	if _, err := j.root.Lstat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return experimental.EPERM
	}
	return 0
}

func (j *jail) OpenFile(path string, flag experimental.Oflag, perm fs.FileMode) (experimental.File, experimental.Errno) {
	if errno := j.inside(path); errno != 0 {
		return nil, errno
	}
	return j.FS.OpenFile(path, flag, perm)
}

func (j *jail) Lstat(path string) (sys.Stat_t, experimental.Errno) {
	if errno := j.beside(path); errno != 0 {
		return sys.Stat_t{}, errno
	}
	return j.FS.Lstat(path)
}

func (j *jail) Stat(path string) (sys.Stat_t, experimental.Errno) {
	if errno := j.inside(path); errno != 0 {
		return sys.Stat_t{}, errno
	}
	return j.FS.Stat(path)
}

func (j *jail) Mkdir(path string, perm fs.FileMode) experimental.Errno {
	if errno := j.inside(path); errno != 0 {
		return errno
	}
	return j.FS.Mkdir(path, perm)
}

func (j *jail) Chmod(path string, perm fs.FileMode) experimental.Errno {
	if errno := j.inside(path); errno != 0 {
		return errno
	}
	return j.FS.Chmod(path, perm)
}

func (j *jail) Rename(from, to string) experimental.Errno {
	for _, path := range []string{from, to} {
		if errno := j.beside(path); errno != 0 {
			return errno
		}
	}
	return j.FS.Rename(from, to)
}

func (j *jail) Rmdir(path string) experimental.Errno {
	if errno := j.beside(path); errno != 0 {
		return errno
	}
	return j.FS.Rmdir(path)
}

func (j *jail) Unlink(path string) experimental.Errno {
	if errno := j.beside(path); errno != 0 {
		return errno
	}
	return j.FS.Unlink(path)
}

func (j *jail) Link(string, string) experimental.Errno { return experimental.EPERM }

func (j *jail) Symlink(string, string) experimental.Errno { return experimental.EPERM }

func (j *jail) Readlink(path string) (string, experimental.Errno) {
	if errno := j.beside(path); errno != 0 {
		return "", errno
	}
	return j.FS.Readlink(path)
}

func (j *jail) Utimens(path string, atim, mtim int64) experimental.Errno {
	if errno := j.inside(path); errno != 0 {
		return errno
	}
	return j.FS.Utimens(path, atim, mtim)
}

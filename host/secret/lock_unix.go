//go:build unix

package secret

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// lock waits until no other process changes the store, and keeps them out until
// unlock. The kernel drops a lock with the process that has it.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// private reports whether only its owner may read or write a file.
func private(mode fs.FileMode) bool { return mode.Perm()&0o077 == 0 }

//go:build unix

package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks f without waiting, for this process alone or for all that share
// the lock. errHeld says that another process has it.
func tryLock(f *os.File, share bool) error {
	how := unix.LOCK_EX
	if share {
		how = unix.LOCK_SH
	}
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errHeld
	}
	return err
}

func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) }

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

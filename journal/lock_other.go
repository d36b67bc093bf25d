//go:build !unix

package journal

import (
	"errors"
	"os"
)

// tryLock refuses: without a lock two processes would destroy the store.
func tryLock(*os.File, bool) error { return errors.ErrUnsupported }

func isReadOnly(error) bool { return false }

func isFull(error) bool { return false }

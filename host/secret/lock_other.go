//go:build !unix

package secret

import (
	"errors"
	"io/fs"
)

// lock refuses: without one two processes would lose each other's secrets.
func lock(string) (func(), error) { return nil, errors.ErrUnsupported }

// private is true where the bits of a mode say nothing.
func private(fs.FileMode) bool { return true }

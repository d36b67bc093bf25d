//go:build !unix

package journal

import "os"

// mapFile reads a file: mapping one is not the same everywhere.
func mapFile(name string) (data []byte, unmap func() error, err error) {
	data, err = os.ReadFile(name)
	return data, func() error { return nil }, err
}

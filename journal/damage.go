package journal

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/dgraph-io/badger/v4/table"
)

// checkTables compares the blocks of tables with their checksums: those that closing
// the store may merge, or all. An error that is ErrCorrupt names those that are
// damaged. No table may be removed meanwhile. It ends early once stop is closed.
func checkTables(sp *space, closing bool, stop <-chan struct{}) error {
	files, err := openTables(sp)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a new store
	}
	if err != nil {
		return err
	}
	var errs []error
	below := false // is there a level below the first?
	for level, tables := range files.levels {
		if closing && below {
			break
		}
		below = level > 0 && len(tables) > 0
		for _, t := range tables {
			select {
			case <-stop:
				return errors.Join(errStopped, files.Close())
			default:
			}
			if err := checkTable(t); err != nil {
				errs = append(errs, fmt.Errorf("%q: %w", table.NewFilename(t.ID(), sp.dir), err))
			}
		}
	}
	return errors.Join(append(errs, files.Close())...)
}

var errStopped = errors.New("stopped")

func checkTable(t *table.Table) (err error) {
	defer corrupted(&err, debug.SetPanicOnFault(true))
	if err := t.VerifyChecksum(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// needImage sees to it that the image of a point is stored. One that is not is
// reached by running the turns before it again, and then saved; the caller holds
// the journal, so that it stays.
func (h *Host) needImage(ctx context.Context, r row, at abi.Seq, root abi.Digest) error {
	if !r.meta.HoldsMemory || root == r.meta.GoldenRoot {
		return nil
	}
	if _, err := h.journal.LoadImage(root); !errors.Is(err, journal.ErrNotFound) {
		return err
	}
	again, err := h.rerun(ctx, r, beginning(r), at)
	if err != nil {
		return fmt.Errorf("image of seq %d: %w", at, err)
	}
	defer again.close(ctx)
	for {
		o, ok, err := again.next()
		if err == nil && ok {
			_, err = again.turn(ctx, o)
		}
		if err != nil {
			return fmt.Errorf("image of seq %d: %w", at, err)
		}
		if !ok {
			break
		}
	}
	if got := again.here.root; got != root {
		return fmt.Errorf("image of seq %d: %w: its root is %s, the turns reach %s", at, ErrDivergence, root.Short(), got.Short())
	}
	return h.journal.SaveImage(ctx, again.image)
}

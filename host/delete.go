package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Delete hides a session for good, durably when it returns, however long its
// history is: from then on it is ErrNotFound, and its name is free. What its forks
// and snapshots need stays until Collect finds that nobody does; a file that Export
// made brings the session back.
//
// It is ErrBusy while a turn runs and ErrOpenTurn while one is open; with force
// the turn ends CANCELED first. The Session it returns is TERMINATED.
func (h *Host) Delete(ctx context.Context, uid abi.SessionID, force bool) (Session, error) {
	s, err := h.delete(ctx, uid, force)
	if err != nil {
		return Session{}, fmt.Errorf("delete: %w", err)
	}
	return s, nil
}

func (h *Host) delete(ctx context.Context, uid abi.SessionID, force bool) (Session, error) {
	if force {
		if err := h.endTurn(ctx, uid); err != nil {
			return Session{}, err
		}
	}
	o, err := h.outside(ctx, uid)
	if err != nil {
		return Session{}, fmt.Errorf("session %s: %w", uid, err)
	}
	defer o.done()
	r := o.r
	if r.sum.Open != 0 && !force {
		return Session{}, fmt.Errorf("session %s: %w since seq %d: recover or cancel it first", uid, ErrOpenTurn, r.sum.Open)
	}
	if r.Session, err = h.journal.Delete(ctx, uid, h.cfg.Now()); err != nil {
		return Session{}, err
	}
	h.warm.drop(warmKey{r.meta.Module, r.sum.Root})
	h.images.drop(r.sum.Root)
	h.watches.committed(uid)
	h.log.Info("session deleted", "session", uid)
	return h.state(r, false), nil
}

// endTurn cancels the session's turn, if there is one. A turn that cannot be ended,
// because its record or its harness cannot be read, keeps nobody from deleting
// the session.
func (h *Host) endTurn(ctx context.Context, uid abi.SessionID) error {
	_, err := h.Cancel(ctx, uid)
	switch {
	case err == nil || errors.Is(err, ErrNothingOpen):
		return nil
	case ctx.Err() != nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed) || errors.Is(err, ErrBusy):
		return err
	}
	h.log.Warn("delete a session whose turn cannot be ended", "session", uid, "error", err)
	return nil
}

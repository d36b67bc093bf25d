package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Prompt gives the model call that the record at seq announces, as the provider
// gets it: with every message. The record itself only names it. A seq that the
// session does not have is ErrNotFound, a record that is no MODEL_CALL
// ErrInvalid, a call that is not the recorded one journal.ErrCorrupt.
func (h *Host) Prompt(ctx context.Context, uid abi.SessionID, seq abi.Seq) (abi.ModelCall, error) {
	e, err := h.event(uid, seq)
	if err != nil {
		return abi.ModelCall{}, fmt.Errorf("prompt: %w", err)
	}
	call, err := turn.Request(e, func(d abi.Digest) ([]byte, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return h.journal.Blob(d)
	})
	switch {
	case err == nil:
		return call, nil
	case errors.Is(err, turn.ErrNoRequest):
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	case ctx.Err() != nil, errors.Is(err, journal.ErrClosed):
	default: // who has the record must have what it names
		err = fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
	}
	return abi.ModelCall{}, fmt.Errorf("prompt: session %s: seq %d: %w", uid, seq, err)
}

// event reads one record of a session.
func (h *Host) event(uid abi.SessionID, seq abi.Seq) (*abi.Event, error) {
	r, err := h.row(uid)
	if err != nil {
		return nil, err
	}
	if seq < 1 {
		return nil, fmt.Errorf("%w: seq %d: the first record is seq 1", ErrInvalid, seq)
	}
	var e *abi.Event
	for rec, err := range h.read(uid, seq, seq) {
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", uid, err)
		}
		e = rec.Event
	}
	if e == nil {
		return nil, fmt.Errorf("%w: seq %d: session %s ends at seq %d", ErrNotFound, seq, uid, r.Head.Seq)
	}
	return e, nil
}

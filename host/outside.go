package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// outsider appends to a session from outside of its turns, while nobody runs one.
type outsider struct {
	x     *execution
	r     row
	image *journal.Image // that record saves, if set
}

func (h *Host) outside(ctx context.Context, uid abi.SessionID) (*outsider, error) {
	x := newExecution(h, uid)
	if err := h.claim(ctx, x, false); err != nil {
		return nil, err
	}
	r, err := h.stored(uid)
	if err != nil {
		h.release(x)
		return nil, err
	}
	return &outsider{x: x, r: r}, nil
}

func (o *outsider) done() { o.x.host.release(o.x) }

// find is the index of what waits under an id, or of the only one if id is
// empty. One that is settled is found by its id.
func (o *outsider) find(id string, of func(Waiting) bool) (int, error) {
	found := -1
	for i, w := range o.r.sum.Waiting {
		switch {
		case !of(w) || id != "" && w.CallID != id || id == "" && w.Settled:
		case found >= 0:
			return 0, fmt.Errorf("%w: several calls wait: name one, such as %q", ErrInvalid, w.CallID)
		default:
			found = i
		}
	}
	switch {
	case found >= 0:
		return found, nil
	case id != "":
		return 0, fmt.Errorf("call %q: %w among those that wait", id, ErrNotFound)
	default:
		return 0, fmt.Errorf("%w: no call waits for a decision", ErrConflict)
	}
}

// append records what came for the i-th thing that the turn waits for, which is now as
// now says.
func (o *outsider) append(ctx context.Context, i int, now Waiting, blobs [][]byte, e *abi.Event) (Session, error) {
	h, r := o.x.host, o.r
	e.ExecutionID = r.sum.Execution
	err := o.record(ctx, e, blobs, func(s *summary) {
		s.Waiting = slices.Clone(s.Waiting)
		s.Waiting[i] = now
	})
	if err != nil {
		return Session{}, err
	}
	if now.Settled {
		h.log.Info("turn can go on", "session", r.UID, "call", now.CallID)
	}
	return h.sessionNow(r.UID)
}

// record appends an event, at its time if it has one, with which the session's
// summary changes.
func (o *outsider) record(ctx context.Context, e *abi.Event, blobs [][]byte, change func(*summary)) error {
	h, r := o.x.host, o.r
	e.SchemaVersion = abi.SchemaVersion
	if e.Time.IsZero() {
		e.Time = later(o.x.now(), r.sum.Updated)
	}
	encoded, body, err := abi.EncodeRecord(e)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if body != nil {
		blobs = append(blobs, body)
	}
	sum := r.sum
	sum.Updated = e.Time
	change(&sum)
	_, err = h.journal.Append(ctx, r.UID, journal.Append{
		Head: r.Head, Fence: r.Head.Fence + 1, Events: [][]byte{encoded}, Blobs: blobs, Image: o.image, Summary: mustJSON(sum),
	})
	if err != nil {
		return asConflict(err)
	}
	h.watches.committed(r.UID)
	return nil
}

// asConflict marks an append that another writer was faster than with the host's
// sentinel.
func asConflict(err error) error {
	if errors.Is(err, journal.ErrConflict) || errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

// sessionNow reads a session while it is claimed for something else than a turn.
func (h *Host) sessionNow(uid abi.SessionID) (Session, error) {
	r, err := h.row(uid)
	if err != nil {
		return Session{}, err
	}
	return h.state(r, false), nil
}

// maxPayloadBytes bounds the payload of a signal.
const maxPayloadBytes = 1 << 20

// Signal ends a wait for the signal of that name; payload is JSON or empty. The
// turn does not go on by itself: Resume it. The same again before it has gone on changes
// nothing; another payload is ErrConflict then, and so is a signal that nobody waits for.
func (h *Host) Signal(ctx context.Context, uid abi.SessionID, name string, payload []byte) (Session, error) {
	s, err := h.signal(ctx, uid, name, payload)
	if err != nil {
		return Session{}, fmt.Errorf("signal %q: session %s: %w", name, uid, err)
	}
	return s, nil
}

// signaled is the answer to a signal that has come already, for the wait of that id.
func (o *outsider) signaled(id string, payload []byte) (Session, error) {
	h, r := o.x.host, o.r
	var want abi.Digest
	if len(payload) > 0 {
		want = abi.DigestOf(payload)
	}
	for rec, err := range h.journal.ReadReverse(r.UID, r.Head.Seq, r.sum.Open) {
		if err != nil {
			return Session{}, err
		}
		e, _, err := h.decode(rec)
		if err != nil {
			return Session{}, err
		}
		if e.Kind != abi.EventSignal || e.Cell.CallID != id {
			continue
		}
		if e.Cell.Payload != want {
			return Session{}, fmt.Errorf("%w: it has come already, with another payload", ErrConflict)
		}
		return h.state(r, false), nil
	}
	return Session{}, fmt.Errorf("no %s for %q: %w", abi.EventSignal, id, journal.ErrCorrupt)
}

func (h *Host) signal(ctx context.Context, uid abi.SessionID, name string, payload []byte) (Session, error) {
	payload = bytes.TrimSpace(payload)
	switch {
	case name == "":
		return Session{}, fmt.Errorf("%w: a signal needs a name", ErrInvalid)
	case len(payload) > maxPayloadBytes:
		return Session{}, fmt.Errorf("%w: the payload has %d bytes, at most %d are taken", ErrInvalid, len(payload), maxPayloadBytes)
	case len(payload) > 0:
		if _, err := abi.Canonical(payload); err != nil {
			return Session{}, fmt.Errorf("%w: payload: %w", ErrInvalid, err)
		}
	}
	o, err := h.outside(ctx, uid)
	if err != nil {
		return Session{}, err
	}
	defer o.done()
	i := slices.IndexFunc(o.r.sum.Waiting, func(w Waiting) bool { return w.Signal == name })
	switch {
	case i < 0:
		return Session{}, fmt.Errorf("%w: it does not wait for that signal", ErrConflict)
	case o.r.sum.Waiting[i].Settled:
		return o.signaled(o.r.sum.Waiting[i].CallID, payload)
	}
	now := o.r.sum.Waiting[i]
	now.Settled = true
	cell := &abi.Cell{CallID: now.CallID, Signal: name}
	var blobs [][]byte
	if len(payload) > 0 {
		cell.Payload = abi.DigestOf(payload)
		blobs = [][]byte{payload}
	}
	return o.append(ctx, i, now, blobs, &abi.Event{Kind: abi.EventSignal, Cell: cell})
}

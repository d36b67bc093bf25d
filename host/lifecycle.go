package host

import (
	"context"
	"fmt"

	"github.com/agentcell/agentcell/sdk/abi"
)

// errCanceled is the cause of a turn's context that Cancel ended. The Exec of a turn
// that had not begun returns it, as if its own context had ended.
var errCanceled = fmt.Errorf("turn canceled: %w", context.Canceled)

// Cancel ends the session's turn as CANCELED and returns when it has ended, with
// how: a turn that was about to end by itself may have. One that is open and does not run,
// interrupted or parked, ends without running. Effects under way are recorded by
// their on_crash rule. Memory is as before the turn. No turn at all is
// ErrNothingOpen.
func (h *Host) Cancel(ctx context.Context, uid abi.SessionID) (Execution, error) {
	end, err := h.cancel(ctx, uid)
	if err != nil {
		return Execution{}, fmt.Errorf("cancel: %w", err)
	}
	r, err := h.row(uid)
	if err != nil {
		return Execution{}, err
	}
	end.Session = h.show(r)
	return end, nil
}

func (h *Host) cancel(ctx context.Context, uid abi.SessionID) (Execution, error) {
	if x := h.claimed(uid); x != nil && x.cancel != nil {
		x.cancel(errCanceled)
		select {
		case <-x.done:
		case <-ctx.Done():
			return Execution{}, fmt.Errorf("session %s: %w", uid, context.Cause(ctx))
		}
		// A turn that had not begun, or was given up, has ended nothing: what the
		// record has open is then canceled like any other.
		if x.endErr == nil && x.ended.State != "" {
			return x.ended, nil
		}
	}
	x := newExecution(h, uid)
	x.canceling = true
	if err := h.claim(ctx, x, true); err != nil {
		return Execution{}, fmt.Errorf("session %s: %w", x.uid, err)
	}
	defer h.release(x)
	req := ExecRequest{Session: uid, Abandon: true}
	r, err := h.row(uid)
	if err != nil {
		return Execution{}, err
	}
	if err := x.open(ctx, r, req); err != nil {
		return Execution{}, err
	}
	end, err := x.run(ctx, req)
	if err != nil {
		return Execution{}, fmt.Errorf("session %s: %w", uid, err)
	}
	return end, nil
}

// Suspend puts a session to rest between turns: nothing of it stays in memory, and
// LIFECYCLE_SUSPEND records it. The next turn goes on as ever; Wake without one.
// Suspending again changes nothing. It is ErrBusy while a turn runs,
// ErrOpenTurn while one is open, which holds no memory anyway, and ErrConflict
// for a session that has never run.
func (h *Host) Suspend(ctx context.Context, uid abi.SessionID) (Session, error) {
	s, err := h.rest(ctx, uid, abi.LifecycleSuspend)
	if err != nil {
		return Session{}, fmt.Errorf("suspend: session %s: %w", uid, err)
	}
	return s, nil
}

// Wake ends a session's rest without a turn, which LIFECYCLE_RESUME records. One
// that is awake stays as it is. It is refused as Suspend is.
func (h *Host) Wake(ctx context.Context, uid abi.SessionID) (Session, error) {
	s, err := h.rest(ctx, uid, abi.LifecycleResume)
	if err != nil {
		return Session{}, fmt.Errorf("wake: session %s: %w", uid, err)
	}
	return s, nil
}

func (h *Host) rest(ctx context.Context, uid abi.SessionID, kind abi.LifecycleKind) (Session, error) {
	o, err := h.outside(ctx, uid)
	if err != nil {
		return Session{}, err
	}
	defer o.done()
	r := o.r
	suspend := kind == abi.LifecycleSuspend
	switch {
	case r.sum.Open != 0:
		return Session{}, fmt.Errorf("%w since seq %d: recover, cancel or abandon it first", ErrOpenTurn, r.sum.Open)
	case r.Head.Seq == 0:
		return Session{}, fmt.Errorf("%w: it has never run", ErrConflict)
	case r.sum.Suspended == suspend:
		return h.state(r, false), nil
	}
	e := &abi.Event{Kind: abi.EventLifecycle, Lifecycle: &abi.Lifecycle{Kind: kind}}
	err = o.record(ctx, e, nil, func(s *summary) { s.Suspended, s.Closed = suspend, r.Head.Seq+1 })
	if err != nil {
		return Session{}, err
	}
	said := "session woken"
	if suspend {
		said = "session suspended"
		h.warm.drop(warmKey{r.meta.Module, r.sum.Root})
		h.images.drop(r.sum.Root)
	}
	h.log.Info(said, "session", uid)
	return h.sessionNow(uid)
}

// isRest reports whether a record is that of Suspend or Wake. A RESUME with a call
// is the start of an approved one.
func isRest(e *abi.Event) bool {
	if e.Kind != abi.EventLifecycle || e.Lifecycle == nil {
		return false
	}
	k := e.Lifecycle.Kind
	return k == abi.LifecycleSuspend || k == abi.LifecycleResume && (e.Cell == nil || e.Cell.CallID == "")
}

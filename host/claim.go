package host

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// claims are who has which session. One session has one claim at a time; those
// that wait for it get it in the order they came.
type claims struct {
	held  map[abi.SessionID]*execution
	queue map[abi.SessionID][]*waiter
}

// waiter is a claim that waits.
type waiter struct {
	x     *execution
	given chan struct{} // closed, under Host.mu, when the session is x's
}

func newClaims() claims {
	return claims{held: map[abi.SessionID]*execution{}, queue: map[abi.SessionID][]*waiter{}}
}

// claim makes x the one that has its session. If another one does, x waits behind
// those that wait already, or is refused unless wait is set. Whoever calls names
// the session.
func (h *Host) claim(ctx context.Context, x *execution, wait bool) error {
	h.mu.Lock()
	switch {
	case h.closed:
		h.mu.Unlock()
		return ErrClosed
	case h.claims.held[x.uid] == nil:
		h.claims.held[x.uid] = x
		h.turns.Add(1)
		h.mu.Unlock()
		return nil
	case !wait:
		h.mu.Unlock()
		return fmt.Errorf("%w: a turn is running", ErrBusy)
	case len(h.claims.queue[x.uid]) >= h.cfg.MaxQueue:
		h.mu.Unlock()
		return fmt.Errorf("%w: %d turns wait for it already", ErrBusy, h.cfg.MaxQueue)
	}
	w := &waiter{x: x, given: make(chan struct{})}
	h.claims.queue[x.uid] = append(h.claims.queue[x.uid], w)
	h.turns.Add(1)
	h.mu.Unlock()

	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	case <-h.ctx.Done():
	}
	h.mu.Lock()
	queue := h.claims.queue[x.uid]
	i := slices.Index(queue, w)
	if i >= 0 {
		h.claims.setQueue(x.uid, slices.Delete(queue, i, i+1))
	}
	h.mu.Unlock()
	if i < 0 {
		h.release(x) // it was given to x in the meantime
	} else {
		h.turns.Done()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("waiting for its turn: %w", context.Cause(ctx))
	}
	return ErrClosed
}

func (c *claims) setQueue(uid abi.SessionID, queue []*waiter) {
	if len(queue) == 0 {
		delete(c.queue, uid)
		return
	}
	c.queue[uid] = queue
}

// release gives the session of x, which has it, to the next one that waits.
func (h *Host) release(x *execution) {
	h.mu.Lock()
	delete(h.claims.held, x.uid)
	if queue := h.claims.queue[x.uid]; len(queue) > 0 {
		next := queue[0]
		h.claims.setQueue(x.uid, queue[1:])
		h.claims.held[x.uid] = next.x
		close(next.given)
	}
	h.mu.Unlock()
	h.turns.Done()
}

// claimed is who has a session, nil for nobody.
func (h *Host) claimed(uid abi.SessionID) *execution {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claims.held[uid]
}

// enter waits until one of the turns that may run at once is over; leave makes room
// for the next. Whoever has a session may wait here, but nobody waits for a
// session who has entered.
func (h *Host) enter(ctx context.Context) error {
	select {
	case h.room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for one of %d running turns to end: %w", cap(h.room), context.Cause(ctx))
	case <-h.ctx.Done():
		return ErrClosed
	}
}

func (h *Host) leave() { <-h.room }

package host

import (
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// MaxKeyBytes bounds an idempotency key.
const MaxKeyBytes = 255

// repeat looks for a turn that a request with req's key has begun. If that has
// ended, it gives the end, and shows the turn's records to req's observer; if
// it is open, req becomes one to recover it.
func (x *execution) repeat(r row, req *ExecRequest) (end Execution, over bool, err error) {
	h := x.host
	seq, err := h.journal.Mark(r.UID, req.Key)
	if errors.Is(err, journal.ErrNotFound) {
		return end, false, nil
	}
	if err != nil {
		return end, false, err
	}
	to := r.Head.Seq
	if r.sum.Open != seq {
		if to, err = h.endOf(r, seq); err != nil {
			return end, false, err
		}
	}
	start, last, err := h.turnOf(r, seq, to, *req)
	if err != nil {
		return end, false, fmt.Errorf("key %q: %w", req.Key, err)
	}
	if r.sum.Open == seq {
		// What it asked of the session before its turn held when that began.
		req.Inputs, req.Key, req.Expect, req.Abandon = nil, "", nil, false
		return end, false, nil
	}
	h.log.Info("turn repeated", "session", r.UID, "execution", start.ExecutionID)
	if req.Observe != nil {
		for rec, err := range h.read(r.UID, seq, to) {
			if err != nil {
				return end, false, err
			}
			req.Observe(Update{Record: &rec})
		}
	}
	return Execution{
		ID: start.ExecutionID, State: last.End.State, Reason: last.Cell.Reason, Err: last.End.Error,
		Root: last.Cell.Root, Fuel: uint64(last.Cell.Fuel), Repeated: true,
	}, true, nil
}

// endOf is the seq of the END of the turn that begins at seq.
func (h *Host) endOf(r row, seq abi.Seq) (abi.Seq, error) {
	for rec, err := range h.journal.Read(r.UID, seq, r.Head.Seq) {
		if err != nil {
			return 0, err
		}
		e, _, err := h.decode(rec)
		if err != nil {
			return 0, err
		}
		if e.Kind == abi.EventEnd {
			return rec.Seq, nil
		}
	}
	return 0, fmt.Errorf("the turn of seq %d has no end: %w", seq, journal.ErrCorrupt)
}

// turnOf reads the start and the last record of the turn at [seq, to], which must be
// the one that req would begin: ErrConflict otherwise.
func (h *Host) turnOf(r row, seq, to abi.Seq, req ExecRequest) (start, last *abi.Event, err error) {
	same := true
	inputs := 0
	for rec, err := range h.journal.Read(r.UID, seq, to) {
		if err != nil {
			return nil, nil, err
		}
		e, encoded, err := h.decode(rec)
		if err != nil {
			return nil, nil, err
		}
		if start == nil {
			start = e
		}
		last = e
		if e.Kind != abi.EventInput {
			continue
		}
		if inputs < len(req.Inputs) {
			m := req.Inputs[inputs]
			m.Role = firstOf(m.Role, abi.RoleUser)
			s, err := turn.Stage(&abi.Event{Kind: e.Kind, ExecutionID: e.ExecutionID, Time: e.Time, Message: &m})
			same = same && err == nil && string(s.Encoded) == string(encoded)
		}
		inputs++
	}
	if start == nil || start.Kind != abi.EventExecutionStart || start.Cell == nil || start.Cell.Key != req.Key {
		return nil, nil, fmt.Errorf("seq %d does not begin its turn: %w", seq, journal.ErrCorrupt)
	}
	if !same || inputs != len(req.Inputs) {
		return nil, nil, fmt.Errorf("%w: the turn of seq %d had it with other input", ErrConflict, seq)
	}
	return start, last, nil
}

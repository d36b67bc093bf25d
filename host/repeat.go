package host

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"unicode/utf8"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// MaxKeyBytes bounds an idempotency key.
const MaxKeyBytes = 255

func checkKey(key string) error {
	if len(key) > MaxKeyBytes || !utf8.ValidString(key) {
		return fmt.Errorf("%w: a key has at most %d bytes of UTF-8", ErrInvalid, MaxKeyBytes)
	}
	return nil
}

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

// keyedChild is the uid of the i-th child of a fork with a key: whoever forks with it
// again finds the children by their uids.
func keyedChild(parent abi.SessionID, key string, i int) abi.SessionID {
	text := binary.BigEndian.AppendUint32([]byte("agentcell fork 1\n"), uint32(i))
	text = append(append(text, parent...), '\n')
	sum := sha256.Sum256(append(text, key...))
	return abi.NewSessionID([12]byte(sum[:12]))
}

// forked gives the children that a request with req's key has made, nil if there was
// none. They must be those that req would make.
func (h *Host) forked(parent row, req ForkRequest) ([]Session, error) {
	conflict := func(format string, args ...any) ([]Session, error) {
		return nil, fmt.Errorf("key %q: %w: %s", req.Key, ErrConflict, fmt.Sprintf(format, args...))
	}
	var made []Session
	for i := range min(req.Count+1, MaxForkCount) {
		r, err := h.row(keyedChild(parent.UID, req.Key, i))
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if err == nil {
			made = append(made, h.show(r))
		}
	}
	switch n := len(made); {
	case n == 0:
		return nil, nil
	case n != req.Count:
		return conflict("it made another number of children than %d, or some of them are deleted", req.Count)
	}
	for i, s := range made {
		name := ""
		if len(req.Names) > 0 {
			name = req.Names[i]
		}
		switch {
		case req.At != 0 && req.At != s.ForkSeq:
			return conflict("its children begin at seq %d", s.ForkSeq)
		case req.Model != "" && req.Model != s.Model:
			return conflict("its children have the model %q", s.Model)
		case name != s.Name:
			return conflict("session %s is named %q", s.UID, s.Name)
		case !maps.Equal(req.Labels, s.Labels):
			return conflict("session %s has other labels", s.UID)
		}
	}
	h.log.Info("fork repeated", "session", parent.UID, "children", len(made))
	return made, nil
}

package host

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

func logRecord(r journal.Record, e *abi.Event) abi.LogRecord {
	return abi.LogRecord{Seq: r.Seq, PrevHash: r.Prev, ContentHash: r.Hash, Fence: r.Fence, Event: e}
}

// decode reads the event of a stored record, its body included.
func (h *Host) decode(r journal.Record) (*abi.Event, []byte, error) {
	return h.decodeWith(r, h.journal.Blob)
}

// decodeWith is decode with another way to come by the body.
func (h *Host) decodeWith(r journal.Record, blob func(abi.Digest) ([]byte, error)) (*abi.Event, []byte, error) {
	encoded, _, _, err := journal.ParseLine(r.Line)
	if err != nil {
		return nil, nil, fmt.Errorf("seq %d: %w", r.Seq, err)
	}
	e, err := abi.DecodeRecord(encoded, blob)
	if err == nil {
		err = checkWhole(e)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("seq %d: %w", r.Seq, err)
	}
	return e, encoded, nil
}

// checkWhole reports an event that lacks what its kind has in every record of a
// host: whoever forged it must not make readers stumble.
func checkWhole(e *abi.Event) error {
	whole := true
	switch e.Kind {
	case abi.EventLifecycle:
		whole = e.Lifecycle != nil && (e.Lifecycle.Kind != abi.LifecycleUpgrade || e.Cell != nil)
	case abi.EventInput, abi.EventOutput:
		whole = e.Message != nil
	case abi.EventError:
		whole = e.Error != nil
	case abi.EventExecutionStart:
		whole = e.ExecutionStart != nil && e.Cell != nil
	case abi.EventEnd:
		whole = e.End != nil && e.Cell != nil
	}
	if !whole {
		return fmt.Errorf("incomplete %s: %w", e.Kind, journal.ErrCorrupt)
	}
	return nil
}

// read yields the records of a session, decoded.
func (h *Host) read(uid abi.SessionID, from, to abi.Seq) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for r, err := range h.journal.Read(uid, from, to) {
			var e *abi.Event
			if err == nil {
				e, _, err = h.decode(r)
			}
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !yield(Record{Session: uid, LogRecord: logRecord(r, e), Line: r.Line}, nil) {
				return
			}
		}
	}
}

// payload is that of a signal, nil if it has none.
func (h *Host) payload(e *abi.Event) ([]byte, error) {
	if e.Cell == nil || e.Cell.Payload.IsZero() {
		return nil, nil
	}
	return h.journal.Blob(e.Cell.Payload)
}

// Replay yields the committed records of a session from from to to, both
// included, lazily; 0 means the first and the last. A child's record begins with
// its ancestors'. No engine is started and nothing outside the journal is asked
// (I1).
func (h *Host) Replay(ctx context.Context, uid abi.SessionID, from, to abi.Seq) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		r, err := h.row(uid)
		switch {
		case err != nil:
		case from < 0 || to < 0 || (to != 0 && from > to):
			err = fmt.Errorf("%w: from seq %d to %d: give 1 ≤ from ≤ to", ErrInvalid, from, to)
		case from > r.Head.Seq:
			err = fmt.Errorf("%w: seq %d: session %s ends at seq %d", ErrNotFound, from, uid, r.Head.Seq)
		case to > r.Head.Seq:
			err = fmt.Errorf("%w: seq %d: session %s ends at seq %d", ErrNotFound, to, uid, r.Head.Seq)
		}
		if err != nil {
			yield(Record{}, fmt.Errorf("replay: %w", err))
			return
		}
		for rec, err := range h.read(uid, from, to) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(Record{}, fmt.Errorf("replay: session %s: %w", uid, err))
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// maxHistoryBytes bounds a page of history: a page may be shorter than its
// limit; only an empty one is the end.
const maxHistoryBytes = 1 << 20

// history answers a harness that pages through the events before its turn. What
// it gets is a function of the record (M2).
func (x *execution) history(ctx context.Context, req *abi.HistoryRequest) (runtimes.Response, error) {
	return x.host.history(ctx, x.uid, historyEnd(x.startSeq), req)
}

// historyEnd is the newest record that the turn opened at start sees. The first
// turn sees none: CREATE becomes durable with the turn, not before it, and a
// recovery must show it the same.
func historyEnd(start abi.Seq) abi.Seq {
	if start == 2 {
		return 0
	}
	return start - 1
}

func (h *Host) history(ctx context.Context, uid abi.SessionID, last abi.Seq, req *abi.HistoryRequest) (runtimes.Response, error) {
	records := func(yield func(journal.Record, error) bool) {}
	switch from := req.FromSeq; {
	case last == 0:
	case req.Reverse:
		if from == 0 || from > last {
			from = last
		}
		records = h.journal.ReadReverse(uid, from, 1)
	case from <= last:
		records = h.journal.Read(uid, max(from, 1), last)
	}
	var page bytes.Buffer
	page.WriteByte('[')
	n := int32(0)
	for r, err := range records {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // a search can be as long as the record
		}
		if err != nil {
			return runtimes.Response{}, fmt.Errorf("history: %w", err)
		}
		e, _, err := h.decode(r)
		if err != nil {
			return runtimes.Response{}, fmt.Errorf("history: %w", err)
		}
		if len(req.Kinds) > 0 && !slices.Contains(req.Kinds, e.Kind) {
			continue
		}
		// The fence is not in the chain, so a guest must not see it.
		rec := logRecord(r, e)
		rec.Fence = 0
		b := mustJSON(rec)
		if n > 0 && page.Len()+len(b) > maxHistoryBytes {
			break
		}
		if n > 0 {
			page.WriteByte(',')
		}
		page.Write(b)
		if n++; n == req.Limit {
			break
		}
	}
	page.WriteByte(']')
	return runtimes.Response{Body: page.Bytes()}, nil
}

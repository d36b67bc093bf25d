package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Read walks a session's records from seq from to seq to, both included; from
// below 1 means 1, and to 0 (or beyond it) the head. Where the session is a fork, its
// ancestors' records come first and seqs go on without a gap. It reads one
// state of the journal, that of the moment the walk begins, and only as far as
// it is walked. An error is the last thing it yields: ErrNotFound for an unknown
// session, ErrCorrupt for records that are missing or cannot be read. Hashes are
// not checked; Verify does that. Of a deleted session it gives what is kept.
//
// Stop the walk before closing the journal.
func (j *Journal) Read(uid abi.SessionID, from, to abi.Seq) iter.Seq2[Record, error] {
	return j.walk(uid, from, to, false)
}

// ReadReverse is Read from the newest record to the oldest: from is the higher
// seq and 0 (or beyond it) the head, to the lower one.
func (j *Journal) ReadReverse(uid abi.SessionID, from, to abi.Seq) iter.Seq2[Record, error] {
	return j.walk(uid, to, from, true)
}

// walk reads the records from low to high, in either order: high is 0 (or beyond
// it) for the head.
func (j *Journal) walk(uid abi.SessionID, low, high abi.Seq, reverse bool) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		view := j.view()
		defer view.Close()
		s, segs, err := session(view, uid)
		if err != nil {
			yield(Record{}, err)
			return
		}
		last := high
		if last <= 0 || last > s.last() {
			last = s.last()
		}
		segs = append(segs, segment{uid, s.last()})
		yieldOwned(records(view, segs, max(low, 1), last, reverse), yield)
	}
}

// yieldOwned passes records on, whole, with lines that stay valid.
func yieldOwned(seq iter.Seq2[Record, error], yield func(Record, error) bool) {
	for r, err := range seq {
		if err == nil {
			r, err = r.whole()
		}
		if !yield(r, err) || err != nil {
			return
		}
	}
}

// whole is r with a line of its own and its Prev.
func (r Record) whole() (Record, error) {
	_, prev, seq, err := ParseLine(r.Line)
	if err == nil && seq != r.Seq {
		err = fmt.Errorf("%w: it says it is %d", ErrCorrupt, seq)
	}
	if err != nil {
		return Record{}, fmt.Errorf("record %d: %w", r.Seq, err)
	}
	r.Line, r.Prev = slices.Clone(r.Line), prev
	return r, nil
}

// record reads one record stored under uid.
func record(view View, uid abi.SessionID, seq abi.Seq) (Record, error) {
	value, err := view.Get(recordKey(uid, seq))
	if errors.Is(err, ErrNotFound) {
		return Record{}, missing(uid, seq)
	}
	if err != nil {
		return Record{}, fmt.Errorf("record %d of session %q: %w", seq, uid, err)
	}
	return decodeRecord(uid, seq, value)
}

func missing(uid abi.SessionID, seq abi.Seq) error {
	return fmt.Errorf("%w: record %d of session %q is missing", ErrCorrupt, seq, uid)
}

// records walks the records from low to high, both included, of the session
// whose segments are segs. They lack Prev, and
// their lines are valid until the next one is asked for.
func records(view View, segs []segment, low, high abi.Seq, reverse bool) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if low == high {
			if g := cut(segs, low); len(g) > 0 {
				yield(record(view, g[len(g)-1].uid, low))
			}
			return
		}
		for _, g := range ranges(segs, low, high, reverse) {
			if !g.walk(view, reverse, yield) {
				return
			}
		}
	}
}

// stretch is a range of records that are stored under one uid.
type stretch struct {
	uid       abi.SessionID
	low, high abi.Seq
}

func (s stretch) has(seq abi.Seq) bool { return s.low <= seq && seq <= s.high }

// ranges are the stretches that make up the records from low to high.
func ranges(segs []segment, low, high abi.Seq, reverse bool) []stretch {
	var all []stretch
	first := abi.Seq(1)
	for _, g := range segs {
		s := stretch{g.uid, max(first, low), min(g.upto, high)}
		if s.low <= s.high {
			all = append(all, s)
		}
		first = g.upto + 1
	}
	if reverse {
		slices.Reverse(all)
	}
	return all
}

// walk yields the records of s and reports whether to go on.
func (s stretch) walk(view View, reverse bool, yield func(Record, error) bool) bool {
	next, step, left := s.low, abi.Seq(1), int64(s.high-s.low)+1
	if reverse {
		next, step = s.high, -1
	}
	for e, err := range view.Scan(recordKey(s.uid, s.low), recordKey(s.uid, s.high+1), reverse) {
		if err != nil {
			yield(Record{}, fmt.Errorf("record %d of session %q: %w", next, s.uid, err))
			return false
		}
		if seq := abi.Seq(binary.BigEndian.Uint64(e.Key[len(e.Key)-8:])); seq != next {
			break
		}
		r, err := decodeRecord(s.uid, next, e.Value)
		if !yield(r, err) || err != nil {
			return false
		}
		next += step
		left--
	}
	if left > 0 {
		yield(Record{}, missing(s.uid, next))
		return false
	}
	return true
}

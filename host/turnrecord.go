package host

import (
	"fmt"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// What is held at a time of the record of a turn that is run again: so many
// records, or so many bytes with one record beyond.
const (
	windowRecords = 64
	windowBytes   = 1 << 20
)

// feed reads the records of a session, in order. It holds a few of them at a time,
// however long the record, and nothing of the journal in between.
type feed struct {
	host *Host
	uid  abi.SessionID
	// next to last are the records behind those of window.
	next, last abi.Seq
	window     []turn.Recorded
	// err is why next could not be read.
	err error
}

func (h *Host) feed(uid abi.SessionID, next, last abi.Seq) *feed {
	return &feed{host: h, uid: uid, next: next, last: last}
}

// skip goes to record next, which is not before those at hand.
func (f *feed) skip(next abi.Seq) {
	for len(f.window) > 0 && f.window[0].Seq < next {
		f.drop()
	}
	if f.next < next {
		f.next, f.err = next, nil
	}
}

func (f *feed) drop() { f.window[0], f.window = turn.Recorded{}, f.window[1:] }

// fill sees to it that there is a window, unless the record ends or cannot be read.
func (f *feed) fill() {
	if len(f.window) == 0 && f.next <= f.last && f.err == nil {
		f.window, f.err = f.host.window(f.uid, f.next, f.last)
		f.next += abi.Seq(len(f.window))
	}
}

// to gives the records up to last, as the turn machine takes them.
func (f *feed) to(last abi.Seq) turn.Source {
	return func() (*turn.Recorded, error) {
		f.fill()
		if len(f.window) == 0 {
			err := f.err
			f.err = nil // it may be tried again
			return nil, err
		}
		r := f.window[0]
		if r.Seq > last {
			return nil, nil
		}
		f.drop()
		return &r, nil
	}
}

// window reads the next few of those records, beside an error those before it.
func (h *Host) window(uid abi.SessionID, from, last abi.Seq) ([]turn.Recorded, error) {
	var window []turn.Recorded
	size := 0
	for r, err := range h.journal.Read(uid, from, min(last, from+windowRecords-1)) {
		if err != nil {
			return window, err
		}
		e, encoded, err := h.decodeWith(r, func(d abi.Digest) ([]byte, error) {
			b, err := h.journal.Blob(d)
			size += len(b)
			return b, err
		})
		if err != nil {
			return window, err
		}
		rec := turn.Recorded{Seq: r.Seq, Encoded: encoded, Event: e}
		if rec.Payload, err = h.payload(e); err != nil {
			return window, fmt.Errorf("seq %d: %w", r.Seq, err)
		}
		window = append(window, rec)
		if size += len(encoded) + len(rec.Payload); size > windowBytes {
			break
		}
	}
	return window, nil
}

// recordedTurn is a turn as it stands in the record.
type recordedTurn struct {
	start    turn.Recorded
	response []byte   // the Start response, rebuilt
	opened   abi.Time // of the last opening record
	grants   []abi.ToolGrant
	rest     turn.Source // behind the opening
}

// readTurn reads the opening of the turn whose EXECUTION_START is at seq start and
// whose record goes to last. It checks that the Start response can be rebuilt as
// it was.
func (h *Host) readTurn(uid abi.SessionID, start, last abi.Seq) (recordedTurn, error) {
	return h.feed(uid, start, last).turn(start, last)
}

// turn is readTurn of what lies ahead.
func (f *feed) turn(start, last abi.Seq) (recordedTurn, error) {
	f.skip(start)
	t := recordedTurn{rest: f.to(last)}
	first, err := t.rest()
	if err != nil {
		return t, err
	}
	if first == nil || first.Event.Kind != abi.EventExecutionStart {
		return t, fmt.Errorf("no %s record stands there: %w", abi.EventExecutionStart, journal.ErrCorrupt)
	}
	t.start = *first
	e := t.start.Event
	if e.Cell == nil || e.Cell.Limits == nil || e.ExecutionStart == nil ||
		e.ExecutionStart.InputCount == nil || len(e.Cell.Seed) != 32 {
		return t, fmt.Errorf("seq %d: incomplete %s: %w", start, abi.EventExecutionStart, journal.ErrCorrupt)
	}
	count := int64(*e.ExecutionStart.InputCount)
	if count < 0 || count > int64(last-start) {
		return t, fmt.Errorf("seq %d: %d inputs announced, %d records follow: %w", start, count, last-start, journal.ErrCorrupt)
	}
	var inputs []*abi.Event
	t.opened = e.Time
	for range count {
		in, err := t.rest()
		if err != nil {
			return t, err
		}
		if in == nil || in.Event.Kind != abi.EventInput {
			return t, fmt.Errorf("seq %d: no input where one must be: %w", start+abi.Seq(len(inputs))+1, journal.ErrCorrupt)
		}
		inputs, t.opened = append(inputs, in.Event), in.Event.Time
	}
	if t.grants, err = f.host.readGrants(e.Cell.Tools); err != nil {
		return t, fmt.Errorf("seq %d: %w", start, err)
	}
	if t.response, err = turn.StartResponse(e, inputs, definitions(t.grants)); err != nil {
		return t, err
	}
	if got := abi.DigestOf(t.response); got != e.Cell.StartDigest {
		return t, &turn.Divergence{
			Seq: start, Want: e.Cell.StartDigest, Got: got,
			What: "the Start response rebuilt from the record is not the recorded one",
		}
	}
	return t, nil
}

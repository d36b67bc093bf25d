package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Append adds records to a session, atomically, and returns them once they are
// synced (I6); the last one is the new head. Appends of many sessions share
// one commit.
//
// It wraps ErrNotFound, ErrFenced or ErrConflict (I7), ErrSpent, ErrTooLarge, ErrFull,
// ErrPoisoned or ErrClosed; after all but ErrPoisoned nothing was written. An append
// that the writer has taken is not taken back: ctx only bounds the wait before
// that, so that the error of ctx, too, means that nothing was written. After
// ErrPoisoned it is unknown whether the append was.
//
// Events and blobs are copied before Append returns; the image is saved.
func (j *Journal) Append(ctx context.Context, uid abi.SessionID, a Append) ([]Record, error) {
	records, err := j.append(ctx, uid, a)
	if err != nil {
		return nil, fmt.Errorf("append to session %q: %w", uid, err)
	}
	return records, nil
}

func (j *Journal) append(ctx context.Context, uid abi.SessionID, a Append) ([]Record, error) {
	records, puts, err := chain(uid, a.Head, a.Fence, a.Events)
	if err != nil {
		return nil, err
	}
	for _, m := range a.Marks {
		if err := checkMark(m.Name); err != nil {
			return nil, err
		}
		puts = append(puts, Entry{markKey(uid, m.Name), binary.BigEndian.AppendUint64(nil, uint64(m.Seq))})
	}
	if err := checkCharges(a.Charges); err != nil {
		return nil, err
	}
	head := Head{Seq: a.Head.Seq, Hash: a.Head.Hash, Fence: a.Fence}
	if n := len(records); n > 0 {
		head.Seq, head.Hash = records[n-1].Seq, records[n-1].Hash
	}
	jb := &job{
		size: entriesSize(puts) + headRowSize(uid, a.Summary) + len(a.Charges)*(entryOverhead+maxUID+accountSize),
		stage: func(st *stage) error {
			now, err := st.head(uid)
			switch {
			case err != nil:
				return err
			case a.Fence < now.Fence:
				return fmt.Errorf("%w: its fence is %d, the append's %d", ErrFenced, now.Fence, a.Fence)
			case a.Head.Seq != now.Seq || a.Head.Hash != now.Hash:
				return fmt.Errorf("%w: it is at seq %d, the append extends seq %d", ErrConflict, now.Seq, a.Head.Seq)
			}
			if err := st.charge(a.Charges); err != nil {
				return err
			}
			for _, e := range puts {
				st.batch.Put(e)
			}
			st.setHead(uid, now, head, a.Summary)
			return nil
		},
	}
	defer j.Hold()()
	if jb.ahead, err = j.newBlobs(a.Blobs); err != nil {
		return nil, err
	}
	if a.Image != nil {
		rows, err := j.unsaved(a.Image)
		if err != nil {
			return nil, fmt.Errorf("image %v: %w", a.Image.Root(), err)
		}
		jb.ahead = append(jb.ahead, rows...)
	}
	if err := j.writer.do(ctx, jb); err != nil {
		return nil, err
	}
	if a.Image != nil {
		a.Image.markSaved()
	}
	return records, nil
}

// chain makes the records of events that extend head, and their entries.
func chain(uid abi.SessionID, head Head, fence abi.Fence, events [][]byte) ([]Record, []Entry, error) {
	records := make([]Record, 0, len(events))
	puts := make([]Entry, 0, len(events)+1)
	for i, event := range events {
		if err := checkEvent(event); err != nil {
			return nil, nil, fmt.Errorf("event %d: %w", i, err)
		}
		seq := head.Seq + 1
		value, hash := encodeRecord(event, head.Hash, seq, fence)
		puts = append(puts, Entry{recordKey(uid, seq), value})
		records = append(records, Record{
			Seq: seq, Fence: fence, Line: value[recordHeader:], Hash: hash, Prev: head.Hash,
		})
		head = Head{Seq: seq, Hash: hash}
	}
	return records, puts, nil
}

// Mark gives the seq of the record that a session's mark names. It wraps
// ErrNotFound.
func (j *Journal) Mark(uid abi.SessionID, name string) (abi.Seq, error) {
	err := errors.Join(checkUID(uid), checkMark(name))
	var row []byte
	if err == nil {
		row, err = j.get(markKey(uid, name))
	}
	if err == nil && len(row) != 8 {
		err = fmt.Errorf("%w: a row of %d bytes", ErrCorrupt, len(row))
	}
	if err != nil {
		return 0, fmt.Errorf("mark %.140q of session %q: %w", name, uid, err)
	}
	return abi.Seq(binary.BigEndian.Uint64(row)), nil
}

func checkMark(name string) error {
	if name == "" {
		return errors.New("the mark is empty")
	}
	return checkName("mark", name)
}

// checkEvent catches what could not be read back from a line or a file of
// lines. That the event is canonical is the caller's business.
func checkEvent(event []byte) error {
	if len(event) < 2 || event[0] != '{' || event[len(event)-1] != '}' || bytes.IndexByte(event, '\n') >= 0 {
		return fmt.Errorf("not one line with a JSON object: %.40q", event)
	}
	return nil
}

func headRowSize(uid abi.SessionID, summary []byte) int {
	return 1 + len(uid) + headLen + len(summary) + entryOverhead
}

// put makes content-addressed rows durable, in order and in as many batches as
// they need.
func (j *Journal) put(ctx context.Context, rows []Entry) error {
	if len(rows) == 0 {
		return nil
	}
	return j.writer.do(ctx, &job{ahead: rows, stage: func(*stage) error { return nil }})
}

package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Delete hides a session, durably when it returns, in one small commit however
// long its history is: its name is free, List and the Find methods do not know it
// any more, and nothing can be appended to it. Session, Read and Verify still find
// what is there; children and whoever forks it have what they need. Collect takes
// away what nobody needs.
//
// It returns the session as deleted, and wraps ErrNotFound, also for a session
// that was deleted before.
func (j *Journal) Delete(ctx context.Context, uid abi.SessionID, deleted time.Time) (Session, error) {
	err := checkUID(uid)
	if err == nil {
		mark := Session{UID: uid, Deleted: abi.NewTime(deleted).Time}
		err = j.writer.do(ctx, &job{
			size:  3*(entryOverhead+maxUID) + 2*(maxName+2) + 64,
			frees: true,
			stage: func(st *stage) error { return st.delete(mark) },
		})
	}
	if err != nil {
		return Session{}, fmt.Errorf("delete session %q: %w", uid, err)
	}
	return j.Session(uid)
}

// delete puts the mark of a deleted session and takes it from the indexes.
func (st *stage) delete(mark Session) error {
	uid := mark.UID
	head, err := st.head(uid)
	if err != nil {
		return err
	}
	// One that the batch makes, or brings back, is not there for the caller yet.
	if deleted, err := st.isDeleted(uid); deleted || err != nil {
		return cmp.Or(err, errDeleted)
	}
	row, err := st.get(metaKey(uid))
	if err != nil {
		return err
	}
	s, _, err := decodeMeta(uid, row)
	if err != nil {
		return err
	}
	mark.Kept = head.Seq
	st.batch.Delete(createdKey(s.Project, s.Created, uid))
	if s.Name != "" {
		st.batch.Delete(nameKey(s.Project, s.Name))
	}
	st.batch.Put(Entry{deletedKey(uid), encodeDeleted(mark)})
	st.batch.Put(formatRow()) // older programs must not take the session for one that is there
	delete(st.heads, uid)
	st.gone[uid] = true
	return nil
}

// errDeleted is what a writer is told of a session that was deleted.
var errDeleted = fmt.Errorf("%w: it was deleted", ErrNotFound)

// isDeleted reports whether the session has been deleted after what the batch has so far.
func (st *stage) isDeleted(uid abi.SessionID) (bool, error) {
	if st.gone[uid] {
		return true, nil
	}
	_, err := st.get(deletedKey(uid))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// revive puts the rows of a session that has all its records itself, in place of
// the deleted one with this uid, whose mark is row.
func (st *stage) revive(s Session, row []byte) error {
	st.batch.Require(deletedKey(s.UID), row)
	var rows []Entry
	for _, e := range s.rows(nil) {
		if e.Key[0] == kindMeta {
			continue // it is there, and will be another one
		}
		free, err := st.absent(e.Key)
		if err != nil {
			return err
		}
		if !free {
			return s.taken(e.Key[0])
		}
		rows = append(rows, e)
	}
	for _, e := range rows {
		st.add(e)
	}
	st.batch.Delete(deletedKey(s.UID))
	st.batch.Put(Entry{metaKey(s.UID), encodeMeta(s, nil)})
	st.batch.Put(Entry{headKey(s.UID), encodeHead(s.Head, s.Summary)})
	st.heads[s.UID] = s.Head
	return nil
}

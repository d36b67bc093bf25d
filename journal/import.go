package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Import is a session in the making, whose records were made elsewhere. They are
// verified as they come in and written as they gather, so that a long session
// needs little memory; the session is not there for anybody before Commit has
// made it, with all its records, in one go. One that is given up, or that a
// crash ends, leaves rows that nothing names and that a later import of the
// same uid writes over.
//
// It is for one goroutine. Close it whatever happens.
type Import struct {
	journal *Journal
	session Session
	// present: the session is there already, as it is to become.
	present bool
	// deleted is the mark of the session that was deleted and had this uid, if
	// one is there, kept the records that are stored under the uid, and last the
	// last that it has, here or in its ancestors' segments.
	deleted []byte
	kept    stretch
	last    Head
	chain   verifier
	fence   abi.Fence // of the last record

	rows  []Entry // records to be written
	size  int     // of rows
	blobs map[abi.Digest][]byte
	order []abi.Digest // of blobs
	bytes int          // of blobs
	done  bool
	// release ends the import's hold on what it has put.
	release func()
}

// How much an Import gathers before it writes. A batch takes more.
const (
	importRows  = 1 << 20
	importBlobs = 4 << 20
)

// Import begins to store s, as it is but for the fence of its head, which comes
// with the records. Parent and At are taken as they are: the session will have
// all of its records itself, and its parent need not be in this journal.
//
// A session that is there with this head already is left as it is, and Commit
// gives it back. With another head it is ErrExists, and so is a session that
// somebody else is importing, or a name that is taken (in Commit). A session that
// was deleted comes back; as others may need what is kept of it, that must be
// among the records of the import, or it is ErrKept (here or in Record).
func (j *Journal) Import(s Session) (*Import, error) {
	im, err := j.beginImport(s)
	if err != nil {
		return nil, fmt.Errorf("import session %q: %w", s.UID, err)
	}
	return im, nil
}

func (j *Journal) beginImport(s Session) (*Import, error) {
	s.Created = abi.NewTime(s.Created).Time
	if err := s.check(); err != nil {
		return nil, err
	}
	if _, taken := j.imports.LoadOrStore(s.UID, true); taken {
		return nil, fmt.Errorf("%w: it is being imported", ErrExists)
	}
	im := &Import{
		journal: j, session: s, chain: verifier{session: s.UID},
		blobs: make(map[abi.Digest][]byte), release: j.Hold(),
	}
	j.guard.sweeping.RLock()
	j.guard.touchRecords(stretch{s.UID, 1, math.MaxInt64})
	j.guard.sweeping.RUnlock()
	there, err := j.Session(s.UID)
	switch {
	case errors.Is(err, ErrNotFound):
		return im, nil
	case err == nil && there.IsDeleted():
		if err = im.replace(); err == nil {
			return im, nil
		}
	case err == nil && (there.Head.Seq != s.Head.Seq || there.Head.Hash != s.Head.Hash):
		err = fmt.Errorf("%w: with its head at seq %d, %v, not seq %d, %v",
			ErrExists, there.Head.Seq, there.Head.Hash.Short(), s.Head.Seq, s.Head.Hash.Short())
	}
	if err != nil {
		im.Close()
		return nil, err
	}
	im.present = true
	return im, nil
}

// replace makes im the return of a deleted session, whose records up to the last
// one that is kept are left as they are: others may be reading them.
func (im *Import) replace() error {
	view := im.journal.view()
	defer view.Close()
	s, segs, err := session(view, im.session.UID)
	if err != nil {
		return err
	}
	im.deleted, im.last.Seq = encodeDeleted(s), s.Kept
	if im.session.Head.Seq < s.Kept {
		return fmt.Errorf("%w: it has records up to %d, the import up to %d", ErrKept, s.Kept, im.session.Head.Seq)
	}
	im.kept = own(s.UID, segs, s.Kept)
	if s.Kept == 0 {
		return nil
	}
	at := cut(append(segs, segment{s.UID, s.Kept}), s.Kept)
	last, err := record(view, at[len(at)-1].uid, s.Kept)
	im.last.Hash = last.Hash
	return err
}

// Present reports whether the session is there already.
func (im *Import) Present() bool { return im.present }

// PutBlob stores b with or before the records that follow. It keeps b.
func (im *Import) PutBlob(ctx context.Context, b []byte) error {
	d := abi.DigestOf(b)
	if _, gathered := im.blobs[d]; !gathered {
		im.blobs[d] = b
		im.order = append(im.order, d)
		im.bytes += len(b)
	}
	return im.spill(ctx)
}

// Blob is Journal.Blob that also finds what PutBlob was given. The caller must
// not change the bytes.
func (im *Import) Blob(d abi.Digest) ([]byte, error) {
	if b, gathered := im.blobs[d]; gathered {
		return b, nil
	}
	return im.journal.Blob(d)
}

// Record takes the next record. One that does not follow the one before is a
// *Broken.
func (im *Import) Record(ctx context.Context, fence abi.Fence, line []byte) (Record, error) {
	prev := im.chain.head.Hash
	event, _, _, err := ParseLine(line)
	if err == nil {
		err = checkEvent(event)
	}
	if err != nil {
		return Record{}, im.chain.unreadable(fmt.Errorf("%w: %w", ErrCorrupt, err))
	}
	if err := im.chain.line(line); err != nil {
		return Record{}, err
	}
	head := im.chain.head
	if head.Seq == im.last.Seq && head.Hash != im.last.Hash {
		return Record{}, fmt.Errorf("%w: its record %d has the hash %v, the import's %v", ErrKept, head.Seq, im.last.Hash, head.Hash)
	}
	im.fence = fence
	value, hash := encodeRecord(event, prev, head.Seq, fence)
	if !im.present && !im.kept.has(head.Seq) {
		row := Entry{recordKey(im.session.UID, head.Seq), value}
		im.rows = append(im.rows, row)
		im.size += row.size()
	}
	r := Record{Seq: head.Seq, Fence: fence, Line: value[recordHeader:], Hash: hash, Prev: prev}
	return r, im.spill(ctx)
}

// spill writes what has gathered if it is much.
func (im *Import) spill(ctx context.Context) error {
	if im.size < importRows && im.bytes < importBlobs {
		return nil
	}
	return im.flush(ctx)
}

// flush writes what has gathered, where no session finds it.
func (im *Import) flush(ctx context.Context) error {
	blobs := make([][]byte, len(im.order))
	for i, d := range im.order {
		blobs[i] = im.blobs[d]
	}
	ahead, err := im.journal.newBlobs(blobs)
	if err != nil {
		return err
	}
	rows := im.rows
	err = im.journal.writer.do(ctx, &job{
		ahead: ahead,
		size:  im.size,
		stage: func(st *stage) error {
			if len(rows) == 0 {
				return nil
			}
			if err := im.unmade(st); err != nil {
				return err
			}
			for _, e := range rows {
				st.batch.Put(e)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	im.rows, im.size = nil, 0
	clear(im.blobs)
	im.order, im.bytes = nil, 0
	return nil
}

// unmade refuses to write records if the session was made meanwhile.
func (im *Import) unmade(st *stage) error {
	if im.deleted != nil { // and so nobody but an import makes it
		st.batch.Require(deletedKey(im.session.UID), im.deleted)
		return nil
	}
	key := metaKey(im.session.UID)
	free, err := st.absent(key)
	if err == nil && !free {
		err = im.session.taken(kindMeta)
	}
	st.batch.Require(key, nil)
	return err
}

// Commit makes the session, durably, if its records lead to its head; if not it
// is a *Broken. Its other errors are those of Create, and there is no session
// after any of them but ErrPoisoned.
func (im *Import) Commit(ctx context.Context, summary []byte) (Session, error) {
	s, err := im.commit(ctx, summary)
	if err != nil {
		return Session{}, fmt.Errorf("import session %q: %w", im.session.UID, err)
	}
	return s, nil
}

func (im *Import) commit(ctx context.Context, summary []byte) (Session, error) {
	want, got := im.session.Head, im.chain.head
	if want.Seq != got.Seq || want.Hash != got.Hash {
		return Session{}, im.chain.broken(want.Hash, got.Hash, "the chain ends at seq %d, its head is seq %d", got.Seq, want.Seq)
	}
	if err := im.flush(ctx); err != nil {
		return Session{}, err
	}
	if im.present {
		return im.journal.Session(im.session.UID)
	}
	s := im.session
	s.Head.Fence = im.fence
	s.Meta, s.Summary = slices.Clone(s.Meta), slices.Clone(summary)
	err := im.journal.writer.do(ctx, &job{
		size: s.rowsSize(nil),
		stage: func(st *stage) error {
			if im.deleted != nil {
				return st.revive(s, im.deleted)
			}
			return st.create(nil, s)
		},
	})
	return s, err
}

// Close ends the import. Without a Commit there is no session.
func (im *Import) Close() {
	if !im.done {
		im.done = true
		im.journal.imports.Delete(im.session.UID)
		im.release()
	}
}

package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Fork makes children that share the parent's records up to seq at, each with a
// first record of its own, in one commit however long the history is and however
// many children there are. Nothing is copied, and the parent, which may be
// appended to meanwhile, is not touched. Children are in the parent's project. A
// deleted parent has children too, as far as it is kept: whether it may is for the
// caller to say.
//
// It wraps ErrNotFound if the parent or its record at does not exist, and
// ErrExists if a child's uid or name is taken.
func (j *Journal) Fork(ctx context.Context, parent abi.SessionID, at abi.Seq, created time.Time, children []ForkChild) ([]Session, error) {
	sessions, err := j.fork(ctx, parent, at, created, children)
	if err != nil {
		return nil, fmt.Errorf("fork session %q at %d: %w", parent, at, err)
	}
	return sessions, nil
}

func (j *Journal) fork(ctx context.Context, parent abi.SessionID, at abi.Seq, created time.Time, children []ForkChild) ([]Session, error) {
	if len(children) == 0 {
		return nil, errors.New("no children")
	}
	defer j.Hold()()
	p, point, segs, err := j.forkPoint(parent, at)
	if err != nil {
		return nil, err
	}
	jb := new(job)
	sessions := make([]Session, len(children))
	var first []Entry // each child's first record
	for i, c := range children {
		records, rows, err := chain(c.UID, point, 0, [][]byte{c.Event})
		if err != nil {
			return nil, fmt.Errorf("child %q: %w", c.UID, err)
		}
		s := Session{
			UID:     c.UID,
			Project: p.Project,
			Name:    c.Name,
			Created: abi.NewTime(created).Time,
			Parent:  parent,
			At:      at,
			Meta:    append([]byte(nil), c.Meta...),
			Head:    Head{Seq: records[0].Seq, Hash: records[0].Hash},
			Summary: append([]byte(nil), c.Summary...),
		}
		if err := s.check(); err != nil {
			return nil, err
		}
		sessions[i] = s
		first = append(first, rows...)
		jb.size += s.rowsSize(segs) + entriesSize(rows)
	}
	jb.stage = func(st *stage) error {
		if err := st.create(segs, sessions...); err != nil {
			return err
		}
		for _, e := range first {
			st.batch.Put(e)
		}
		return nil
	}
	if err := j.writer.do(ctx, jb); err != nil {
		return nil, err
	}
	return sessions, nil
}

// forkPoint reads what children of the parent's record at need: the parent, the
// head that they extend, and where their ancestors' records are.
func (j *Journal) forkPoint(parent abi.SessionID, at abi.Seq) (Session, Head, []segment, error) {
	j.guard.sweeping.RLock()
	defer j.guard.sweeping.RUnlock()
	view := j.view()
	defer view.Close()
	p, inherited, err := session(view, parent)
	if err != nil {
		return p, Head{}, nil, err
	}
	if at < 1 || at > p.last() {
		return p, Head{}, nil, fmt.Errorf("record %d: %w: the last one is %d", at, ErrNotFound, p.last())
	}
	segs := cut(append(inherited, segment{parent, p.last()}), at)
	r, err := record(view, segs[len(segs)-1].uid, at)
	if err != nil {
		return p, Head{}, nil, err
	}
	for _, s := range ranges(segs, 1, at, false) {
		j.guard.touchRecords(s)
	}
	return p, Head{Seq: at, Hash: r.Hash}, segs, nil
}

// cut shortens segs so that they end at seq at, which they reach.
func cut(segs []segment, at abi.Seq) []segment {
	for i, g := range segs {
		if g.upto >= at {
			return append(slices.Clone(segs[:i]), segment{g.uid, at})
		}
	}
	return segs
}

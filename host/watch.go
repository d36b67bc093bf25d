package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// WatchRequest asks for committed records, those that are there and those that
// come.
type WatchRequest struct {
	// Session, if set, is the one to watch, with what it inherited. Without it all
	// sessions of Project are watched, those that are made meanwhile too, or of
	// all projects if Project is empty; a forked one without the records that its
	// parent here shows.
	Session abi.SessionID
	Project string
	// From is the first seq wanted of each session; 0 means 1.
	From abi.Seq
	// After is where an earlier watch ended: the last seq seen of each session.
	After map[abi.SessionID]abi.Seq
	// Present ends the watch where nothing more is committed, instead of waiting
	// for what comes.
	Present bool
}

// Watch yields every committed record from a seq on, as it becomes durable (I6):
// those of one session in the order of their seqs, without gap or repetition,
// whoever commits them in this host. An error is the last thing it yields:
// ErrNotFound for a session that is not there (any more), ErrClosed once the host
// is closed, or the cause of ctx.
//
// A watcher reads the journal at its own pace and holds no turn: however far it
// lags, memory grows with the number of sessions only. Of several sessions one that
// cannot be read is left out, which the log tells.
func (h *Host) Watch(ctx context.Context, req WatchRequest) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if req.From < 0 {
			yield(Record{}, fmt.Errorf("watch: %w: seq %d", ErrInvalid, req.From))
			return
		}
		w := &watch{
			host: h, req: req, seen: map[abi.SessionID]abi.Seq{},
			wake: make(chan struct{}, 1), due: map[abi.SessionID]bool{},
		}
		h.watches.add(w)
		defer h.watches.remove(w)
		if err := w.run(ctx, yield); err != nil && !errors.Is(err, errEnough) {
			yield(Record{}, fmt.Errorf("watch: %w", err))
		}
	}
}

// errEnough reports that whoever watches wants no more.
var errEnough = errors.New("enough")

// watch is one Watch. All it knows of what is committed is where: which sessions
// have news, and how far it has come in each.
type watch struct {
	host *Host
	req  WatchRequest
	seen map[abi.SessionID]abi.Seq // last seq that was passed

	wake chan struct{} // has room for one

	mu    sync.Mutex
	queue []abi.SessionID // with news, each once
	due   map[abi.SessionID]bool
}

// news marks a session as having records that the watch may not have seen.
func (w *watch) news(uid abi.SessionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.req.Session != "" && w.req.Session != uid || w.due[uid] {
		return
	}
	w.due[uid] = true
	w.queue = append(w.queue, uid)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next takes the session that has had news for longest.
func (w *watch) next() (uid abi.SessionID, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return "", false
	}
	uid, w.queue = w.queue[0], w.queue[1:]
	delete(w.due, uid)
	return uid, true
}

func (w *watch) run(ctx context.Context, yield func(Record, error) bool) error {
	if err := w.begin(); err != nil {
		return err
	}
	for {
		for uid, ok := w.next(); ok; uid, ok = w.next() {
			if err := w.advance(ctx, uid, yield); err != nil {
				return err
			}
		}
		if w.req.Present {
			return nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.host.ctx.Done():
			return ErrClosed
		}
	}
}

// begin puts what is there first, by age.
func (w *watch) begin() error {
	if w.req.Session != "" {
		w.news(w.req.Session)
		return nil
	}
	var there []journal.Session
	err := w.host.watches.read(func() error {
		for s, err := range w.host.journal.Sessions() {
			switch {
			case err != nil && s.UID == "":
				return err
			case s.IsDeleted():
				continue
			}
			s.Meta, s.Summary = nil, nil
			there = append(there, s)
		}
		return nil
	})
	slices.SortStableFunc(there, func(a, b journal.Session) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	for _, s := range there {
		w.news(s.UID)
	}
	return err
}

// advance passes records of a session on that were not seen yet: some, so that
// many sessions take turns.
func (w *watch) advance(ctx context.Context, uid abi.SessionID, yield func(Record, error) bool) error {
	lines, more, err := w.unseen(uid)
	if err != nil {
		return w.unreadable(uid, err)
	}
	for _, line := range lines {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var e *abi.Event
		err := w.host.watches.read(func() (err error) {
			e, _, err = w.host.decode(line)
			return err
		})
		if err != nil {
			return w.unreadable(uid, fmt.Errorf("session %s: %w", uid, err))
		}
		w.seen[uid] = line.Seq
		if !yield(Record{Session: uid, LogRecord: logRecord(line, e), Line: line.Line}, nil) {
			return errEnough
		}
	}
	if more {
		w.news(uid)
	}
	return nil
}

// unreadable is what becomes of a watch that cannot read a session, which may just
// have been deleted: it does without it if it has others.
func (w *watch) unreadable(uid abi.SessionID, err error) error {
	if w.req.Session != "" || errors.Is(err, ErrClosed) {
		return err
	}
	if !errors.Is(err, ErrNotFound) {
		w.host.log.Error("watch", "session", uid, "error", err)
	}
	return nil
}

// maxWaitingBytes bounds the lines that a watch has read and not passed on.
const maxWaitingBytes = 1 << 20

// unseen reads the next records of a session, and whether there are more.
func (w *watch) unseen(uid abi.SessionID) (lines []journal.Record, more bool, err error) {
	err = w.host.watches.read(func() error {
		r, err := w.host.row(uid)
		if err != nil {
			return err
		}
		if w.req.Session == "" && w.req.Project != "" && w.req.Project != r.Project {
			return nil
		}
		last, known := w.seen[uid]
		if !known {
			last = w.start(r)
		}
		if last >= r.Head.Seq {
			return nil
		}
		size := 0
		for rec, err := range w.host.journal.Read(uid, last+1, r.Head.Seq) {
			if err != nil {
				return fmt.Errorf("session %s: %w", uid, err)
			}
			if len(lines) == maxWaitingRecords || size > maxWaitingBytes {
				more = true
				break
			}
			lines, size = append(lines, rec), size+len(rec.Line)
		}
		return nil
	})
	return lines, more, err
}

// start is the last seq of a session that the watch does not show.
func (w *watch) start(r row) abi.Seq {
	last := max(w.req.From-1, w.req.After[r.UID], 0)
	if w.req.Session != "" || r.Parent == "" {
		return last
	}
	parent, err := w.host.row(r.Parent)
	if err != nil || w.req.Project != "" && w.req.Project != parent.Project {
		return last // nobody else shows what it inherited
	}
	return max(last, r.At)
}

// watches are the watches of a host.
type watches struct {
	mu  sync.Mutex
	all map[*watch]bool

	// reading is held by a watch that reads the journal: who closes the host may
	// close the journal next.
	reading sync.RWMutex
	closed  bool
}

func (s *watches) add(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*watch]bool{}
	}
	s.all[w] = true
}

func (s *watches) remove(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, w)
}

// committed tells who watches that a session has new records, or is gone. It is
// called behind every commit that may be of interest, and waits for nobody.
func (s *watches) committed(uid abi.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.all {
		w.news(uid)
	}
}

// read does f, which reads the journal, unless the host is closed.
func (s *watches) read(f func() error) error {
	s.reading.RLock()
	defer s.reading.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return f()
}

// close waits for the reads that are under way, and refuses others.
func (s *watches) close() {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.closed = true
}

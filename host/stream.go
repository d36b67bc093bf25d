package host

import (
	"sync"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// What a slow observer may leave waiting in memory, by number and by size
// together. Beyond it deltas are dropped, and records are read again from the
// journal.
const (
	maxWaitingDeltas  = 1024
	maxWaitingRecords = 256
	maxQueuedBytes    = 4 << 20
)

// stream hands updates to an observer from a goroutine of its own, so that a
// slow observer never holds the turn. It is nil where nobody observes.
type stream struct {
	host    *Host
	uid     abi.SessionID
	observe func(Update)
	done    chan struct{}

	mu     sync.Mutex
	wake   sync.Cond
	queue  []Update
	deltas int
	kept   int     // records in queue
	bytes  int     // of what is in queue
	missed abi.Seq // first committed record that is not in queue, 0 if none
	last   abi.Seq // last committed record
	closed bool
}

func newStream(h *Host, uid abi.SessionID, observe func(Update)) *stream {
	if observe == nil {
		return nil
	}
	s := &stream{host: h, uid: uid, observe: observe, done: make(chan struct{})}
	s.wake.L = &s.mu
	go s.deliver()
	return s
}

// records takes what was committed; staged are the same records decoded.
func (s *stream) records(records []journal.Record, staged []turn.Staged) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range records {
		s.last = r.Seq
		size := staged[i].EventSize()
		if s.missed != 0 || s.kept >= maxWaitingRecords || s.bytes+size > maxQueuedBytes {
			if s.missed == 0 {
				s.missed = r.Seq
			}
			continue
		}
		rec := Record{Session: s.uid, LogRecord: logRecord(r, staged[i].Event), Line: r.Line}
		s.queue = append(s.queue, Update{Record: &rec})
		s.kept++
		s.bytes += size
	}
	s.wake.Signal()
}

func (s *stream) delta(d Delta) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.missed != 0 || s.deltas >= maxWaitingDeltas || s.bytes+len(d.Text) > maxQueuedBytes {
		return
	}
	s.queue = append(s.queue, Update{Delta: &d})
	s.deltas++
	s.bytes += len(d.Text)
	s.wake.Signal()
}

// close waits until the observer has seen everything.
func (s *stream) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.wake.Signal()
	s.mu.Unlock()
	<-s.done
}

func (s *stream) deliver() {
	defer close(s.done)
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && s.missed == 0 && !s.closed {
			s.wake.Wait()
		}
		queue, from, to := s.queue, s.missed, s.last
		s.queue, s.deltas, s.kept, s.bytes, s.missed = nil, 0, 0, 0, 0
		closed := s.closed
		s.mu.Unlock()
		for _, u := range queue {
			s.observe(u)
		}
		if from != 0 {
			s.catchUp(from, to)
		}
		if closed && len(queue) == 0 && from == 0 {
			return
		}
	}
}

// catchUp reads records from the journal that found no room in memory.
func (s *stream) catchUp(from, to abi.Seq) {
	for r, err := range s.host.read(s.uid, from, to) {
		if err != nil {
			s.host.log.Error("stream to a slow observer", "session", s.uid, "seq", from, "error", err)
			return
		}
		s.observe(Update{Record: &r})
	}
}

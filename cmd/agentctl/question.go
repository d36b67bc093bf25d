package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// question is what can be asked of the process that has the store, which may be
// this one.
type question struct {
	Op      string `json:"op"`
	Project string `json:"project,omitempty"`
	// Ref names the session that it is about, as a person does; for opList the one
	// whose forks are wanted, if any.
	Ref string `json:"ref,omitempty"`
	// All is for opApprovals and opWatch: of all projects.
	All bool `json:"all,omitempty"`
	// Decide is for opDecide, about the session that Ref names.
	Decide *host.DecideRequest `json:"decide,omitempty"`
	// Sessions are those of opSessions.
	Sessions []abi.SessionID `json:"sessions,omitempty"`

	List  *host.ListRequest  `json:"list,omitempty"`
	Watch *host.WatchRequest `json:"watch,omitempty"`
}

// The questions. Only opCancel and opDecide change anything.
const (
	opGet       = "get"
	opList      = "list"
	opSessions  = "sessions"
	opApprovals = "approvals"
	opCancel    = "cancel"
	opDecide    = "decide"
	opWatch     = "watch"
)

// answer is a line of what comes back: Heard first, then what was asked for, or
// Fault. That of a watch is as many lines as there are records, and Done where it
// does not go on.
type answer struct {
	Heard     bool            `json:"heard,omitempty"`
	Session   *host.Session   `json:"session,omitempty"`
	Waits     []waitJSON      `json:"waits,omitempty"`
	Page      *host.ListPage  `json:"page,omitempty"`
	Approvals []approval      `json:"approvals,omitempty"`
	Canceled  *host.Execution `json:"canceled,omitempty"`
	Decided   *decidedThere   `json:"decided,omitempty"`
	Record    *watched        `json:"record,omitempty"`
	Done      bool            `json:"done,omitempty"`
	Fault     *fault          `json:"fault,omitempty"`
}

// watched is a record on its way to who watches, with the name of its session.
type watched struct {
	Session     abi.SessionID   `json:"session"`
	Name        string          `json:"name,omitempty"`
	Seq         abi.Seq         `json:"seq"`
	Fence       abi.Fence       `json:"fence"`
	PrevHash    abi.Digest      `json:"prev_hash"`
	ContentHash abi.Digest      `json:"content_hash"`
	Event       json.RawMessage `json:"event"` // as abi.EncodeEvent has it
}

func newWatched(r host.Record, name string) (*watched, error) {
	event, err := abi.EncodeEvent(r.Event)
	if err != nil {
		return nil, err
	}
	return &watched{r.Session, name, r.Seq, r.Fence, r.PrevHash, r.ContentHash, event}, nil
}

// record is the record as the journal gives it, but for its line.
func (w *watched) record() (host.Record, error) {
	e, err := abi.DecodeEvent(w.Event)
	if err != nil {
		return host.Record{}, err
	}
	return host.Record{Session: w.Session, LogRecord: abi.LogRecord{
		Seq: w.Seq, Fence: w.Fence, PrevHash: w.PrevHash, ContentHash: w.ContentHash, Event: e,
	}}, nil
}

// reply answers a question that has one answer.
func reply(ctx context.Context, h *edge.Host, q question) (answer, error) {
	switch q.Op {
	case opGet:
		return replyGet(ctx, h, q)
	case opList:
		return replyList(ctx, h, q)
	case opSessions:
		return replySessions(ctx, h, q)
	case opApprovals:
		found, err := pendingApprovals(ctx, h, q.Project, q.All)
		return answer{Approvals: found}, err
	case opDecide:
		return replyDecide(ctx, h, q)
	case opCancel:
		uid, err := h.Resolve(ctx, q.Project, q.Ref)
		if err != nil {
			return answer{}, err
		}
		end, err := h.Cancel(ctx, uid)
		return answer{Canceled: &end}, err
	}
	return answer{}, fmt.Errorf("%w: the agentctl that has the store does not know the question %q", host.ErrInvalid, q.Op)
}

func replyGet(ctx context.Context, h *edge.Host, q question) (answer, error) {
	uid, err := h.Resolve(ctx, q.Project, q.Ref)
	if err != nil {
		return answer{}, err
	}
	s, err := h.Get(ctx, uid)
	if err != nil {
		return answer{}, err
	}
	waits, err := waitsOf(ctx, h, s)
	return answer{Session: &s, Waits: waits}, err
}

func replyList(ctx context.Context, h *edge.Host, q question) (answer, error) {
	if q.List == nil {
		return answer{}, fmt.Errorf("%w: a list of what?", host.ErrInvalid)
	}
	req := *q.List
	if q.Ref != "" {
		parent, err := h.Resolve(ctx, q.Project, q.Ref)
		if err != nil {
			return answer{}, fmt.Errorf("--parent: %w", err)
		}
		req.Parent = parent
	}
	page, err := h.List(ctx, req)
	return answer{Page: &page}, err
}

// replySessions gives those of the sessions that are there.
func replySessions(ctx context.Context, h *edge.Host, q question) (answer, error) {
	page := new(host.ListPage)
	for _, uid := range q.Sessions {
		s, err := h.Get(ctx, uid)
		switch {
		case err == nil:
			page.Sessions = append(page.Sessions, s)
		case !errors.Is(err, host.ErrNotFound):
			return answer{}, err
		}
	}
	return answer{Page: page}, nil
}

// pendingApprovals are the calls that wait for a person, in the project or in all.
func pendingApprovals(ctx context.Context, h *edge.Host, project string, all bool) ([]approval, error) {
	sessions, err := awaitingSessions(ctx, h, project, all)
	if err != nil {
		return nil, err
	}
	var found []approval
	for _, s := range sessions {
		calls, err := h.Approvals(ctx, s.UID)
		if err != nil {
			return nil, err
		}
		for _, c := range calls {
			found = append(found, approval{s, c})
		}
	}
	return found, nil
}

// awaitingSessions are the sessions with a parked turn, of the project or of all.
func awaitingSessions(ctx context.Context, h *edge.Host, project string, all bool) ([]host.Session, error) {
	if !all {
		return listAll(ctx, h, host.ListRequest{
			Project: project, Limit: pageSize,
			// A call may wait beside one that is decided.
			Filter: host.Filter{States: []host.ExecState{host.ExecAwaiting, host.ExecInterrupted}},
		})
	}
	uids, err := h.Journal().FindPrefix("", math.MaxInt)
	if err != nil {
		return nil, err
	}
	var found []host.Session
	for _, uid := range uids {
		s, err := h.Get(ctx, uid)
		if err != nil {
			return nil, err
		}
		if len(s.Waiting) > 0 {
			found = append(found, s)
		}
	}
	return found, nil
}

// listAll gives the sessions of all pages.
func listAll(ctx context.Context, h *edge.Host, req host.ListRequest) ([]host.Session, error) {
	var found []host.Session
	for {
		page, err := h.List(ctx, req)
		if err != nil {
			return nil, err
		}
		found = append(found, page.Sessions...)
		if req.Token = page.Next; req.Token == "" {
			return found, nil
		}
	}
}

// follow gives the answers to a watch, one after another: the session that is
// watched, if it is one, then records.
func follow(ctx context.Context, h *edge.Host, q question, say func(answer) error) error {
	if q.Watch == nil {
		return fmt.Errorf("%w: watch what?", host.ErrInvalid)
	}
	req := *q.Watch
	switch {
	case q.Ref != "":
		uid, err := h.Resolve(ctx, q.Project, q.Ref)
		if err != nil {
			return err
		}
		req.Session = uid
		s, err := h.Get(ctx, uid)
		if err != nil {
			return err
		}
		if err := say(answer{Session: &s}); err != nil {
			return err
		}
	case !q.All:
		req.Project = q.Project
	}
	names := map[abi.SessionID]string{}
	for r, err := range h.Watch(ctx, req) {
		if err != nil {
			return err
		}
		name, known := names[r.Session]
		if !known {
			s, err := h.Get(ctx, r.Session)
			if err != nil && !errors.Is(err, host.ErrNotFound) { // deleted meanwhile
				return err
			}
			name, names[r.Session] = s.Name, s.Name
		}
		w, err := newWatched(r, name)
		if err != nil {
			return err
		}
		if err := say(answer{Record: w}); err != nil {
			return err
		}
	}
	return say(answer{Done: true})
}

// fault is an error on its way to another process: its text, and which of the
// errors it is that somebody may look for.
type fault struct {
	Text string `json:"text"`
	Kind string `json:"kind,omitempty"`
}

// faultKind is an error that keeps its meaning on the way.
type faultKind struct {
	name string
	err  error
}

func faultKinds() []faultKind {
	return []faultKind{
		{"invalid", host.ErrInvalid},
		{"not_found", host.ErrNotFound},
		{"ambiguous", host.ErrAmbiguous},
		{"busy", host.ErrBusy},
		{"conflict", host.ErrConflict},
		{"open_turn", host.ErrOpenTurn},
		{"nothing_open", host.ErrNothingOpen},
		{"closed", host.ErrClosed},
		{"divergence", host.ErrDivergence},
		{"corrupt", journal.ErrCorrupt},
		{"full", journal.ErrFull},
		{"poisoned", journal.ErrPoisoned},
	}
}

func newFault(err error) *fault {
	f := &fault{Text: err.Error()}
	for _, k := range faultKinds() {
		if errors.Is(err, k.err) {
			f.Kind = k.name
			break
		}
	}
	return f
}

func (f *fault) Error() string { return f.Text }

func (f *fault) Unwrap() error {
	for _, k := range faultKinds() {
		if k.name == f.Kind {
			return k.err
		}
	}
	return nil
}

// encodeAnswer writes a line.
func encodeAnswer(w io.Writer, r answer) error { return json.NewEncoder(w).Encode(r) }

package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// ListRequest asks for a page of a project's sessions, newest first.
type ListRequest struct {
	Project string // empty: DefaultProject
	// Token is empty, or the Next of the page before.
	Token string
	Limit int // 0: 50; at most 500
	Filter
}

// Filter chooses sessions: those that have all of what its fields name. An empty
// field chooses all.
type Filter struct {
	Harnesses []string    // one of them
	States    []ExecState // one of them
	Model     string
	Parent    abi.SessionID
	// Labels must all be there; one with an empty value with any value.
	Labels map[string]string
}

func (f Filter) takes(s Session) bool {
	return (len(f.Harnesses) == 0 || slices.Contains(f.Harnesses, s.Harness)) &&
		(len(f.States) == 0 || slices.Contains(f.States, s.State)) &&
		(f.Model == "" || f.Model == s.Model) &&
		(f.Parent == "" || f.Parent == s.Parent) && labeled(s.Labels, f.Labels)
}

func labeled(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || value != "" && got != value {
			return false
		}
	}
	return true
}

func (f Filter) isEmpty() bool {
	return len(f.Harnesses) == 0 && len(f.States) == 0 && f.Model == "" && f.Parent == "" && len(f.Labels) == 0
}

// ListPage is a page of sessions; Next is empty on the last one.
type ListPage struct {
	Sessions []Session
	Next     string
}

// maxPage is the most sessions a page has.
const maxPage = 500

// List gives a page of a project's sessions, newest first. A page of filtered
// sessions is full unless it is the last one, however many it leaves out: that
// takes a walk over all of these.
func (h *Host) List(ctx context.Context, req ListRequest) (ListPage, error) {
	switch {
	case req.Limit < 0:
		return ListPage{}, fmt.Errorf("list sessions: %w: limit %d", ErrInvalid, req.Limit)
	case req.Limit == 0:
		req.Limit = 50
	}
	if req.Project == "" {
		req.Project = DefaultProject
	}
	req.Limit = min(req.Limit, maxPage)
	page, err := h.list(ctx, req)
	if errors.Is(err, journal.ErrToken) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return ListPage{}, fmt.Errorf("list sessions: %w", err)
	}
	return page, nil
}

func (h *Host) list(ctx context.Context, req ListRequest) (ListPage, error) {
	out := ListPage{Sessions: make([]Session, 0, req.Limit)}
	size := req.Limit
	if !req.isEmpty() {
		size = maxPage
	}
	filter := newSieve(req.Filter)
	next := "" // where a page begins that follows the last of out
	for token := req.Token; ; {
		page, err := h.journal.List(req.Project, token, size)
		if err != nil {
			return ListPage{}, err
		}
		for _, s := range page.Sessions {
			if filter.drops(s) {
				continue
			}
			r, err := decodeRow(s)
			if err != nil {
				return ListPage{}, err
			}
			shown := h.show(r)
			switch {
			case !req.takes(shown):
			case len(out.Sessions) == req.Limit:
				out.Next = next
				return out, nil
			default:
				out.Sessions, next = append(out.Sessions, shown), journal.PageToken(s)
			}
		}
		switch token = page.Next; {
		case token == "":
			return out, nil
		case req.isEmpty():
			out.Next = token
			return out, nil
		}
		if err := ctx.Err(); err != nil {
			return ListPage{}, err
		}
	}
}

package main

import (
	"context"
	"errors"
	"slices"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// decidedThere is what a decision came to in the process that has the store: what was
// recorded, or the seq at which the same decision stands already.
type decidedThere struct {
	Records []*watched `json:"records,omitempty"`
	Before  abi.Seq    `json:"before,omitempty"`
}

// decideThere lets another agentctl decide that has the store, and leaves it to that one
// to go on with the turn. errNobody says that there is none.
func (a *app) decideThere(ctx context.Context, opts decideOptions, req host.DecideRequest) error {
	dir, err := a.dataDirectory()
	if err != nil || doorMark(dir) == "" {
		return errors.Join(err, errNobody)
	}
	i := &inquiry{app: a, dir: dir}
	a.ref = opts.session.ref
	r, err := i.askOther(ctx, question{Op: opGet, Project: a.project, Ref: opts.session.ref})
	if err != nil {
		return err
	}
	if a.policyFile != "" && len(req.Args) > 0 {
		return usagef("another agentctl has the store, and asks its own policy about edited arguments: leave --policy out, or decide when that one has ended")
	}
	call, unclear := a.callToDecide(*r.Session, opts)
	if req.CallID = call; unclear != nil {
		req.CallID = opts.call // it may have been decided so before
	}
	if req.CallID == "" {
		return unclear
	}
	r, err = i.askOther(ctx, question{Op: opDecide, Project: a.project, Ref: string(r.Session.UID), Decide: &req})
	switch {
	case errors.Is(err, errNobody):
		return err
	case err != nil:
		return errors.Join(err, unclear)
	case r.Decided.Before != 0:
		a.note("call %q was %s before, at seq %d", req.CallID, decided(req.Approved), r.Decided.Before)
		return nil
	}
	for _, w := range r.Decided.Records {
		rec, err := w.record()
		if err != nil {
			return err
		}
		a.record(rec)
	}
	if a.policyFile != "" {
		a.note("--policy does not count there: the agentctl that has the store goes on under its own")
	}
	a.note("recorded by the agentctl that has the store; %s", a.goesOn(*r.Session, ", if that one does not"))
	return nil
}

// replyDecide decides for another process.
func replyDecide(ctx context.Context, h *edge.Host, q question) (answer, error) {
	uid, err := h.Resolve(ctx, q.Project, q.Ref)
	if err != nil {
		return answer{}, err
	}
	before, err := h.Get(ctx, uid)
	if err != nil {
		return answer{}, err
	}
	req := *q.Decide
	req.Session = uid
	after, err := h.Decide(ctx, req)
	if !slices.ContainsFunc(before.Waiting, func(w host.Waiting) bool { return w.CallID == req.CallID }) {
		if seq, found := decidedSo(ctx, h, before, req); found {
			return answer{Session: &before, Decided: &decidedThere{Before: seq}}, nil
		}
	}
	if err != nil {
		return answer{}, err
	}
	out := answer{Session: &after, Decided: new(decidedThere)}
	if after.Head.Seq == before.Head.Seq {
		out.Decided.Before, _ = decidedSo(ctx, h, before, req)
		return out, nil
	}
	for r, err := range h.Replay(ctx, uid, before.Head.Seq+1, after.Head.Seq) {
		if err != nil {
			return answer{}, err
		}
		w, err := newWatched(r, after.Name)
		if err != nil {
			return answer{}, err
		}
		out.Decided.Records = append(out.Decided.Records, w)
	}
	h.Nudge(uid)
	return out, nil
}

// decidedSo is where the record has the decision that req wants, if it has it.
func decidedSo(ctx context.Context, h *edge.Host, s host.Session, req host.DecideRequest) (abi.Seq, bool) {
	d, seq, err := decisionOn(ctx, h, s, req.CallID)
	same := err == nil && d != nil && d.approved == req.Approved && d.reason == req.Reason && d.hasArgs(string(req.Args))
	return seq, same
}

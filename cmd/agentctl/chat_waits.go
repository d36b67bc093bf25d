package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// decideAll asks a person about each call that waits, with its arguments in full,
// but for those that they have left waiting, and marks those that wait on. It reports
// whether any was decided.
func (c *chat) decideAll(ctx context.Context, waits []waitJSON, left map[string]bool) (decided bool, err error) {
	for _, w := range waits {
		if w.Tool == "" || w.Settled || left[w.CallID] {
			continue
		}
		v, reason, err := c.askAbout(ctx, w)
		if errors.Is(err, errGivenUp) {
			for _, w := range waits {
				left[w.CallID] = true
			}
			return decided, nil
		}
		if err != nil {
			return decided, err
		}
		if v == later {
			left[w.CallID] = true
			continue
		}
		if err := c.decide(ctx, w.CallID, abi.Seq(w.Request), v == allowed, reason); err != nil {
			return decided, err
		}
		decided = true
		// One that still waits is left to the others who must approve it.
		left[w.CallID] = slices.ContainsFunc(c.session.Waiting, func(s host.Waiting) bool { return s.CallID == w.CallID && !s.Settled })
	}
	return decided, nil
}

// verdict is what a person says of a call.
type verdict int

const (
	later verdict = iota
	allowed
	refused
)

// askAbout asks whether a call may happen. A command in place of an answer leaves
// all calls waiting, and is the next line.
func (c *chat) askAbout(ctx context.Context, w waitJSON) (_ verdict, reason string, err error) {
	c.complain(oneLine(w.Tool) + " wants to be called" + callDetails(w))
	for {
		answer, err := c.ask(ctx, "allow it? y or n, and why if you like; Enter leaves it waiting: ")
		if err != nil {
			return later, "", err
		}
		word, reason, _ := strings.Cut(strings.TrimSpace(answer), " ")
		switch reason = strings.TrimSpace(reason); strings.ToLower(word) {
		case "y", "yes":
			return allowed, reason, nil
		case "n", "no":
			return refused, reason, nil
		case "":
			return later, "", nil
		}
		if strings.HasPrefix(word, "/") { // a command: it is done when the call is left waiting
			c.ahead = answer
			return later, "", errGivenUp
		}
	}
}

// callDetails is what a person must know who decides on a call.
func callDetails(w waitJSON) string {
	text := ", without arguments"
	if len(w.Args) > 0 {
		indented := new(bytes.Buffer)
		if err := json.Indent(indented, w.Args, "  ", "  "); err != nil {
			indented = bytes.NewBuffer(w.Args) // never nothing
		}
		text = " with\n  " + indented.String()
	}
	if w.Reason != "" {
		text += "\n  because: " + oneLine(w.Reason)
	}
	if w.Approvers > 1 {
		text += "\n  approved by " + oneLine(approvedText(w.Approvers, w.Approved, w.Proposed))
	}
	if !w.Until.IsZero() {
		text += "\n  until " + w.Until.Format(timeFormat)
	}
	return text
}

// decide records a decision on what was asked at a seq, 0 if whenever, and shows it.
func (c *chat) decide(ctx context.Context, call string, request abi.Seq, approved bool, reason string) error {
	after, err := c.host.Decide(ctx, host.DecideRequest{
		Session: c.session.UID, CallID: call, Approved: approved, Reason: reason, Actor: c.actor(""), Request: request,
	})
	if err != nil {
		return errors.Join(err, c.refresh(ctx))
	}
	return c.recorded(ctx, after)
}

// recorded shows what was recorded since, and moves on to where the session is
// now.
func (c *chat) recorded(ctx context.Context, after host.Session) error {
	before := c.session
	c.session = after
	if after.Head.Seq == before.Head.Seq {
		return nil
	}
	for r, err := range c.host.Replay(ctx, after.UID, before.Head.Seq+1, after.Head.Seq) {
		if err != nil {
			return err
		}
		c.view.record(r)
	}
	return nil
}

// decideOn is /approve and /deny: the rest of the line begins with the id of the
// call, if several wait, and says why.
func (c *chat) decideOn(ctx context.Context, approved bool, rest string) error {
	id, reason := "", rest
	for _, w := range c.session.Waiting {
		if tail, found := behind(w.CallID, rest); found && w.Tool != "" {
			id, reason = w.CallID, tail
		}
	}
	call, err := c.callToDecide(c.session, decideOptions{call: id})
	var usage *usageError
	if errors.As(err, &usage) {
		return usagef("which call? Put the id of one of those that wait before the reason: %s", quoted(c.openCalls()))
	}
	if err != nil {
		return usagef("no call waits for a decision")
	}
	if err := c.decide(ctx, call, 0, approved, reason); err != nil {
		return err
	}
	return c.resume(ctx)
}

// behind is what stands behind a name, which may have spaces, that begins a text.
func behind(name, text string) (tail string, found bool) {
	tail, found = strings.CutPrefix(text, name)
	if !found || tail != "" && tail[0] != ' ' {
		return "", false
	}
	return strings.TrimSpace(tail), true
}

// openCalls are the ids of the calls that wait for a decision.
func (c *chat) openCalls() []string {
	var ids []string
	for _, w := range c.session.Waiting {
		if w.Tool != "" && !w.Settled {
			ids = append(ids, w.CallID)
		}
	}
	return ids
}

// signal is /signal: the name, and what goes with it.
func (c *chat) signal(ctx context.Context, rest string) error {
	name, payload, _ := strings.Cut(rest, " ")
	for _, w := range c.session.Waiting {
		if tail, found := behind(w.Signal, rest); found && w.Signal != "" {
			name, payload = w.Signal, tail
		}
	}
	after, err := c.host.Signal(ctx, c.session.UID, name, []byte(strings.TrimSpace(payload)))
	if err != nil {
		return errors.Join(err, c.refresh(ctx))
	}
	if err := c.recorded(ctx, after); err != nil {
		return err
	}
	return c.resume(ctx)
}

// endsWait is what a person who chats can do about what the session waits for.
func (c *chat) endsWait(waiting []host.Waiting) string {
	next := "/resume goes on with the turn"
	if i := slices.IndexFunc(waiting, func(w host.Waiting) bool { return !w.Settled }); i >= 0 {
		switch w := waiting[i]; {
		case w.Tool != "":
			next = "/approve allows it, /deny refuses it"
		case w.Signal != "":
			next = "/signal NAME ends the wait"
			if typed(w.Signal, "") != "" { // it looks like itself
				next = "/signal " + w.Signal + " ends the wait"
			}
		default:
			next = "the turn goes on by itself when that time has come"
		}
	}
	return next + "; /cancel drops the turn"
}

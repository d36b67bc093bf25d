package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// turnFlags name what the turn that a command runs may reach.
type turnFlags struct{ script string }

func (t *turnFlags) add(cmd *cobra.Command, a *app) {
	f := cmd.Flags()
	f.Var(text(&t.script, ""), "script", "answer model calls from `FILE`, JSON lines")
	f.Var(text(&a.tools, ""), "tools", "let the turn call the tools of `FILE`, JSON lines")
	f.Var(duration(&a.callTimeout), "call-timeout", "let a call of a model or tool take this `TIME` (default 10m)")
}

// check refuses a model beside a script, for which model was asked.
func (t turnFlags) check(model string) error {
	if t.script != "" && model != "" && model != scriptModel {
		return usagef("--script is a model of its own; leave --model or --script out")
	}
	return nil
}

// model is the model of a turn for which model was asked.
func (t turnFlags) model(model string) string {
	if t.script != "" {
		return scriptModel
	}
	return model
}

// turn runs one turn and reports how it ended, or what it waits for.
func (a *app) turn(ctx context.Context, h *edge.Host, files turnFlags, run func() (host.Execution, error)) error {
	a.turning.Store(true)
	e, err := run()
	a.turning.Store(false)
	switch {
	case errors.Is(err, host.ErrNotFound):
		// The session is there; so it is its turn's model or tool that is not.
		return &adviceError{err, a.agentctl("resume") + " --script FILE gives it the model script, --tools FILE the tools"}
	case err != nil:
		return err
	case e.State == "" && len(e.Waiting) > 0:
		return a.awaiting(ctx, h, files, e)
	case e.State != abi.StateCompleted:
		return &turnError{e}
	}
	return nil
}

// resume recovers the open turn of a session.
func (a *app) resume(ctx context.Context, h *edge.Host, uid abi.SessionID, observe func(host.Update)) (host.Execution, error) {
	return h.Exec(ctx, host.ExecRequest{Session: uid, CallTimeout: a.callTimeout, Observe: observe})
}

// awaitingError is a turn that is parked: it has not ended, and nothing is held
// for it.
type awaitingError struct {
	session host.Session
	waits   []waitJSON
	next    string
}

func (e *awaitingError) Error() string {
	var texts []string
	for _, w := range e.waits {
		if !w.Settled {
			texts = append(texts, "awaiting "+w.String())
		}
	}
	return strings.Join(texts, "\n")
}

// awaiting tells what a turn waits for, and what ends that.
func (a *app) awaiting(ctx context.Context, h *edge.Host, files turnFlags, e host.Execution) error {
	waits, err := waitsOf(ctx, h, e.Session)
	if err != nil {
		return err
	}
	if a.ref == "" {
		a.ref = e.Session.Name
	}
	if a.ref == "" {
		a.ref = string(e.Session.UID)
	}
	if a.json {
		a.object(newAwaitingJSON(e.Session, waits))
	}
	return &awaitingError{e.Session, waits, a.endsWait(waits, files)}
}

// parked is err, that a parked turn takes no new input, with what to do about it.
func (a *app) parked(ctx context.Context, h *edge.Host, s host.Session, files turnFlags, err error) error {
	waits, waitsErr := waitsOf(ctx, h, s)
	if waitsErr != nil {
		return errors.Join(err, waitsErr)
	}
	return &adviceError{err, a.endsWait(waits, files) + "; " + a.agentctl("exec") + " --abandon --input TEXT drops the turn for a new one"}
}

// endsWait is what to do about the first of what a turn waits for.
func (a *app) endsWait(waits []waitJSON, files turnFlags) string {
	open := slices.DeleteFunc(slices.Clone(waits), func(w waitJSON) bool { return w.Settled })
	if len(open) == 0 {
		return a.agentctl("resume") + " goes on with it"
	}
	tail := ""
	if a.tools != "" {
		tail += " --tools " + shellWord(a.tools)
	}
	if files.script != "" {
		tail += " --script " + shellWord(files.script)
	}
	w := open[0]
	switch {
	case w.Tool != "":
		if len(open) > 1 {
			tail = " --call " + typed(w.CallID, "ID") + tail
		}
		if w.Proposed != nil {
			tail = " --edit-args " + typed(string(w.Proposed), "JSON") + tail
		}
		if w.Approvers > 1 {
			tail = " --as NAME" + tail
		}
		return a.agentctl("approve") + tail + " allows it; deny in place of approve refuses it"
	case w.Signal != "":
		if strings.HasPrefix(w.Signal, "-") {
			tail += " --" // so that the name is not taken for a flag
		}
		return a.agentctl("signal") + tail + " " + typed(w.Signal, "NAME") + " ends the wait"
	}
	return a.agentctl("resume") + tail + " goes on when that time has come"
}

// typed is a word that a model or a guest made up, as one may type it: what
// would not look like itself on a terminal is left for a person to fill in.
func typed(word, placeholder string) string {
	const most = 100
	if len(word) > most || oneLine(word) != word {
		return placeholder
	}
	return shellWord(word)
}

// waitJSON is something that a turn waits for: of a call with its arguments, and with
// those that people who must approve it together have edited.
type waitJSON struct {
	host.Waiting
	Request  int64      `json:"request_seq,omitempty"`
	Args     abi.Struct `json:"args,omitempty"`
	Proposed abi.Struct `json:"proposed,omitempty"`
}

// String says what is waited for.
func (w waitJSON) String() string {
	if w.Tool == "" {
		return waitText(w.Signal, w.Until)
	}
	text := fmt.Sprintf("approval of call %q to %s", w.CallID, spaced(w.Tool, string(w.Args)))
	if w.Approvers > 1 {
		text += ", " + approvedText(w.Approvers, w.Approved, w.Proposed)
	}
	if !w.Until.IsZero() {
		text += ", until " + w.Until.Format(timeFormat)
	}
	if w.Reason != "" {
		text += ": " + w.Reason
	}
	return text
}

// approvedText is how many of those who must have approved a call.
func approvedText(approvers int, approved []string, proposed abi.Struct) string {
	text := fmt.Sprintf("%d of %d", len(approved), approvers)
	if len(approved) == 0 {
		return text
	}
	text += " (" + strings.Join(approved, ", ")
	if proposed != nil {
		text += ", edited to " + string(proposed)
	}
	return text + ")"
}

// waitsOf is what a session waits for, with the arguments of its calls.
func waitsOf(ctx context.Context, h *edge.Host, s host.Session) ([]waitJSON, error) {
	calls, err := h.Approvals(ctx, s.UID)
	if err != nil {
		return nil, err
	}
	waits := make([]waitJSON, len(s.Waiting))
	for i, w := range s.Waiting {
		waits[i].Waiting = w
		for _, c := range calls {
			if c.Call.ID == w.CallID {
				waits[i].Request, waits[i].Args, waits[i].Proposed = int64(c.Seq), c.Call.Args, c.Proposed
			}
		}
	}
	return waits, nil
}

// newAwaitingJSON is the object of a session with all that is known of its waits.
func newAwaitingJSON(s host.Session, waits []waitJSON) sessionJSON {
	out := newSessionJSON(s)
	out.Waiting = waits
	return out
}

// stateText is a session's state in a word, and for a parked turn in a second
// one what for. One that can go on, because nobody decided in time, says so.
func stateText(s host.Session, now time.Time) string {
	switch {
	case s.Suspended:
		return string(s.State) + " suspended"
	case s.State == host.ExecInterrupted && slices.ContainsFunc(s.Waiting, func(w host.Waiting) bool {
		return w.Tool != "" && !w.Settled && !w.Until.IsZero() && !now.Before(w.Until.Time)
	}):
		return string(s.State) + " approval expired"
	case s.State != host.ExecAwaiting:
		return string(s.State)
	}
	what := "time"
	switch w := s.Waiting[0]; {
	case w.Tool != "" && !w.Until.IsZero():
		what = "approval, " + age(w.Until.Sub(now)) + " left"
	case w.Tool != "":
		what = "approval"
	case w.Signal != "":
		what = "signal"
	}
	return string(s.State) + " " + what
}

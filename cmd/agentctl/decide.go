package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

type decideOptions struct {
	session  sessionFlag
	call     string
	reason   string
	as       string
	args     string
	noResume bool
	files    turnFlags
	approved bool
}

const decideHelp = `The decision is recorded, with who decided and why. Then the turn goes on as with agentctl resume: it
wants --tools and --script again, if it had them. Should it not be able to go on, the decision stands all
the same and agentctl resume goes on later. --no-resume leaves that to somebody else. While another
agentctl has the store, that one records the decision, and goes on by itself if it resumes what it can.

The same decision again changes nothing; another one is refused, and so is one that comes after the
request has expired. If several calls wait, --call says which one is meant; agentctl approvals shows
them all. Where several people must approve a call, it waits until they have; one who denies it is enough.`

const editHelp = `

--edit-args lets the call happen with other arguments: a JSON object in place of the one that was asked
for. They are recorded as such, and the harness is told. Where several people must approve, their
approvals count for equal arguments only.`

func newApproveCommand(a *app) *cobra.Command {
	opts := decideOptions{approved: true}
	cmd := &cobra.Command{
		Use:   "approve --session S [--call ID] [--edit-args JSON|@file|-]",
		Short: "Let a tool call happen that waits for approval",
		Long:  "approve lets a tool call of a parked turn happen.\n\n" + decideHelp + editHelp,
		Example: `  agentctl approve gated --call c1 --edit-args '{"table":"users_old"}' --no-resume
  agentctl approve --session gated --call c2 --tools tools.jsonl --script calls.jsonl`,
	}
	decideCommand(a, &opts, cmd)
	cmd.Flags().Var(text(&opts.args, ""), "edit-args", "make the call with these arguments: a `JSON` object, - for stdin, or @file")
	return cmd
}

func newDenyCommand(a *app) *cobra.Command {
	var opts decideOptions
	return decideCommand(a, &opts, &cobra.Command{
		Use:   "deny --session S [--call ID]",
		Short: "Refuse a tool call that waits for approval",
		Long: "deny refuses a tool call of a parked turn. The harness is told so, with the reason, as the\n" +
			"call's result.\n\n" + decideHelp,
		Example: `  agentctl deny gated --call c1 --reason "not on a Friday" --no-resume
  agentctl deny --session gated --call c2 --tools tools.jsonl --script calls.jsonl`,
	})
}

func decideCommand(a *app, opts *decideOptions, cmd *cobra.Command) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runDecide(cmd.Context(), a, *opts) }
	opts.session.add(cmd)
	f := cmd.Flags()
	f.Var(text(&opts.call, ""), "call", "the `ID` of the call, if several wait")
	f.Var(text(&opts.reason, ""), "reason", "why: `TEXT` that is recorded, and that the harness of a denied call reads")
	f.Var(text(&opts.as, ""), "as", "who decides: a `NAME` that is recorded (default: the system's user)")
	f.BoolVar(&opts.noResume, "no-resume", false, "only record the decision")
	opts.files.add(cmd, a)
	return cmd
}

func runDecide(ctx context.Context, a *app, opts decideOptions) error {
	if !utf8.ValidString(opts.reason) || !utf8.ValidString(opts.as) {
		return usagef("--reason and --as go into the record: want UTF-8 text")
	}
	args, err := a.readDocument(ctx, "--edit-args", opts.args, `{"table":"users_old"}`, host.MaxArgsBytes)
	if err != nil {
		return err
	}
	opts.args = string(args)
	req := host.DecideRequest{Approved: opts.approved, Reason: opts.reason, Actor: a.actor(opts.as), Args: args}
	if err := a.decideThere(ctx, opts, req); !errors.Is(err, errNobody) {
		return err
	}
	return a.withSession(ctx, opts.files.script, opts.session.ref, func(h *edge.Host, s host.Session) error {
		call, err := a.callToDecide(s, opts)
		if errors.Is(err, host.ErrConflict) || errors.Is(err, host.ErrNotFound) {
			return a.decideAgain(ctx, h, s, opts, err)
		}
		if err != nil {
			return err
		}
		req.Session, req.CallID = s.UID, call
		asked, err := h.Approvals(ctx, s.UID)
		if err != nil {
			return err
		}
		after, err := h.Decide(ctx, req)
		if errors.Is(err, host.ErrExpired) {
			return &adviceError{err, a.agentctl("resume") + " goes on with the turn"}
		}
		if err != nil {
			return err
		}
		if after.Head.Seq == s.Head.Seq {
			a.note("call %q was %s before", call, decided(opts.approved))
		}
		if !opts.noResume {
			a.notePolicy(h, asked, call)
		}
		return a.settled(ctx, h, s, after, opts.files, opts.noResume)
	})
}

// notePolicy tells of a turn that goes on under another policy than the one under which
// people were asked, as after a --policy that was not given again.
func (a *app) notePolicy(h *edge.Host, asked []host.PendingCall, call string) {
	i := slices.IndexFunc(asked, func(p host.PendingCall) bool { return p.Call.ID == call })
	if i < 0 || asked[i].Policy.IsZero() {
		return
	}
	now, under := "without a policy", asked[i].Policy
	switch p, err := h.Policy(); {
	case err != nil, p != nil && p.Digest() == under:
		return // it does not go on, or under the same
	case p != nil:
		now = "under another"
	}
	a.note("people were asked under the policy %s, which %s --digest %.8s prints; the turn goes on %s", under, a.inPlace("policy show"), under, now)
}

// decideAgain is for a call that does not wait, which err says: it may have been
// decided so before, by a command whose end its caller did not see.
func (a *app) decideAgain(ctx context.Context, h *edge.Host, s host.Session, opts decideOptions, err error) error {
	decision, seq, readErr := decisionOn(ctx, h, s, opts.call)
	switch {
	case readErr != nil:
		return readErr
	case decision == nil:
		return err
	case decision.approved != opts.approved || decision.reason != opts.reason || !decision.hasArgs(opts.args):
		return fmt.Errorf("session %s: %w: seq %d has another decision on call %q", s.UID, host.ErrConflict, seq, opts.call)
	}
	a.note("call %q was %s before, at seq %d", opts.call, decided(opts.approved), seq)
	if len(s.Waiting) == 0 {
		return nil // nothing is held up by a decision
	}
	return a.settled(ctx, h, s, s, opts.files, opts.noResume)
}

// decision is what was decided on a call.
type decision struct {
	approved bool
	reason   string
	asked    abi.Struct // the arguments that it was about,
	edited   abi.Struct // and those in place of them
}

// hasArgs reports whether it was decided for these arguments; empty stands for those
// that were asked about.
func (d *decision) hasArgs(args string) bool {
	if args == "" {
		return d.edited == nil
	}
	recorded, err := recordedArgs(args)
	if d.edited == nil {
		return err == nil && bytes.Equal(recorded, d.asked)
	}
	return err == nil && bytes.Equal(recorded, d.edited)
}

// recordedArgs are arguments as the record has them.
func recordedArgs(args string) (abi.Struct, error) {
	encoded, err := abi.EncodeEvent(&abi.Event{Cell: &abi.Cell{Args: abi.Struct(args)}})
	if err != nil {
		return nil, err
	}
	e, err := abi.DecodeEvent(encoded)
	if err != nil {
		return nil, err
	}
	return e.Cell.Args, nil
}

// decisionOn is the last decision on a call in the session's newest turn.
func decisionOn(ctx context.Context, h *edge.Host, s host.Session, call string) (*decision, abi.Seq, error) {
	if call == "" || s.Head.Seq == 0 {
		return nil, 0, nil
	}
	var (
		last  *decision
		at    abi.Seq
		asked abi.Struct
	)
	for r, err := range h.Replay(ctx, s.UID, 1, s.Head.Seq) {
		if err != nil {
			return nil, 0, err
		}
		switch e := r.Event; {
		case e.ExecutionID != s.Execution:
		case e.Tool != nil && e.Tool.ID == call:
			asked = e.Tool.Args
		case e.Approval != nil && e.Approval.ToolCallID == call && e.Cell != nil && e.Cell.Args != nil:
			asked = e.Cell.Args
		case e.ApprovalResult != nil && e.ApprovalResult.ToolCallID == call:
			last, at = &decision{approved: e.ApprovalResult.Approved, reason: e.ApprovalResult.Reason, asked: asked}, r.Seq
			if e.Cell != nil {
				last.edited = e.Cell.Args
			}
		}
	}
	return last, at, nil
}

// callToDecide is the call that is meant, among those that wait. One that is
// decided stays in question as long as its turn has not gone on.
func (a *app) callToDecide(s host.Session, opts decideOptions) (string, error) {
	var ids, open []string
	for _, w := range s.Waiting {
		if w.Tool == "" {
			continue
		}
		if w.CallID == opts.call {
			return w.CallID, nil
		}
		ids = append(ids, w.CallID)
		if !w.Settled {
			open = append(open, w.CallID)
		}
	}
	switch {
	case len(ids) == 0:
		return "", &adviceError{
			fmt.Errorf("session %s: %w: no call waits for a decision", s.UID, host.ErrConflict),
			a.inPlace("approvals") + " shows what waits, in all sessions of the project",
		}
	case opts.call != "":
		return "", &adviceError{
			fmt.Errorf("session %s: call %q: %w among those that wait: %s", s.UID, opts.call, host.ErrNotFound, quoted(ids)),
			a.inPlace("approvals") + " shows what they are about",
		}
	case len(open) == 1:
		return open[0], nil
	case len(open) == 0 && len(ids) == 1:
		return ids[0], nil
	}
	return "", usagef("which call? %d wait: %s; name one with --call", len(ids), quoted(ids))
}

func quoted(texts []string) string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, ", ")
}

// actor is who decides.
func (a *app) actor(name string) *abi.IdentityRef {
	if name == "" {
		name = a.getenv("USER")
	}
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	if name == "" {
		return nil
	}
	return &abi.IdentityRef{Principal: name}
}

// goesOn is what becomes of a turn on which a decision was recorded, with a condition.
func (a *app) goesOn(s host.Session, condition string) string {
	if slices.ContainsFunc(s.Waiting, func(w host.Waiting) bool { return w.Settled }) {
		return a.agentctl("resume") + " goes on with the turn" + condition
	}
	return "the turn waits for more approvals"
}

// settled shows what was recorded since before, and goes on with the turn.
func (a *app) settled(ctx context.Context, h *edge.Host, before, after host.Session, files turnFlags, stay bool) error {
	if after.Head.Seq > before.Head.Seq {
		for r, err := range h.Replay(ctx, after.UID, before.Head.Seq+1, after.Head.Seq) {
			if err != nil {
				return err
			}
			a.record(r)
		}
		// Who reads the output sees it before the turn takes its time.
		_ = a.flush()
	}
	if stay {
		a.note("recorded; %s", a.goesOn(after, ""))
		return nil
	}
	return a.turn(ctx, h, files, func() (host.Execution, error) { return a.resume(ctx, h, after.UID, a.update) })
}

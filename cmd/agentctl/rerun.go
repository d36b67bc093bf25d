package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

type rerunOptions struct {
	session     sessionFlag
	from        int64
	name        string
	labels      map[string]string
	model       string
	system      string
	noLiveTools bool
	deadline    time.Duration
	files       turnFlags
	given       func(flag string) bool
}

func newRerunCommand(a *app) *cobra.Command {
	var opts rerunOptions
	cmd := &cobra.Command{
		Use:   "rerun --session S --from N [--model M] [--system P] [--no-live-tools]",
		Short: "Run the turns behind a point again on a branch, and serve recorded tool results",
		Long: `rerun makes a branch of a session at --from and runs the inputs again that the session had
behind that: on another model, with another system prompt, or as they were. So one sees what
would have come of the same conversation. The session itself stays as it is.

Tools are not called again where that can be helped. A call with the name and the arguments of
a recorded one gets the recorded result, the second such call the second result, and so on;
nobody is asked about it, and the branch's record says where the result is from. Other calls
are made, or with --no-live-tools end the turn FAILED.

--from 1 runs all turns again. A point inside a turn leaves that turn open in the branch,
which runs it on first; such a turn keeps its model and prompt. --system takes the place
of "system" in the harness's config.

A turn that fails, or is parked, stops the rerun. Without --from, a session that is such a
branch goes on where it was stopped, also where its process was killed.`,
		Example: `  agentctl rerun --session demo --from 1
  agentctl rerun demo --from 1 --model echo --name other
  agentctl rerun demo --from 1 --no-live-tools
  agentctl rerun other
  agentctl diff demo other`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.given = cmd.Flags().Changed
			return runRerun(cmd.Context(), a, opts)
		},
	}
	opts.session.add(cmd)
	f := cmd.Flags()
	f.Int64Var(&opts.from, "from", 0, "make a branch at seq `N` and run what is behind it again")
	f.Var(text(&opts.name, ""), "name", "name `N` of the branch, unique in its project")
	f.Var(labelsFlag{labels: &opts.labels}, "label", "label `KEY=VALUE` of the branch; may be given several times")
	f.Var(text(&opts.model, ""), "model", "ask the model `M` in place of those that the turns had")
	f.StringVar(&opts.system, "system", "", "give the harness the system prompt `TEXT`, or that of @file")
	f.BoolVar(&opts.noLiveTools, "no-live-tools", false, "fail a turn that asks for a call without recorded result")
	f.Var(duration(&opts.deadline), "deadline", "fail a turn after this `TIME` (default 10m)")
	opts.files.add(cmd, a)
	return cmd
}

// request checks the flags and is what they ask for.
func (o *rerunOptions) request(ctx context.Context, a *app) (host.RerunRequest, error) {
	if err := o.files.check(o.model); err != nil {
		return host.RerunRequest{}, err
	}
	if !o.given("from") {
		for _, flag := range []string{"name", "label", "model", "system", "no-live-tools"} {
			if o.given(flag) {
				return host.RerunRequest{}, usagef("--%s is about a new branch, which begins --from a seq: --from 1 runs all turns again", flag)
			}
		}
		return host.RerunRequest{}, nil
	}
	if o.from < 1 {
		return host.RerunRequest{}, usagef("bad seq %d for --from: the first record is seq 1, behind which are all turns", o.from)
	}
	req := host.RerunRequest{
		From: abi.Seq(o.from), Name: o.name, Labels: o.labels, NoLiveTools: o.noLiveTools, TurnModel: o.files.model(""),
	}
	if o.files.script == "" {
		req.Model = o.model // a script is a model of the turns' alone
	}
	if o.given("system") {
		req.System = &o.system
		if o.system != "" {
			messages, err := a.readInputs(ctx, "--system", []string{o.system})
			if err != nil {
				return req, err
			}
			*req.System = messages[0].Text()
		}
	}
	return req, nil
}

func runRerun(ctx context.Context, a *app, opts rerunOptions) error {
	req, err := opts.request(ctx, a)
	if err != nil {
		return err
	}
	a.stays = true
	return a.withSession(ctx, opts.files.script, opts.session.ref, func(h *edge.Host, s host.Session) error {
		if opts.given("from") {
			if _, err := h.Policy(); err != nil {
				return err
			}
			req.Session = s.UID
			if s, err = h.BeginRerun(ctx, req); err != nil {
				return a.notBegun(ctx, h, req, err)
			}
			if a.json {
				a.object(newSessionJSON(s))
			} else {
				a.line(childLine(s))
			}
			a.ref = calledName(s)
		}
		state, err := h.Rerun(ctx, s.UID)
		if errors.Is(err, host.ErrConflict) {
			return usagef("from where? --from N names the point, such as --from 1 for all turns; %s shows the record", a.agentctl("replay"))
		}
		if err != nil {
			return err
		}
		return a.runAgain(ctx, h, s, state, opts)
	})
}

// notBegun says what to do about a branch that could not be made.
func (a *app) notBegun(ctx context.Context, h *edge.Host, req host.RerunRequest, err error) error {
	switch {
	case errors.Is(err, host.ErrExists):
		uid, there := h.Resolve(ctx, a.project, req.Name)
		if there != nil {
			break
		}
		if state, isRerun := h.Rerun(ctx, uid); isRerun == nil && state.Of == req.Session {
			return &adviceError{err, a.inPlace("rerun") + " --session " + req.Name + " goes on with it"}
		}
		return &adviceError{err, "choose another name for the branch"}
	case errors.Is(err, host.ErrNotFound) && req.TurnModel == "":
		return &adviceError{err, "--model M runs the turns on another model, --script FILE on the lines of a file"}
	}
	return err
}

// runAgain runs what is left of a rerun, and sums up.
func (a *app) runAgain(ctx context.Context, h *edge.Host, s host.Session, state host.Rerun, opts rerunOptions) error {
	goOn := a.agentctl("rerun") + " goes on with the turns behind it"
	for turn := state.Begun; ; turn++ {
		if state.Open {
			turn, state.Open = max(turn-1, 0), false
		}
		if turn < state.Turns {
			a.note("turn %d of %d", turn+1, state.Turns)
		}
		if err := a.flush(); err != nil && !errors.Is(err, errReaderGone) {
			return err
		}
		err := a.turn(ctx, h, opts.files, func() (host.Execution, error) {
			return h.RunAgain(ctx, host.RunAgainRequest{
				Session: s.UID, Model: opts.files.model(""), Deadline: opts.deadline, CallTimeout: a.callTimeout, Observe: a.update,
			})
		})
		if errors.Is(err, host.ErrNothingOpen) {
			break
		}
		if err != nil {
			if turn+1 >= state.Turns {
				goOn = a.agentctl("rerun") + " sums up"
			}
			return stopped(err, goOn)
		}
	}
	return a.summary(ctx, h, s, state)
}

// stopped is the error of a turn that stopped a rerun, with how to go on.
func stopped(err error, goOn string) error {
	var awaiting *awaitingError
	var ended *turnError
	switch {
	case errors.As(err, &awaiting):
		awaiting.next += "; then " + goOn
		return err
	case errors.As(err, &ended) && ended.Reason == abi.ReasonUnrecorded:
		goOn = "a rerun without --no-live-tools, where that tool is, makes the call; " + goOn
	case errors.Is(err, host.ErrNotFound), errors.As(err, &ended) && ended.Reason == abi.ReasonBudget:
		return err // whose advice comes first
	}
	return &adviceError{err, goOn}
}

type rerunJSON struct {
	Rerun abi.SessionID `json:"rerun"`
	Of    abi.SessionID `json:"of"`
	From  int64         `json:"from"`
	Until int64         `json:"until"`
	// What both took behind the point, the branch's last.
	A tallyJSON `json:"a"`
	B tallyJSON `json:"b"`
}

// summary tells what the turns took, and the first time.
func (a *app) summary(ctx context.Context, h *edge.Host, s host.Session, state host.Rerun) error {
	of, err := h.Get(ctx, state.Of)
	if err != nil {
		return err
	}
	before, err := tallyBehind(ctx, h, state.Of, state.At)
	if err != nil {
		return err
	}
	again, err := tallyBehind(ctx, h, s.UID, state.At)
	if err != nil {
		return err
	}
	if err := before.all(h.Replay(ctx, state.Of, state.At+1, state.Until)); err != nil {
		return err
	}
	if err := again.all(h.Replay(ctx, s.UID, state.At+1, 0)); err != nil {
		return err
	}
	if a.json {
		a.object(rerunJSON{s.UID, state.Of, int64(state.At), int64(state.Until), before.json(), again.json()})
		return nil
	}
	names := [2]string{calledName(of), calledName(s)}
	a.totals(fmt.Sprintf("behind seq %d", state.At), names, [2]*tally{before, again})
	a.note("%s %s %s shows both side by side", a.inPlace("diff"), names[0], names[1])
	return nil
}

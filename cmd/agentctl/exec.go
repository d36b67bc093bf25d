package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

type execOptions struct {
	newSessionFlags
	inputs   []string
	session  string
	key      string
	files    turnFlags
	deadline time.Duration
	expect   int64
	abandon  bool
	wait     bool
	given    func(flag string) bool
}

func newExecCommand(a *app) *cobra.Command {
	var opts execOptions
	cmd := &cobra.Command{
		Use:   "exec [--session S | --from-snapshot NAME] --input TEXT|-|@file",
		Short: "Run one turn of a session, and make the session if none is named",
		Long: `exec runs one turn and prints its records as they become durable. Without
--session it makes a session first and prints its uid. Without --input it recovers
the session's interrupted turn: what was recorded is served, the rest runs live.

--input is the text itself, - for stdin, or @file; one line break at the end of
stdin or a file is dropped. Given several times, the turn gets several messages.
--script answers model calls from a file of JSON lines, for tests and demos; line n
answers the session's n-th call: {"text","chunks","delay_ms","error","hang","usage"}.
--tools gives the turn tools from such a file, one a line: {"name","description",
"input_schema","approval","on_crash","delay_ms"} and output, echo, error or hang.

A turn that waits for a decision, a time or a signal is parked: the session is AWAITING,
nothing is held, and exec ends with exit code 8 and says what ends the wait.

--name, --harness, --label, --limit and the budgets are for a new session; an existing one
keeps its own. --model and --config are kept with a new session and else hold for this turn only.
With --from-snapshot the new session begins from a point that agentctl save has kept; if
a turn is open there, exec without --input runs it on.

--deadline bounds the turn without what its calls of models and tools take, each of which
--call-timeout bounds: one that takes longer has failed, and the harness is told.

With --key a request may be sent again: of all requests of a session with one key, one
runs, and the others get its records and its end.

Ctrl-C or SIGTERM cancels the turn, which ends CANCELED. A further Ctrl-C leaves at
once: the session is INTERRUPTED and can be resumed.`,
		Example: `  agentctl exec --input "hello"
  agentctl exec --session demo --input "and again"
  agentctl exec --session demo --input "when it is free" --wait
  echo 40 2 | agentctl exec --harness counter --name sums --input -
  agentctl exec --session sums --input @question.txt --deadline 30s
  agentctl exec --session demo --input "what next?" --script answers.jsonl --json
  agentctl exec --session demo --input "pay the bill" --key order-66
  agentctl exec --harness tools --input "what time is it?" --script answers.jsonl --tools tools.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("exec takes no argument %q; the input goes into --input", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.given = cmd.Flags().Changed
			return runExec(cmd.Context(), a, opts)
		},
	}
	opts.newSessionFlags.add(cmd)
	opts.addFrom(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&opts.inputs, "input", nil, "the input: `TEXT`, - for stdin, or @file")
	f.Var(text(&opts.key, ""), "key", "run at most one turn for all requests of the session with the key `K`")
	f.Var(text(&opts.session, ""), "session", "go on with session `S`: its uid, a unique prefix of it, or its name")
	opts.files.add(cmd, a)
	f.Var(duration(&opts.deadline), "deadline", "fail the turn after this `TIME`, such as 30s (default 10m)")
	f.Int64Var(&opts.expect, "expect-seq", 0, "refuse unless the session's last record is seq `N`")
	f.BoolVar(&opts.wait, "wait", false, "wait for another agentctl that has the store, and for the session's turn to end")
	f.BoolVar(&opts.abandon, "abandon", false, "end an interrupted turn as CANCELED before the new input, if any")
	return cmd
}

// check refuses combinations that mean nothing, before anything is opened.
func (o *execOptions) check() error {
	given := o.given
	if err := o.newSessionFlags.check(given); err != nil {
		return err
	}
	switch {
	case o.session != "" && given("name"):
		return usagef("--name only names a new session; leave --name or --session out")
	case o.session != "" && given("harness"):
		return usagef("a session keeps the harness it was made with; leave --harness or --session out")
	case o.session != "" && (given("label") || given("limit")):
		return usagef("a session keeps the labels and limits it was made with; leave --label and --limit or --session out")
	case o.session != "" && given("grant"):
		return usagef("a session keeps the tools it was granted; leave --grant or --session out")
	case o.session != "" && given("retain"):
		return usagef("a session keeps the images it was made to keep; leave --retain or --session out")
	case o.session != "" && (given("budget") || given("tree-budget")):
		return usagef("--budget and --tree-budget are for a new session; agentctl budget changes that of another")
	case o.session != "" && o.from != "":
		return usagef("--from-snapshot makes a new session; leave --from-snapshot or --session out")
	case o.session == "" && o.from == "" && !given("input"):
		return usagef("no input: give --input a text, - for stdin, or @file; to recover an interrupted turn, name its --session")
	case o.session == "" && (given("expect-seq") || o.abandon || o.key != ""):
		return usagef("--expect-seq, --abandon and --key are about an existing session; name it with --session")
	case o.key != "" && !given("input"):
		return usagef("a key is that of a turn with input; leave --key out, or give an --input")
	case !given("input") && (given("model") || given("config")):
		return usagef("a recovered turn keeps its recorded model and config; leave --model and --config out, or give an --input")
	case o.expect < 0:
		return usagef("bad seq %d for --expect-seq: want 0 or more", o.expect)
	}
	return o.files.check(o.model)
}

func runExec(ctx context.Context, a *app, opts execOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	inputs, err := a.readInputs(ctx, "--input", opts.inputs)
	if errors.Is(err, errNoText) {
		return usagef("%w; leave it out to recover an interrupted turn", err)
	}
	if err != nil {
		return err
	}
	if err := host.CheckInputs(inputs); err != nil {
		return err // before a session is made for them
	}
	a.waits, opts.runs = opts.wait, true
	req := host.ExecRequest{Inputs: inputs, Deadline: opts.deadline, CallTimeout: a.callTimeout, Abandon: opts.abandon, Wait: opts.wait, Observe: a.update}
	if opts.given("expect-seq") {
		expect := abi.Seq(opts.expect)
		req.Expect = &expect
	}
	req.Model, req.Key = opts.files.model(""), opts.key
	if opts.session == "" && opts.from == "" {
		return opts.make(ctx, a, opts.files.script, func(h *edge.Host, s host.Session) error {
			return a.firstTurn(ctx, h, s, opts.files, req)
		})
	}
	if req.Config, err = readConfig(ctx, opts.config); err != nil {
		return err
	}
	if opts.model != "" {
		req.Model = opts.model
	}
	if opts.from != "" {
		return execFrom(ctx, a, opts, req)
	}
	err = a.withSession(ctx, opts.files.script, opts.session, func(h *edge.Host, s host.Session) error {
		req.Session = s.UID
		err := a.turn(ctx, h, opts.files, func() (host.Execution, error) {
			e, err := h.Exec(ctx, req)
			if e.Repeated {
				a.note("the key had run before: this is its turn %s", e.ID)
			}
			return e, err
		})
		if errors.Is(err, host.ErrConflict) && req.Key != "" && req.Expect == nil {
			return &adviceError{err, "another request takes another --key; " + a.agentctl("replay") + " shows what that turn was given"}
		}
		if errors.Is(err, host.ErrOpenTurn) && s.State == host.ExecAwaiting {
			return a.parked(ctx, h, s, opts.files, err)
		}
		return err
	})
	var ended *turnError
	if errors.As(err, &ended) && ended.Reason == abi.ReasonAbandoned {
		return nil // as asked
	}
	return err
}

// execFrom makes the session that the turn runs in from a snapshot.
func execFrom(ctx context.Context, a *app, opts execOptions, req host.ExecRequest) error {
	return a.withSnapshot(ctx, opts.files.script, opts.from, func(h *edge.Host, saved host.Snapshot) error {
		switch {
		case saved.Open && len(req.Inputs) > 0:
			return usagef("a turn is open in snapshot %q; leave --input out to run it on", saved.Name)
		case !saved.Open && len(req.Inputs) == 0:
			return usagef("no turn is open in snapshot %q; give an --input", saved.Name)
		}
		return opts.makeFrom(ctx, a, h, func(h *edge.Host, s host.Session) error {
			return a.firstTurn(ctx, h, s, opts.files, req)
		})
	})
}

// firstTurn runs a turn of a session that was just made, and is named first.
func (a *app) firstTurn(ctx context.Context, h *edge.Host, s host.Session, files turnFlags, req host.ExecRequest) error {
	a.session(s)
	if err := a.flush(); err != nil && !errors.Is(err, errReaderGone) {
		return err
	}
	req.Session = s.UID
	return a.turn(ctx, h, files, func() (host.Execution, error) { return h.Exec(ctx, req) })
}

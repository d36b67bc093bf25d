package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// newSessionFlags say what a new session is made of.
type newSessionFlags struct {
	harness string
	name    string
	model   string
	config  string
	labels  map[string]string
	limits  abi.Limits
}

func (n *newSessionFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(text(&n.harness, defaultHarness), "harness", "harness of a new session: a bundled or pushed `NAME`, or a .wasm file")
	f.Var(text(&n.name, ""), "name", "name `N` of a new session, unique in its project")
	f.Var(text(&n.model, ""), "model", "model `M` for calls that name none (default: the session's, or echo)")
	f.Var(text(&n.config, ""), "config", "the harness's config: `JSON` or @file")
	f.Var(labelsFlag{labels: &n.labels}, "label", "label `KEY=VALUE` of a new session, by which list finds it; may be given several times")
	f.Var(limitsFlag{&n.limits}, "limit", "bound `NAME=VALUE` of each turn of a new session: "+strings.Join(limitNames(), ", "))
	// It fails for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc("limit", limitWords)
}

// request is the CreateRequest of the flags. Its harness may want to be completed.
func (n *newSessionFlags) request(ctx context.Context, a *app) (host.CreateRequest, error) {
	config, err := readConfig(ctx, n.config)
	if err != nil {
		return host.CreateRequest{}, err
	}
	harness, err := a.loadHarness(ctx, n.harness)
	if err != nil {
		return host.CreateRequest{}, err
	}
	return host.CreateRequest{
		Project: a.project, Name: n.name, Harness: harness, Model: n.model, Config: config,
		Labels: n.labels, Limits: n.limits,
	}, nil
}

type execOptions struct {
	newSessionFlags
	inputs   []string
	session  string
	files    turnFlags
	deadline time.Duration
	expect   int64
	abandon  bool
	given    func(flag string) bool
}

func newExecCommand(a *app) *cobra.Command {
	var opts execOptions
	cmd := &cobra.Command{
		Use:   "exec [--session S] --input TEXT|-|@file",
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

--name, --harness, --label and --limit are for a new session; an existing one keeps its
own. --model and --config are kept with a new session and else hold for this turn only.

Ctrl-C cancels the turn, which ends CANCELED. A second one leaves at once: the
session is INTERRUPTED and can be resumed.`,
		Example: `  agentctl exec --input "hello"
  agentctl exec --session demo --input "and again"
  echo 40 2 | agentctl exec --harness counter --name sums --input -
  agentctl exec --session sums --input @question.txt --deadline 30s
  agentctl exec --session demo --input "what next?" --script answers.jsonl --json
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
	f := cmd.Flags()
	f.StringArrayVar(&opts.inputs, "input", nil, "the input: `TEXT`, - for stdin, or @file")
	f.Var(text(&opts.session, ""), "session", "go on with session `S`: its uid, a unique prefix of it, or its name")
	opts.files.add(cmd, a)
	f.DurationVar(&opts.deadline, "deadline", 0, "fail the turn after this `TIME`, such as 30s (default 10m)")
	f.Int64Var(&opts.expect, "expect-seq", 0, "refuse unless the session's last record is seq `N`")
	f.BoolVar(&opts.abandon, "abandon", false, "end an interrupted turn as CANCELED before the new input, if any")
	return cmd
}

// check refuses combinations that mean nothing, before anything is opened.
func (o *execOptions) check() error {
	given := o.given
	switch {
	case o.session != "" && given("name"):
		return usagef("--name only names a new session; leave --name or --session out")
	case o.session != "" && given("harness"):
		return usagef("a session keeps the harness it was made with; leave --harness or --session out")
	case o.session != "" && (given("label") || given("limit")):
		return usagef("a session keeps the labels and limits it was made with; leave --label and --limit or --session out")
	case o.session == "" && !given("input"):
		return usagef("no input: give --input a text, - for stdin, or @file; to recover an interrupted turn, name its --session")
	case o.session == "" && (given("expect-seq") || o.abandon):
		return usagef("--expect-seq and --abandon are about an existing session; name it with --session")
	case !given("input") && (given("model") || given("config")):
		return usagef("a recovered turn keeps its recorded model and config; leave --model and --config out, or give an --input")
	case given("deadline") && o.deadline <= 0:
		return usagef("--deadline is %v; want a time above 0, such as 30s", o.deadline)
	case o.expect < 0:
		return usagef("bad seq %d for --expect-seq: want 0 or more", o.expect)
	case o.files.script != "" && o.model != "" && o.model != scriptModel:
		return usagef("--script is a model of its own; leave --model or --script out")
	}
	return nil
}

func runExec(ctx context.Context, a *app, opts execOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	inputs, err := a.readInputs(ctx, opts.inputs)
	if err != nil {
		return err
	}
	if err := host.CheckInputs(inputs); err != nil {
		return err // before a session is made for them
	}
	req := host.ExecRequest{Inputs: inputs, Deadline: opts.deadline, Abandon: opts.abandon, Observe: a.update}
	if opts.given("expect-seq") {
		expect := abi.Seq(opts.expect)
		req.Expect = &expect
	}
	if opts.files.script != "" {
		req.Model = scriptModel
	}
	if opts.session == "" {
		return execNew(ctx, a, opts, req)
	}
	if req.Config, err = readConfig(ctx, opts.config); err != nil {
		return err
	}
	if opts.model != "" {
		req.Model = opts.model
	}
	err = a.withSession(ctx, opts.files.script, opts.session, func(h *edge.Host, s host.Session) error {
		req.Session = s.UID
		err := a.turn(ctx, h, opts.files, func() (host.Execution, error) { return h.Exec(ctx, req) })
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

// execNew makes the session that the turn runs in.
func execNew(ctx context.Context, a *app, opts execOptions, req host.ExecRequest) error {
	create, err := opts.request(ctx, a)
	if err != nil {
		return err
	}
	return a.with(ctx, opts.files.script, func(h *edge.Host) error {
		if err := completeHarness(ctx, h, &create.Harness); err != nil {
			return err
		}
		s, err := h.Create(ctx, create)
		if err != nil {
			return err
		}
		a.session(s)
		if err := a.flush(); err != nil && !errors.Is(err, errReaderGone) {
			return err
		}
		req.Session = s.UID
		return a.turn(ctx, h, opts.files, func() (host.Execution, error) { return h.Exec(ctx, req) })
	})
}

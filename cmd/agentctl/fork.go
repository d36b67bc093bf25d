package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

type forkOptions struct {
	session sessionFlag
	at      int64
	count   int
	names   []string // as given, each a list
	labels  map[string]string
	fan     fanOutFlags
	given   func(flag string) bool
}

func newForkCommand(a *app) *cobra.Command {
	var opts forkOptions
	cmd := &cobra.Command{
		Use:   "fork --session S [--at N] [--count K] [--names a,b] [--model M] [--run TEXT|--inputs FILE]",
		Short: "Make children that go on from one point of a session",
		Long: `fork makes children of a session. Each goes on by itself from the record at --at,
with the memory the session had there; the parent stays as it is and may even be
running. Without --at the point is the head, or the last closed point while a turn is
open; it is named on stderr. The labels of children are those of --label alone.

A point inside a turn leaves that turn open in the children: exec without --input runs
it over the record up to there, calls no model for what is recorded, and goes on live.
Of a turn that is parked there, each child waits, and is decided on, by itself.

--model gives the children another model than their parent's: a branch can be run again
on it. Their first record names it. An open turn keeps its model.

With --run each child runs a turn on that input, with --inputs there is a child for each
line of a file, which is its input: the best of many, or many questions, in one command. So
many run side by side as --parallel says, and a table shows what came of them. The
exit code is that of the turn that went worst.

With --key the same command may be given again, whatever has become of it: the children are
made once, and each runs its turn once; what was cut short is taken up, what had not begun
is run. With --run or --inputs there is always a key, which is told of at once if none is given.`,
		Example: `  agentctl fork --session demo
  agentctl fork demo --count 2 --names left,right --label try=2
  agentctl fork demo --at 5
  agentctl fork demo --model echo
  agentctl fork demo --count 3 --run "try again, another way"
  agentctl fork demo --inputs questions.txt --parallel 8
  agentctl fork demo --count 3 --run "try again" --key tries-1`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.given = cmd.Flags().Changed
			return runFork(cmd.Context(), a, opts)
		},
	}
	opts.session.add(cmd)
	f := cmd.Flags()
	f.Int64Var(&opts.at, "at", 0, "fork at seq `N` (default: the last closed point)")
	f.IntVar(&opts.count, "count", 1, fmt.Sprintf("make `K` children, at most %d", host.MaxForkCount))
	f.StringArrayVar(&opts.names, "names", nil, "names of the children, as many as there are: `a,b`")
	f.Var(labelsFlag{labels: &opts.labels}, "label", "label `KEY=VALUE` of the children; may be given several times")
	opts.fan.add(cmd, a)
	return cmd
}

// request checks the flags and is what they ask for.
func (o *forkOptions) request() (host.ForkRequest, error) {
	var names []string
	for _, list := range o.names {
		names = append(names, strings.Split(list, ",")...)
	}
	count := o.count
	if !o.given("count") && !o.given("inputs") && len(names) > 0 {
		count = len(names)
	}
	sorted := slices.Sorted(slices.Values(names))
	switch {
	case o.given("at") && o.at < 1:
		return host.ForkRequest{}, usagef("bad seq %d for --at: the first record is seq 1", o.at)
	case count < 1 || count > host.MaxForkCount:
		return host.ForkRequest{}, usagef("cannot make %d children: want 1 to %d", count, host.MaxForkCount)
	case slices.Contains(names, ""):
		return host.ForkRequest{}, usagef("--names has an empty name; want names with commas between them, such as left,right")
	case o.given("names") && len(names) != count:
		return host.ForkRequest{}, usagef("%d names for %d children: give each a name, or none", len(names), count)
	case len(slices.Compact(sorted)) != len(names):
		return host.ForkRequest{}, usagef("--names has a name twice; names are unique in a project")
	}
	req := host.ForkRequest{At: abi.Seq(o.at), Count: count, Names: names, Labels: o.labels, Key: o.fan.key}
	if o.fan.files.script == "" {
		req.Model = o.fan.model // a script is a model of the turn's alone
	}
	return req, nil
}

func runFork(ctx context.Context, a *app, opts forkOptions) error {
	inputs, err := opts.fan.read(ctx, a, opts.given)
	if err != nil {
		return err
	}
	if opts.given("inputs") {
		if opts.given("count") && opts.count != len(inputs) {
			return usagef("--inputs %s has %d lines, --count is %d; leave --count out", opts.fan.inputs, len(inputs), opts.count)
		}
		opts.count = len(inputs)
	}
	req, err := opts.request()
	if err != nil {
		return err
	}
	a.stays = inputs != nil
	if a.stays && req.Key == "" {
		opts.fan.key = rand.Text()
		req.Key = opts.fan.key
	}
	return a.withSession(ctx, opts.fan.files.script, opts.session.ref, func(h *edge.Host, parent host.Session) error {
		req.Session = parent.UID
		if parent.Head.Seq < req.At {
			return fmt.Errorf("bad seq %d: session %s ends at seq %d: %w", req.At, parent.UID, parent.Head.Seq, host.ErrNotFound)
		}
		if inputs != nil {
			if _, err := h.Policy(); err != nil {
				return err
			}
			if err := closedPoint(ctx, h, parent, req.At); err != nil {
				return err
			}
		}
		children, err := h.Fork(ctx, req)
		if err != nil && inputs == nil {
			return a.noPoint(err, parent)
		}
		if err != nil {
			return err
		}
		if req.At == 0 {
			point := "the head"
			if children[0].ForkSeq != parent.Head.Seq {
				point = "the last closed point; a turn is open after it"
			}
			a.note("forked at seq=%d, %s", children[0].ForkSeq, point)
		}
		switch children[0].State {
		case host.ExecInterrupted:
			a.note("the turn is open there: exec a child without --input to run it on")
		case host.ExecAwaiting:
			a.note("the turn is parked there, and each child waits by itself: %s shows for what", a.inPlace("get")+" --session CHILD")
		}
		if inputs != nil {
			if !opts.given("key") {
				a.note("if this is cut short, the same command with --key %s runs what is left", opts.fan.key)
			}
			return a.runChildren(ctx, h, children, inputs, opts.fan)
		}
		for _, child := range children {
			if a.json {
				a.object(newSessionJSON(child))
			} else {
				a.line(childLine(child))
			}
		}
		return nil
	})
}

// noPoint says how to get at a point of a session that has no closed one yet.
func (a *app) noPoint(err error, s host.Session) error {
	if !errors.Is(err, host.ErrConflict) || s.Closed != 0 {
		return err
	}
	if s.Head.Seq == 0 {
		return &adviceError{err, a.agentctl("exec") + " --input TEXT runs its first"}
	}
	return &adviceError{err, fmt.Sprintf("--at %d takes the open turn along; %s goes on with it here", s.Head.Seq, a.agentctl("resume"))}
}

// closedPoint refuses a point inside a turn, whose children have that turn open and
// take no input.
func closedPoint(ctx context.Context, h *edge.Host, parent host.Session, at abi.Seq) error {
	if at == 0 {
		return nil
	}
	for r, err := range h.Replay(ctx, parent.UID, at, at) {
		if err != nil {
			return err
		}
		if r.Event.Kind != abi.EventEnd && (r.Event.Kind != abi.EventLifecycle || r.Event.ExecutionID != "") {
			return usagef("seq %d is inside a turn, which its children would have open: fork there without --run, or at an END", at)
		}
	}
	return nil
}

// childLine is how fork names a child.
func childLine(s host.Session) string {
	line := fmt.Sprintf("child %s parent=%s fork_seq=%d", s.UID, s.Parent, s.ForkSeq)
	if s.Name != "" {
		line += " name=" + s.Name
	}
	return line
}

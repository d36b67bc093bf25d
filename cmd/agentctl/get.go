package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
)

type getOptions struct{ session sessionFlag }

func newGetCommand(a *app) *cobra.Command {
	var opts getOptions
	cmd := &cobra.Command{
		Use:   "get --session S",
		Short: "Show all facts of a session",
		Long: `get shows what is known of a session. Its state is PENDING before the first turn,
COMPLETED, FAILED or CANCELED after one, RUNNING while a turn runs, and INTERRUPTED
when a turn is open that no process runs: agentctl resume takes it up. AWAITING is a turn
that is parked; awaiting says for what.

compute is what of it is in memory: NONE before it has run, LIVE while a turn runs, WARM
or COLD between turns; suspended says that it was put to rest. limits are those it was
made with.

head is the last record, closed the last point to fork at, and root the hash of the
memory that the next turn begins with: that of the last END for a harness that keeps
its memory, of a fresh instance for one that does not.`,
		Example: `  agentctl get --session demo
  agentctl get demo --json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runGet(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	return cmd
}

func runGet(ctx context.Context, a *app, opts getOptions) error {
	return a.inquireSession(opts.session.ref, func(i *inquiry) error {
		r, err := i.ask(ctx, question{Op: opGet, Project: a.project, Ref: opts.session.ref})
		if err != nil {
			return err
		}
		if a.json {
			a.object(newAwaitingJSON(*r.Session, r.Waits))
			return nil
		}
		a.facts(append(sessionFacts(*r.Session), waitFacts(r.Waits)...))
		return nil
	})
}

// fact is a line of what a person is told of one thing.
type fact struct{ name, value string }

// facts writes those that have a value.
func (o *output) facts(facts []fact) {
	for _, f := range facts {
		if f.value != "" {
			o.line(fmt.Sprintf("%-10s  %s", f.name, f.value))
		}
	}
}

func sessionFacts(s host.Session) []fact {
	memory := "none kept between turns"
	if s.HoldsMemory {
		memory = "saved at the end of each turn"
	}
	state := string(s.State)
	if s.Reason != "" && s.State != host.ExecCompleted && s.State != host.ExecInterrupted && s.State != host.ExecAwaiting && s.State != host.ExecRunning {
		state += fmt.Sprintf(" (%s)", s.Reason)
	}
	head := "no records yet"
	if s.Head.Seq > 0 {
		head = fmt.Sprintf("seq=%d fence=%d %s", s.Head.Seq, s.Head.Fence, s.Head.Hash)
	}
	return []fact{
		{"session", string(s.UID)},
		{"name", s.Name},
		{"project", s.Project},
		{"labels", labelsText(s.Labels)},
		{"tools", strings.Join(s.Grants, ", ")},
		{"state", state},
		{"compute", computeText(s)},
		{"execution", string(s.Execution)},
		{"turns", fmt.Sprint(s.Turns)},
		{"head", head},
		{"closed", positive("seq=%d", int64(s.Closed))},
		{"root", s.Root.String()},
		{"parent", forkedFrom(s)},
		{"harness", s.Harness},
		{"module", s.Module.String()},
		{"runtime", s.Runtime},
		{"memory", memory},
		{"model", s.Model},
		{"config", string(s.Config)},
		{"limits", limitsText(s.Limits)},
		{"deadline", timeText(s.Deadline)},
		{"timeout", timeText(s.CallTimeout)},
		{"retain", retentionText(s.Retention)},
		{"created", s.Created.UTC().Format(timeFormat)},
		{"updated", s.Updated.UTC().Format(timeFormat)},
	}
}

// timeText is a time that was set.
func timeText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// computeText is what of a session is in memory, and whether by a person's wish.
func computeText(s host.Session) string {
	if s.Suspended {
		return string(s.Compute) + ", suspended"
	}
	return string(s.Compute)
}

// waitFacts are what a session waits for.
func waitFacts(waits []waitJSON) []fact {
	var facts []fact
	for _, w := range waits {
		text := w.String()
		if w.Settled {
			text += " (settled)"
		}
		facts = append(facts, fact{"awaiting", text})
	}
	return facts
}

const timeFormat = "2006-01-02T15:04:05Z"

func positive(format string, n int64) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(format, n)
}

func forkedFrom(s host.Session) string {
	if s.Parent == "" {
		return ""
	}
	return fmt.Sprintf("%s at seq=%d", s.Parent, s.ForkSeq)
}

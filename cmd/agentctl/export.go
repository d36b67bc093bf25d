package main

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

type exportOptions struct{ session sessionFlag }

func newExportCommand(a *app) *cobra.Command {
	var opts exportOptions
	cmd := &cobra.Command{
		Use:   "export --session S",
		Short: "Print a session's stored lines as they are",
		Long: `export prints the stored lines byte for byte, a forked session's after those of its
ancestors. Each line is what its hash is made of: docs/verify_chain.py checks them
with nothing but Python's standard library.`,
		Example: `  agentctl export --session demo > demo.jsonl
  agentctl export demo | sha256sum`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runExport(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	return cmd
}

func runExport(ctx context.Context, a *app, opts exportOptions) error {
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		if s.Head.Seq == 0 {
			a.note("session %s has no records yet", s.UID)
			return nil
		}
		return a.records(h.Replay(ctx, s.UID, 1, s.Head.Seq), a.stored)
	})
}

// stored writes a record's line as it is, but for characters that would move a
// terminal's cursor: a terminal gets those as JSON escapes.
func (o *output) stored(r host.Record) {
	line := r.Line
	if o.outTerminal {
		line = safeJSON(line)
	}
	o.data(append(line[:len(line):len(line)], '\n'))
}

// records writes every record until the reader has seen enough.
func (o *output) records(records iter.Seq2[host.Record, error], write func(host.Record)) error {
	for r, err := range records {
		if err != nil {
			return err
		}
		write(r)
		if err := o.failed(); err != nil {
			return err
		}
	}
	return nil
}

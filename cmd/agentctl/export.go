package main

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

type exportOptions struct {
	session sessionFlag
	file    string // "-" is stdout; empty: print the lines
}

func newExportCommand(a *app) *cobra.Command {
	var opts exportOptions
	cmd := &cobra.Command{
		Use:   "export --session S [FILE]",
		Short: "Write a session to one portable file, or print its stored lines",
		Long: `export writes a session to FILE, or to stdout if FILE is -: its records, its
harness, everything they name, and the memory its next turn begins from. On another
machine agentctl import takes it up, and agentctl verify checks it, without anything
else. docs/portable.md describes the file.

Without FILE the stored lines are printed byte for byte, a forked session's after
those of its ancestors. Each line is what its hash is made of: docs/verify_chain.py
checks them with nothing but Python's standard library.`,
		Example: `  agentctl export --session demo demo.agentcell
  agentctl export demo - | agentctl verify -
  agentctl export --session demo > demo.jsonl
  agentctl export demo | sha256sum`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runExport(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	cmd.Args = opts.arguments
	return cmd
}

// arguments takes the session, unless a flag named it, and the file.
func (o *exportOptions) arguments(cmd *cobra.Command, args []string) error {
	if o.session.ref == "" && len(args) > 0 {
		o.session.ref, args = args[0], args[1:]
	}
	switch {
	case len(args) > 1:
		return usagef("%s takes one session and one file, not also %q; see %s --help", called(cmd), args[1], cmd.CommandPath())
	case len(args) == 1 && args[0] == "":
		return usagef("the file's name is empty; leave it out to print the lines")
	case len(args) == 1:
		o.file = args[0]
	}
	return o.session.argument(cmd, nil)
}

func runExport(ctx context.Context, a *app, opts exportOptions) error {
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		if opts.file != "" {
			return a.exportFile(ctx, h, s.UID, opts.file)
		}
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

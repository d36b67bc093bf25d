package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

type signalOptions struct {
	session  string
	name     string
	payload  string
	noResume bool
	files    turnFlags
}

func newSignalCommand(a *app) *cobra.Command {
	var opts signalOptions
	cmd := &cobra.Command{
		Use:   "signal --session S NAME [--payload JSON|@file|-]",
		Short: "Send the signal that a parked turn waits for",
		Long: `signal ends a parked turn's wait for the signal NAME. The payload, which the harness
gets, is recorded with it. Then the turn goes on as with agentctl resume: it wants --tools
and --script again, if it had them. A signal that nobody waits for is refused; one that was
recorded already, as with --no-resume, is not recorded again.`,
		Example: `  agentctl signal --session unpaid paid --payload '{"amount":42}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1 || args[0] == "":
				return usagef("which signal? Give one NAME; see %s --help", cmd.CommandPath())
			case opts.session == "":
				return usagef("which session? Name one with --session; agentctl list shows them")
			}
			opts.name = args[0]
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runSignal(cmd.Context(), a, opts) },
	}
	f := cmd.Flags()
	f.Var(text(&opts.session, ""), "session", "the session `S`: its uid, a unique prefix of it, or its name")
	f.Var(text(&opts.payload, ""), "payload", "what goes with it: `JSON`, - for stdin, or @file")
	f.BoolVar(&opts.noResume, "no-resume", false, "only record the signal")
	opts.files.add(cmd, a)
	return cmd
}

func runSignal(ctx context.Context, a *app, opts signalOptions) error {
	payload, err := a.readDocument(ctx, "--payload", opts.payload, `{"ok":true}`, maxPayload)
	if err != nil {
		return err
	}
	return a.withSession(ctx, opts.files.script, opts.session, func(h *edge.Host, s host.Session) error {
		after, err := h.Signal(ctx, s.UID, opts.name, payload)
		if errors.Is(err, host.ErrConflict) {
			return &adviceError{err, a.agentctl("get") + " shows what it waits for"}
		}
		if err != nil {
			return err
		}
		return a.settled(ctx, h, s, after, opts.files, opts.noResume)
	})
}

// maxPayload is a little more than the host takes, so that the host says it.
const maxPayload = 2 << 20

// readDocument reads the value of a flag: JSON such as the example, "-" for stdin, or
// "@file". What it gives may be a little more than most bytes.
func (a *app) readDocument(ctx context.Context, flag, value, example string, most int64) ([]byte, error) {
	var (
		text = []byte(value)
		err  error
	)
	switch {
	case value == "":
		return nil, nil
	case value == "-":
		text, err = wait(ctx, func() ([]byte, error) { return readAll(a.stdin, most) })
	case value[0] == '@':
		text, err = readFile(ctx, value[1:], most)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, value, err)
	}
	if _, err := abi.Canonical(text); err != nil {
		return nil, usagef(`%s: %w; want JSON such as '%s', - for stdin, or @file`, flag, err, example)
	}
	return text, nil
}

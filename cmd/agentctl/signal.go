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
and --script again, if it had them. A signal that nobody waits for is refused.`,
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
	payload, err := a.readPayload(ctx, opts.payload)
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

// readPayload reads a signal's payload: JSON, "-" for stdin, or "@file".
func (a *app) readPayload(ctx context.Context, value string) ([]byte, error) {
	var (
		text = []byte(value)
		err  error
	)
	switch {
	case value == "":
		return nil, nil
	case value == "-":
		text, err = wait(ctx, func() ([]byte, error) { return readAll(a.stdin, maxPayload) })
	case value[0] == '@':
		text, err = readFile(ctx, value[1:], maxPayload)
	}
	if err != nil {
		return nil, fmt.Errorf("--payload %s: %w", value, err)
	}
	if _, err := abi.Canonical(text); err != nil {
		return nil, usagef(`--payload: %w; want JSON such as '{"ok":true}', - for stdin, or @file`, err)
	}
	return text, nil
}

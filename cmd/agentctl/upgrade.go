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

type upgradeOptions struct {
	session sessionFlag
	harness string
	dryRun  bool
	force   bool
}

func newUpgradeCommand(a *app) *cobra.Command {
	var opts upgradeOptions
	cmd := &cobra.Command{
		Use:   "upgrade --session S --harness NEW [--dry-run] [--force]",
		Short: "Give a session another build of its harness",
		Long: `upgrade moves a session to another module, between two turns: the next one runs it. The
record tells of it, and whatever runs or forks at an older point goes on with the module
that the session had there.

A harness without memory begins each turn anew, so nothing has to be moved. The recorded
turns are run under the new module first, without a model call. If one asks or says
something else than was recorded, the first difference is told and the session stays as it
is, with exit code 6; --force accepts that.

A harness that holds memory hands it over itself: agent_save of the module that the session
has gives it, agent_load of the new one takes it (in Go, Save and Load of an sdk.Portable).
Where one of them is missing, or fails, the session stays as it is.

--dry-run does all that and changes nothing. While a turn is open it is refused.`,
		Example: `  agentctl upgrade --session demo --harness echo-2.wasm --dry-run
  agentctl upgrade demo --harness echo-2.wasm`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUpgrade(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	f := cmd.Flags()
	f.Var(text(&opts.harness, ""), "harness", "the new harness: a bundled or pushed `NAME`, or a .wasm file")
	f.BoolVar(&opts.dryRun, "dry-run", false, "only tell what would come of it")
	f.BoolVar(&opts.force, "force", false, "accept that recorded turns go another way under the new module")
	return cmd
}

func runUpgrade(ctx context.Context, a *app, opts upgradeOptions) error {
	if opts.harness == "" {
		return usagef("to which harness? Name one with --harness; %s shows them", a.inPlace("harness list"))
	}
	harness, err := a.loadHarness(ctx, opts.harness)
	if err != nil {
		return err
	}
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		if err := completeHarness(ctx, h, &harness); err != nil {
			return err
		}
		up, err := h.Upgrade(ctx, host.UpgradeRequest{Session: s.UID, Harness: harness, DryRun: opts.dryRun, Force: opts.force})
		switch {
		case errors.Is(err, host.ErrOpenTurn):
			return &adviceError{err, a.agentctl("resume") + " goes on with it; " + a.agentctl("cancel") + " ends it"}
		case errors.Is(err, host.ErrDivergence):
			return &otherWayError{err, "nothing was changed; with --force the next turn runs the new module all the same"}
		case err != nil:
			return err
		}
		a.upgraded(up, opts.dryRun)
		if opts.dryRun && up.Divergence != nil {
			return &otherWayError{up.Divergence, "with --force a session is upgraded all the same"}
		}
		return nil
	})
}

// otherWayError is a recorded turn that goes another way under a new module.
type otherWayError struct {
	err  error
	next string
}

func (e *otherWayError) Error() string { return e.err.Error() }
func (e *otherWayError) Unwrap() error { return e.err }

// upgraded tells what came of an upgrade, or would.
func (a *app) upgraded(up host.Upgrade, dryRun bool) {
	if a.json {
		a.object(newUpgradeJSON(up))
		return
	}
	if up.Module == up.OldModule {
		a.line(fmt.Sprintf("%s runs module %s already", up.Session.UID, up.Module.Short()))
		return
	}
	what := "upgraded"
	if dryRun {
		what = "dry run of upgrading"
	}
	a.line(fmt.Sprintf("%s %s from %s %s to %s %s", what, up.Session.UID, up.OldHarness, up.OldModule.Short(), up.Harness, up.Module.Short()))
	switch {
	case up.Session.HoldsMemory:
		a.line(fmt.Sprintf("carried over: %s of state, root %s", bytesText(int64(up.StateBytes)), up.Root))
	case up.Divergence == nil:
		a.line(fmt.Sprintf("re-executed: %d turns under the new module, none went another way", up.Turns))
	case !dryRun: // else it is the error
		d, _ := differenceOf(up.Divergence)
		a.note("accepted: the new module goes another way at seq %d: %s", d.seq, d.what)
	}
}

type upgradeJSON struct {
	Session    abi.SessionID   `json:"session"`
	Upgraded   bool            `json:"upgraded"`
	Seq        int64           `json:"seq"`
	Harness    string          `json:"harness"`
	Module     abi.Digest      `json:"module"`
	Root       abi.Digest      `json:"root"`
	OldHarness string          `json:"old_harness"`
	OldModule  abi.Digest      `json:"old_module"`
	OldRoot    abi.Digest      `json:"old_root"`
	StateBytes int             `json:"state_bytes,omitempty"`
	Turns      int64           `json:"turns,omitempty"`
	Divergence *divergenceJSON `json:"divergence,omitempty"`
}

type divergenceJSON struct {
	Seq  int64      `json:"seq"`
	What string     `json:"what"`
	Want abi.Digest `json:"want,omitzero"`
	Got  abi.Digest `json:"got,omitzero"`
}

func newUpgradeJSON(up host.Upgrade) upgradeJSON {
	out := upgradeJSON{
		Session: up.Session.UID, Upgraded: up.Done, Seq: int64(up.Session.Head.Seq),
		Harness: up.Harness, Module: up.Module, Root: up.Root,
		OldHarness: up.OldHarness, OldModule: up.OldModule, OldRoot: up.OldRoot,
		StateBytes: up.StateBytes, Turns: up.Turns,
	}
	if d, ok := differenceOf(up.Divergence); ok {
		out.Divergence = &divergenceJSON{int64(d.seq), d.what, d.want, d.got}
	}
	return out
}

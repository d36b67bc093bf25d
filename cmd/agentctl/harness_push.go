package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

type harnessPushOptions struct{ file, name string }

func newHarnessPushCommand(a *app) *cobra.Command {
	var opts harnessPushOptions
	cmd := &cobra.Command{
		Use:   "push FILE [--name N]",
		Short: "Keep a harness under a name",
		Long: `push stores a module in the data directory under a name, by which --harness then finds
it from anywhere. One that agentctl does not take is refused with the reason. The names of
bundled harnesses are theirs.

A name that is there already stands for the new module from now on. Sessions that were
made before stay with the module they were made with, which is kept.`,
		Example: `  agentctl harness push ./mine.wasm
  agentctl harness push ./mine.wasm --name hello
  agentctl exec --harness hello --input hi`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("which module? Name one .wasm file; agentctl harness build makes one")
			}
			opts.file = args[0]
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runHarnessPush(cmd.Context(), a, opts) },
	}
	cmd.Flags().Var(text(&opts.name, ""), "name", "the name `N` (default: the file's, without .wasm)")
	return cmd
}

func runHarnessPush(ctx context.Context, a *app, opts harnessPushOptions) error {
	code, err := readFile(ctx, opts.file, maxModule)
	if err != nil {
		return fmt.Errorf("module %q: %w", opts.file, err)
	}
	name := opts.name
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(opts.file), ".wasm")
	}
	a.adds = true
	return a.with(ctx, "", func(h *edge.Host) error {
		before, err := h.PushedHarness(ctx, name)
		if err != nil && !errors.Is(err, host.ErrNotFound) {
			return err
		}
		p, err := h.PushHarness(ctx, host.Harness{Name: name, Code: code})
		if errors.Is(err, host.ErrInvalid) && slices.Contains(harnesses.Names(), name) {
			return &adviceError{err, "give it another name with --name"}
		}
		if err != nil {
			return err
		}
		if a.json {
			a.object(newPushedJSON(p))
		} else {
			a.line(fmt.Sprintf("pushed %s  %s  %s", p.Name, bytesText(p.Size), p.Module))
		}
		if before.Code != nil && !slices.Equal(before.Code, code) {
			a.note("%s stood for another module; sessions that were made with it keep that one", name)
		}
		return nil
	})
}

func newHarnessRemoveCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Take a pushed harness's name away",
		Long: `rm takes the name of a pushed harness away, so that new sessions no longer find it.
Sessions that were made with it keep its module and go on.`,
		Example: `  agentctl harness push ./mine.wasm --name hello
  agentctl harness rm hello`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("which harness? Name one; agentctl harness list shows those that were pushed")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runHarnessRemove(cmd.Context(), a, args[0]) },
	}
}

func runHarnessRemove(ctx context.Context, a *app, name string) error {
	advice := "agentctl harness list shows those that were pushed"
	if dir, missing := a.noData(); missing {
		return &adviceError{fmt.Errorf("harness %q: %w: there is no data in %q yet", name, host.ErrNotFound, dir), advice}
	}
	return a.with(ctx, "", func(h *edge.Host) error {
		err := h.RemoveHarness(ctx, name)
		switch {
		case errors.Is(err, host.ErrNotFound) && slices.Contains(harnesses.Names(), name):
			return usagef("harness %q is bundled with agentctl and cannot be removed", name)
		case errors.Is(err, host.ErrNotFound):
			return &adviceError{err, advice}
		case err != nil:
			return err
		}
		a.removed(name)
		return nil
	})
}

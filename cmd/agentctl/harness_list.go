package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

func newHarnessListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the harnesses that have a name",
		Long: `list shows the harnesses that --harness finds by name: those that this agentctl holds,
and those that were pushed into the data directory. For each: name, where it is from, size,
and SHA-256 of the module. If one that was pushed has the name of a bundled one, --harness
takes the bundled one.`,
		Example: `  agentctl harness list
  agentctl harness list --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runHarnessList(cmd.Context(), a) },
	}
}

type harnessJSON struct {
	Harness string     `json:"harness"`
	From    string     `json:"from"`
	Size    int64      `json:"size"`
	Module  abi.Digest `json:"module"`
	Pushed  abi.Time   `json:"pushed,omitzero"`
}

func newPushedJSON(p host.PushedHarness) harnessJSON {
	return harnessJSON{p.Name, "pushed", p.Size, p.Module, abi.NewTime(p.Pushed)}
}

func runHarnessList(ctx context.Context, a *app) error {
	var all []harnessJSON
	for _, name := range harnesses.Names() {
		found, err := harnesses.Find(name)
		if err != nil {
			return err
		}
		all = append(all, harnessJSON{Harness: name, From: "bundled", Size: found.Size, Module: found.Digest})
	}
	pushed, err := a.pushedHarnesses(ctx)
	for _, p := range pushed {
		all = append(all, newPushedJSON(p))
	}
	// The bundled ones are worth having even where the store cannot be read.
	a.harnesses(all)
	return err
}

// harnesses writes what list shows.
func (a *app) harnesses(all []harnessJSON) {
	var rows [][]string
	for _, h := range all {
		if a.json {
			a.object(h)
			continue
		}
		rows = append(rows, []string{oneLine(h.Harness), h.From, bytesText(h.Size), h.Module.String()})
	}
	if len(rows) > 0 {
		a.data([]byte(new(table).format([]string{"HARNESS", "FROM", "SIZE", "MODULE"}, rows)))
	}
	if len(harnesses.Names()) == 0 {
		a.note("this agentctl was built without bundled harnesses; run `make` in the source tree, or pass --harness FILE.wasm")
	}
}

// pushedHarnesses are those of the data directory, if there is one.
func (a *app) pushedHarnesses(ctx context.Context) (pushed []host.PushedHarness, err error) {
	if _, missing := a.noData(); missing {
		return nil, nil
	}
	err = a.with(ctx, "", func(h *edge.Host) error {
		pushed, err = h.PushedHarnesses(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pushed harnesses: %w", err)
	}
	return pushed, nil
}

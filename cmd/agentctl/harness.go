package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newHarnessCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "harness",
		Short: "Write, build, keep and look at harnesses",
		Long: `A harness is an agent's control loop, compiled to WebAssembly. Some are bundled with
agentctl; any .wasm file that follows docs/abi.md is one as well. One that was pushed
is found by its name. docs/harness-authoring.md says how to write one in Go.`,
		Example: `  agentctl harness list
  agentctl harness inspect echo
  agentctl harness new ./greeter`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newHarnessNewCommand(a), newHarnessBuildCommand(a), newHarnessPushCommand(a), newHarnessRemoveCommand(a),
		newHarnessListCommand(a), newHarnessInspectCommand(a),
	)
	return cmd
}

// bytesText is n for a person.
func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

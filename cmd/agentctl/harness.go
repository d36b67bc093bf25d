package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

func newHarnessCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "harness",
		Short: "Show what harnesses there are and what they can do",
		Long: `A harness is an agent's control loop, compiled to WebAssembly. Some are bundled with
agentctl; any .wasm file that follows docs/abi.md is one as well.`,
		Example: `  agentctl harness list
  agentctl harness inspect echo`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newHarnessListCommand(a), newHarnessInspectCommand(a))
	return cmd
}

func newHarnessListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the bundled harnesses",
		Long:    "list shows the harnesses that this agentctl holds: name, size, and SHA-256 of the module.",
		Example: `  agentctl harness list`,
		Args:    noArguments,
		RunE:    func(*cobra.Command, []string) error { return runHarnessList(a) },
	}
}

type harnessJSON struct {
	Harness string     `json:"harness"`
	Size    int        `json:"size"`
	Module  abi.Digest `json:"module"`
}

func runHarnessList(a *app) error {
	var rows [][]string
	for _, name := range harnesses.Names() {
		code, err := harnesses.Module(name)
		if err != nil {
			return err
		}
		digest := abi.DigestOf(code)
		if a.json {
			a.object(harnessJSON{name, len(code), digest})
			continue
		}
		rows = append(rows, []string{name, bytesText(int64(len(code))), digest.String()})
	}
	switch {
	case len(harnesses.Names()) == 0:
		a.note("this agentctl was built without bundled harnesses; run `make` in the source tree, or pass --harness FILE.wasm")
	case !a.json:
		a.data([]byte(new(table).format([]string{"HARNESS", "SIZE", "MODULE"}, rows)))
	}
	return nil
}

func newHarnessInspectCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME|FILE",
		Short: "Show what a harness is and what it may do",
		Long: `inspect loads a harness, asks it to describe itself, and shows what it can do at all:
its imports are its capabilities. A module that agentctl does not take is refused with
the reason.`,
		Example: `  agentctl harness inspect echo
  agentctl harness inspect ./mine.wasm --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("which harness? Name one, or a .wasm file; agentctl harness list shows the bundled ones")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runHarnessInspect(cmd.Context(), a, args[0]) },
	}
}

type inspectionJSON struct {
	Harness     string                `json:"harness"`
	Module      abi.Digest            `json:"module"`
	Size        int64                 `json:"size"`
	ABI         int32                 `json:"abi"`
	Rewriter    int32                 `json:"rewriter,omitempty"`
	Runtime     string                `json:"runtime"`
	MemoryBytes uint64                `json:"memory_bytes,omitempty"`
	GoldenRoot  abi.Digest            `json:"golden_root,omitzero"`
	Imports     []string              `json:"imports"`
	Descriptor  abi.HarnessDescriptor `json:"descriptor"`
}

func runHarnessInspect(ctx context.Context, a *app, ref string) error {
	harness, err := loadHarness(ctx, ref)
	if err != nil {
		return err
	}
	options, err := a.options(ctx, "")
	if err != nil {
		return err
	}
	// Looking at a module touches no session, so it must not wait for the store.
	h, err := edge.OpenMemory(options)
	if err != nil {
		return err
	}
	d, err := h.Inspect(ctx, harness)
	if err = errors.Join(err, h.Close()); err != nil {
		return err
	}
	if a.json {
		a.object(inspectionJSON{
			Harness: harness.Name, Module: d.Digest, Size: d.Size, Runtime: d.Runtime, ABI: d.ABI, Rewriter: d.Rewriter,
			MemoryBytes: d.Golden.Size, GoldenRoot: d.GoldenRoot, Imports: d.Imports, Descriptor: d.Description.Harness,
		})
		return nil
	}
	a.facts(inspectionFacts(harness.Name, d))
	return nil
}

func inspectionFacts(name string, d host.Inspection) []fact {
	memory := "none kept between turns"
	if d.Harness.HoldsMemory() {
		memory = "saved at the end of each turn"
	}
	facts := []fact{
		{"harness", name},
		{"id", strings.TrimSpace(d.Harness.ID + " " + d.Harness.Version)},
		{"module", d.Digest.String()},
		{"size", bytesText(d.Size)},
		{"runtime", d.Runtime},
		{"abi", fmt.Sprintf("%d, rewriter %d", d.ABI, d.Rewriter)},
		{"memory", fmt.Sprintf("%s at the start, %s", bytesText(int64(d.Golden.Size)), memory)},
		{"golden", d.GoldenRoot.String()},
		{"models", strings.Join(d.Harness.Models, ", ")},
	}
	if c := d.Harness.Capabilities; c != nil && c.RequiresGPU {
		facts = append(facts, fact{"needs", "a GPU"})
	}
	for _, tool := range d.Harness.Tools {
		facts = append(facts, fact{"tool", strings.TrimSpace(tool.Name + "  " + tool.Description)})
	}
	var inside []string
	for _, name := range d.Imports {
		module, function, _ := strings.Cut(name, ".")
		if module == "agent" {
			facts = append(facts, fact{"may", fmt.Sprintf("%-14s  %s", name, opMeaning(abi.Op(function)))})
		} else {
			inside = append(inside, function)
		}
	}
	if len(inside) > 0 {
		facts = append(facts, fact{"asks", strings.Join(inside, ", ") + ": answered inside the cell, grants nothing"})
	}
	return facts
}

// opMeaning says what a harness may do that imports op.
func opMeaning(op abi.Op) string {
	switch op {
	case abi.OpModel:
		return "ask a model"
	case abi.OpOutput:
		return "answer by itself"
	case abi.OpToolCall:
		return "call tools"
	case abi.OpReport:
		return "report the results of its own tools"
	case abi.OpUsage:
		return "report usage"
	case abi.OpWait:
		return "wait for a time or a signal"
	case abi.OpHistory:
		return "read the session's earlier records"
	case abi.OpLog:
		return "write to the operator's log"
	case abi.OpStart:
		return "read its inputs and config"
	case abi.OpRead:
		return "read the host's answers"
	case abi.OpReply:
		return "describe itself"
	case abi.OpFail:
		return "say why it failed"
	}
	return ""
}

// bytesText is n for a person.
func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

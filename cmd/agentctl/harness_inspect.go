package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

func newHarnessInspectCommand(a *app) *cobra.Command {
	opts := harnessInspectOptions{}
	cmd := &cobra.Command{
		Use:   "inspect NAME|FILE",
		Short: "Show what a harness is and what it may do",
		Long: `inspect loads a harness, asks it to describe itself, and shows what it can do at all:
its imports are its capabilities. A module that agentctl does not take is refused with
the reason.

It also runs one turn on trial, on the input "hi", with the echo model and a journal in
memory, so that it leaves no trace: what a first turn costs in fuel, in pages of
memory that it changed, and in time on this machine. --input says something
else, and --config gives the harness its config.`,
		Example: `  agentctl harness inspect echo
  agentctl harness inspect ./mine.wasm --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("which harness? Name one, or a .wasm file; agentctl harness list shows those that have a name")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.ref = args[0]
			return runHarnessInspect(cmd.Context(), a, opts)
		},
	}
	cmd.Flags().Var(text(&opts.input, trialInput), "input", "the input of the turn on trial: `TEXT`, - for stdin, or @file")
	cmd.Flags().Var(text(&opts.config, ""), "config", "the harness's config in it: `JSON` or @file")
	return cmd
}

type harnessInspectOptions struct{ ref, input, config string }

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
	FirstTurn   trialJSON             `json:"first_turn"`
}

func runHarnessInspect(ctx context.Context, a *app, opts harnessInspectOptions) error {
	harness, err := a.loadHarness(ctx, opts.ref)
	if err != nil {
		return err
	}
	if harness.Code == nil && harness.Read == nil {
		err := a.with(ctx, "", func(h *edge.Host) error { return completeHarness(ctx, h, &harness) })
		if err != nil {
			return err
		}
	}
	inputs, err := a.readInputs(ctx, "--input", []string{opts.input})
	if err != nil {
		return err
	}
	config, err := readConfig(ctx, opts.config)
	if err != nil {
		return err
	}
	first := &trial{inputs: inputs, config: config}
	d, err := a.inspect(ctx, harness, first)
	if err != nil {
		return err
	}
	if a.json {
		a.object(inspectionJSON{
			Harness: harness.Name, Module: d.Digest, Size: d.Size, Runtime: d.Runtime, ABI: d.ABI, Rewriter: d.Rewriter,
			MemoryBytes: d.Golden.Size, GoldenRoot: d.GoldenRoot, Imports: d.Imports, Descriptor: d.Description.Harness,
			FirstTurn: newTrialJSON(first),
		})
		return nil
	}
	a.facts(inspectionFacts(harness.Name, d, first))
	return nil
}

// inspect loads a harness, and runs the trial if there is one. Looking at a module
// touches no session, so it does not wait for the store.
func (a *app) inspect(ctx context.Context, harness host.Harness, t *trial) (d host.Inspection, err error) {
	options, err := a.options(ctx, "")
	if err != nil {
		return d, err
	}
	h, err := edge.OpenMemory(options)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if d, err = h.Inspect(ctx, harness); err != nil || t == nil {
		return d, err
	}
	return d, t.run(ctx, h, harness)
}

func inspectionFacts(name string, d host.Inspection, first *trial) []fact {
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
	return append(facts, first.facts()...)
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

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/extism"
	"github.com/agentcell/agentcell/sdk/abi"
)

func newToolCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tool",
		Short: "Add tools, see which there are, and try one",
		Long: `A tool is what an agent asks its host to do, which does it for the agent and records
the result. Any Extism plug-in is one: add keeps it in the data directory, and each call then
runs in a sandbox of its own. docs/tools.md has the rest.

A session may call all the tools that there are when a turn begins, unless it was granted
some by name: see create --grant.`,
		Example: `  agentctl tool add vowels count_vowels.wasm --export count_vowels --input text
  agentctl tool list
  agentctl tool call vowels --args '{"text":"hello world"}'`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newToolAddCommand(a), newToolRemoveCommand(a), newToolListCommand(a), newToolShowCommand(a), newToolCallCommand(a),
	)
	return cmd
}

// oneTool are the arguments of a command that is about one tool.
func oneTool(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usagef("%s takes one tool, and there are %d; agentctl tool list shows them", called(cmd), len(args))
	}
	return nil
}

// noTool adds what to do about a tool that is not there.
func (a *app) noTool(err error) error {
	return &adviceError{err, a.agentctl("tool list") + " shows those there are"}
}

// withTools does work with the tools that there are, and the host that has them.
func (a *app) withTools(ctx context.Context, work func(*edge.Host, []tool.Tool) error) error {
	return a.with(ctx, "", func(h *edge.Host) error {
		tools, err := h.Tools(ctx)
		if err != nil {
			return err
		}
		return work(h, tools)
	})
}

// withTool is withTools for one of them.
func (a *app) withTool(ctx context.Context, name string, work func(*edge.Host, tool.Tool) error) error {
	return a.withTools(ctx, func(h *edge.Host, tools []tool.Tool) error {
		i := slices.IndexFunc(tools, func(t tool.Tool) bool { return t.Definition.Name == name })
		if i < 0 {
			return a.noTool(fmt.Errorf("tool %q: %w", name, host.ErrNotFound))
		}
		return work(h, tools[i])
	})
}

func newToolListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the tools",
		Long: `list shows every tool that a session could be granted now: its name, where it is from,
whether each call waits for a person's approval, what becomes of a call that was under way
when its host died, and what a model is told of it.`,
		Example: `  agentctl tool list
  agentctl tool list --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runToolList(cmd.Context(), a) },
	}
}

// toolJSON is a tool as list and show have it.
type toolJSON struct {
	Tool        string           `json:"tool"`
	From        string           `json:"from,omitempty"`
	Description string           `json:"description,omitempty"`
	InputSchema abi.Struct       `json:"input_schema,omitempty"`
	Mediation   abi.Mediation    `json:"mediation"`
	OnCrash     abi.OnCrash      `json:"on_crash"`
	Module      abi.Digest       `json:"module,omitzero"`
	Size        int64            `json:"size,omitempty"`
	Added       abi.Time         `json:"added,omitzero"`
	Manifest    *extism.Manifest `json:"manifest,omitempty"`
}

func newToolJSON(g abi.ToolGrant, from string) toolJSON {
	return toolJSON{
		Tool: g.Name, From: from, Description: g.Description, InputSchema: g.InputSchema,
		Mediation: g.Mediation, OnCrash: g.OnCrash,
	}
}

// newPluginJSON adds what is known of a tool that is stored.
func newPluginJSON(t host.StoredTool) (toolJSON, error) {
	m, err := extism.ParseManifest(t.Manifest)
	if err != nil {
		return toolJSON{}, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	j := newToolJSON(t.ToolGrant, edge.PluginTool)
	j.Module, j.Size, j.Added, j.Manifest = t.Module, t.Size, abi.NewTime(t.Added), &m
	return j, nil
}

func runToolList(ctx context.Context, a *app) error {
	return a.withTools(ctx, func(_ *edge.Host, tools []tool.Tool) error {
		var rows [][]string
		for _, t := range tools {
			if j := newToolJSON(t.Grant(), t.From); a.json {
				a.object(j)
			} else {
				rows = append(rows, []string{oneLine(j.Tool), oneLine(j.From), j.approval(), string(j.OnCrash), oneLine(j.Description)})
			}
		}
		if len(rows) > 0 {
			t := table{most: a.columns, elastic: []int{4}} // DESCRIPTION
			a.data([]byte(t.format([]string{"TOOL", "FROM", "APPROVAL", "ON CRASH", "DESCRIPTION"}, rows)))
		}
		if len(tools) == 0 && !a.json {
			a.note("no tools; %s NAME FILE.wasm --export FUNCTION adds one", a.inPlace("tool add"))
		}
		return nil
	})
}

func (j toolJSON) approval() string {
	if j.Mediation == abi.MediationRequiresApproval {
		return "each call"
	}
	return "none"
}

func newToolShowCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show all facts of a tool",
		Long: `show prints what is known of a tool: what a model is told of it, and of a plug-in also its
module and what it may do. A config value that is a secret stands there by its name.`,
		Example: `  agentctl tool add vowels count_vowels.wasm --export count_vowels --input text
  agentctl tool show vowels`,
		Args: oneTool,
		RunE: func(cmd *cobra.Command, args []string) error { return runToolShow(cmd.Context(), a, args[0]) },
	}
}

func runToolShow(ctx context.Context, a *app, name string) error {
	return a.withTool(ctx, name, func(h *edge.Host, t tool.Tool) error {
		j := newToolJSON(t.Grant(), t.From)
		if t.From == edge.PluginTool {
			stored, err := h.ToolStore().Get(name)
			if err == nil {
				j, err = newPluginJSON(stored)
			}
			if err != nil {
				return err
			}
		}
		a.tool(j)
		return nil
	})
}

// tool writes all that is known of a tool.
func (a *app) tool(j toolJSON) {
	if a.json {
		a.object(j)
		return
	}
	facts := []fact{
		{"tool", j.Tool},
		{"from", j.From},
		{"about", j.Description},
		{"schema", string(j.InputSchema)},
		{"approval", j.approval()},
		{"on crash", string(j.OnCrash)},
	}
	if m := j.Manifest; m != nil {
		facts = append(facts,
			fact{"module", fmt.Sprintf("%s  %s", j.Module, bytesText(j.Size))},
			fact{"added", j.Added.String()},
			fact{"export", m.Export}, fact{"input", inputText(*m)}, fact{"wasi", fmt.Sprint(m.WASI)},
			fact{"hosts", noneOr(strings.Join(m.Hosts, " "))}, fact{"paths", noneOr(pathsText(m.Paths))},
			fact{"config", labelsText(m.Config)},
			fact{"memory", bytesText(m.MemoryLimit())}, fact{"timeout", m.Timeout().String()})
	}
	a.facts(facts)
}

func inputText(m extism.Manifest) string {
	if m.Input == "" {
		return "the arguments, as JSON"
	}
	return "the argument " + m.Input
}

func pathsText(paths []extism.Path) string {
	var words []string
	for _, p := range paths {
		words = append(words, shellWord(p.String()))
	}
	return strings.Join(words, " ")
}

func noneOr(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func newToolRemoveCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Take a plug-in away",
		Long: `rm takes a tool that was added away. What sessions have recorded of it stays, and replays
without it. A turn that is under way and was granted it is told so when it calls it.`,
		Example: `  agentctl tool add vowels count_vowels.wasm --export count_vowels --input text
  agentctl tool rm vowels`,
		Args: oneTool,
		RunE: func(cmd *cobra.Command, args []string) error { return runToolRemove(cmd.Context(), a, args[0]) },
	}
}

func runToolRemove(ctx context.Context, a *app, name string) error {
	return a.withTool(ctx, name, func(h *edge.Host, t tool.Tool) error {
		if t.From != edge.PluginTool {
			return usagef("tool %q is from %s, and goes when it does", name, t.From)
		}
		if err := h.ToolStore().Remove(ctx, name); err != nil {
			return err
		}
		a.removed(name)
		return nil
	})
}

type toolCallOptions struct{ name, args string }

func newToolCallCommand(a *app) *cobra.Command {
	var opts toolCallOptions
	cmd := &cobra.Command{
		Use:   "call NAME [--args JSON|@file]",
		Short: "Call a tool once, outside of any session",
		Long: `call makes one call as a turn would make it, and prints the result: an object as JSON, a
text as it is, of a file its type and size. It is the way to see that a tool works. Nothing is
recorded and nobody is asked for approval, but what the tool does it does.`,
		Example: `  agentctl tool add vowels count_vowels.wasm --export count_vowels --input text
  agentctl tool call vowels --args '{"text":"hello world"}'
  agentctl tool call vowels --args '{"text":"hello world"}' --json`,
		Args: oneTool,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.name = args[0]
			return runToolCall(cmd.Context(), a, opts)
		},
	}
	cmd.Flags().Var(text(&opts.args, ""), "args", "the arguments: a `JSON` object, or @file")
	cmd.Flags().Var(duration(&a.callTimeout), "call-timeout", "give up after this `TIME`, such as 5s (default 10m)")
	return cmd
}

// toolCallJSON is what a trial call came to.
type toolCallJSON struct {
	Tool   string         `json:"tool"`
	Took   float64        `json:"took_ms"`
	Result abi.ToolResult `json:"result"`
}

func runToolCall(ctx context.Context, a *app, opts toolCallOptions) error {
	args, err := readJSON(ctx, "--args", opts.args, `{"text":"hello"}`)
	if err != nil {
		return err
	}
	return a.withTool(ctx, opts.name, func(h *edge.Host, t tool.Tool) error {
		begun := a.now()
		result, err := h.TryTool(ctx, opts.name, args)
		if err != nil {
			return err
		}
		if a.json {
			a.object(toolCallJSON{opts.name, float64(a.now().Sub(begun)) / float64(time.Millisecond), result})
		} else {
			a.data([]byte(lines(trialText(result)) + "\n"))
		}
		if result.IsError {
			return fmt.Errorf("tool %q: its result is an error", opts.name)
		}
		return nil
	})
}

// trialText is a result for a person, with the sizes of its files.
func trialText(r abi.ToolResult) string {
	for i, p := range r.Content {
		if f := p.File; f != nil && len(f.Bytes) > 0 {
			r.Content[i] = abi.Part{Text: &abi.TextPart{Text: fmt.Sprintf("[file %s, %s]", f.MIME, bytesText(int64(len(f.Bytes))))}}
		}
	}
	return resultText(r)
}

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/tool/extism"
	"github.com/agentcell/agentcell/sdk/abi"
)

type toolAddOptions struct {
	file     string
	grant    abi.ToolGrant
	manifest extism.Manifest
	schema   string
	paths    []string
	config   []string
	timeout  time.Duration
	approval bool
	onCrash  string
}

func newToolAddCommand(a *app) *cobra.Command {
	var opts toolAddOptions
	cmd := &cobra.Command{
		Use:   "add NAME FILE.wasm --export FUNCTION",
		Short: "Keep an Extism plug-in as a tool",
		Long: `add stores a plug-in in the data directory as a tool of that name, with what it may do:
nothing, unless flags say so. One that cannot be loaded is refused with the reason. The tool is
pinned to the module's SHA-256. A name that is there already stands for the new plug-in from
now on.

The plug-in's function is given the arguments as JSON, or with --input the text of one of
them. What it answers is the result: a JSON object as the output, other text as a text,
anything else as a file.

Each call runs in a sandbox of its own, which is gone after it. --allow-host allows HTTP
requests to a host, without its port; * stands for any text. A private address is allowed by
that address alone, such as --allow-host 127.0.0.1. --allow-path shows the plug-in a directory,
under the name GUEST if one is given; with :ro it may not write there. A --config value
secret:NAME is looked up for each call: see agentctl secret.

--on-crash says what becomes of a call that was under way when its host died: unknown tells
the agent so, ask asks a person, and retry calls again. Plug-ins know no idempotency keys, so
retry is your word that a call which is made twice does no harm.`,
		Example: `  agentctl tool add vowels count_vowels.wasm --export count_vowels --input text
  agentctl tool add small count_vowels.wasm --export count_vowels --memory 16MiB --timeout 2s
  agentctl tool add gated count_vowels.wasm --export count_vowels --approval --on-crash ask`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] == "" || args[1] == "" {
				return usagef("tool add takes a name and a .wasm file; see %s --help", cmd.CommandPath())
			}
			opts.grant.Name, opts.file = args[0], args[1]
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runToolAdd(cmd.Context(), a, opts) },
	}
	f := cmd.Flags()
	f.Var(text(&opts.manifest.Export, ""), "export", "the `FUNCTION` of the plug-in to call")
	f.Var(text(&opts.manifest.Input, ""), "input", "give the plug-in the text of the argument `FIELD`, not all arguments as JSON")
	f.BoolVar(&opts.manifest.WASI, "wasi", false, "give it clocks, random numbers and its paths, as most compilers want")
	f.StringArrayVar(&opts.manifest.Hosts, "allow-host", nil, "allow HTTP requests to the host `H`, such as api.example.com or *.example.com")
	f.StringArrayVar(&opts.paths, "allow-path", nil, "show it a directory: `HOST[:GUEST][:ro]`")
	f.StringArrayVar(&opts.config, "config", nil, "a value that the plug-in may ask for: `K=V`; secret:NAME as V is a secret")
	f.Var(bytesFlag{&opts.manifest.Memory, extism.MaxMemory}, "memory", "the memory it may have, such as 16MiB (default 64MiB, at most 1GiB)")
	f.Var(duration(&opts.timeout), "timeout", "the `TIME` that a call may take (default 30s)")
	f.Var(text(&opts.schema, ""), "schema", "the JSON Schema of the arguments: `JSON`, or @file")
	f.Var(text(&opts.grant.Description, ""), "description", "what a model is told of the tool: `TEXT`")
	f.BoolVar(&opts.approval, "approval", false, "a person decides on each call")
	f.Var(text(&opts.onCrash, string(abi.OnCrashUnknown)), "on-crash", "when the host dies in a call: `RULE` is unknown, retry or ask")
	return cmd
}

// complete makes the grant and the manifest of what was typed.
func (o *toolAddOptions) complete(ctx context.Context) error {
	if o.manifest.Export == "" {
		return usagef("which function of the plug-in? Name it with --export")
	}
	schema, err := readJSON(ctx, "--schema", o.schema, `{"type":"object"}`)
	if err != nil {
		return err
	}
	o.grant.InputSchema, o.grant.OnCrash = schema, abi.OnCrash(o.onCrash)
	if o.approval {
		o.grant.Mediation = abi.MediationRequiresApproval
	}
	for _, s := range o.paths {
		p, err := extism.ParsePath(s)
		if err != nil {
			return err
		}
		o.manifest.Paths = append(o.manifest.Paths, p)
	}
	for _, s := range o.config {
		key, value, whole := strings.Cut(s, "=")
		if _, twice := o.manifest.Config[key]; key == "" || !whole || twice {
			return usagef("--config %q: want K=V, each K once", s)
		}
		if o.manifest.Config == nil {
			o.manifest.Config = map[string]string{}
		}
		o.manifest.Config[key] = value
	}
	o.manifest.TimeoutMS = o.timeout.Milliseconds()
	return nil
}

func runToolAdd(ctx context.Context, a *app, opts toolAddOptions) error {
	if err := opts.complete(ctx); err != nil {
		return err
	}
	code, err := readFile(ctx, opts.file, extism.MaxModule)
	if err != nil {
		return fmt.Errorf("plug-in %q: %w", opts.file, err)
	}
	return a.with(ctx, "", func(h *edge.Host) error {
		stored, err := h.AddPlugin(ctx, opts.grant, opts.manifest, code)
		if err != nil {
			return err
		}
		if !a.json {
			a.line(fmt.Sprintf("added %s  %s  %s", stored.Name, bytesText(stored.Size), stored.Module))
			return nil
		}
		j, err := newPluginJSON(stored)
		if err != nil {
			return err
		}
		a.object(j)
		return nil
	})
}

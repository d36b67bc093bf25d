package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

// shells are those that agentctl writes completions for.
func shells() []string { return []string{"bash", "zsh", "fish"} }

func newCompletionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script with which a shell completes what you type",
		Long: `completion prints a script for a shell. With it, the tab key completes commands, flags,
session names and uids, snapshots, harnesses and states. While another agentctl has the data
directory, sessions are not completed: nothing is waited for.

  bash   with the package bash-completion, put this into ~/.bashrc:
         source <(agentctl completion bash)
  zsh    run once:
         agentctl completion zsh > "${fpath[1]}/_agentctl"
  fish   run once:
         agentctl completion fish > ~/.config/fish/completions/agentctl.fish`,
		Example: `  agentctl completion bash > agentctl.bash`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && slices.Contains(shells(), args[0]) {
				return nil
			}
			return usagef("which shell? Name one of %s; see %s --help", strings.Join(shells(), ", "), cmd.CommandPath())
		},
		ValidArgs: shells(),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), dataWriter{a.output}
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			}
			return root.GenFishCompletion(out, true)
		},
	}
}

// completions tells all commands how their flags and arguments are completed. A
// flag of a name means the same wherever it stands.
func (a *app) completions(root *cobra.Command) {
	flags := map[string]cobra.CompletionFunc{
		"session":       a.sessionWords,
		"parent":        a.sessionWords,
		"harness":       a.harnessWords,
		"model":         a.modelWords,
		"from-snapshot": a.snapshotWords,
		"state":         words(stateWords),
		"sort":          words(sortNames),
		"log":           words(logWords),
	}
	arguments := map[string]cobra.CompletionFunc{
		"agentctl diff":            upTo(2, a.sessionWords),
		"agentctl harness inspect": upTo(1, a.harnessWords),
		"agentctl harness rm":      a.pushedWords,
		"agentctl model test":      upTo(1, a.modelWords),
		"agentctl tool call":       upTo(1, a.toolWords),
		"agentctl tool rm":         upTo(1, a.toolWords),
		"agentctl tool show":       upTo(1, a.toolWords),
		"agentctl policy test":     cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		"agentctl secret rm":       upTo(1, a.secretWords),
		"agentctl secret set":      upTo(1, a.secretWords),
		"agentctl signal":          cobra.NoFileCompletions,
		"agentctl snapshots rm":    upTo(1, a.snapshotWords),
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for name, complete := range flags {
			if cmd.Flag(name) != nil {
				// It fails for a flag that is not there, or told twice.
				_ = cmd.RegisterFlagCompletionFunc(name, complete)
			}
		}
		if complete := arguments[cmd.CommandPath()]; complete != nil {
			cmd.ValidArgsFunction = complete
		} else if cmd.Flags().Lookup("session") != nil {
			cmd.ValidArgsFunction = a.sessionArgument
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// words completes one of a few words.
func words(all func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return beginning(strings.ToLower(begun), all()), cobra.ShellCompDirectiveNoFileComp
	}
}

// upTo completes the first n arguments.
func upTo(n int, complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begun)
	}
}

// harnessWords completes the name of a harness, bundled or pushed; a shell goes on
// with files.
func (a *app) harnessWords(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	pushed, _ := a.pushedWords(cmd, args, begun)
	return append(beginning(begun, harnesses.Names()), pushed...), cobra.ShellCompDirectiveDefault
}

// pushedWords completes the name of a harness that was pushed.
func (a *app) pushedWords(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		_ = a.peek(func(h *edge.Host) error {
			pushed, err := h.PushedHarnesses(cmd.Context())
			for _, p := range pushed {
				names = append(names, p.Name)
			}
			return err
		})
	}
	return beginning(begun, names), cobra.ShellCompDirectiveNoFileComp
}

// modelWords completes the name of a model; of a pattern, what stands before its *.
func (a *app) modelWords(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names := []string{edge.EchoModel}
	if models, err := a.models(cmd.Context()); err == nil {
		for _, name := range models.Names() {
			name, _, _ = strings.Cut(name, "*")
			names = append(names, name)
		}
	}
	return beginning(begun, names), cobra.ShellCompDirectiveNoFileComp
}

// toolWords completes the name of a tool that is stored: the others are not waited for.
func (a *app) toolWords(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	_ = a.peek(func(h *edge.Host) error {
		list, err := h.ToolStore().List()
		for _, t := range list {
			names = append(names, t.Name)
		}
		return err
	})
	return beginning(begun, names), cobra.ShellCompDirectiveNoFileComp
}

// snapshotWords completes the name of a snapshot.
func (a *app) snapshotWords(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	_ = a.peek(func(h *edge.Host) error {
		saved, err := h.Snapshots(cmd.Context(), a.project)
		for _, s := range saved {
			names = append(names, s.Name)
		}
		return err
	})
	return beginning(begun, names), cobra.ShellCompDirectiveNoFileComp
}

func beginning(begun string, words []string) []cobra.Completion {
	var fit []cobra.Completion
	for _, w := range words {
		if strings.HasPrefix(w, begun) {
			fit = append(fit, w)
		}
	}
	return fit
}

// peek is with for who waits for nobody and makes nothing: it fails where the
// store cannot be had at once.
func (a *app) peek(work func(*edge.Host) error) error {
	dir, err := a.dataDirectory()
	if err != nil {
		return err
	}
	if _, missing := a.noData(); missing {
		return host.ErrNotFound
	}
	h, err := edge.Open(dir, edge.Options{Paused: true})
	if err != nil {
		return err
	}
	return errors.Join(work(h), h.Close())
}

// sessionArgument completes the session of a command that takes it as its
// argument, too, and still can.
func (a *app) sessionArgument(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || cmd.Args == nil || cmd.Args(cmd, []string{"any"}) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.sessionWords(cmd, args, begun)
}

// sessionWords completes a session's name or uid.
func (a *app) sessionWords(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var fit []cobra.Completion
	if _, missing := a.noData(); !missing {
		_ = a.inquire(func(i *inquiry) (err error) {
			i.hasty = true
			fit, err = sessionsBeginning(cmd.Context(), i, a.project, begun)
			return err
		})
	}
	return fit, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// sessionsBeginning are the newest sessions whose name or uid begins with begun.
func sessionsBeginning(ctx context.Context, i *inquiry, project, begun string) ([]cobra.Completion, error) {
	const most, looked = 100, 2000
	var fit []cobra.Completion
	req := host.ListRequest{Project: project, Limit: pageSize}
	for range looked / pageSize {
		r, err := i.ask(ctx, question{Op: opList, List: &req})
		if err != nil {
			return nil, err
		}
		for _, s := range r.Page.Sessions {
			word := wordBeginning(s, begun)
			if word == "" {
				continue
			}
			about := fmt.Sprintf("%s %s turns=%d", oneLine(s.Harness), s.State, s.Turns)
			if fit = append(fit, cobra.CompletionWithDesc(word, about)); len(fit) == most {
				return fit, nil
			}
		}
		if req.Token = r.Page.Next; req.Token == "" {
			break
		}
	}
	return fit, nil
}

// wordBeginning is how a session is called by a word that begins with begun: its
// name, its uid, or the uid without what all have in common. It is empty if
// nothing begins so.
func wordBeginning(s host.Session, begun string) string {
	for _, word := range []string{s.Name, string(s.UID), strings.TrimPrefix(string(s.UID), "sess-")} {
		if word != "" && strings.HasPrefix(word, begun) {
			return word
		}
	}
	return ""
}

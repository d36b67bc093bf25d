package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentcell/agentcell/host/secret"
)

func newSecretCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Keep keys, encrypted, for models and tools",
		Long: `A secret is a value with a name. agentcell.yaml says where it is needed: secret:NAME stands
for it there. It is looked up for each call and enters no cell, journal, log or error.

Secrets are of a data directory, in the file "secrets", encrypted with the key in
"secrets.key", which only you may read. Without that key they are lost; who has both files
has the secrets. docs/secrets.md says what that protects from. A second terminal may set a
secret while an agentctl has the store.`,
		Example: `  printf '%s' "not a real key" | agentctl secret set github
  agentctl secret list
  agentctl secret rm github`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSecretSetCommand(a), newSecretListCommand(a), newSecretRmCommand(a))
	return cmd
}

// secrets are those of the data directory.
func (a *app) secrets() (*secret.Store, error) {
	dir, err := a.dataDirectory()
	if err != nil {
		return nil, err
	}
	return secret.In(dir, a.now), nil
}

// oneSecret takes one name. One that is none may be a value and is not repeated.
func oneSecret(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s takes one name, and there are %d; see %s --help", called(cmd), len(args), cmd.CommandPath())
	}
	return secret.CheckName(args[0])
}

func newSecretSetCommand(a *app) *cobra.Command {
	var variable string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Keep a value under a name",
		Long: `set reads the value from stdin, without the line break at its end; at a terminal it asks,
and shows nothing of what is typed. Arguments can be seen by others, so a value never is one.
A secret that has the name is replaced; what runs takes the new one from its next call on.`,
		Example: `  printf '%s' "not a real key" | agentctl secret set anthropic
  TOKEN=not-a-real-key agentctl secret set github --from-env TOKEN`,
		Args: oneSecret,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSecretSet(cmd.Context(), a, args[0], variable)
		},
	}
	cmd.Flags().Var(text(&variable, ""), "from-env", "take the value of the environment variable `VAR`")
	return cmd
}

func runSecretSet(ctx context.Context, a *app, name, variable string) error {
	store, err := a.secrets()
	if err != nil {
		return err
	}
	var value string
	if variable != "" {
		if value = a.getenv(variable); value == "" {
			return usagef("--from-env %q: it is not set, or empty", variable)
		}
	} else if value, err = a.readSecret(ctx, name); err != nil {
		return err
	}
	if err := store.Set(name, value); err != nil {
		return err
	}
	if a.json {
		a.object(struct {
			Set string `json:"set"`
		}{name})
		return nil
	}
	a.line("set " + name)
	return nil
}

// readSecret reads a value from stdin, or asks a person for it.
func (a *app) readSecret(ctx context.Context, name string) (string, error) {
	if in, ok := a.stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		return a.askSecret(ctx, in, name)
	}
	value, err := wait(ctx, func() ([]byte, error) {
		return io.ReadAll(io.LimitReader(a.stdin, secret.MaxValue+3)) // a line break more is none too many
	})
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	value = bytes.TrimSuffix(value, []byte("\n"))
	return string(bytes.TrimSuffix(value, []byte("\r"))), nil
}

// askSecret asks at a terminal, which is left as it was, whatever happens.
func (a *app) askSecret(ctx context.Context, in *os.File, name string) (string, error) {
	before, err := term.GetState(int(in.Fd()))
	if err != nil {
		return "", fmt.Errorf("use the terminal: %w", err)
	}
	restore := func() {
		_ = term.Restore(int(in.Fd()), before) // there is nothing to be done about it
		a.note("")                             // the line break that was typed does not show
	}
	a.beforeExit.Store(&restore)
	defer a.beforeExit.Store(nil)
	defer restore()
	a.note("the value of %s, which is not shown:", name)
	value, err := wait(ctx, func() ([]byte, error) { return term.ReadPassword(int(in.Fd())) })
	if errors.Is(err, io.EOF) {
		return "", usagef("there is no value; nothing was changed")
	}
	return string(value), err
}

func newSecretListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the names of the secrets",
		Long:  `list shows names, and when each was set, never a value: no command does.`,
		Example: `  agentctl secret list
  agentctl secret list --json`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error { return runSecretList(a) },
	}
}

func runSecretList(a *app) error {
	store, err := a.secrets()
	if err != nil {
		return err
	}
	list, err := store.List()
	if err != nil {
		return err
	}
	if a.json {
		for _, e := range list {
			a.object(e)
		}
		return nil
	}
	if len(list) == 0 {
		a.note("there are no secrets; %s NAME makes one", a.inPlace("secret set"))
		return nil
	}
	var rows [][]string
	for _, e := range list {
		rows = append(rows, []string{e.Name, e.Set.Format(time.RFC3339)})
	}
	a.data([]byte(new(table).format([]string{"NAME", "SET"}, rows)))
	return nil
}

func newSecretRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a secret",
		Long:  `rm removes a secret. A call that needs it fails from then on, and says so.`,
		Example: `  TOKEN=not-a-real-key agentctl secret set github --from-env TOKEN
  agentctl secret rm github`,
		Args: oneSecret,
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := a.secrets()
			if err != nil {
				return err
			}
			if err := store.Remove(args[0]); err != nil {
				return err
			}
			a.removed(args[0])
			return nil
		},
	}
}

// secretWords completes the name of a secret.
func (a *app) secretWords(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	if store, err := a.secrets(); err == nil {
		list, _ := store.List()
		for _, e := range list {
			names = append(names, e.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

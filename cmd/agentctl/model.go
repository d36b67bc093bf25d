package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/model/route"
)

func newModelCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "model",
		Short: "See which models there are, and try one",
		Long: `A model is found by its name, in the table of agentcell.yaml: in the data directory, or
the file of --config-file. docs/models.md has everything that may stand there. A key is
never in the file, but in the environment variable that it names. The model echo needs
neither file nor key.`,
		Example: `  agentctl model list
  agentctl model test echo`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newModelListCommand(a), newModelTestCommand(a))
	return cmd
}

func newModelListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the models",
		Long: `list shows the table of models, in which the first line that matches a name counts. In
a name, * stands for any text. For each: the provider and what that calls the model, where
its key is, whether it is set there, and where calls go. Nothing is called.`,
		Example: `  agentctl model list
  agentctl model list --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runModelList(cmd.Context(), a) },
	}
}

// models is the table of models, which needs no store.
func (a *app) models(ctx context.Context) (*route.Table, error) {
	dir, err := a.dataDirectory()
	if err != nil {
		return nil, err
	}
	o, err := a.options(ctx, "")
	if err != nil {
		return nil, err
	}
	return edge.Models(dir, o)
}

type modelJSON struct {
	Model    string `json:"model"`
	Provider string `json:"provider"`
	API      string `json:"api,omitempty"`
	Upstream string `json:"upstream,omitempty"`
	URL      string `json:"url,omitempty"`
	Key      string `json:"key,omitempty"`
	// Set tells whether a key that is wanted is there.
	Set     bool `json:"key_set"`
	Default bool `json:"default,omitempty"`
}

func runModelList(ctx context.Context, a *app) error {
	models, err := a.models(ctx)
	if err != nil {
		return err
	}
	standard := models.DefaultModel()
	all := []modelJSON{{Model: edge.EchoModel, Provider: "built in", Default: standard == ""}}
	for _, l := range models.Lines() {
		all = append(all, modelJSON{
			Model: l.Name, Provider: l.Provider, API: l.API, Upstream: l.Upstream, URL: l.URL,
			Key: l.Key, Set: l.Key != "" && l.KeyProblem == "", Default: l.Name == standard,
		})
	}
	var rows [][]string
	for _, m := range all {
		if a.json {
			a.object(m)
			continue
		}
		rows = append(rows, []string{oneLine(m.Model), oneLine(m.Provider), oneLine(m.Upstream), m.keyText(), oneLine(m.URL)})
	}
	if !a.json {
		a.data([]byte(new(table).format([]string{"MODEL", "PROVIDER", "UPSTREAM", "KEY", "URL"}, rows)))
	}
	return nil
}

func (m modelJSON) keyText() string {
	switch {
	case m.Key == "":
		return "none"
	case m.Set:
		return m.Key + " set"
	}
	return m.Key + " not set"
}

// attemptNotes tells a person of attempts of a model call that have failed and may
// be made again: what else fails is an error of the turn. It is a slog.Handler.
type attemptNotes struct{ *output }

// Enabled implements slog.Handler.
func (attemptNotes) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (n attemptNotes) Handle(_ context.Context, r slog.Record) error {
	facts := map[string]slog.Value{}
	r.Attrs(func(at slog.Attr) bool {
		facts[at.Key] = at.Value
		return true
	})
	if !facts["retry"].Bool() {
		return nil
	}
	status := "no answer"
	if code := facts["status"].Int64(); code != 0 {
		status = fmt.Sprintf("status %d", code)
	}
	n.note("attempt %d of model %s failed: %s from provider %s", facts["attempt"].Int64()+1, facts["model"], status, facts["provider"])
	return nil
}

// WithAttrs implements slog.Handler.
func (n attemptNotes) WithAttrs([]slog.Attr) slog.Handler { return n }

// WithGroup implements slog.Handler.
func (n attemptNotes) WithGroup(string) slog.Handler { return n }

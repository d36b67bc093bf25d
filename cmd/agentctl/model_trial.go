package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/echo"
	"github.com/agentcell/agentcell/sdk/abi"
)

// trialPrompt is what model test says: the answer to it is short.
const trialPrompt = "Answer with the word ok."

func newModelTestCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "test NAME",
		Short: "Call a model once",
		Long: `test makes one small call, which may cost a little, and shows what it came to: the
provider, what that calls the model that answered, the time until the answer began and until
it was whole, the tokens, and the answer. It is made and retried like a call of a turn, but
nothing is recorded.`,
		Example: `  agentctl model test echo
  agentctl model test echo --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("model test takes one model, and there are %d; agentctl model list shows them", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runModelTest(cmd.Context(), a, args[0]) },
	}
}

// modelTrialJSON is what a trial came to.
type modelTrialJSON struct {
	Model    string `json:"model"`
	Provider string `json:"provider"`
	Upstream string `json:"upstream,omitempty"`
	// First is the time until the answer began, Total until it was whole, in
	// milliseconds; Attempts is how often it was asked for.
	First    float64    `json:"first_ms"`
	Total    float64    `json:"total_ms"`
	Attempts int64      `json:"attempts,omitempty"`
	Usage    *abi.Usage `json:"usage,omitempty"`
	Answer   string     `json:"answer"`
}

func runModelTest(ctx context.Context, a *app, name string) error {
	models, err := a.models(ctx)
	if err != nil {
		return err
	}
	out := modelTrialJSON{Model: name, Provider: "built in"}
	provider := model.Provider(echo.Provider{})
	if name != edge.EchoModel {
		line, ok := models.Find(name)
		if !ok {
			return &adviceError{fmt.Errorf("model %q: %w", name, host.ErrNotFound), a.agentctl("model list") + " shows those there are"}
		}
		out.Provider, out.Upstream, provider = line.Provider, line.Upstream, models.Route(name)
	}
	begun := a.now()
	since := func() float64 { return float64(a.now().Sub(begun)) / float64(time.Millisecond) }
	req := model.Request{Call: abi.ModelCall{Model: name, Messages: []abi.Message{abi.Text(abi.RoleUser, trialPrompt)}}}
	result, err := provider.Complete(ctx, req, func(d model.Delta) {
		if out.First == 0 {
			out.First = since()
		}
	})
	if err != nil {
		return fmt.Errorf("model %q: %w", name, err)
	}
	out.Total, out.Usage, out.Answer, out.Attempts = since(), result.Usage, result.Message.Text(), models.Attempts()
	a.modelTrial(out)
	return nil
}

func (o *output) modelTrial(t modelTrialJSON) {
	if o.json {
		o.object(t)
		return
	}
	facts := []fact{
		{"model", t.Model},
		{"provider", t.Provider},
		{"upstream", t.Upstream},
		{"first", fmt.Sprintf("%.0f ms", t.First)},
		{"total", fmt.Sprintf("%.0f ms", t.Total)},
	}
	if t.Usage != nil {
		facts = append(facts,
			fact{"served by", t.Usage.Model},
			fact{"tokens", fmt.Sprintf("%d in, %d out", t.Usage.InputTokens, t.Usage.OutputTokens)})
	}
	if t.Attempts > 1 {
		facts = append(facts, fact{"attempts", fmt.Sprint(t.Attempts)})
	}
	facts = append(facts, fact{"answer", t.Answer})
	o.facts(facts)
}

package main

import (
	"fmt"
	"iter"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// tally counts what turns took, by their records: those of a part of a session. What
// they cost is what it costs now.
type tally struct {
	price func(model string) (host.Price, bool)

	turns, modelCalls, toolCalls, served, tokens, cost int64
	// unpriced: a model was asked that has no price here.
	unpriced bool
	model    string // of the call at hand
}

// follow counts records as they go by.
func (t *tally) follow(records iter.Seq2[host.Record, error]) iter.Seq2[host.Record, error] {
	return func(yield func(host.Record, error) bool) {
		for r, err := range records {
			if err == nil {
				t.add(r.Event)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// all counts all records.
func (t *tally) all(records iter.Seq2[host.Record, error]) error {
	for _, err := range t.follow(records) {
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tally) add(e *abi.Event) {
	switch {
	case e.ExecutionStart != nil:
		t.turns++
	case e.Model != nil:
		t.modelCalls++
		t.model = e.Model.Model
		if _, ok := t.price(t.model); !ok {
			t.unpriced = true
		}
	case e.Tool != nil:
		t.toolCalls++
	case e.Result != nil && e.Cell != nil && e.Cell.Source != "":
		t.served++
	case e.Usage != nil && e.Cell != nil && e.Cell.CallID != "": // not what a harness says itself
		t.tokens += int64(e.Usage.InputTokens + e.Usage.OutputTokens)
		if price, ok := t.price(t.model); ok {
			t.cost += price.Cost(int64(e.Usage.InputTokens), int64(e.Usage.OutputTokens))
		}
	}
}

type tallyJSON struct {
	Turns      int64 `json:"turns"`
	ModelCalls int64 `json:"model_calls"`
	ToolCalls  int64 `json:"tool_calls"`
	// Served of them had a recorded result.
	Served int64 `json:"tool_calls_served"`
	Tokens int64 `json:"tokens"`
	// Cost, in millionths, is left out where a model has no price.
	Cost *int64 `json:"cost_micros,omitempty"`
}

func (t *tally) json() tallyJSON {
	out := tallyJSON{Turns: t.turns, ModelCalls: t.modelCalls, ToolCalls: t.toolCalls, Served: t.served, Tokens: t.tokens}
	if !t.unpriced {
		out.Cost = &t.cost
	}
	return out
}

func (t *tally) costText() string {
	if t.unpriced {
		return "-"
	}
	return host.Amounts{Cost: t.cost}.Text("cost")
}

// totals writes what both sides of a comparison took.
func (a *app) totals(title string, names [2]string, sides [2]*tally) {
	var rows [][]string
	for i, t := range sides {
		rows = append(rows, []string{
			names[i], fmt.Sprint(t.turns), fmt.Sprint(t.modelCalls), fmt.Sprint(t.toolCalls), fmt.Sprint(t.served), fmt.Sprint(t.tokens), t.costText(),
		})
	}
	header := []string{strings.ToUpper(title), "TURNS", "MODEL CALLS", "TOOL CALLS", "SERVED", "TOKENS", "COST"}
	table := table{most: a.columns, elastic: []int{0}}
	a.data([]byte(table.format(header, rows)))
}

// calledName is what one calls a session.
func calledName(s host.Session) string {
	if s.Name != "" {
		return s.Name
	}
	return string(s.UID)
}

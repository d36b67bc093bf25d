package main

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
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
	// asked has the calls of tools, by id, that the turn at hand has no results of.
	asked map[string]bool
	// open: the turn at hand began before what is counted, and has not gone on yet.
	open bool
}

// tallyBehind counts what a session has behind a point. Of a turn that is open there it
// knows what stands before.
func tallyBehind(ctx context.Context, h *edge.Host, uid abi.SessionID, at abi.Seq) (*tally, error) {
	t := &tally{price: h.Price}
	start, err := openAt(h, uid, at)
	if err != nil || start == 0 {
		return t, err
	}
	before := &tally{price: h.Price}
	if err := before.all(h.Replay(ctx, uid, start, at)); err != nil {
		return nil, err
	}
	t.model, t.asked, t.open = before.model, before.asked, true
	return t, nil
}

// openAt is the EXECUTION_START of the turn that is open at a point, 0 if none is.
func openAt(h *edge.Host, uid abi.SessionID, at abi.Seq) (abi.Seq, error) {
	if at == 0 {
		return 0, nil
	}
	for r, err := range h.Journal().ReadReverse(uid, at, 1) {
		if err != nil {
			return 0, err
		}
		e, err := eventOf(r)
		if err != nil {
			return 0, err
		}
		switch e.Kind {
		case abi.EventExecutionStart:
			return r.Seq, nil
		case abi.EventEnd:
			return 0, nil
		}
	}
	return 0, nil
}

// eventOf is the event of a record, without what stands in blobs.
func eventOf(r journal.Record) (*abi.Event, error) {
	encoded, _, _, err := journal.ParseLine(r.Line)
	if err != nil {
		return nil, err
	}
	return abi.DecodeEvent(encoded)
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
	if t.open && e.Kind != abi.EventLifecycle {
		t.turns++
		t.open = false
	}
	switch {
	case e.ExecutionStart != nil:
		t.turns++
		t.asked = map[string]bool{}
	case e.Model != nil:
		t.modelCalls++
		t.model = e.Model.Model
		if _, ok := t.price(t.model); !ok {
			t.unpriced = true
		}
	case e.Tool != nil:
		t.asked[e.Tool.ID] = true
	case e.Result != nil:
		asked := t.asked[e.Result.ID] // else the harness called it itself
		delete(t.asked, e.Result.ID)
		switch {
		case e.Cell != nil && e.Cell.Source != "":
			t.served++
		case asked && !turn.NotMade(e.Result):
			t.toolCalls++
		}
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
	// ToolCalls were made; Served were given a recorded result in place of that.
	ToolCalls int64 `json:"tool_calls"`
	Served    int64 `json:"tool_calls_served"`
	Tokens    int64 `json:"tokens"`
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

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// What is told of turns that did not complete is bounded: so many turns, so many
// calls of each, and so much of the arguments and of the result of a call.
const (
	maxTurnsTold = 4
	maxCallsTold = 20
	maxTold      = 500
)

// unfinished tells of the turns since the last one that the conversation has: they
// failed or were canceled, and a memory that is put back knows nothing of them. What
// their tools did to the world is not put back, though, and an agent that does not
// know may do it twice. There is a note for each turn that called tools; what else
// was said in it is left out, as people ask again.
//
// It reads what is new in the record, which mostly is one END.
func (v *conversation) unfinished(ctx context.Context, t *sdk.Turn) ([]string, error) {
	type turn struct {
		from, end abi.Seq
		state     abi.EndState
	}
	var turns []turn
	for record, err := range t.History(ctx, sdk.HistoryQuery{From: v.Seen + 1, Kinds: []abi.EventKind{abi.EventEnd}}) {
		if err != nil {
			return nil, err
		}
		if end := record.Event.End; end != nil && end.State != abi.StateCompleted {
			turns = append(turns, turn{v.Seen + 1, record.Seq, end.State})
		}
		v.Seen = record.Seq
	}
	var notes []string
	if more := len(turns) - maxTurnsTold; more > 0 {
		notes = append(notes, fmt.Sprintf("[%d turns before this one did not complete; these are the last of them.]", len(turns)))
		turns = turns[more:]
	}
	for _, u := range turns {
		calls, err := effects(ctx, t, u.from, u.end)
		if err != nil {
			return nil, err
		}
		if len(calls) > 0 {
			notes = append(notes, fmt.Sprintf(
				"[A turn before this one ended as %s, and you remember nothing of it. What tools did in it is done:\n%s]",
				u.state, strings.Join(calls, "\n"),
			))
		}
	}
	return notes, nil
}

// effects are the tool calls in the record from a seq on and before another, with
// what came of them, a line each.
func effects(ctx context.Context, t *sdk.Turn, from, before abi.Seq) ([]string, error) {
	calls, err := t.PastCalls(ctx, from, before)
	if err != nil {
		return nil, err
	}
	var lines []string
	if more := len(calls) - maxCallsTold; more > 0 {
		lines = append(lines, fmt.Sprintf("%d calls, and then", more))
		calls = calls[more:]
	}
	for _, c := range calls {
		outcome := "no result is known"
		switch {
		case c.Result != nil:
			outcome = resultText(c.Result)
		case c.MissingApprovals > 0:
			outcome = "not made, as it was not approved"
		}
		args := c.Call.Args
		if c.Edited {
			args = append(slices.Clip(args), " (changed by a person)"...)
		}
		lines = append(lines, fmt.Sprintf("%s %.*s: %.*s", c.Call.Tool, maxTold, args, maxTold, outcome))
	}
	return lines, nil
}

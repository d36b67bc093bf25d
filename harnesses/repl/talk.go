package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// talk is what was said, a list of messages for each question or piece of code of a
// person. It needs no summary when it grows too long: what is worth keeping is in the
// variables, and the model is told of those.
type talk struct {
	said [][]abi.Message
	left int // how many were left out
}

// What stands around code that a person ran.
const (
	ranHead   = "[I ran this in the console:]\n"
	ranResult = "\n[It came to:]\n"
)

func (k *talk) add(messages []abi.Message) { k.said = append(k.said, messages) }

// fit leaves out the oldest of what was said until the rest takes at most so many
// bytes.
func (k *talk) fit(most int) {
	total := 0
	for n, messages := range slices.Backward(k.said) {
		for _, m := range messages {
			total += sizeOf(m)
		}
		if total > most {
			k.left += n + 1
			k.said = slices.Clone(k.said[n+1:])
			return
		}
	}
}

// sizeOf is roughly the bytes of a message.
func sizeOf(m abi.Message) int {
	size := 0
	for _, p := range m.Parts {
		switch {
		case p.Text != nil:
			size += len(p.Text.Text)
		case p.Data != nil:
			size += len(p.Data.Data)
		case p.Reasoning != nil:
			size += len(p.Reasoning.OpaqueBytes)
		case p.File != nil:
			size += len(p.File.Bytes)
		case p.ToolCall != nil:
			size += len(p.ToolCall.Args)
		case p.ToolResult != nil:
			size += len(p.ToolResult.Error)
			size += sizeOf(abi.Message{Parts: p.ToolResult.Content})
		}
	}
	return size
}

// What lost tells is bounded: so many turns, and so many calls of each.
const (
	maxTurnsTold = 3
	maxCallsTold = 20
)

// lost tells of the turns since the last one that completed: of what they did to
// variables nothing is left, but what their tools did is done. It is empty if there are none.
// It reads what is new in the record, which mostly is one END.
func (r *repl) lost(ctx context.Context, t *sdk.Turn) (string, error) {
	type turn struct {
		from, before abi.Seq
		end          *abi.HarnessEnd
	}
	var turns []turn
	for record, err := range t.History(ctx, sdk.HistoryQuery{From: r.seen + 1, Kinds: []abi.EventKind{abi.EventEnd}}) {
		if err != nil {
			return "", err
		}
		if end := record.Event.End; end != nil && end.State != abi.StateCompleted {
			turns = append(turns, turn{r.seen + 1, record.Seq, end})
		}
		r.seen = record.Seq
	}
	var notes []string
	for _, u := range turns[max(0, len(turns)-maxTurnsTold):] {
		calls, err := t.PastCalls(ctx, u.from, u.before)
		if err != nil {
			return "", err
		}
		notes = append(notes, lostNote(u.end, calls))
	}
	return strings.Join(notes, "\n"), nil
}

func lostNote(end *abi.HarnessEnd, calls []sdk.PastCall) string {
	why := ""
	if end.Error != nil {
		why = fmt.Sprintf(" (%.200s)", end.Error.Description)
	}
	note := fmt.Sprintf("[A turn before this one ended as %s%s: what it did to variables is undone.", end.State, why)
	if len(calls) > 0 {
		note += " What came of its tool calls is not:"
	}
	for _, c := range calls[max(0, len(calls)-maxCallsTold):] {
		note += fmt.Sprintf("\n%s(%.200s): %.200s", c.Call.Tool, c.Call.Args, outcome(c))
	}
	return note + "]"
}

// outcome is what came of a call. A failure has the words of the host: whether the
// call was denied, was not made, or may have been.
func outcome(c sdk.PastCall) string {
	switch {
	case c.Result == nil && c.MissingApprovals > 0:
		return "not made, as it was not approved"
	case c.Result == nil:
		return "no result is known"
	case c.Result.IsError:
		return c.Result.Error
	}
	return "done"
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

type showOptions struct {
	session sessionFlag
	seq     int64
	given   func(flag string) bool
}

func newShowCommand(a *app) *cobra.Command {
	var opts showOptions
	cmd := &cobra.Command{
		Use:   "show --session S --seq N",
		Short: "Show one record in full, of a call what was asked and what came of it",
		Long: `show prints everything that one record says. The record of a model call names its
prompt by digest; show puts the prompt together again, checks it against the record's
input_hash, and adds the answer; to a tool call it adds the result. Text keeps its line
breaks and is indented; what else a message has is shown as JSON.

With --json it is the object that replay prints, with "prompt" and "answer" added.`,
		Example: `  agentctl show --session demo --seq 4
  agentctl show demo --seq 4 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.given = cmd.Flags().Changed
			return runShow(cmd.Context(), a, opts)
		},
	}
	opts.session.add(cmd)
	cmd.Flags().Int64Var(&opts.seq, "seq", 0, "the record's seq `N`")
	return cmd
}

func runShow(ctx context.Context, a *app, opts showOptions) error {
	switch {
	case !opts.given("seq"):
		return usagef("which record? Name one with --seq; agentctl replay shows them")
	case opts.seq < 1:
		return usagef("bad seq %d for --seq: the first record is seq 1", opts.seq)
	}
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		seq := abi.Seq(opts.seq)
		if seq > s.Head.Seq {
			return fmt.Errorf("bad seq %d: session %s ends at seq %d: %w", seq, s.UID, s.Head.Seq, host.ErrNotFound)
		}
		for r, err := range h.Replay(ctx, s.UID, seq, seq) {
			if err != nil {
				return err
			}
			if err := a.showRecord(ctx, h, s, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// shownJSON is a record with what stands elsewhere: the prompt of a model call,
// and what a call came to.
type shownJSON struct {
	recordJSON
	Prompt *abi.ModelCall `json:"prompt,omitempty"`
	Answer []recordJSON   `json:"answer,omitempty"`
}

func (a *app) showRecord(ctx context.Context, h *edge.Host, s host.Session, r host.Record) error {
	var prompt *abi.ModelCall
	if r.Event.Kind == abi.EventModelCall {
		call, err := h.Prompt(ctx, s.UID, r.Seq)
		if err != nil {
			return err
		}
		prompt = &call
	}
	var answer []host.Record
	if isCall(r.Event) && r.Seq < s.Head.Seq {
		var err error
		if answer, err = answerOf(r.Event, h.Replay(ctx, s.UID, r.Seq+1, s.Head.Seq)); err != nil {
			return err
		}
	}
	if a.json {
		out := shownJSON{recordJSON: newRecordJSON(r), Prompt: prompt}
		for _, r := range answer {
			out.Answer = append(out.Answer, newRecordJSON(r))
		}
		a.object(out)
		return nil
	}
	if err := a.recordFacts(r); err != nil {
		return err
	}
	if r.Event.Message != nil {
		if err := a.message(*r.Event.Message, ""); err != nil {
			return err
		}
	}
	if prompt != nil {
		if err := a.prompt(*prompt); err != nil {
			return err
		}
	}
	if isCall(r.Event) {
		return a.answer(answer)
	}
	return nil
}

func isCall(e *abi.Event) bool { return e.Model != nil || e.Tool != nil }

// answerOf finds the records that say what a call came to, among those that follow
// it: of a model call OUTPUT and USAGE, or ERROR; of a tool call its result, and
// before that what was asked of a person and decided. There is none where the turn
// ended, or was interrupted, before.
func answerOf(call *abi.Event, following iter.Seq2[host.Record, error]) ([]host.Record, error) {
	var answer []host.Record
	for r, err := range following {
		switch {
		case err != nil:
			return nil, err
		case answers(r.Event, call):
			answer = append(answer, r)
		case r.Event.Kind == abi.EventEnd, call.Model != nil && len(answer) > 0:
			return answer, nil
		}
	}
	return answer, nil
}

// answers reports whether e says what call came to. Both are of one turn.
func answers(e, call *abi.Event) bool {
	switch {
	case call.Model != nil:
		return e.Cell != nil && e.Cell.CallID == call.Model.ID
	case e.Result != nil:
		return e.Result.ID == call.Tool.ID
	case e.Approval != nil:
		return e.Approval.ToolCallID == call.Tool.ID
	case e.ApprovalResult != nil:
		return e.ApprovalResult.ToolCallID == call.Tool.ID
	}
	return false
}

// recordFacts writes what a record says, but for the message it may have.
func (a *app) recordFacts(r host.Record) error {
	facts := []fact{
		{"session", string(r.Session)},
		{"seq", fmt.Sprint(r.Seq)},
		{"kind", string(r.Event.Kind)},
		{"time", r.Event.Time.String()},
		{"execution", string(r.Event.ExecutionID)},
		{"fence", fmt.Sprint(r.Fence)},
		{"prev", r.PrevHash.String()},
		{"hash", r.ContentHash.String()},
	}
	more, err := eventFacts(r.Event)
	if err != nil {
		return err
	}
	width := 0
	facts = append(facts, more...)
	for _, f := range facts {
		width = max(width, len(f.name))
	}
	for _, f := range facts {
		if f.value != "" {
			a.data(fmt.Appendf(nil, "%-*s  %s\n", width, oneLine(f.name), f.value))
		}
	}
	return nil
}

// eventFacts are the members of an event and of its body, but for those that
// every record has and the message. The values are safe for a terminal.
func eventFacts(e *abi.Event) ([]fact, error) {
	bare := *e
	bare.Kind, bare.ExecutionID, bare.Time, bare.Message = "", "", abi.Time{}, nil
	encoded, err := json.Marshal(&bare)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &members); err != nil {
		return nil, err
	}
	var facts []fact
	for _, name := range slices.Sorted(maps.Keys(members)) {
		var body map[string]json.RawMessage
		if json.Unmarshal(members[name], &body) != nil {
			facts = append(facts, fact{name, valueText(members[name])})
			continue
		}
		for _, field := range slices.Sorted(maps.Keys(body)) {
			value := valueText(body[field])
			if name == "execution_start" && field == "config" {
				value = oneLine(string(e.ExecutionStart.Config))
			}
			facts = append(facts, fact{name + "." + field, value})
		}
	}
	return facts, nil
}

// valueText is a JSON value on one line: a string as it reads, else the JSON.
func valueText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return oneLine(s)
	}
	return string(safeJSON(raw))
}

// prompt writes what a model was asked.
func (a *app) prompt(call abi.ModelCall) error {
	for _, name := range slices.Sorted(maps.Keys(call.Params)) {
		a.line("param: " + name + "=" + call.Params[name])
	}
	for _, tool := range call.Tools {
		a.line(strings.TrimSpace("tool: " + tool.Name + "  " + tool.Description))
		if len(tool.InputSchema) > 0 {
			a.data(fmt.Appendf(nil, "  %s\n", safeJSON(tool.InputSchema)))
		}
	}
	if c := call.ToolChoice; c != nil {
		a.line(strings.TrimSpace("tool_choice: " + string(c.Mode) + " " + c.Name))
	}
	a.line(fmt.Sprintf("prompt: messages=%d", len(call.Messages)))
	for _, m := range call.Messages {
		if err := a.message(m, "  "); err != nil {
			return err
		}
	}
	return nil
}

// answer writes what a call came to.
func (a *app) answer(answer []host.Record) error {
	if len(answer) == 0 {
		a.line("answer: none is recorded yet, or the turn ended before one came")
		return nil
	}
	for _, r := range answer {
		text := fmt.Sprintf("answer: seq=%d %s", r.Seq, r.Event.Kind)
		if r.Event.Message == nil {
			a.line(text + "  " + eventText(r.Event))
			continue
		}
		a.line(text)
		if err := a.message(*r.Event.Message, "  "); err != nil {
			return err
		}
	}
	return nil
}

// message writes a message in full below its role. Everything in it is indented
// further than what agentctl itself says, so that no text can pass for that.
func (a *app) message(m abi.Message, indent string) error {
	a.data([]byte(indent + oneLine(m.Role) + ":\n"))
	indent += "  "
	for _, p := range m.Parts {
		text := ""
		if p.Text != nil {
			text = lines(p.Text.Text)
		} else {
			encoded, err := json.Marshal(p)
			if err != nil {
				return err
			}
			text = a.fitting(string(safeJSON(encoded)))
		}
		a.data([]byte(indent + strings.ReplaceAll(text, "\n", "\n"+indent) + "\n"))
	}
	return nil
}

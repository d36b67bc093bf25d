package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/sdk/abi"
)

// eventText is what a row says of an event, unescaped.
func eventText(e *abi.Event) string {
	switch {
	case e.Message != nil:
		return messageText(*e.Message)
	case e.Model != nil:
		return e.Model.Model
	case e.Tool != nil:
		return callText(*e.Tool)
	case e.Result != nil:
		return spaced(e.Result.ID, resultText(*e.Result), sourceText(e))
	case e.Approval != nil:
		return requestText(e)
	case e.ApprovalResult != nil:
		return decisionText(e)
	case e.Usage != nil:
		return usageText(*e.Usage)
	case e.Lifecycle != nil:
		return lifecycleText(e)
	case e.End != nil:
		return endText(e)
	case e.Error != nil:
		return e.Error.Description
	case e.Kind == abi.EventWait && e.Cell != nil:
		return spaced(e.Cell.CallID, waitText(e.Cell.Signal, e.Cell.Until))
	case e.Kind == abi.EventSignal && e.Cell != nil:
		return signalText(*e.Cell)
	case e.Kind == abi.EventExecutionStart:
		return spaced(string(e.ExecutionID), sourceText(e))
	}
	return ""
}

// sourceText names the record of another session that a record comes from: a turn's
// that it runs again, a result's that it serves.
func sourceText(e *abi.Event) string {
	if e.Cell == nil || e.Cell.Source == "" {
		return ""
	}
	text := fmt.Sprintf("of %s@%d", e.Cell.Source, e.Cell.SourceSeq)
	if e.Cell.Args != nil {
		text += ", edited to " + string(e.Cell.Args)
	}
	return "(" + text + ")"
}

func messageText(m abi.Message) string {
	parts := make([]string, len(m.Parts))
	for i, p := range m.Parts {
		parts[i] = partText(p)
	}
	return m.Role + ": " + strings.Join(parts, " ")
}

func partText(p abi.Part) string {
	switch {
	case p.Text != nil:
		return p.Text.Text
	case p.File != nil:
		name := p.File.Name
		if name == "" {
			name = p.File.URI
		}
		return "[" + strings.TrimSpace(fmt.Sprintf("file %s %s", name, p.File.MIME)) + "]"
	case p.Data != nil:
		return string(p.Data.Data)
	case p.Reasoning != nil:
		return "[" + strings.TrimSpace("reasoning "+p.Reasoning.Provider) + "]"
	case p.ToolCall != nil:
		return "[tool_call " + strings.TrimSpace(p.ToolCall.Tool+" "+string(p.ToolCall.Args)) + "]"
	case p.ToolResult != nil:
		return "[tool_result " + resultText(*p.ToolResult) + "]"
	}
	return ""
}

func resultText(r abi.ToolResult) string {
	var parts []string
	if r.IsError || r.Error != "" {
		parts = append(parts, strings.TrimSpace("error "+r.Error))
	}
	if len(r.Output) > 0 {
		parts = append(parts, string(r.Output))
	}
	for _, p := range r.Content {
		parts = append(parts, partText(p))
	}
	return strings.Join(parts, " ")
}

// spaced puts spaces between the texts that are not empty.
func spaced(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), " ")
}

func callText(c abi.ToolCall) string {
	gated := ""
	if c.Mediation == abi.MediationRequiresApproval {
		gated = "(gated)"
	}
	return spaced(c.ID, c.Tool, string(c.Args), gated)
}

// requestText is an APPROVAL_REQUEST: what about, on which terms and why.
func requestText(e *abi.Event) string {
	var cell abi.Cell
	if e.Cell != nil {
		cell = *e.Cell
	}
	var terms []string
	if cell.Args != nil {
		terms = append(terms, "edited to "+string(cell.Args))
	}
	if cell.Approvers > 1 {
		terms = append(terms, fmt.Sprintf("by %d people", cell.Approvers))
	}
	if !cell.Until.IsZero() {
		terms = append(terms, "until "+cell.Until.Format(timeFormat))
	}
	text := spaced(e.Approval.ToolCallID, strings.Join(terms, " "))
	switch {
	case e.Approval.Reason != "" && len(terms) > 0:
		text += ": " + e.Approval.Reason
	case e.Approval.Reason != "":
		text = spaced(text, e.Approval.Reason)
	}
	return text
}

// decisionText is an APPROVAL_RESULT: what was decided, by whom and why.
func decisionText(e *abi.Event) string {
	r := e.ApprovalResult
	text := spaced(r.ToolCallID, decided(r.Approved))
	if e.Actor != nil && e.Actor.Principal != "" {
		text += " by " + e.Actor.Principal
	}
	if e.Cell != nil && e.Cell.Rule != "" {
		text += fmt.Sprintf(" rule %q", e.Cell.Rule)
	}
	if e.Cell != nil && e.Cell.Args != nil {
		text += ", edited to " + string(e.Cell.Args)
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

func decided(approved bool) string {
	if approved {
		return "approved"
	}
	return "denied"
}

// waitText is what a wait is for.
func waitText(signal string, until abi.Time) string {
	switch {
	case until.IsZero():
		return fmt.Sprintf("signal %q", signal)
	case signal == "":
		return until.String()
	}
	return fmt.Sprintf("signal %q or %s", signal, until)
}

// signalText is the end of a wait: by a signal, or because its time has come.
func signalText(c abi.Cell) string {
	if c.Signal == "" {
		return spaced(c.CallID, "time has come")
	}
	payload := ""
	if !c.Payload.IsZero() {
		payload = "payload=" + c.Payload.Short()
	}
	return spaced(c.CallID, fmt.Sprintf("signal %q", c.Signal), payload)
}

func usageText(u abi.Usage) string {
	text := fmt.Sprintf("input_tokens=%d output_tokens=%d", u.InputTokens, u.OutputTokens)
	if u.ReasoningTokens != 0 {
		text += fmt.Sprintf(" reasoning_tokens=%d", u.ReasoningTokens)
	}
	return text
}

func lifecycleText(e *abi.Event) string {
	l := e.Lifecycle
	switch {
	case l.Kind == abi.LifecycleCreate && e.Cell != nil:
		return "create " + e.Cell.Harness
	case l.Kind == abi.LifecycleFork:
		return "fork " + l.Detail
	case l.Kind == abi.LifecycleUpgrade && e.Cell != nil:
		return fmt.Sprintf("upgrade %s %s root=%s", e.Cell.Harness, e.Cell.Module.Short(), e.Cell.Root.Short())
	}
	word, call := strings.ToLower(strings.TrimPrefix(string(l.Kind), "LIFECYCLE_")), ""
	if e.Cell != nil {
		call = e.Cell.CallID // RESUME: the start of an approved call
	}
	return spaced(word, call, l.Detail)
}

func endText(e *abi.Event) string {
	var cell abi.Cell
	if e.Cell != nil {
		cell = *e.Cell
	}
	text := string(e.End.State)
	if e.End.State == abi.StateCompleted {
		return text + " root=" + cell.Root.Short()
	}
	text += " " + string(cell.Reason)
	if e.End.Error != nil && e.End.Error.Description != "" {
		text += ": " + e.End.Error.Description
	}
	return text
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// A conversation is compacted when it is full. Results of tools are cut first; if
// more than enough of it is still taken then, what was said before the last
// messages is summed up. That much is left free so that it does not happen again at
// once, and because each time costs a provider's cache of the prompt. Less than
// worth is not summed up: the messages that are kept may fill it by themselves.
const (
	full   = 1.0
	enough = 0.75
	worth  = 0.125
)

const (
	summaryHead = "[What was said before this point, summed up:]\n\n"

	summaryTask = "You are an agent in the middle of a long conversation. What the user sends is the transcript of its earlier part, " +
		"which your answer will replace. Write down whatever is needed to go on without it: what was asked for and what was decided, " +
		"facts, figures, names and ids exactly as they are, which tools were called and what came of it, and what is still to be done. " +
		"Do not go on with the conversation and do not call tools. Begin with the words \"Summary so far:\"."
)

// compact makes the conversation shorter if it is full. The last messages stay as
// they are, reasoning and its signatures included, and so does what this turn was
// asked; only where they do not fit into a request, results of tools are cut in them
// as well. A tool call is never parted from its result.
func (v *conversation) compact(ctx context.Context, t *sdk.Turn, c config) error {
	if err := v.sumUp(ctx, t, c); err != nil {
		return err
	}
	for n := range v.Said {
		if c.Compaction.most == 0 || v.size().bytes <= c.Compaction.most {
			break
		}
		v.shrink(func() { v.Said = cutResults(v.Said, n+1, c.Compaction.ResultBytes) })
	}
	return nil
}

func (v *conversation) sumUp(ctx context.Context, t *sdk.Turn, c config) error {
	cut := v.cut(c.Compaction.Keep)
	if cut == 0 || c.Compaction.fill(v.size()) <= full {
		return nil
	}
	v.shrink(func() { v.Said = cutResults(v.Said, cut, c.Compaction.ResultBytes) })
	older := v.older(cut)
	if c.Compaction.fill(v.size()) <= enough || c.Compaction.fill(sizeOf(older...)) < worth {
		return nil
	}
	call := abi.ModelCall{Model: c.Model, Params: c.params(), Messages: []abi.Message{
		abi.Text(abi.RoleSystem, summaryTask),
		abi.Text(abi.RoleUser, transcript(v.Summary, v.Said[:cut])),
	}}
	answer, err := t.Model(ctx, call)
	if err != nil {
		return err
	}
	summary := answer.Message.Text()
	if strings.TrimSpace(summary) == "" {
		return &abi.Error{Code: abi.CodeInternal, Description: "agent: the conversation is too long, and the model gave no summary of it"}
	}
	v.shrink(func() { v.replace(cut, summary) })
	return nil
}

// fill is how much of the bounds something takes; 1 is all.
func (c compaction) fill(s size) float64 {
	var fill float64
	if c.MaxBytes > 0 {
		fill = float64(s.bytes) / float64(c.MaxBytes)
	}
	if c.MaxTokens > 0 {
		fill = max(fill, float64(s.tokens)/float64(c.MaxTokens))
	}
	return fill
}

// size is how much room the conversation takes.
func (v *conversation) size() size {
	return size{bytes: sizeOf(v.prompt("")...).bytes, tokens: v.Tokens}
}

// shrink does something to the conversation, and lowers Tokens in the proportion in
// which the estimate falls by it.
func (v *conversation) shrink(do func()) {
	before := sizeOf(v.prompt("")...).tokens
	do()
	after := sizeOf(v.prompt("")...).tokens
	v.Tokens = int(int64(v.Tokens) * int64(after) / int64(max(before, 1)))
}

// cut is where the messages begin that are kept: the last ones, from one that is
// no result of tools on, and what this turn was asked as a whole. What is before cut
// may be summed up.
func (v *conversation) cut(keep int) int {
	cut := max(len(v.Said)-keep, 0)
	for cut > 0 && v.Said[cut].Role == abi.RoleTool {
		cut--
	}
	if v.asked < cut && cut < v.askedEnd {
		cut = v.asked
	}
	return cut
}

// older is what a summary up to cut would do away with.
func (v *conversation) older(cut int) []abi.Message {
	if cut <= v.asked {
		return v.Said[:cut]
	}
	return slices.Concat(v.Said[:v.asked], v.Said[v.askedEnd:cut])
}

// replace puts a summary in the place of what is before cut. What this turn was
// asked comes next, even from before cut: an agent must not lose its task.
func (v *conversation) replace(cut int, summary string) {
	v.Summary = summary
	if cut <= v.asked {
		v.Said = slices.Clone(v.Said[cut:])
		v.asked, v.askedEnd = v.asked-cut, v.askedEnd-cut
		return
	}
	v.Said = slices.Concat(v.Said[v.asked:v.askedEnd], v.Said[cut:])
	v.asked, v.askedEnd = 0, v.askedEnd-v.asked
}

// cutResults gives said with the results of tools before cut at most so long.
func cutResults(said []abi.Message, cut, most int) []abi.Message {
	said = slices.Clone(said)
	for i, m := range said[:cut] {
		if m.Role != abi.RoleTool {
			continue
		}
		said[i].Parts = slices.Clone(m.Parts)
		for j, p := range m.Parts {
			if p.ToolResult != nil {
				said[i].Parts[j].ToolResult = cutResult(p.ToolResult, most)
			}
		}
	}
	return said
}

// cutMark stands behind what is left of a result. A result that is longer by little
// more than the mark is not cut: one that was cut would be again.
const cutMark = "\n[cut to save room: it had %d bytes]"

func cutResult(r *abi.ToolResult, most int) *abi.ToolResult {
	whole := sizeOf(abi.Message{Parts: []abi.Part{{ToolResult: r}}}).bytes - messageBytes
	if whole <= most+2*len(cutMark) {
		return r
	}
	text := resultText(r)
	text = strings.ToValidUTF8(text[:min(most, len(text))], "") + fmt.Sprintf(cutMark, whole)
	return &abi.ToolResult{
		ID: r.ID, IsError: r.IsError, Code: r.Code,
		Content: []abi.Part{{Text: &abi.TextPart{Text: text}}},
	}
}

// resultText is a result as a text; its files are only named.
func resultText(r *abi.ToolResult) string {
	var texts []string
	if r.Error != "" {
		texts = append(texts, r.Error)
	}
	if len(r.Content) == 0 && len(r.Output) > 0 {
		texts = append(texts, string(r.Output))
	}
	return strings.Join(append(texts, partTexts(r.Content)...), "\n")
}

// transcript is a conversation as a text to be summed up. It has neither reasoning,
// which is for the provider that it came from, nor files.
func transcript(summary string, said []abi.Message) string {
	var b strings.Builder
	if summary != "" {
		b.WriteString(summaryHead + summary + "\n\n")
	}
	for _, m := range said {
		fmt.Fprintf(&b, "%s:\n%s\n\n", m.Role, strings.Join(partTexts(m.Parts), "\n"))
	}
	return b.String()
}

func partTexts(parts []abi.Part) []string {
	var texts []string
	for _, p := range parts {
		switch {
		case p.Text != nil:
			texts = append(texts, p.Text.Text)
		case p.Data != nil:
			texts = append(texts, string(p.Data.Data))
		case p.File != nil:
			texts = append(texts, fmt.Sprintf("[file %s, %s, %d bytes]", cmp.Or(p.File.Name, p.File.URI, "without a name"), p.File.MIME, len(p.File.Bytes)))
		case p.ToolCall != nil:
			texts = append(texts, fmt.Sprintf("[call %s of %s] %s", p.ToolCall.ID, p.ToolCall.Tool, p.ToolCall.Args))
		case p.ToolResult != nil:
			texts = append(texts, fmt.Sprintf("[result of %s] %s", p.ToolResult.ID, resultText(p.ToolResult)))
		}
	}
	return texts
}

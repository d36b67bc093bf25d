package main

import (
	"fmt"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// view shows what a session says: answers are data, the rest is beside it.
type view struct {
	*output
	// live: a person watches, and sees an answer as it comes.
	live bool
	// shown is what of the next answer stands on the screen.
	shown strings.Builder
}

// update shows what a turn does, at once.
func (v *view) update(u host.Update) {
	switch {
	case v.json:
		v.output.update(u)
		return
	case u.Delta != nil:
		v.piece(*u.Delta)
	case u.Record != nil:
		v.record(*u.Record)
	}
	_ = v.flush() // what fails is reported between turns
}

// piece shows a piece of an answer to who watches.
func (v *view) piece(d host.Delta) {
	if !v.live {
		return
	}
	if d.Reset && v.shown.Len() > 0 {
		v.aside("the answer broke off and is asked for again")
		v.shown.Reset()
	}
	v.shown.WriteString(d.Text)
	v.stream(lines(d.Text))
}

// record shows a committed record.
func (v *view) record(r host.Record) {
	if v.json {
		v.output.record(r)
		return
	}
	switch e := r.Event; {
	case e.Kind == abi.EventOutput && e.Message != nil:
		v.answer(answerText(*e.Message))
	case e.Kind == abi.EventModelCall:
		v.end()
	case e.Tool != nil:
		v.aside(v.brief(spaced(e.Tool.Tool, string(e.Tool.Args))))
	case e.Result != nil:
		v.aside(v.brief("= " + resultText(*e.Result)))
	case e.ApprovalResult != nil:
		v.aside(v.brief(decisionText(e)))
	case e.Kind == abi.EventSignal && e.Cell != nil:
		v.aside(v.brief(signalText(*e.Cell)))
	}
}

// past shows a record of a turn that was before this chat.
func (v *view) past(r host.Record) {
	switch e := r.Event; {
	case e.Kind == abi.EventInput && e.Message != nil:
		v.data([]byte(v.outStyle.strong + chatPrompt + v.outStyle.reset + lines(v.fitting(answerText(*e.Message))) + "\n"))
	case e.End != nil && e.End.State != abi.StateCompleted:
		v.aside(v.brief(endText(e)))
	default:
		v.record(r)
	}
	_ = v.flush()
}

// answer shows an answer, of which all or the beginning may stand there already.
func (v *view) answer(text string) {
	shown := v.shown.String()
	rest, begun := strings.CutPrefix(text, shown)
	switch {
	case text == "":
	case shown != "" && begun:
		v.stream(lines(rest))
	default:
		if shown != "" {
			v.aside("the answer is:")
		}
		v.data([]byte(strings.TrimSuffix(lines(text), "\n") + "\n"))
	}
	v.end()
}

// end ends the line that an answer left open.
func (v *view) end() {
	v.shown.Reset()
	v.breakLine()
}

// brief makes a line of a text that only says what goes on, and not too long a
// one. Nothing is cut where a person is to decide.
func (v *view) brief(text string) string {
	const most = 400
	text = oneLine(text)
	if runes := []rune(text); v.live && len(runes) > most {
		return fmt.Sprintf("%s … (%d characters more; agentctl show has them)", string(runes[:most]), len(runes)-most)
	}
	return text
}

// answerText is what of a message is said: its text, and on lines of their own the
// other parts, but for tool calls, which have records of their own.
func answerText(m abi.Message) string {
	var (
		b    strings.Builder
		last *abi.TextPart
	)
	for _, p := range m.Parts {
		if p.ToolCall != nil || p.Reasoning != nil {
			continue
		}
		if b.Len() > 0 && (last == nil || p.Text == nil) {
			b.WriteByte('\n')
		}
		b.WriteString(partText(p))
		last = p.Text
	}
	return b.String()
}

// stream writes a piece of an answer that is safe for a terminal to stdout, at
// once.
func (o *output) stream(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if text == "" {
		return
	}
	if o.midLine != o.out {
		o.endDeltas()
	}
	if _, err := o.out.WriteString(text); err != nil && o.broken == nil {
		o.broken = err
	}
	o.midLine = nil
	if !strings.HasSuffix(text, "\n") {
		o.midLine = o.out
	}
	o.flushLocked()
}

// breakLine ends the line that a piece of an answer left open.
func (o *output) breakLine() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endDeltas()
	o.flushLocked()
}

// aside tells what goes on beside an answer, unless told to be quiet.
func (o *output) aside(text string) {
	if !o.quiet {
		o.beside(o.errStyle.dim, text)
	}
}

// beside writes a text to stderr in a style.
func (o *output) beside(style, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endDeltas()
	o.flushLocked()
	reset := ""
	if style != "" {
		reset = o.errStyle.reset
	}
	fmt.Fprintln(o.err, style+lines(text)+reset)
}

package main

import (
	"fmt"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// diffView shows the steps of a comparison, one after the other: records of A and B, of
// which one may be missing.
type diffView interface {
	step(turn int64, alike bool, x, y *host.Record)
	// end is behind the last step.
	end()
}

// objectsView is that of --json.
type objectsView struct{ *output }

type stepJSON struct {
	Kind  abi.EventKind `json:"kind"`
	Alike bool          `json:"alike"`
	A     *recordJSON   `json:"a,omitempty"`
	B     *recordJSON   `json:"b,omitempty"`
}

func (v objectsView) step(_ int64, alike bool, x, y *host.Record) {
	s := stepJSON{Kind: kindOf(x, y), Alike: alike}
	if y != nil {
		r := newRecordJSON(*y)
		s.B = &r
	}
	if x != nil {
		r := newRecordJSON(*x)
		s.A = &r
	}
	v.object(s)
}

func (objectsView) end() {}

// recordsView shows what differs in full, A's record above B's.
type recordsView struct {
	*output
	run int64 // alike steps since the last row
}

func (v *recordsView) step(_ int64, alike bool, x, y *host.Record) {
	if alike {
		v.run++
		return
	}
	v.end()
	if x != nil {
		v.side("-", *x)
	}
	if y != nil {
		v.side("+", *y)
	}
}

// end says how many steps were alike since the last row.
func (v *recordsView) end() {
	if v.run > 0 {
		v.line(fmt.Sprintf("  %d alike", v.run))
		v.run = 0
	}
}

// side writes one side of a difference.
func (v *recordsView) side(mark string, r host.Record) {
	v.data([]byte(mark + " " + v.rowOf(r, comparedText(r.Event))))
}

// comparedText is what a row says of an event: what is compared of it.
func comparedText(e *abi.Event) string {
	switch {
	case e.Model != nil:
		return fmt.Sprintf("%s prompt=%.12s", e.Model.Model, e.Model.InputHash)
	case e.ExecutionStart != nil && e.Cell != nil:
		text := fmt.Sprintf("%s %s module=%s model=%s %s", e.ExecutionStart.Harness, e.ExecutionStart.HarnessVersion,
			e.Cell.Module.Short(), e.Cell.Model, e.ExecutionStart.Config)
		return strings.TrimSpace(text)
	}
	return eventText(e)
}

// columnsView shows both sides in columns that fit a line.
type columnsView struct {
	*output
	width int // of each side
	begun bool
	names [2]string
	run   int64 // alike steps since the last row
	// input is that of the turn at hand, which nothing has been shown of yet; nil if
	// there is none, or it differs.
	input *host.Record
}

// The widths of the columns for the turn and the kind of step, and of a mark.
const (
	turnColumn, kindColumn, markColumn = 6, 10, 3
	// plainWidth is that of a line which goes to no terminal.
	plainWidth  = 120
	leastColumn = 12
)

func newColumnsView(a *app, x, y host.Session) *columnsView {
	width := a.columns
	if width == 0 {
		width = plainWidth
	}
	return &columnsView{
		output: a.output, width: max(leastColumn, (width-turnColumn-kindColumn-markColumn)/2),
		names: [2]string{oneLine(calledName(x)), oneLine(calledName(y))},
	}
}

func (v *columnsView) step(turn int64, alike bool, x, y *host.Record) {
	switch kind := kindOf(x, y); {
	case kind == abi.EventExecutionStart:
		v.input = nil
	case kind == abi.EventInput && alike:
		v.input = x
	}
	if alike {
		v.run++
		return
	}
	if v.input != nil {
		v.run--
	}
	v.end()
	if !v.begun {
		v.begun = true
		v.row("TURN", "STEP", v.names[0], " ", v.names[1])
	}
	if v.input != nil {
		text := oneLine(columnText(v.input.Event))
		v.row(fmt.Sprint(turn), stepName(abi.EventInput), text, " ", text)
		v.input = nil
	}
	mark, left, right := "|", "", ""
	if x != nil {
		left = columnText(x.Event)
	} else {
		mark = ">"
	}
	if y != nil {
		right = columnText(y.Event)
	} else {
		mark = "<"
	}
	left, right = apart(oneLine(left), oneLine(right), v.width)
	v.row(fmt.Sprint(turn), stepName(kindOf(x, y)), left, mark, right)
}

// apart leaves out of two texts what they begin with alike, where what differs would else
// be cut off at width.
func apart(left, right string, width int) (string, string) {
	const kept = 8
	a, b := []rune(left), []rune(right)
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	if max(len(a), len(b)) <= width || same <= width/2 {
		return left, right
	}
	return "…" + string(a[same-kept:]), "…" + string(b[same-kept:])
}

// row writes texts that are safe for a terminal.
func (v *columnsView) row(turn, kind, left, mark, right string) {
	line := fmt.Sprintf("%-*s%-*s%-*s %s %s", turnColumn, turn, kindColumn, kind,
		v.width, cut(left, v.width), mark, cut(right, v.width))
	v.data([]byte(strings.TrimRight(line, " ") + "\n"))
}

// end says how many steps were alike since the last row.
func (v *columnsView) end() {
	if v.run > 0 {
		v.line(fmt.Sprintf("%*s%d alike", turnColumn, "", v.run))
		v.run = 0
	}
}

// columnText is what a column says of an event: what differs stands in front.
func columnText(e *abi.Event) string {
	switch {
	case e.Message != nil:
		_, text, _ := strings.Cut(messageText(*e.Message), ": ")
		return text
	case e.Model != nil:
		return fmt.Sprintf("%s prompt=%.12s", e.Model.Model, e.Model.InputHash)
	case e.Tool != nil:
		return spaced(e.Tool.Tool, string(e.Tool.Args))
	case e.Result != nil:
		return resultText(*e.Result)
	case e.ExecutionStart != nil && e.Cell != nil:
		return spaced("model="+e.Cell.Model, string(e.ExecutionStart.Config), "module="+e.Cell.Module.Short())
	case e.End != nil && e.End.State == abi.StateCompleted:
		return string(e.End.State)
	}
	return eventText(e)
}

// stepName is what a kind of step is called.
func stepName(kind abi.EventKind) string {
	switch kind {
	case abi.EventExecutionStart:
		return "start"
	case abi.EventModelCall:
		return "model"
	case abi.EventToolCall:
		return "call"
	case abi.EventToolResult:
		return "result"
	case abi.EventApprovalRequest:
		return "approval"
	case abi.EventApprovalResult:
		return "decision"
	}
	return strings.ToLower(strings.TrimPrefix(string(kind), "EVENT_"))
}

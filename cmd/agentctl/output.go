package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// output writes what a command has to say: data on stdout, the rest on stderr.
// It is safe for concurrent use. A failed write of data is kept for flush to
// report, so that no caller needs to look at every row.
type output struct {
	json, quiet bool

	outTerminal, errTerminal bool
	screen                   *os.File // stdout, if it is a terminal
	columns                  int      // of stdout, 0 if it is no terminal
	outStyle, errStyle       style

	mu      sync.Mutex
	out     *bufio.Writer
	err     io.Writer
	midLine io.Writer // where the last piece of an answer left its line open
	drawn   int       // lines of a board, at the bottom of the terminal that stderr is
	broken  error     // the first failed write of data
}

// style holds a terminal's escape sequences, empty ones where none are wanted.
type style struct{ dim, bad, strong, reset string }

func newOutput(stdout, stderr io.Writer, getenv func(string) string) *output {
	o := &output{
		out: bufio.NewWriterSize(stdout, 32<<10), err: stderr,
		outTerminal: isTerminal(stdout), errTerminal: isTerminal(stderr), columns: columnsOf(stdout),
	}
	o.outStyle, o.errStyle = styleOf(o.outTerminal, getenv), styleOf(o.errTerminal, getenv)
	if o.outTerminal {
		o.screen = stdout.(*os.File)
	}
	return o
}

// through sends everything for the terminal to w, until back.
func (o *output) through(w io.Writer) (back func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
	err := o.err
	o.out.Reset(w)
	if o.errTerminal {
		o.err = w
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.flushLocked()
		o.out.Reset(o.screen)
		o.err = err
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// columnsOf is how many characters a line of the terminal has, 0 if w is none.
func columnsOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

func styleOf(terminal bool, getenv func(string) string) style {
	if !terminal || getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return style{}
	}
	return style{dim: "\x1b[2m", bad: "\x1b[31m", strong: "\x1b[1m", reset: "\x1b[0m"}
}

// data writes bytes that are safe for a terminal to stdout.
func (o *output) data(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endDeltas()
	if _, err := o.out.Write(b); err != nil && o.broken == nil {
		o.broken = err
	}
}

// line writes a line of data, whose text it makes safe.
func (o *output) line(text string) { o.data([]byte(oneLine(text) + "\n")) }

// object writes v as a line of JSON.
func (o *output) object(v any) {
	b, err := encodeLine(v)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.broken = err
		return
	}
	o.data(b)
}

// flush hands everything to stdout and reports what failed reports.
func (o *output) flush() error {
	o.mu.Lock()
	o.flushLocked()
	o.mu.Unlock()
	return o.failed()
}

func (o *output) flushLocked() {
	if err := o.out.Flush(); err != nil && o.broken == nil {
		o.broken = err
	}
}

// failed reports the first write of data that failed. A reader that went away is
// errReaderGone.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.broken == nil:
		return nil
	case errors.Is(o.broken, syscall.EPIPE):
		return errReaderGone
	}
	return fmt.Errorf("write output: %w", o.broken)
}

// errReaderGone reports that whoever read stdout has seen enough, as `head`
// does. It is no failure.
var errReaderGone = errors.New("the reader of stdout is gone")

// record writes a committed record.
func (o *output) record(r host.Record) {
	if o.json {
		o.object(newRecordJSON(r))
		return
	}
	o.data([]byte(o.row(r)))
}

// row is a record as a row: its position, its kind, and what it says.
func (o *output) row(r host.Record) string { return o.rowOf(r, eventText(r.Event)) }

// rowOf is row where text is what the record says.
func (o *output) rowOf(r host.Record, text string) string {
	const kindWidth, gap = len(abi.EventExecutionStart), "   "
	s := o.outStyle
	text = oneLine(o.fitting(text))
	if r.Event.End != nil && r.Event.End.State == abi.StateFailed {
		text = s.bad + text + s.reset
	}
	head := fmt.Sprintf("%-7s %s%-*s%s", fmt.Sprintf("seq=%d", r.Seq), s.dim, kindWidth, r.Event.Kind, s.reset)
	// A longer kind takes of the gap, so that the texts stay in one column.
	longer := max(0, len(r.Event.Kind)-kindWidth)
	return strings.TrimRight(head+gap[min(longer, len(gap)-1):]+text, " ") + "\n"
}

// fitting cuts a text that would flood a terminal. Anything but a terminal gets
// all of it.
func (o *output) fitting(text string) string {
	const most = 4000
	if !o.outTerminal || len(text) <= most {
		return text
	}
	cut := most
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s … (%d bytes more)", text[:cut], len(text)-cut)
}

// delta shows a provisional piece of an answer: as an object, or to a person
// who watches.
func (o *output) delta(d host.Delta) {
	if o.json {
		o.object(newDeltaJSON(d))
		return
	}
	if !o.errTerminal || o.quiet {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if d.Reset {
		o.endDeltas()
	}
	if text := lines(d.Text); text != "" {
		fmt.Fprint(o.err, o.errStyle.dim+text+o.errStyle.reset)
		o.midLine = nil
		if !strings.HasSuffix(text, "\n") {
			o.midLine = o.err
		}
	}
}

// endDeltas ends the line that deltas left open, so that what follows starts
// its own.
func (o *output) endDeltas() {
	if o.midLine != nil {
		fmt.Fprintln(o.midLine)
		o.midLine = nil
	}
}

// update shows what a turn does, at once.
func (o *output) update(u host.Update) {
	switch {
	case u.Record != nil:
		o.record(*u.Record)
	case u.Delta != nil:
		o.delta(*u.Delta)
	}
	// A failed write is reported at the end: it must not stop the turn.
	_ = o.flush()
}

// note tells something on stderr that is worth knowing, unless told to be quiet.
func (o *output) note(format string, args ...any) {
	if !o.quiet {
		o.remark(noteJSON{Note: fmt.Sprintf(format, args...)})
	}
}

// remark writes a note to stderr in any case.
func (o *output) remark(n noteJSON) {
	switch {
	case !o.json:
		o.complain(n.Note)
	case n.Note != "": // a blank line is for a person
		o.complainObject(n)
	}
}

// undrawn is what takes the board away, if there is one, so that what follows stands
// in its place.
func (o *output) undrawn() string {
	if o.drawn == 0 {
		return ""
	}
	up := fmt.Sprintf("\x1b[%dA\r\x1b[J", o.drawn)
	o.drawn = 0
	return up
}

// complainObject writes v to stderr as --json wants it.
func (o *output) complainObject(v any) {
	line, err := encodeLine(v)
	if err != nil {
		line = []byte(err.Error())
	}
	o.complain(strings.TrimSuffix(string(line), "\n"))
}

// complain writes to stderr in any case.
func (o *output) complain(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endDeltas()
	o.flushLocked()
	fmt.Fprintln(o.err, o.undrawn()+lines(text))
}

// Package lineedit owns what a person types on a terminal in raw mode, and how it
// looks there while it is being typed: editing, history, pasted text of several
// lines, characters of any width, and output that comes meanwhile.
//
// What is typed while nobody reads a line waits for the next one, but for Ctrl-C,
// which acts at once. Nothing but graphic characters of a line reaches the screen.
// What Write is given does as it is: the writer sees to its being safe.
//
// The package knows no file and no signal: it takes keys from a reader and writes
// to a screen. It imports nothing but the standard library.
package lineedit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// ErrInterrupt reports that a line was given up with Ctrl-C.
var ErrInterrupt = errors.New("interrupted")

// Config says what a Terminal is made of.
type Config struct {
	Keys   io.Reader // in raw mode
	Screen io.Writer
	// Size is asked before each drawing. It gives 0 for what is not known.
	Size func() (columns, rows int)
	// Style and Reset stand around a prompt: escape sequences, or nothing.
	Style, Reset string
	// Words are completed at the beginning of a line.
	Words []string
}

// Terminal is a terminal on which lines are edited. One goroutine reads lines;
// everything else is safe for concurrent use.
type Terminal struct {
	cfg  Config
	keys *keyboard

	mu      sync.Mutex
	line    line
	prompt  string
	editing bool
	drawn   layout // what of the line stands on the screen
	midLine bool   // the last write left its line open
}

// New makes a Terminal. It reads keys until there are none, whether or not
// somebody reads lines.
func New(cfg Config) *Terminal {
	return &Terminal{cfg: cfg, keys: newKeyboard(cfg.Keys)}
}

// Start and End are to be written to the screen before the first line and behind
// the last one: with them a terminal tells what is pasted from what is typed.
const (
	Start = "\x1b[?2004h"
	End   = "\x1b[?2004l"
)

// OnInterrupt sets what Ctrl-C does from now on; nil leaves it to ReadLine. f must
// neither wait nor use the terminal.
func (t *Terminal) OnInterrupt(f func()) { t.keys.onInterrupt(f) }

// Remember puts a line into the history.
func (t *Terminal) Remember(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line.remember(text)
}

// ReadLine lets a person edit a line and gives it. It is ErrInterrupt, with what
// was typed, if the line was given up; io.EOF if no more lines come; and the cause
// of ctx if that ended: the next ReadLine goes on with what was typed.
func (t *Terminal) ReadLine(ctx context.Context, prompt string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read(ctx, prompt)
}

// Ask is ReadLine for the answer to a question. What was typed before the question
// stood there is no answer and is forgotten. Answers are not in the history.
func (t *Terminal) Ask(ctx context.Context, question string) (string, error) {
	t.keys.forget()
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.line
	t.line = line{}
	defer func() { t.line = kept }()
	return t.read(ctx, question)
}

func (t *Terminal) read(ctx context.Context, prompt string) (string, error) {
	t.prompt, t.editing = prompt, true
	t.freshLine()
	t.draw()
	for {
		done, err := t.edit()
		if done {
			mark := ""
			if errors.Is(err, ErrInterrupt) {
				mark = "^C" // so that nobody takes it for said
			}
			return t.leave(mark), err
		}
		t.mu.Unlock()
		select {
		case <-t.keys.wake:
		case <-ctx.Done():
		}
		t.mu.Lock()
		if ctx.Err() != nil {
			t.erase()
			t.editing = false
			return "", context.Cause(ctx)
		}
	}
}

// edit does what the keys say that were typed, and reports whether that ended the
// line.
func (t *Terminal) edit() (done bool, err error) {
	for changed := false; ; changed = true {
		k, ok, gone := t.keys.next()
		switch {
		case gone != nil && errors.Is(gone, io.EOF):
			return true, io.EOF
		case gone != nil:
			return true, fmt.Errorf("read from the terminal: %w", gone)
		case !ok:
			if changed {
				t.draw()
			}
			return false, nil
		}
		switch {
		case k.action == accept:
			return true, nil
		case k.action == interrupt:
			return true, ErrInterrupt
		case k.action == endOfInput && len(t.line.text) == 0:
			return true, io.EOF
		case k.action == complete:
			t.line.complete(t.cfg.Words)
		case k.action == clearScreen:
			t.put("\x1b[H\x1b[2J")
			t.drawn = layout{}
		default:
			t.line.apply(k)
		}
	}
}

// leave ends the editing and gives the line, which stays on the screen as a whole,
// with a mark behind it.
func (t *Terminal) leave(mark string) string {
	text := string(t.line.text)
	t.line.at = len(t.line.text)
	columns, _ := t.size()
	t.paint(layOut(t.prompt, t.line.text, t.line.at, columns))
	t.put(mark + "\r\n")
	t.line.clear()
	t.drawn, t.editing = layout{}, false
	return text
}

func (t *Terminal) size() (columns, rows int) {
	columns, rows = t.cfg.Size()
	if columns < 1 {
		const usual = 80
		columns = usual
	}
	return columns, rows
}

func (t *Terminal) draw() {
	columns, rows := t.size()
	t.paint(layOut(t.prompt, t.line.text, t.line.at, columns).window(rows))
}

// paint puts l in the place of what is drawn.
func (t *Terminal) paint(l layout) {
	var b strings.Builder
	b.WriteString(t.toTop())
	for i, row := range l.rows {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if prompt, found := strings.CutPrefix(row, t.prompt); i == 0 && found && t.cfg.Style != "" {
			row = t.cfg.Style + t.prompt + t.cfg.Reset + prompt
		}
		// What was there is erased first: behind a full row the cursor stands on
		// its last cell.
		rest := "\x1b[K"
		if i == len(l.rows)-1 {
			rest = "\x1b[J"
		}
		b.WriteString(rest + row)
	}
	if n := len(l.rows) - 1 - l.row; n > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", n)
	}
	b.WriteString("\r")
	if l.column > 0 {
		fmt.Fprintf(&b, "\x1b[%dC", l.column)
	}
	t.put(b.String())
	t.drawn = l
}

// toTop moves the cursor to where the drawing begins.
func (t *Terminal) toTop() string {
	if len(t.drawn.rows) == 0 {
		return "\r"
	}
	columns, _ := t.size()
	if n := t.drawn.above(columns); n > 0 {
		return fmt.Sprintf("\x1b[%dA\r", n)
	}
	return "\r"
}

// erase takes the line off the screen.
func (t *Terminal) erase() {
	t.put(t.toTop() + "\x1b[J")
	t.drawn = layout{}
}

// freshLine begins a line of the screen if the last write left one open.
func (t *Terminal) freshLine() {
	if t.midLine {
		t.put("\r\n")
		t.midLine = false
	}
}

// put writes to the screen. That it fails shows in that no keys come.
func (t *Terminal) put(s string) { _, _ = io.WriteString(t.cfg.Screen, s) }

// Write writes text to the screen, whose line breaks may be plain ones. A line
// that is being edited is moved below it.
func (t *Terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	if t.editing {
		t.erase()
	}
	_, err := t.cfg.Screen.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")))
	t.midLine = b[len(b)-1] != '\n'
	if t.editing {
		t.freshLine()
		t.draw()
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

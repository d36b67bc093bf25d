package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// board is some lines at the bottom of the terminal that stderr is, drawn again and
// again in one place, below all else that is said there.
type board struct{ *output }

// live reports whether there is a terminal to draw on, and somebody who looks.
func (b *board) live() bool {
	_, ok := b.terminal()
	return ok && !b.quiet && !b.json
}

func (b *board) terminal() (*os.File, bool) {
	f, ok := b.err.(*os.File)
	return f, ok && b.errTerminal
}

// show draws lines in the place of those drawn before; what does not fit on the
// screen is left out, the last line never.
func (b *board) show(lines []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.terminal()
	if !ok {
		return
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 2 || rows < 2 {
		return
	}
	if most := rows - 1; len(lines) > most {
		lines = append(lines[:most-1:most-1], lines[len(lines)-1])
	}
	b.flushLocked()
	var text strings.Builder
	text.WriteString(b.undrawn())
	for _, line := range lines {
		text.WriteString(cut(line, columns-1) + "\n")
	}
	b.drawn = len(lines)
	fmt.Fprint(f, text.String())
}

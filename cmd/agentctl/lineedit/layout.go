package lineedit

import "strings"

// layout is a text as it stands on a screen.
type layout struct {
	rows   []string
	widths []int // in cells
	// The cursor.
	row, column int
}

// layOut wraps a text with the cursor at at, behind a prompt, into rows of at most
// so many cells. Rows below the first are indented as far.
func layOut(prompt string, text []rune, at, columns int) layout {
	var (
		l     layout
		row   strings.Builder
		width int
	)
	indent := 0
	for _, r := range prompt {
		indent += cells(r)
	}
	if indent > columns/2 {
		indent = 0
	}
	endRow := func() {
		l.rows, l.widths = append(l.rows, row.String()), append(l.widths, width)
		row.Reset()
		row.WriteString(strings.Repeat(" ", indent))
		width = indent
	}
	put := func(r rune) {
		n := cells(r)
		if width+n > columns {
			endRow()
		}
		row.WriteString(picture(r))
		width += n
	}
	for _, r := range prompt {
		put(r)
	}
	for i, r := range text {
		if i == at {
			// The cursor stands where the character does, not behind the full row.
			if width+cells(r) > columns {
				endRow()
			}
			l.row, l.column = len(l.rows), width
		}
		if r == '\n' {
			endRow()
			continue
		}
		put(r)
	}
	if at == len(text) {
		if width == columns {
			endRow()
		}
		l.row, l.column = len(l.rows), width
	}
	endRow()
	return l
}

// picture is what r is shown as.
func picture(r rune) string {
	switch {
	case r == '\t':
		return strings.Repeat(" ", tabWidth)
	case !shown(r):
		return "\ufffd"
	}
	return string(r)
}

// window is the part of l that fits on a screen, with the cursor in it.
func (l layout) window(rows int) layout {
	if rows < 1 || len(l.rows) <= rows {
		return l
	}
	top := max(0, l.row-rows+1)
	return layout{rows: l.rows[top : top+rows], widths: l.widths[top : top+rows], row: l.row - top, column: l.column}
}

// above is how many rows are above the cursor, on a screen that has since become
// so many columns wide and moved what did not fit to rows of its own.
func (l layout) above(columns int) int {
	n := l.column / columns
	for _, w := range l.widths[:l.row] {
		n += max(1, (w+columns-1)/columns)
	}
	return n
}

package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// table formats rows in columns. It may be given its rows in portions: columns
// then only grow wider.
type table struct {
	// most, unless 0, is the width of a line. What is too long for it is taken
	// from the elastic columns, whose cells are then cut.
	most    int
	elastic []int

	begun  bool
	widths []int
}

func (t *table) format(header []string, rows [][]string) string {
	if !t.begun {
		t.begun, t.widths = true, make([]int, len(header))
		rows = append([][]string{header}, rows...)
	}
	for _, row := range rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	t.shrink()
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", t.widths[i], cut(cell, t.widths[i]))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// shrink makes the elastic columns narrower until a line fits, but not so narrow
// that nothing is to be seen.
func (t *table) shrink() {
	const gap, least = 2, 8
	if t.most == 0 {
		return
	}
	over := gap*(len(t.widths)-1) - t.most
	for _, w := range t.widths {
		over += w
	}
	for _, i := range t.elastic {
		if give := min(over, t.widths[i]-least); give > 0 {
			t.widths[i] -= give
			over -= give
		}
	}
}

// cut is a cell of at most width characters.
func cut(cell string, width int) string {
	if runes := []rune(cell); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return cell
}

// age is d in its largest whole unit.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d/day))
}

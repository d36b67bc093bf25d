package lineedit

import (
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// screen is a terminal as a person sees it. It knows the sequences that a
// Terminal sends, and counts those that it does not.
type screen struct {
	mu            sync.Mutex
	columns, rows int
	cells         [][]rune // rows of columns cells; 0 is empty, -1 the rest of a wide character
	row, column   int
	wrap          bool // the next character begins a new row
	above         []string
	rest          []byte
	unknown       []string
}

const restOfWide = -1

func newScreen(columns, rows int) *screen {
	s := &screen{columns: columns, rows: rows}
	s.clear()
	return s
}

func (s *screen) clear() {
	s.cells = make([][]rune, s.rows)
	for i := range s.cells {
		s.cells[i] = make([]rune, s.columns)
	}
}

func (s *screen) size() (columns, rows int) { return s.columns, s.rows }

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, b...)
	for len(s.rest) > 0 {
		n := s.next()
		if n == 0 {
			break
		}
		s.rest = s.rest[n:]
	}
	return len(b), nil
}

func (s *screen) next() int {
	switch c := s.rest[0]; {
	case c == '\r':
		s.column, s.wrap = 0, false
	case c == '\n':
		s.down()
	case c == escape:
		return s.sequence()
	case c < ' ' || c == 0x7f:
		s.unknown = append(s.unknown, string(c))
	default:
		r, n := utf8.DecodeRune(s.rest)
		s.put(r)
		return n
	}
	return 1
}

func (s *screen) down() {
	s.wrap = false
	if s.row++; s.row < s.rows {
		return
	}
	s.row--
	s.above = append(s.above, text(s.cells[0]))
	s.cells = append(s.cells[1:], make([]rune, s.columns))
}

func (s *screen) put(r rune) {
	n := cells(r)
	if n == 0 {
		return // it stands on the character before it
	}
	if s.wrap || s.column+n > s.columns {
		s.column = 0
		s.down()
	}
	s.cells[s.row][s.column] = r
	if n == 2 {
		s.cells[s.row][s.column+1] = restOfWide
	}
	if s.column += n; s.column == s.columns {
		s.column, s.wrap = s.columns-1, true
	}
}

func (s *screen) sequence() int {
	n := 2
	for n < len(s.rest) && (s.rest[n] < '@' || s.rest[n] > '~') {
		n++
	}
	if n >= len(s.rest) {
		return 0
	}
	parameter := string(s.rest[2:n])
	number, _ := strconv.Atoi(parameter)
	switch {
	case s.rest[1] != '[':
		s.unknown = append(s.unknown, string(s.rest[:n+1]))
	case s.rest[n] == 'A':
		s.row, s.wrap = max(0, s.row-max(1, number)), false
	case s.rest[n] == 'C':
		s.column, s.wrap = min(s.columns-1, s.column+max(1, number)), false
	case s.rest[n] == 'K':
		clear(s.cells[s.row][s.column:])
	case s.rest[n] == 'J' && parameter == "":
		clear(s.cells[s.row][s.column:])
		for i := s.row + 1; i < s.rows; i++ {
			clear(s.cells[i])
		}
	case s.rest[n] == 'J':
		s.clear()
	case s.rest[n] == 'H':
		s.row, s.column = 0, 0
	case s.rest[n] == 'm':
	default:
		s.unknown = append(s.unknown, string(s.rest[:n+1]))
	}
	return n + 1
}

func text(row []rune) string {
	var b strings.Builder
	for _, r := range row {
		switch r {
		case 0:
			b.WriteByte(' ')
		case restOfWide:
		default:
			b.WriteRune(r)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// String is what was ever shown, without empty rows in the end. The cursor is not
// shown.
func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := append([]string{}, s.above...)
	for _, row := range s.cells {
		rows = append(rows, text(row))
	}
	return strings.TrimRight(strings.Join(rows, "\n"), "\n")
}

// resize moves what does not fit to rows of its own, as terminals do.
func (s *screen) resize(columns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.cells[:s.row+1]
	last := s.column
	s.columns = columns
	s.clear()
	s.row, s.column, s.wrap = 0, 0, false
	for i, row := range before {
		used := len(row)
		for used > 0 && row[used-1] == 0 {
			used--
		}
		if i > 0 {
			s.column = 0
			s.down()
		}
		for j, r := range row[:used] {
			if i == len(before)-1 && j == last {
				break
			}
			if r == 0 {
				r = ' '
			}
			if r != restOfWide {
				s.put(r)
			}
		}
	}
}

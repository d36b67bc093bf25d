package lineedit

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds a line, in characters, and a paste, in bytes.
const maxText = 4 << 20

// line is a text that is being edited. It may have line breaks.
type line struct {
	text []rune
	at   int // of the cursor
	kill []rune

	history []string
	// back is how many entries the line went back in history, and draft what
	// stood there before it did.
	back  int
	draft []rune
}

// set makes text the line, with the cursor behind it.
func (l *line) set(text []rune) {
	l.text, l.at = text, len(text)
}

// clear begins a new line.
func (l *line) clear() {
	l.set(nil)
	l.back, l.draft = 0, nil
}

// remember puts a line into the history.
func (l *line) remember(text string) {
	if strings.TrimSpace(text) != "" && (len(l.history) == 0 || l.history[len(l.history)-1] != text) {
		l.history = append(l.history, text)
	}
}

// apply does what a key does to the text.
func (l *line) apply(k key) {
	switch k.action {
	case insert:
		l.insert(typed(k.text))
	case newline:
		l.insert([]rune{'\n'})
	case left:
		l.at = before(l.text, l.at)
	case right:
		l.at = after(l.text, l.at)
	case wordLeft:
		l.at = l.wordStart()
	case wordRight:
		l.at = l.wordEnd()
	case home:
		l.at = l.rowStart(l.at)
	case end:
		l.at = l.rowEnd(l.at)
	case up:
		l.vertical(-1)
	case down:
		l.vertical(1)
	case older:
		l.recall(1)
	case newer:
		l.recall(-1)
	default:
		l.delete(k.action)
	}
}

// delete does what a key does that takes text away. What the kills take can be
// put back.
func (l *line) delete(a action) {
	switch a {
	case deleteLeft:
		l.cut(before(l.text, l.at), l.at)
	case deleteRight, endOfInput:
		l.cut(l.at, after(l.text, l.at))
	case killWordLeft:
		l.kill = l.cut(l.spaceStart(), l.at)
	case killWordRight:
		l.kill = l.cut(l.at, l.wordEnd())
	case killLeft:
		l.kill = l.cut(l.rowStart(l.at), l.at)
	case killRight:
		to := l.rowEnd(l.at)
		if to == l.at {
			to = min(to+1, len(l.text)) // the line break
		}
		l.kill = l.cut(l.at, to)
	case yank:
		l.insert(l.kill)
	}
}

// typed is a text as it goes into a line: with line breaks of one kind, and
// without what cannot be seen.
func typed(text string) []rune {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	return slices.DeleteFunc([]rune(text), func(r rune) bool { return r != '\n' && r != '\t' && !shown(r) })
}

func (l *line) insert(text []rune) {
	if len(l.text)+len(text) > maxText {
		return
	}
	l.text = slices.Insert(l.text, l.at, text...)
	l.at += len(text)
}

// cut takes the text from from to to away, and gives it.
func (l *line) cut(from, to int) []rune {
	gone := slices.Clone(l.text[from:to])
	l.text = slices.Delete(l.text, from, to)
	l.at = from
	return gone
}

func (l *line) rowStart(i int) int {
	for i > 0 && l.text[i-1] != '\n' {
		i--
	}
	return i
}

func (l *line) rowEnd(i int) int {
	for i < len(l.text) && l.text[i] != '\n' {
		i++
	}
	return i
}

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r)
}

func (l *line) wordStart() int {
	i := l.at
	for i > 0 && !inWord(l.text[i-1]) {
		i--
	}
	for i > 0 && inWord(l.text[i-1]) {
		i--
	}
	return i
}

func (l *line) wordEnd() int {
	i := l.at
	for i < len(l.text) && !inWord(l.text[i]) {
		i++
	}
	for i < len(l.text) && inWord(l.text[i]) {
		i++
	}
	return i
}

// spaceStart is where the word begins that ends at the cursor, if only space
// ends a word.
func (l *line) spaceStart() int {
	i := l.at
	for i > 0 && unicode.IsSpace(l.text[i-1]) {
		i--
	}
	for i > 0 && !unicode.IsSpace(l.text[i-1]) {
		i--
	}
	return i
}

// vertical moves the cursor to the row above or below, and from the first or the
// last one through the history.
func (l *line) vertical(rows int) {
	start := l.rowStart(l.at)
	column := l.at - start
	switch {
	case rows < 0 && start == 0:
		l.recall(1)
	case rows < 0:
		above := l.rowStart(start - 1)
		l.at = min(above+column, start-1)
	case l.rowEnd(l.at) == len(l.text):
		l.recall(-1)
	default:
		below := l.rowEnd(l.at) + 1
		l.at = min(below+column, l.rowEnd(below))
	}
}

// recall goes back in history, or forth with a negative number.
func (l *line) recall(by int) {
	to := l.back + by
	switch {
	case to < 0 || to > len(l.history):
		return
	case l.back == 0:
		l.draft = l.text
	}
	if l.back = to; to == 0 {
		l.set(l.draft)
		return
	}
	l.set([]rune(l.history[len(l.history)-to]))
}

// complete puts in place of the line what all the words have in common that begin
// with it.
func (l *line) complete(words []string) {
	text := string(l.text)
	if text == "" || l.at != len(l.text) {
		return
	}
	common, found := "", false
	for _, w := range words {
		if !strings.HasPrefix(w, text) {
			continue
		}
		if !found {
			common, found = w, true
		}
		common = commonPrefix(common, w)
	}
	if found {
		l.set([]rune(common))
	}
}

func commonPrefix(a, b string) string {
	for !strings.HasPrefix(b, a) {
		_, size := utf8.DecodeLastRuneInString(a)
		a = a[:len(a)-size]
	}
	return a
}

package lineedit

import (
	"bytes"
	"unicode/utf8"
)

// action is what a key does.
type action int

const (
	insert action = iota // puts the key's text at the cursor
	accept
	newline
	interrupt
	endOfInput // Ctrl-D: deletes too
	complete
	clearScreen
	left
	right
	wordLeft
	wordRight
	home
	end
	up
	down
	older
	newer
	deleteLeft
	deleteRight
	killWordLeft
	killWordRight
	killLeft
	killRight
	yank
	ignored // a key that does nothing here
)

// key is a key that was pressed, or a text that was typed or pasted at once.
type key struct {
	action action
	text   string // of insert
}

const escape = 0x1b

// controls are what the control characters do.
var controls = [...]action{
	'A' & 31: home, 'B' & 31: left, 'C' & 31: interrupt, 'D' & 31: endOfInput, 'E' & 31: end, 'F' & 31: right,
	'G' & 31: ignored, 'H' & 31: deleteLeft, 'I' & 31: complete, 'J' & 31: accept, 'K' & 31: killRight,
	'L' & 31: clearScreen, 'M' & 31: accept, 'N' & 31: newer, 'O' & 31: ignored, 'P' & 31: older,
	'Q' & 31: ignored, 'R' & 31: ignored, 'S' & 31: ignored, 'T' & 31: ignored, 'U' & 31: killLeft,
	'V' & 31: ignored, 'W' & 31: killWordLeft, 'X' & 31: ignored, 'Y' & 31: yank, 'Z' & 31: ignored,
	0: ignored, escape: ignored, 28: ignored, 29: ignored, 30: ignored, 31: ignored,
}

// metas are what characters do behind an ESC, which is how Alt arrives.
var metas = map[byte]action{
	'b': wordLeft, 'f': wordRight, 'd': killWordRight, 0x7f: killWordLeft, 'H' & 31: killWordLeft,
	'\r': newline, '\n': newline,
}

// finals are what the keys do that send ESC [ … and a final letter; with a
// modifier the arrows move by words.
var finals = map[byte]action{'A': up, 'B': down, 'C': right, 'D': left, 'H': home, 'F': end}

// numbered are the keys that send ESC [ number ~.
var numbered = map[string]action{"1": home, "3": deleteRight, "4": end, "7": home, "8": end}

const (
	pasteBegins = "200"
	pasteEnds   = "\x1b[201~"
	// maxSequence bounds an escape sequence: a longer one is none.
	maxSequence = 64
)

// decoder makes keys of what a terminal sends. What is not complete yet waits
// for the rest.
type decoder struct {
	rest    []byte
	pasting bool
	pasted  []byte
}

// feed takes bytes and gives the keys that are complete with them.
func (d *decoder) feed(b []byte) []key {
	d.rest = append(d.rest, b...)
	var keys []key
	for len(d.rest) > 0 {
		k, n := d.next()
		if n == 0 {
			break
		}
		d.rest = d.rest[n:]
		switch last := len(keys) - 1; {
		case k.action == ignored, k.action == insert && k.text == "":
		case k.action == insert && last >= 0 && keys[last].action == insert:
			keys[last].text += k.text
		default:
			keys = append(keys, k)
		}
	}
	if len(d.rest) == 0 {
		d.rest = nil
	}
	return keys
}

// next gives the first key of the rest and how many bytes it has, 0 if it is not
// complete.
func (d *decoder) next() (key, int) {
	b := d.rest
	switch c := b[0]; {
	case d.pasting:
		return d.paste()
	case c == escape:
		return d.sequence()
	case c < ' ':
		return key{action: controls[c]}, 1
	case c == 0x7f:
		return key{action: deleteLeft}, 1
	}
	return printables(b)
}

// printables gives the text that b begins with. What is not UTF-8 is dropped.
func printables(b []byte) (key, int) {
	n := 0
	for n < len(b) && b[n] >= ' ' && b[n] != 0x7f {
		if !utf8.FullRune(b[n:]) {
			break
		}
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size == 1 {
			if n == 0 {
				return key{action: ignored}, 1
			}
			break
		}
		n += size
	}
	return key{text: string(b[:n])}, n
}

// paste collects what is pasted up to its end.
func (d *decoder) paste() (key, int) {
	i := bytes.Index(d.rest, []byte(pasteEnds))
	if i < 0 {
		// The end may be cut in two.
		n := max(0, len(d.rest)-len(pasteEnds)+1)
		d.collect(d.rest[:n])
		return key{action: ignored}, n
	}
	d.collect(d.rest[:i])
	text := string(bytes.ToValidUTF8(d.pasted, nil))
	d.pasting, d.pasted = false, nil
	return key{text: text}, i + len(pasteEnds)
}

func (d *decoder) collect(b []byte) {
	d.pasted = append(d.pasted, b[:min(len(b), max(0, maxText-len(d.pasted)))]...)
}

// sequence reads what begins with ESC. ESC itself is no key: nobody could tell
// it from the beginning of one without a clock.
func (d *decoder) sequence() (key, int) {
	b := d.rest
	if len(b) < 2 {
		return key{}, 0
	}
	switch b[1] {
	case escape:
		return key{action: ignored}, 1
	case '[':
		return d.csi()
	case 'O':
		if len(b) < 3 {
			return key{}, 0
		}
		return known(finals, b[2]), 3
	case 'C' & 31:
		return key{action: ignored}, 1 // and Ctrl-C is one, whatever stands before it
	}
	return known(metas, b[1]), 2
}

func known[K comparable](actions map[K]action, k K) key {
	if a, ok := actions[k]; ok {
		return key{action: a}
	}
	return key{action: ignored}
}

// csi reads ESC [ parameters final.
func (d *decoder) csi() (key, int) {
	b := d.rest
	n := 2
	for n < min(len(b), maxSequence) && b[n] >= ' ' && b[n] < '@' {
		n++
	}
	switch {
	case n == maxSequence, n < len(b) && (b[n] < '@' || b[n] > '~'):
		return key{action: ignored}, n // broken off: what follows is for itself
	case n == len(b):
		return key{}, 0
	}
	parameters, final := string(b[2:n]), b[n]
	k := known(finals, final)
	switch {
	case final == '~' && parameters == pasteBegins:
		d.pasting = true
	case final == '~':
		k = known(numbered, parameters)
	case parameters != "" && k.action == left:
		k.action = wordLeft
	case parameters != "" && k.action == right:
		k.action = wordRight
	}
	return k, n + 1
}

package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Whatever a model, a guest or a file name says may end on a terminal. Only
// graphic characters get there as they are: controls (ESC, the C1 range) and
// the invisible ones that reorder or hide text are written as escapes.

// safe reports whether r may reach a terminal as it is. The joiners are part of
// ordinary words and emoji, and harmless.
func safe(r rune) bool {
	const zeroWidthNonJoiner, zeroWidthJoiner = '\u200c', '\u200d'
	return unicode.IsGraphic(r) || r == zeroWidthNonJoiner || r == zeroWidthJoiner
}

// oneLine writes s as one line from which s can be told exactly: a backslash is
// doubled, everything unsafe becomes a Go escape.
func oneLine(s string) string { return escape(s, false) }

// lines writes s for reading: line breaks, tabs and backslashes stay.
func lines(s string) string { return escape(s, true) }

func escape(s string, layout bool) string {
	plain := func(r rune) bool { return safe(r) && (layout || r != '\\') }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	b := make([]byte, 0, len(s)+len(s)/4)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case plain(r), layout && (r == '\n' || r == '\t'):
			b = append(b, s[i:i+size]...)
		case r == '\\':
			b = append(b, `\\`...)
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r < utf8.RuneSelf:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
		i += size
	}
	return string(b)
}

// safeJSON writes the unsafe characters of a JSON text as JSON escapes, which
// leaves its value as it was. JSON itself keeps those below U+0020 out.
func safeJSON(text []byte) []byte {
	i := 0
	for i < len(text) && text[i] >= ' ' && text[i] < 0x7f {
		i++
	}
	if i == len(text) {
		return text
	}
	out := append(make([]byte, 0, len(text)+len(text)/4), text[:i]...)
	for _, r := range string(text[i:]) {
		if safe(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

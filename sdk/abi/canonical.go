package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrJSON reports text that is not JSON, or JSON that has no canonical form:
// invalid UTF-8, a lone surrogate, a name that stands twice in one object, a
// number outside a double's range, nesting deeper than MaxDepth, or numbers that
// cost too much to keep.
var ErrJSON = errors.New("invalid JSON")

// MaxDepth is how deep arrays and objects may nest.
const MaxDepth = 500

// What keeping numbers may take: the longest JSON Pointer, and the pointers and
// texts of one document together. Names that are long and numbers that are many
// would otherwise multiply.
const (
	maxPointer = 4 << 10
	maxKept    = 32 << 20
)

// Canonical returns the RFC 8785 (JCS) form of the JSON text src.
//
// JCS prints every number as the shortest text of its double, so a number that
// a double cannot hold loses digits here; EncodeEvent keeps those.
func Canonical(src []byte) ([]byte, error) {
	return AppendCanonical(make([]byte, 0, len(src)), src)
}

// AppendCanonical appends the canonical form of src to dst.
func AppendCanonical(dst, src []byte) ([]byte, error) {
	c := canonicalizer{src: src, dst: dst}
	return c.run()
}

// MarshalCanonical is Canonical of v's JSON.
func MarshalCanonical(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return Canonical(b)
}

// canonicalizer reads src once and writes its canonical form to dst.
type canonicalizer struct {
	src []byte
	pos int
	dst []byte

	members []member // of the objects being read, outermost first
	ordered []byte   // where sort works
	pointer []byte   // to the value being read, kept only if a number may need it

	// collect says to put the raw text of numbers that a double changes into
	// lossy, which stays nil while there are none; held is how much it has.
	collect bool
	lossy   map[string]string
	held    int
	// restore, if set, has raw numbers to write instead of what stands there;
	// restored counts those written.
	restore  map[string]string
	restored int
}

// member is a name of an object, and where in dst it stands with its value.
type member struct {
	name       []byte
	start, end int
}

func (c *canonicalizer) run() ([]byte, error) {
	c.space()
	if err := c.value(0); err != nil {
		return nil, err
	}
	c.space()
	if c.pos != len(c.src) {
		return nil, c.errorf("text after the value")
	}
	return c.dst, nil
}

func (c *canonicalizer) errorf(format string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s", ErrJSON, c.pos, fmt.Sprintf(format, args...))
}

func (c *canonicalizer) space() {
	for c.pos < len(c.src) {
		switch c.src[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

func (c *canonicalizer) peek() byte {
	if c.pos < len(c.src) {
		return c.src[c.pos]
	}
	return 0
}

func (c *canonicalizer) tracks() bool { return c.collect || c.restore != nil }

func (c *canonicalizer) value(depth int) error {
	if depth > MaxDepth {
		return c.errorf("nested deeper than %d", MaxDepth)
	}
	switch b := c.peek(); {
	case b == '{':
		return c.object(depth)
	case b == '[':
		return c.array(depth)
	case b == '"':
		_, err := c.str()
		return err
	case b == '-' || b >= '0' && b <= '9':
		return c.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(c.src[c.pos:], []byte(word)) {
			c.pos += len(word)
			c.dst = append(c.dst, word...)
			return nil
		}
	}
	return c.errorf("want a value")
}

func (c *canonicalizer) array(depth int) error {
	c.pos++
	c.dst = append(c.dst, '[')
	c.space()
	if c.peek() == ']' {
		c.pos++
		c.dst = append(c.dst, ']')
		return nil
	}
	outer := len(c.pointer)
	for i := 0; ; i++ {
		if c.tracks() {
			c.pointer = strconv.AppendInt(append(c.pointer, '/'), int64(i), 10)
		}
		c.space()
		if err := c.value(depth + 1); err != nil {
			return err
		}
		c.pointer = c.pointer[:outer]
		c.space()
		switch c.peek() {
		case ',':
			c.pos++
			c.dst = append(c.dst, ',')
		case ']':
			c.pos++
			c.dst = append(c.dst, ']')
			return nil
		default:
			return c.errorf("want ',' or ']'")
		}
	}
}

func (c *canonicalizer) object(depth int) error {
	c.pos++
	c.dst = append(c.dst, '{')
	c.space()
	if c.peek() == '}' {
		c.pos++
		c.dst = append(c.dst, '}')
		return nil
	}
	if c.members == nil {
		c.members = make([]member, 0, 24)
	}
	first, outer := len(c.dst), len(c.members)
	for {
		if err := c.member(depth); err != nil {
			return err
		}
		c.space()
		switch c.peek() {
		case ',':
			c.pos++
			c.dst = append(c.dst, ',')
			continue
		case '}':
			c.pos++
		default:
			return c.errorf("want ',' or '}'")
		}
		break
	}
	if err := c.sort(c.members[outer:], first); err != nil {
		return err
	}
	c.members = c.members[:outer]
	c.dst = append(c.dst, '}')
	return nil
}

// member reads one name and its value.
func (c *canonicalizer) member(depth int) error {
	c.space()
	if c.peek() != '"' {
		return c.errorf("want a name")
	}
	start := len(c.dst)
	name, err := c.str()
	if err != nil {
		return err
	}
	c.space()
	if c.peek() != ':' {
		return c.errorf("want ':'")
	}
	c.pos++
	c.dst = append(c.dst, ':')
	outer := len(c.pointer)
	if c.tracks() {
		c.pointer = appendPointer(c.pointer, name)
	}
	c.space()
	if err := c.value(depth + 1); err != nil {
		return err
	}
	c.pointer = c.pointer[:outer]
	c.members = append(c.members, member{name, start, len(c.dst)})
	return nil
}

// sort puts the members, which fill dst from first, in their canonical order.
func (c *canonicalizer) sort(members []member, first int) error {
	byName := func(a, b member) int { return compareUTF16(a.name, b.name) }
	inOrder := slices.IsSortedFunc(members, byName)
	if !inOrder {
		slices.SortFunc(members, byName)
	}
	for i := 1; i < len(members); i++ {
		if bytes.Equal(members[i-1].name, members[i].name) {
			return c.errorf("the name %.40q stands twice", members[i].name)
		}
	}
	if inOrder {
		return nil
	}
	if c.ordered == nil {
		c.ordered = make([]byte, 0, len(c.src))
	}
	c.ordered = c.ordered[:0]
	for i, m := range members {
		if i > 0 {
			c.ordered = append(c.ordered, ',')
		}
		c.ordered = append(c.ordered, c.dst[m.start:m.end]...)
	}
	copy(c.dst[first:], c.ordered)
	return nil
}

// compareUTF16 orders strings by their UTF-16 units, as JCS asks. That is the
// order of bytes except between astral characters and U+E000 to U+FFFF.
func compareUTF16(a, b []byte) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i < len(a) && i < len(b) && a[i] < utf8.RuneSelf && b[i] < utf8.RuneSelf {
		return int(a[i]) - int(b[i])
	}
	for i > 0 && i < len(a) && !utf8.RuneStart(a[i]) {
		i--
	}
	if i < len(a) && i < len(b) {
		ra, _ := utf8.DecodeRune(a[i:])
		rb, _ := utf8.DecodeRune(b[i:])
		if (ra > 0xFFFF) != (rb > 0xFFFF) {
			return int(unit(ra)) - int(unit(rb))
		}
	}
	return bytes.Compare(a[i:], b[i:])
}

// unit is the first UTF-16 unit of r.
func unit(r rune) rune {
	if high, _ := utf16.EncodeRune(r); high != utf8.RuneError {
		return high
	}
	return r
}

// str copies a string in its canonical form and returns what it says, which
// may be a part of src.
func (c *canonicalizer) str() ([]byte, error) {
	start := c.pos
	c.pos++
	seen := byte(0)
	for c.pos < len(c.src) {
		switch b := c.src[c.pos]; {
		case b == '"':
			raw := c.src[start+1 : c.pos]
			if seen >= utf8.RuneSelf && !utf8.Valid(raw) {
				return nil, c.errorf("a string is not UTF-8")
			}
			c.pos++
			c.dst = append(c.dst, c.src[start:c.pos]...)
			return raw, nil
		case b == '\\':
			return c.escaped(start)
		case b < 0x20:
			return nil, c.errorf("a control character in a string")
		default:
			seen |= b
			c.pos++
		}
	}
	return nil, c.errorf("a string without end")
}

// escaped is str for a string that has escapes, from its opening quote.
func (c *canonicalizer) escaped(start int) ([]byte, error) {
	text := append([]byte(nil), c.src[start+1:c.pos]...)
	for {
		if c.pos >= len(c.src) {
			return nil, c.errorf("a string without end")
		}
		b := c.src[c.pos]
		c.pos++
		switch {
		case b == '"':
			if !utf8.Valid(text) {
				return nil, c.errorf("a string is not UTF-8")
			}
			c.dst = appendString(c.dst, text)
			return text, nil
		case b == '\\':
			var err error
			if text, err = c.escape(text); err != nil {
				return nil, err
			}
		case b < 0x20:
			return nil, c.errorf("a control character in a string")
		default:
			text = append(text, b)
		}
	}
}

// escape reads what stands after a backslash.
func (c *canonicalizer) escape(text []byte) ([]byte, error) {
	b := c.peek()
	c.pos++
	if i := strings.IndexByte(`"\/bfnrt`, b); i >= 0 && b != 0 {
		return append(text, "\"\\/\b\f\n\r\t"[i]), nil
	}
	if b != 'u' {
		return nil, c.errorf("unknown escape")
	}
	r, err := c.hex4()
	if err != nil {
		return nil, err
	}
	if utf16.IsSurrogate(r) {
		if !bytes.HasPrefix(c.src[min(c.pos, len(c.src)):], []byte(`\u`)) {
			return nil, c.errorf("a lone surrogate")
		}
		c.pos += 2
		low, err := c.hex4()
		if err != nil {
			return nil, err
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return nil, c.errorf("a lone surrogate")
		}
	}
	return utf8.AppendRune(text, r), nil
}

func (c *canonicalizer) hex4() (rune, error) {
	if c.pos+4 > len(c.src) {
		return 0, c.errorf("a short \\u escape")
	}
	n, err := strconv.ParseUint(string(c.src[c.pos:c.pos+4]), 16, 16)
	if err != nil {
		return 0, c.errorf("a bad \\u escape")
	}
	c.pos += 4
	return rune(n), nil
}

func appendString(dst, text []byte) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, b := range text {
		switch {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b >= 0x20:
			dst = append(dst, b)
		case b == '\b':
			dst = append(dst, '\\', 'b')
		case b == '\t':
			dst = append(dst, '\\', 't')
		case b == '\n':
			dst = append(dst, '\\', 'n')
		case b == '\f':
			dst = append(dst, '\\', 'f')
		case b == '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
	}
	return append(dst, '"')
}

// number copies a number as the shortest text of its double.
func (c *canonicalizer) number() error {
	start := c.pos
	if !c.scanNumber() {
		return c.errorf("a malformed number")
	}
	raw := c.src[start:c.pos]
	if c.restore == nil && isSmall(raw) {
		c.dst = append(c.dst, raw...)
		return nil
	}
	text := string(raw)
	short, err := shortest(text)
	if err != nil {
		return c.errorf("%v", err)
	}
	if kept, ok := c.kept(); ok {
		// It must be what this number lost, or an event had two encodings.
		if nearest, err := shortest(kept); !isNumber(kept) || err != nil || nearest != short || decimal(kept) == decimal(short) {
			return c.errorf("%.40q is kept for the number %s", kept, short)
		}
		c.restored++
		c.dst = append(c.dst, kept...)
		return nil
	}
	c.dst = append(c.dst, short...)
	if c.collect && decimal(text) != decimal(short) {
		return c.keep(text)
	}
	return nil
}

// keep puts the raw text of the number being read into lossy.
func (c *canonicalizer) keep(text string) error {
	c.held += len(c.pointer) + len(text)
	switch {
	case len(c.pointer) > maxPointer:
		return c.errorf("a double cannot hold %.40s, and a pointer to it has %d bytes, more than %d", text, len(c.pointer), maxPointer)
	case c.held > maxKept:
		return c.errorf("numbers that a double cannot hold take more than %d bytes to keep", maxKept)
	}
	if c.lossy == nil {
		c.lossy = map[string]string{}
	}
	c.lossy[string(c.pointer)] = text
	return nil
}

// isSmall reports whether a number is plainly its own shortest text.
func isSmall(raw []byte) bool {
	return len(raw) <= 15 && !bytes.ContainsAny(raw, ".eE") && string(raw) != "-0"
}

// kept is the raw text to restore at the place that is being read.
func (c *canonicalizer) kept() (string, bool) {
	if c.restore == nil || len(c.pointer) > maxPointer {
		return "", false
	}
	kept, ok := c.restore[string(c.pointer)]
	return kept, ok
}

// shortest is the shortest text of the double nearest to raw.
func shortest(raw string) (string, error) {
	f, err := strconv.ParseFloat(raw, 64)
	if err != nil {
		return "", fmt.Errorf("%.40s is outside the range of a double", raw)
	}
	return formatDouble(f), nil
}

// scanNumber moves past one number of JSON's grammar.
func (c *canonicalizer) scanNumber() bool {
	digits := func() bool {
		from := c.pos
		for b := c.peek(); b >= '0' && b <= '9'; b = c.peek() {
			c.pos++
		}
		return c.pos > from
	}
	if c.peek() == '-' {
		c.pos++
	}
	if c.peek() == '0' {
		c.pos++
	} else if !digits() {
		return false
	}
	if c.peek() == '.' {
		c.pos++
		if !digits() {
			return false
		}
	}
	if b := c.peek(); b == 'e' || b == 'E' {
		c.pos++
		if b := c.peek(); b == '+' || b == '-' {
			c.pos++
		}
		return digits()
	}
	return true
}

func isNumber(s string) bool {
	c := canonicalizer{src: []byte(s)}
	return c.scanNumber() && c.pos == len(s)
}

// appendPointer appends a name to a JSON Pointer.
func appendPointer(pointer, name []byte) []byte {
	pointer = append(pointer, '/')
	for _, b := range name {
		switch b {
		case '~':
			pointer = append(pointer, '~', '0')
		case '/':
			pointer = append(pointer, '~', '1')
		default:
			pointer = append(pointer, b)
		}
	}
	return pointer
}

// formatDouble prints f as ECMAScript does.
func formatDouble(f float64) string {
	if f == 0 {
		return "0"
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	return mantissa + "e" + exponent[:1] + strings.TrimLeft(exponent[1:], "0")
}

// decimal is a form of a number's text that is equal for equal numbers: sign,
// significant digits, exponent of the last one.
func decimal(s string) string {
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	// An exponent that does not fit has no double equal to it, save 0 above.
	e, err := strconv.ParseInt(strings.TrimPrefix(exponent, "+"), 10, 32)
	if err != nil && exponent != "" {
		return "?" + s
	}
	significant := strings.TrimRight(digits, "0")
	e += int64(len(digits)-len(significant)) - int64(len(fraction))
	return sign + significant + "e" + strconv.FormatInt(e, 10)
}

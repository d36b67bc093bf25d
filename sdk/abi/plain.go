package abi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"
)

// Marshal is json.Marshal: it gives the same bytes. Messages, which are most of what
// crosses the ABI, are written without reflection: in a guest that is ten times as
// fast, and touches a fraction of the memory, each page of which costs the turn.
func Marshal(v any) ([]byte, error) {
	var w writer
	switch v := v.(type) {
	case Message:
		w.message(&v)
	case ModelCall:
		w.modelCall(&v)
	default:
		return json.Marshal(v)
	}
	return w.b, w.err
}

// Unmarshal is json.Unmarshal into a v that is zero. Compact JSON of what Marshal
// writes quickly, and of the answers to that, it reads quickly: what that reading does not
// know is left to encoding/json, with all its rules and errors.
func Unmarshal(b []byte, v any) error {
	if ReadPlain(b, v) {
		return nil
	}
	return json.Unmarshal(b, v)
}

// ReadPlain is Unmarshal as far as that is quick. It reports false, and leaves v as it is,
// for what it does not read; else v is what json.Unmarshal would make of a zero one, also
// if it were told to refuse members that it does not know.
func ReadPlain(b []byte, v any) bool {
	r := reader{b: b}
	switch v := v.(type) {
	case *Start:
		var s Start
		if r.start(&s); r.done() {
			*v = s
			return true
		}
	case *ModelResult:
		var m ModelResult
		if r.modelResult(&m); r.done() {
			*v = m
			return true
		}
	case *ModelCall:
		var c ModelCall
		if r.modelCall(&c); r.done() {
			*v = c
			return true
		}
	case *Message:
		var m Message
		if r.message(&m); r.done() {
			*v = m
			return true
		}
	}
	return false
}

// reader reads compact JSON. At the first thing that it does not expect it fails, and
// whatever it gives then means nothing.
type reader struct {
	b      []byte
	i      int
	failed bool
}

func (r *reader) fail() { r.failed = true }

// done reports whether all was read.
func (r *reader) done() bool { return !r.failed && r.i == len(r.b) }

// peek is the next byte, 0 if there is none.
func (r *reader) peek() byte {
	if r.i < len(r.b) {
		return r.b[r.i]
	}
	return 0
}

func (r *reader) byte(c byte) {
	if r.peek() != c {
		r.fail()
		return
	}
	r.i++
}

// open begins an object or a list: the loop over what it holds is one over more.
func (r *reader) open(c byte, once bool) {
	if !once {
		r.fail() // it would be merged with what was there before
	}
	r.byte(c)
}

// more reports whether something comes before the end.
func (r *reader) more(end byte) bool {
	switch {
	case r.failed:
		return false
	case r.b[r.i-1] == end-2: // '{' and '[': what was opened
		if r.peek() == end {
			r.i++
			return false
		}
		return true
	case r.peek() == end:
		r.i++
		return false
	}
	r.byte(',')
	return !r.failed
}

// key is the name of the next member.
func (r *reader) key() string {
	text, plain := r.text()
	if !plain {
		r.fail()
	}
	r.byte(':')
	return string(text)
}

// text is what stands between the quotes of a string, and whether that is the string.
func (r *reader) text() (text []byte, plain bool) {
	r.byte('"')
	plain = true
	seen := byte(0)
	for start := r.i; r.i < len(r.b) && !r.failed; r.i++ {
		switch c := r.b[r.i]; {
		case c == '"':
			text = r.b[start:r.i]
			r.i++
			if seen >= utf8.RuneSelf && !utf8.Valid(text) {
				r.fail()
			}
			return text, plain
		case c == '\\':
			plain = false
			r.i++
		case c < ' ':
			r.fail()
		default:
			seen |= c
		}
	}
	r.fail()
	return nil, false
}

func (r *reader) string() string {
	text, plain := r.text()
	if plain {
		return string(text)
	}
	s := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\\' {
			i++
			if c = unescaped(text[i]); c == 0 {
				r.fail()
				return ""
			}
		}
		s = append(s, c)
	}
	return string(s)
}

// unescaped is what a backslash before c stands for; 0 for what takes more than c.
func unescaped(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

func (r *reader) bytes() []byte {
	text, plain := r.text()
	b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(b, text)
	if err != nil || !plain {
		r.fail()
	}
	return b[:n]
}

// number reads an integer of few digits.
func (r *reader) number(most int) (n int64) {
	negative := r.peek() == '-'
	if negative {
		r.i++
	}
	start := r.i
	for '0' <= r.peek() && r.peek() <= '9' {
		n = 10*n + int64(r.b[r.i]-'0')
		if r.i++; r.i-start > most {
			break
		}
	}
	if digits := r.i - start; digits == 0 || digits > most || digits > 1 && r.b[start] == '0' {
		r.fail()
	}
	if negative {
		return -n
	}
	return n
}

func (r *reader) int32() int32 { return int32(r.number(9)) }

// int64 reads one in quotes, as they are written.
func (r *reader) int64() int64 {
	r.byte('"')
	n := r.number(18)
	r.byte('"')
	return n
}

// other reads what is not worth more code into v, which must be zero.
func (r *reader) other(v any, once bool) {
	start, depth := r.i, 0
	for !r.failed {
		switch r.peek() {
		case '"':
			r.text()
			continue
		case '{', '[':
			depth++
		case '}', ']', ',', 0:
			if depth == 0 || r.peek() == 0 {
				if !once || !strictly(r.b[start:r.i], v) {
					r.fail()
				}
				return
			}
			if r.peek() != ',' {
				depth--
			}
		}
		r.i++
	}
}

// strictly reads a value and refuses members that it does not know.
func strictly(value []byte, v any) bool {
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	return d.Decode(v) == nil && d.InputOffset() == int64(len(value))
}

func (r *reader) start(s *Start) {
	for r.open('{', true); r.more('}'); {
		switch r.key() {
		case "config":
			s.Config = r.bytes()
		case "inputs":
			s.Inputs = r.messages(s.Inputs == nil)
		case "resume_from_seq":
			s.ResumeFromSeq = Seq(r.int64())
		case "cell":
			once := s.Cell == nil
			s.Cell = new(StartCell)
			r.startCell(s.Cell, once)
		default:
			r.fail()
		}
	}
}

func (r *reader) startCell(c *StartCell, once bool) {
	for r.open('{', once); r.more('}'); {
		switch r.key() {
		case "model":
			c.Model = r.string()
		case "tools":
			r.other(&c.Tools, c.Tools == nil)
		case "limits":
			once := c.Limits == nil
			c.Limits = new(Limits)
			r.limits(c.Limits, once)
		default:
			r.fail()
		}
	}
}

func (r *reader) limits(l *Limits, once bool) {
	for r.open('{', once); r.more('}'); {
		switch r.key() {
		case "depth":
			l.Depth = r.int32()
		case "effects":
			l.Effects = r.int32()
		case "fuel":
			l.Fuel = Int64(r.int64())
		case "memory_bytes":
			l.MemoryBytes = Int64(r.int64())
		case "output_bytes":
			l.OutputBytes = Int64(r.int64())
		case "request_bytes":
			l.RequestBytes = Int64(r.int64())
		default:
			r.fail()
		}
	}
}

func (r *reader) modelCall(c *ModelCall) {
	for r.open('{', true); r.more('}'); {
		switch r.key() {
		case "model":
			c.Model = r.string()
		case "params":
			r.other(&c.Params, c.Params == nil)
		case "messages":
			c.Messages = r.messages(c.Messages == nil)
		case "tools":
			r.other(&c.Tools, c.Tools == nil)
		case "tool_choice":
			r.other(&c.ToolChoice, c.ToolChoice == nil)
		default:
			r.fail()
		}
	}
}

func (r *reader) modelResult(m *ModelResult) {
	answered := false
	for r.open('{', true); r.more('}'); {
		switch r.key() {
		case "message":
			if answered {
				r.fail()
			}
			answered = true
			r.message(&m.Message)
		case "usage":
			once := m.Usage == nil
			m.Usage = new(Usage)
			r.usage(m.Usage, once)
		case "model_call_id":
			m.ModelCallID = r.string()
		default:
			r.fail()
		}
	}
}

func (r *reader) usage(u *Usage, once bool) {
	for r.open('{', once); r.more('}'); {
		switch r.key() {
		case "model":
			u.Model = r.string()
		case "input_tokens":
			u.InputTokens = Int64(r.int64())
		case "output_tokens":
			u.OutputTokens = Int64(r.int64())
		case "reasoning_tokens":
			u.ReasoningTokens = Int64(r.int64())
		default:
			r.fail()
		}
	}
}

func (r *reader) messages(once bool) []Message {
	list := []Message{}
	for r.open('[', once); r.more(']'); {
		list = append(list, Message{})
		r.message(&list[len(list)-1])
	}
	return list
}

func (r *reader) message(m *Message) {
	for r.open('{', true); r.more('}'); {
		switch r.key() {
		case "role":
			m.Role = r.string()
		case "parts":
			m.Parts = r.parts(m.Parts == nil)
		default:
			r.fail()
		}
	}
}

func (r *reader) parts(once bool) []Part {
	list := []Part{}
	for r.open('[', once); r.more(']'); {
		list = append(list, Part{})
		r.part(&list[len(list)-1])
	}
	return list
}

func (r *reader) part(p *Part) {
	for r.open('{', true); r.more('}'); {
		switch r.key() {
		case "text":
			once := p.Text == nil
			p.Text = new(TextPart)
			for r.open('{', once); r.more('}'); {
				if r.key() != "text" {
					r.fail()
				}
				p.Text.Text = r.string()
			}
		case "file":
			r.other(&p.File, p.File == nil)
		case "data":
			r.other(&p.Data, p.Data == nil)
		case "reasoning":
			r.other(&p.Reasoning, p.Reasoning == nil)
		case "tool_call":
			r.other(&p.ToolCall, p.ToolCall == nil)
		case "tool_result":
			r.other(&p.ToolResult, p.ToolResult == nil)
		default:
			r.fail()
		}
	}
}

// writer appends what json.Marshal would write.
type writer struct {
	b   []byte
	err error
}

// member begins the next member of an object.
func (w *writer) member(name string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(append(append(w.b, '"'), name...), '"', ':')
}

// other writes what is not worth more code.
func (w *writer) other(v any) {
	b, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.b = append(w.b, b...)
}

func (w *writer) string(s string) {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c >= utf8.RuneSelf, c == '"', c == '\\', c == '<', c == '>', c == '&':
			w.other(s)
			return
		}
	}
	w.b = append(append(append(w.b, '"'), s...), '"')
}

func (w *writer) message(m *Message) {
	w.b = append(w.b, '{')
	if m.Role != "" {
		w.member("role")
		w.string(m.Role)
	}
	if len(m.Parts) > 0 {
		w.member("parts")
		for i := range m.Parts {
			w.b = append(w.b, "[,"[min(i, 1)])
			w.part(&m.Parts[i])
		}
		w.b = append(w.b, ']')
	}
	w.b = append(w.b, '}')
}

func (w *writer) part(p *Part) {
	if p.Text == nil || *p != (Part{Text: p.Text}) {
		w.other(p)
		return
	}
	w.b = append(w.b, `{"text":{`...)
	if p.Text.Text != "" {
		w.member("text")
		w.string(p.Text.Text)
	}
	w.b = append(w.b, '}', '}')
}

func (w *writer) modelCall(c *ModelCall) {
	rest := *c
	rest.Model, rest.Messages = "", nil
	if rest.Params != nil || rest.InputHash != "" || rest.ID != "" || rest.ToolChoice != nil {
		w.other(c)
		return
	}
	w.b = append(w.b, '{')
	if c.Model != "" {
		w.member("model")
		w.string(c.Model)
	}
	if len(c.Messages) > 0 {
		w.member("messages")
		for i := range c.Messages {
			w.b = append(w.b, "[,"[min(i, 1)])
			w.message(&c.Messages[i])
		}
		w.b = append(w.b, ']')
	}
	if len(c.Tools) > 0 {
		w.member("tools")
		w.other(c.Tools)
	}
	w.b = append(w.b, '}')
}

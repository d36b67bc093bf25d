package abi

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The events of most turns, too, are written and read without reflection, and written in
// their canonical order at once. An event that has anything else is left
// to encoding/json and the canonicalizer.

// encodePlain is EncodeEvent as far as that is quick.
func encodePlain(e *Event) ([]byte, bool) {
	if e.Actor != nil || e.Approval != nil || e.ApprovalResult != nil || e.Error != nil || e.Result != nil || e.Tool != nil {
		return nil, false
	}
	w := canonicalWriter{b: make([]byte, 0, 1<<10)}
	w.event(e)
	return w.b, !w.failed
}

// decodePlain is DecodeEvent as far as that is quick.
func decodePlain(b []byte) (*Event, bool) {
	r, e := reader{b: b}, new(Event)
	r.event(e)
	return e, r.done()
}

// canonicalWriter appends the canonical form of values. Where it fails, what it has
// written means nothing.
type canonicalWriter struct {
	b      []byte
	failed bool
}

func (w *canonicalWriter) open()  { w.b = append(w.b, '{') }
func (w *canonicalWriter) close() { w.b = append(w.b, '}') }

// name begins the next member of an object.
func (w *canonicalWriter) name(name string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(append(append(w.b, '"'), name...), '"', ':')
}

func (w *canonicalWriter) text(s string) {
	w.b = append(w.b, '"')
	seen, done := byte(0), 0 // of s, as far as it is written
	for i := range len(s) {
		c := s[i]
		seen |= c
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		short := strings.IndexByte("\"\\\b\f\n\r\t", c)
		if short < 0 {
			w.failed = true
			return
		}
		w.b = append(append(w.b, s[done:i]...), '\\', `"\bfnrt`[short])
		done = i + 1
	}
	if seen >= utf8.RuneSelf && !utf8.ValidString(s) {
		w.failed = true
	}
	w.b = append(append(w.b, s[done:]...), '"')
}

// The rest of these write a member, if its value is not zero.

func (w *canonicalWriter) string(name, s string) {
	if s != "" {
		w.name(name)
		w.text(s)
	}
}

func (w *canonicalWriter) bool(name string, v bool) {
	if v {
		w.name(name)
		w.b = append(w.b, "true"...)
	}
}

func (w *canonicalWriter) int32(name string, n int32) {
	if n != 0 {
		w.name(name)
		w.b = strconv.AppendInt(w.b, int64(n), 10)
	}
}

func (w *canonicalWriter) int64(name string, n int64) {
	if n != 0 {
		w.name(name)
		w.b = append(strconv.AppendInt(append(w.b, '"'), n, 10), '"')
	}
}

func (w *canonicalWriter) digest(name string, d Digest) {
	if !d.IsZero() {
		w.name(name)
		w.b = append(hex.AppendEncode(append(w.b, '"'), d[:]), '"')
	}
}

func (w *canonicalWriter) bytes(name string, b []byte) {
	if len(b) > 0 {
		w.name(name)
		w.b = append(base64.StdEncoding.AppendEncode(append(w.b, '"'), b), '"')
	}
}

func (w *canonicalWriter) time(name string, t Time) {
	if t.IsZero() {
		return
	}
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		w.failed = true
		return
	}
	w.name(name)
	w.b = append(t.append(append(w.b, '"')), '"')
}

func (w *canonicalWriter) event(e *Event) {
	w.open()
	if e.Cell != nil {
		w.name("cell")
		w.cell(e.Cell)
	}
	if e.End != nil {
		w.failed = w.failed || e.End.Error != nil
		w.name("end")
		w.open()
		w.string("state", string(e.End.State))
		w.close()
	}
	w.string("execution_id", string(e.ExecutionID))
	if e.ExecutionStart != nil {
		w.name("execution_start")
		w.executionStart(e.ExecutionStart)
	}
	w.string("kind", string(e.Kind))
	if e.Lifecycle != nil {
		w.name("lifecycle")
		w.open()
		w.string("detail", e.Lifecycle.Detail)
		w.string("kind", string(e.Lifecycle.Kind))
		w.close()
	}
	if e.Message != nil {
		w.name("message")
		w.message(e.Message)
	}
	if e.Model != nil {
		w.name("model")
		w.modelCall(e.Model)
	}
	w.int32("schema_version", e.SchemaVersion)
	w.time("ts", e.Time)
	if e.Usage != nil {
		w.name("usage")
		w.usage(e.Usage)
	}
	w.close()
}

// cell writes all fields but Numbers, which EncodeEvent finds out.
func (w *canonicalWriter) cell(c *Cell) {
	w.failed = w.failed || c.Args != nil
	w.open()
	w.int32("abi", c.ABI)
	w.bool("again", c.Again)
	w.int32("approvers", c.Approvers)
	w.int64("at", int64(c.At))
	w.digest("base_root", c.BaseRoot)
	w.digest("body", c.Body)
	w.string("call_id", c.CallID)
	w.string("class", string(c.Class))
	w.bool("cloned", c.Cloned)
	w.bool("expired", c.Expired)
	w.int64("fuel", int64(c.Fuel))
	w.digest("golden_root", c.GoldenRoot)
	w.string("harness", c.Harness)
	w.string("key", c.Key)
	if c.Limits != nil {
		w.name("limits")
		w.limits(c.Limits)
	}
	w.digest("messages", c.Messages)
	w.string("model", c.Model)
	w.int64("model_calls", int64(c.ModelCalls))
	w.digest("module", c.Module)
	w.digest("old_module", c.OldModule)
	w.string("on_expiry", c.OnExpiry)
	w.string("parent", string(c.Parent))
	w.digest("payload", c.Payload)
	w.digest("policy", c.Policy)
	w.string("reason", string(c.Reason))
	w.digest("request", c.Request)
	w.int32("rewriter", c.Rewriter)
	w.digest("root", c.Root)
	w.string("rule", c.Rule)
	w.bytes("seed", c.Seed)
	w.string("signal", c.Signal)
	w.int64("since", int64(c.Since))
	w.string("source", string(c.Source))
	w.int64("source_seq", int64(c.SourceSeq))
	w.digest("start_digest", c.StartDigest)
	w.digest("state", c.State)
	w.digest("tools", c.Tools)
	w.int64("turn", int64(c.Turn))
	w.string("uid", string(c.UID))
	w.time("until", c.Until)
	w.close()
}

func (w *canonicalWriter) limits(l *Limits) {
	w.open()
	w.int32("depth", l.Depth)
	w.int32("effects", l.Effects)
	w.int64("fuel", int64(l.Fuel))
	w.int64("memory_bytes", int64(l.MemoryBytes))
	w.int64("output_bytes", int64(l.OutputBytes))
	w.int64("request_bytes", int64(l.RequestBytes))
	w.close()
}

func (w *canonicalWriter) executionStart(s *ExecutionStart) {
	w.open()
	w.bytes("config", s.Config)
	w.string("harness", s.Harness)
	w.string("harness_version", s.HarnessVersion)
	if s.InputCount != nil {
		w.name("input_count")
		w.b = append(w.b, marshalInt(int64(*s.InputCount))...)
	}
	w.int64("resume_from_seq", int64(s.ResumeFromSeq))
	w.close()
}

func (w *canonicalWriter) message(m *Message) {
	w.open()
	if len(m.Parts) > 0 {
		w.name("parts")
		for i := range m.Parts {
			w.b = append(w.b, "[,"[min(i, 1)])
			p := &m.Parts[i]
			if p.Text == nil || *p != (Part{Text: p.Text}) {
				w.failed = true
				return
			}
			w.open()
			w.name("text")
			w.open()
			w.string("text", p.Text.Text)
			w.close()
			w.close()
		}
		w.b = append(w.b, ']')
	}
	w.string("role", m.Role)
	w.close()
}

// modelCall writes what a record has of one: the rest is in blobs.
func (w *canonicalWriter) modelCall(c *ModelCall) {
	w.failed = w.failed || len(c.Params) > 0 || len(c.Messages) > 0 || len(c.Tools) > 0 || c.ToolChoice != nil
	w.open()
	w.string("id", c.ID)
	w.string("input_hash", c.InputHash)
	w.string("model", c.Model)
	w.close()
}

func (w *canonicalWriter) usage(u *Usage) {
	w.open()
	w.int64("input_tokens", int64(u.InputTokens))
	w.string("model", u.Model)
	w.int64("output_tokens", int64(u.OutputTokens))
	w.int64("reasoning_tokens", int64(u.ReasoningTokens))
	w.close()
}

func (r *reader) bool() bool {
	for _, c := range []byte("true") { // false is never written
		r.byte(c)
	}
	return true
}

func (r *reader) digest() (d Digest) {
	if text, plain := r.text(); !plain || d.UnmarshalText(text) != nil {
		r.fail()
	}
	return d
}

func (r *reader) time() (t Time) {
	start := r.i
	if _, plain := r.text(); !plain || r.failed || t.UnmarshalJSON(r.b[start:r.i]) != nil {
		r.fail()
	}
	return t
}

func (r *reader) event(e *Event) {
	for r.open('{', true); r.more('}'); {
		switch r.key() {
		case "cell":
			once := e.Cell == nil
			e.Cell = new(Cell)
			r.cell(e.Cell, once)
		case "end":
			once := e.End == nil
			e.End = new(HarnessEnd)
			for r.open('{', once); r.more('}'); {
				if r.key() != "state" {
					r.fail()
				}
				e.End.State = EndState(r.string())
			}
		case "execution_id":
			e.ExecutionID = ExecutionID(r.string())
		case "execution_start":
			once := e.ExecutionStart == nil
			e.ExecutionStart = new(ExecutionStart)
			r.executionStart(e.ExecutionStart, once)
		case "kind":
			e.Kind = EventKind(r.string())
		case "lifecycle":
			once := e.Lifecycle == nil
			e.Lifecycle = new(Lifecycle)
			r.lifecycle(e.Lifecycle, once)
		case "message":
			if e.Message != nil {
				r.fail()
			}
			e.Message = new(Message)
			r.message(e.Message)
		case "model":
			if e.Model != nil {
				r.fail()
			}
			e.Model = new(ModelCall)
			r.recordedCall(e.Model)
		case "schema_version":
			e.SchemaVersion = r.int32()
		case "ts":
			e.Time = r.time()
		case "usage":
			once := e.Usage == nil
			e.Usage = new(Usage)
			r.usage(e.Usage, once)
		default:
			r.fail()
		}
	}
}

func (r *reader) cell(c *Cell, once bool) {
	for r.open('{', once); r.more('}'); {
		switch r.key() {
		case "abi":
			c.ABI = r.int32()
		case "again":
			c.Again = r.bool()
		case "approvers":
			c.Approvers = r.int32()
		case "at":
			c.At = Seq(r.int64())
		case "base_root":
			c.BaseRoot = r.digest()
		case "body":
			c.Body = r.digest()
		case "call_id":
			c.CallID = r.string()
		case "class":
			c.Class = EndClass(r.string())
		case "cloned":
			c.Cloned = r.bool()
		case "expired":
			c.Expired = r.bool()
		case "fuel":
			c.Fuel = Int64(r.int64())
		case "golden_root":
			c.GoldenRoot = r.digest()
		case "harness":
			c.Harness = r.string()
		case "key":
			c.Key = r.string()
		case "limits":
			once := c.Limits == nil
			c.Limits = new(Limits)
			r.limits(c.Limits, once)
		case "messages":
			c.Messages = r.digest()
		case "model":
			c.Model = r.string()
		case "model_calls":
			c.ModelCalls = Int64(r.int64())
		case "module":
			c.Module = r.digest()
		case "old_module":
			c.OldModule = r.digest()
		case "on_expiry":
			c.OnExpiry = r.string()
		case "parent":
			c.Parent = SessionID(r.string())
		case "payload":
			c.Payload = r.digest()
		case "policy":
			c.Policy = r.digest()
		case "reason":
			c.Reason = EndReason(r.string())
		case "request":
			c.Request = r.digest()
		case "rewriter":
			c.Rewriter = r.int32()
		case "root":
			c.Root = r.digest()
		case "rule":
			c.Rule = r.string()
		case "seed":
			c.Seed = r.bytes()
		case "signal":
			c.Signal = r.string()
		case "since":
			c.Since = Seq(r.int64())
		case "source":
			c.Source = SessionID(r.string())
		case "source_seq":
			c.SourceSeq = Seq(r.int64())
		case "start_digest":
			c.StartDigest = r.digest()
		case "state":
			c.State = r.digest()
		case "tools":
			c.Tools = r.digest()
		case "turn":
			c.Turn = Int64(r.int64())
		case "uid":
			c.UID = SessionID(r.string())
		case "until":
			c.Until = r.time()
		default:
			r.fail()
		}
	}
}

func (r *reader) executionStart(s *ExecutionStart, once bool) {
	for r.open('{', once); r.more('}'); {
		switch r.key() {
		case "config":
			s.Config = r.bytes()
		case "harness":
			s.Harness = r.string()
		case "harness_version":
			s.HarnessVersion = r.string()
		case "input_count":
			n := Int64(r.int64())
			s.InputCount = &n
		case "resume_from_seq":
			s.ResumeFromSeq = Seq(r.int64())
		default:
			r.fail()
		}
	}
}

func (r *reader) lifecycle(l *Lifecycle, once bool) {
	for r.open('{', once); r.more('}'); {
		switch r.key() {
		case "detail":
			l.Detail = r.string()
		case "kind":
			l.Kind = LifecycleKind(r.string())
		default:
			r.fail()
		}
	}
}

func (r *reader) recordedCall(c *ModelCall) {
	for r.open('{', true); r.more('}'); {
		switch r.key() {
		case "id":
			c.ID = r.string()
		case "input_hash":
			c.InputHash = r.string()
		case "model":
			c.Model = r.string()
		default:
			r.fail()
		}
	}
}

package turn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"unicode/utf8"

	"github.com/agentcell/agentcell/sdk/abi"
)

// ErrRecordEnds reports, in Check, that the run wants something the record does
// not have because the turn was cut short there.
var ErrRecordEnds = errors.New("the record ends here")

// Divergence is the error of a run that does not do what the record says.
type Divergence struct {
	Seq abi.Seq
	// Want is the hash of the recorded event, Got that of the event the run
	// leads to; zero where there is none.
	Want, Got abi.Digest
	// What differs, in words.
	What string
}

// Error names the record, both hashes and what differs.
func (d *Divergence) Error() string {
	return fmt.Sprintf("seq %d diverges: recorded event %s, this run %s: %s",
		d.Seq, orNone(d.Want), orNone(d.Got), d.What)
}

func orNone(d abi.Digest) string {
	if d.IsZero() {
		return "none"
	}
	return d.String()
}

// Stage encodes an event that is to be recorded.
func Stage(e *abi.Event) (Staged, error) {
	e.SchemaVersion = abi.SchemaVersion
	encoded, body, err := abi.EncodeRecord(e)
	if err != nil {
		return Staged{}, err
	}
	s := Staged{Event: e, Encoded: encoded}
	if body != nil {
		s.Blobs, s.body = [][]byte{body}, len(body)
	}
	return s, nil
}

// Decoded is the event as a reader of the record gets it.
func (s Staged) Decoded() (*abi.Event, error) {
	return abi.DecodeRecord(s.Encoded, func(d abi.Digest) ([]byte, error) {
		for _, b := range s.Blobs {
			if abi.DigestOf(b) == d {
				return b, nil
			}
		}
		return nil, errors.New("not among the record's blobs")
	})
}

// recordEnds reports whether nothing is left to serve. In Check, an END for an
// external reason is where the run may have been cut off.
func (m *Machine) recordEnds() bool {
	if m.front == nil {
		return true
	}
	e := m.front.Event
	return m.mode == Check && e.Kind == abi.EventEnd && e.Cell != nil && e.Cell.Class == abi.ClassExternal
}

// pull makes the record behind the front one the front one.
func (m *Machine) pull() {
	if m.front != nil {
		m.seq = m.front.Seq
	}
	m.front = nil
	if m.broken == nil {
		m.front, m.broken = m.record()
	}
}

// take removes the next record.
func (m *Machine) take() Recorded {
	next := *m.front
	m.pull()
	m.last = next.Event.Time
	m.passForks()
	return next
}

// passForks takes the FORK records at the front: a child of a fork inside this
// turn owns it, and draws its own randomness from there.
func (m *Machine) passForks() {
	for m.front != nil {
		e := m.front.Event
		if e.Kind != abi.EventLifecycle || e.Lifecycle.Kind != abi.LifecycleFork {
			return
		}
		m.pull()
		m.floor = e.Time
		if e.Cell != nil {
			m.seed = e.Cell.Seed
		}
	}
}

// serve takes the next record and checks that it is what the run leads to. It
// reports false where the record ends and the run goes on live. s is then the
// new record.
func (m *Machine) serve(s *Staged) (recorded bool, err error) {
	if m.recordEnds() {
		if m.mode == Check {
			return false, ErrRecordEnds
		}
		m.last = s.Event.Time
		return false, nil
	}
	next := m.take()
	// The run cannot know the recorded time, and need not.
	again := *s.Event
	again.Time = next.Event.Time
	mine, err := Stage(&again)
	if err != nil {
		return false, err
	}
	if !bytes.Equal(mine.Encoded, next.Encoded) {
		return false, &Divergence{
			Seq: next.Seq, Want: abi.DigestOf(next.Encoded), Got: abi.DigestOf(mine.Encoded),
			What: difference(next.Encoded, mine.Encoded),
		}
	}
	return true, nil
}

// difference says where two events differ first.
func difference(want, got []byte) string {
	var w, g any
	if json.Unmarshal(want, &w) != nil || json.Unmarshal(got, &g) != nil {
		return "the recorded event is not JSON"
	}
	path, a, b := firstDifference("", w, g)
	return fmt.Sprintf("%s is recorded as %s, this run has %s", path, a, b)
}

func firstDifference(path string, want, got any) (where, a, b string) {
	w, ok1 := want.(map[string]any)
	g, ok2 := got.(map[string]any)
	if ok1 && ok2 {
		names := make([]string, 0, len(w)+len(g))
		for name := range w {
			names = append(names, name)
		}
		for name := range g {
			if _, both := w[name]; !both {
				names = append(names, name)
			}
		}
		sort.Strings(names)
		// The kind says most, so it goes first.
		sort.SliceStable(names, func(i, j int) bool { return names[i] == "kind" && names[j] != "kind" })
		for _, name := range names {
			if where, a, b := firstDifference(path+"."+name, w[name], g[name]); where != "" {
				return where, a, b
			}
		}
		return "", "", ""
	}
	wl, ok1 := want.([]any)
	gl, ok2 := got.([]any)
	if ok1 && ok2 && len(wl) == len(gl) {
		for i := range wl {
			if where, a, b := firstDifference(fmt.Sprintf("%s[%d]", path, i), wl[i], gl[i]); where != "" {
				return where, a, b
			}
		}
		return "", "", ""
	}
	a, b = show(want), show(got)
	if a == b {
		return "", "", ""
	}
	return trimDot(path), a, b
}

func trimDot(path string) string {
	if path == "" {
		return "the event"
	}
	return path[1:]
}

// show prints a JSON value for a message, bounded.
func show(v any) string {
	if v == nil {
		return "absent"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	const most = 120
	if len(b) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(b[cut]) {
			cut--
		}
		return fmt.Sprintf("%s… (%d bytes, %s)", b[:cut], len(b), abi.DigestOf(b).Short())
	}
	return string(b)
}

// StartResponse is what the start import answers in the turn that start, its
// EXECUTION_START, and inputs open, with the tools it was granted. It is a function of these records, so that a
// turn that is run again is given the same bytes.
func StartResponse(start *abi.Event, inputs []*abi.Event, tools []abi.ToolDefinition) ([]byte, error) {
	s := abi.Start{
		Config:        start.ExecutionStart.Config,
		ResumeFromSeq: start.ExecutionStart.ResumeFromSeq,
		Cell:          &abi.StartCell{Model: start.Cell.Model, Tools: tools, Limits: start.Cell.Limits},
	}
	for _, in := range inputs {
		if in.Message == nil {
			return nil, errors.New("an input without message")
		}
		s.Inputs = append(s.Inputs, *in.Message)
	}
	return marshal(s)
}

// request is a model call as the record refers to it.
type request struct {
	inputHash abi.Digest
	digest    abi.Digest // of the request blob
	messages  abi.Digest // head of the message list
	blobs     [][]byte
}

// encodeRequest splits a model call, which has neither id nor input_hash, into
// blobs: each message, a list node for each message, and the call itself with
// its messages replaced by the head of that list. Conversations that share a
// prefix share its blobs, so that storage grows with what is new.
func encodeRequest(call *abi.ModelCall) (request, error) {
	whole, err := abi.MarshalLossless(call)
	if err != nil {
		return request{}, err
	}
	r := request{inputHash: abi.DigestOf(whole)}
	put := func(v any) (abi.Digest, error) {
		b, err := abi.MarshalLossless(v)
		if err != nil {
			return abi.Digest{}, err
		}
		r.blobs = append(r.blobs, b)
		return abi.DigestOf(b), nil
	}
	for i := range call.Messages {
		message, err := put(&call.Messages[i])
		if err != nil {
			return request{}, err
		}
		if r.messages, err = put(map[string]any{"message": message, "prev": r.messages}); err != nil {
			return request{}, err
		}
	}
	bare := *call
	bare.Messages = nil
	b, err := json.Marshal(&bare)
	if err != nil {
		return request{}, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &fields); err != nil {
		return request{}, err
	}
	if fields["messages"], err = json.Marshal(r.messages); err != nil {
		return request{}, err
	}
	r.digest, err = put(fields)
	return r, err
}

// decode reads a request of a guest. Unknown members are refused: they would be
// lost without a word.
func decode(request []byte, into any) error {
	if !utf8.Valid(request) {
		return errors.New("the request is not UTF-8")
	}
	if abi.ReadPlain(request, into) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(request))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("the request is malformed: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the request is malformed: text after the value")
	}
	return nil
}

// marshal writes a response. Responses keep numbers as they came.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// maxErrorBytes bounds the text of an END's error.
const maxErrorBytes = 4 << 10

// clip bounds an error that is to be recorded.
func clip(e *abi.Error) *abi.Error {
	if e == nil || len(e.Description) <= maxErrorBytes {
		return e
	}
	return &abi.Error{Code: e.Code, Description: clipText(e.Description, maxErrorBytes)}
}

// clipText is s, or its first n bytes or a few less and a mark.
func clipText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

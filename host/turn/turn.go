// Package turn owns the rules of a turn: what a harness's call means, what must
// be recorded and be durable before what, what is served from the record, when
// running again has diverged from it, and how a turn ends.
//
// Machine is a pure state machine, driven like this:
//
//	ready, err := m.Call(op, request, now)   // the harness asks
//	ready, err := m.Completed(answer, now)   // the effect it asked for is done
//	ready, err := m.Finish(end, now)         // the harness is done
//
// and its caller acts on each Ready in the order of its fields. The same machine
// runs a turn live, serves it again after a crash, and checks it when it is
// re-executed; only the records it is given differ.
//
// The package has no clock, no goroutine, no I/O and no log. It imports sdk/abi
// and never the host, the journal, a runtime or a provider.
package turn

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Opening is what a turn begins from: the content of its EXECUTION_START and
// INPUT records.
type Opening struct {
	Execution abi.ExecutionID
	// Time and Seq are those of the last opening record; later records are never
	// before it.
	Time abi.Time
	Seq  abi.Seq
	// Start is the response to the start import: the same bytes however often
	// the turn is run.
	Start []byte
	// Model fills a model call that names none.
	Model string
	// Tools are those granted to the turn, by name.
	Tools map[string]abi.ToolGrant
	// Policy decides on calls of tools; nil leaves each to its tool's mediation.
	Policy Policy
	// Elsewhere, if set, is asked for results before calls are made.
	Elsewhere Elsewhere
	Limits    abi.Limits
	// BaseRoot is the root of a turn that does not complete.
	BaseRoot abi.Digest
	// Turn and ModelCalls count those of the record before this turn.
	Turn, ModelCalls int64
}

// Mode says what happens where the record ends.
type Mode int

const (
	// Live goes on: new effects are asked for and recorded.
	Live Mode = iota
	// Check stops with ErrRecordEnds: the record is compared and never
	// extended.
	Check
)

// Source gives the records of a turn behind its opening, in order, one at a time,
// and nil where they end. After an error it is not asked again.
type Source func() (*Recorded, error)

// Records is the Source of records that are at hand.
func Records(list []Recorded) Source {
	return func() (*Recorded, error) {
		if len(list) == 0 {
			return nil, nil
		}
		r := &list[0]
		list = list[1:]
		return r, nil
	}
}

// Recorded is a record of this turn behind its opening, to be served.
type Recorded struct {
	Seq abi.Seq
	// Encoded is the event's bytes as they stand in the record.
	Encoded []byte
	// Event is Encoded decoded, a body that is a blob included.
	Event *abi.Event
	// Payload is that of a signal.
	Payload []byte
}

// Staged is a new record.
type Staged struct {
	Event   *abi.Event
	Encoded []byte
	// Blobs must be durable with or before the record.
	Blobs [][]byte

	body int // bytes of the event that are a blob
}

// EventSize is how many bytes the event has, a body that is a blob included.
func (s Staged) EventSize() int { return len(s.Encoded) + s.body }

// Size is how many bytes are to be stored: those of the event and of all blobs.
func (s Staged) Size() int {
	n := len(s.Encoded)
	for _, b := range s.Blobs {
		n += len(b)
	}
	return n
}

// Ready is what the caller must do now, in this order: stage Stage; if Commit,
// make everything staged durable; then perform Effect, or Tools side by side, or
// answer History, or give Reply to the harness, or give the run up because the turn
// is parked or because the call Refused may not be made. At most one of these is set;
// none means that tool calls are still under way.
type Ready struct {
	Stage   []Staged
	Commit  bool
	Effect  *Effect
	Tools   []ToolEffect
	Park    []Waiting
	Refused *abi.ToolCall
	History *abi.HistoryRequest
	Reply   *Reply
	// Note says more of a refused request than the harness may be told: what it
	// is told must be the same wherever the turn is run (M2), and the texts of
	// a library are not.
	Note string
}

// Effect is a model call to perform. Its outcome goes to Machine.Completed.
type Effect struct {
	CallID string
	// Index is the position of the call among those of the whole record, from 0.
	Index int64
	// Attempt is 0 when the call is made first, 1 when it is made again because
	// its intent stands in the record and its outcome does not.
	Attempt int
	Call    abi.ModelCall
}

// Reply is what the harness gets. Now, if not zero, moves its clock. Seed, if
// not nil, keys its randomness from here on.
type Reply struct {
	Status abi.Status
	Body   []byte
	Now    abi.Time
	Seed   []byte
}

// Answer is the outcome of an Effect: a message, or Err.
type Answer struct {
	Message abi.Message
	Usage   *abi.Usage
	Err     *abi.Error
}

// End is how the harness's run ended. Root is the memory root that was reached;
// it counts only if Reason is completed.
type End struct {
	Reason abi.EndReason
	Err    *abi.Error
	Root   abi.Digest
	Fuel   uint64
}

// Machine decides one run of one turn. It is not safe for concurrent use.
type Machine struct {
	opening Opening
	mode    Mode
	record  Source
	front   *Recorded // the next to be served, nil where the record ends
	broken  error     // why the record cannot be read further

	last        abi.Time // time of the newest record of the turn itself
	floor       abi.Time // time of the newest record, a fork's included
	seq         abi.Seq  // of the newest record that was taken or given to be staged
	seed        []byte   // of a fork that was passed, until it is handed on
	started     bool
	effects     int32
	outputBytes int64
	modelCalls  int64
	pending     *Effect
	batch       []*toolCall // tool calls under way
	toolIDs     map[idHash]bool
	ended       bool
}

// New makes the machine of a turn. record has what is recorded of it behind the
// opening, nil if nothing is. The machine reads one record ahead of the run, and
// keeps none that it has served: a turn is as long as it likes.
func New(o Opening, mode Mode, record Source) *Machine {
	if record == nil {
		record = Records(nil)
	}
	m := &Machine{opening: o, mode: mode, record: record, last: o.Time, seq: o.Seq, toolIDs: map[idHash]bool{}}
	m.pull()
	m.passForks()
	return m
}

// Seed is the seed of a fork directly behind the opening, nil if there is none.
// The run begins with it instead of the one in EXECUTION_START.
func (m *Machine) Seed() []byte { return m.handOn() }

// handOn gives the seed of the last fork passed, once.
func (m *Machine) handOn() []byte {
	seed := m.seed
	m.seed = nil
	return seed
}

// Front is the next record to be served, nil where the record ends for this mode.
// The error is that of the Source.
func (m *Machine) Front() (*Recorded, error) {
	if m.broken != nil || m.recordEnds() {
		return nil, m.broken
	}
	return m.front, nil
}

// unbroken is what the machine has decided, unless it decided without a record
// that it could not read: such a decision is void.
func (m *Machine) unbroken(r Ready, err error) (Ready, error) {
	if m.broken != nil {
		return Ready{}, m.broken
	}
	m.seq += abi.Seq(len(r.Stage))
	return r, err
}

// Call decides what a call of the harness leads to. A malformed request is a
// Reply, never an error; an error (a *Divergence, ErrRecordEnds or that of the
// Source) gives the run up.
func (m *Machine) Call(op abi.Op, request []byte, now abi.Time) (Ready, error) {
	return m.unbroken(m.call(op, request, now))
}

func (m *Machine) call(op abi.Op, request []byte, now abi.Time) (Ready, error) {
	switch {
	case m.ended:
		return refuse("the turn has ended"), nil
	case m.pending != nil || m.batch != nil:
		return refuse("a call is under way"), nil
	case op == abi.OpLog:
		return Ready{Reply: &Reply{}}, nil
	case op == abi.OpStart:
		m.started = true
		return Ready{Reply: &Reply{Body: m.opening.Start}}, nil
	case !m.started:
		return refuse("call start first"), nil
	case int64(len(request)) > int64(m.opening.Limits.RequestBytes):
		return limit(fmt.Sprintf("a request of %d bytes passes the limit of %d", len(request), m.opening.Limits.RequestBytes)), nil
	case op == abi.OpHistory:
		return m.history(request)
	case m.effects >= m.opening.Limits.Effects:
		return m.spent(), nil // without reading a request that cannot be served
	}
	switch op {
	case abi.OpModel:
		return m.model(request, now)
	case abi.OpOutput:
		return m.output(request, now)
	case abi.OpUsage:
		return m.usage(request, now)
	case abi.OpToolCall:
		return m.toolCall(request, now)
	case abi.OpReport:
		return m.report(request, now)
	case abi.OpWait:
		return m.wait(request, now)
	default:
		return refuse(fmt.Sprintf("this host does not serve %q", op)), nil
	}
}

func (m *Machine) history(request []byte) (Ready, error) {
	req := new(abi.HistoryRequest)
	if err := decode(request, req); err != nil {
		return malformed(err), nil
	}
	if req.FromSeq < 0 || req.Limit < 0 {
		return malformed(errors.New("from_seq and limit must not be negative")), nil
	}
	if n := len(req.Kinds); n > abi.MaxHistoryKinds {
		return malformed(fmt.Errorf("%d kinds: at most %d are taken", n, abi.MaxHistoryKinds)), nil
	}
	if req.Limit == 0 || req.Limit > abi.MaxHistoryPage {
		req.Limit = abi.MaxHistoryPage
	}
	return Ready{History: req}, nil
}

func (m *Machine) model(request []byte, now abi.Time) (Ready, error) {
	var call abi.ModelCall
	if err := decode(request, &call); err != nil {
		return malformed(err), nil
	}
	if n := len(call.Messages); n == 0 || n > abi.MaxMessages {
		return malformed(fmt.Errorf("%d messages: want 1 to %d", n, abi.MaxMessages)), nil
	}
	if r, ok := m.spend(); !ok {
		return r, nil
	}
	effect, staged, err := m.intent(call, m.stamp(now))
	if err != nil {
		m.effects--
		return invalid("the request cannot be recorded", err), nil
	}
	recorded, err := m.serve(&staged)
	if err != nil {
		return Ready{}, err
	}
	m.modelCalls++
	m.pending = effect
	if recorded {
		return m.served(effect)
	}
	return Ready{Stage: []Staged{staged}, Commit: true, Effect: effect}, nil
}

// intent makes the MODEL_CALL record of a call, and the effect it announces.
func (m *Machine) intent(call abi.ModelCall, at abi.Time) (*Effect, Staged, error) {
	call.ID, call.InputHash = "", ""
	if call.Model == "" {
		call.Model = m.opening.Model
	}
	request, err := encodeRequest(&call)
	if err != nil {
		return nil, Staged{}, err
	}
	call.InputHash = request.inputHash.String()
	call.ID = fmt.Sprintf("call-%d", m.effects)
	staged, err := Stage(&abi.Event{
		Kind: abi.EventModelCall, ExecutionID: m.opening.Execution, Time: at,
		Model: &abi.ModelCall{Model: call.Model, ID: call.ID, InputHash: call.InputHash},
		Cell:  &abi.Cell{Request: request.digest, Messages: request.messages},
	})
	if err != nil {
		return nil, Staged{}, err
	}
	staged.Blobs = append(staged.Blobs, request.blobs...)
	effect := &Effect{CallID: call.ID, Index: m.opening.ModelCalls + m.modelCalls, Call: call}
	return effect, staged, nil
}

// served answers a call whose intent stands in the record: by the recorded
// outcome, or by performing it once more if there is none.
func (m *Machine) served(effect *Effect) (Ready, error) {
	if m.recordEnds() {
		if m.mode == Check {
			return Ready{}, ErrRecordEnds
		}
		effect.Attempt = 1
		return Ready{Effect: effect}, nil
	}
	next := m.take()
	m.pending = nil
	switch kind := next.Event.Kind; {
	case kind == abi.EventOutput && answers(next.Event, effect):
		var usage *abi.Usage
		if m.front != nil && m.front.Event.Kind == abi.EventUsage && answers(m.front.Event, effect) {
			usage = m.take().Event.Usage
		}
		return m.reply(effect, next.Event.Message, usage)
	case kind == abi.EventError && answers(next.Event, effect):
		return m.replyError(next.Event.Error)
	default:
		return Ready{}, &Divergence{
			Seq: next.Seq, Want: abi.DigestOf(next.Encoded),
			What: fmt.Sprintf("%s stands where the answer of %s must be", kind, effect.CallID),
		}
	}
}

func answers(e *abi.Event, effect *Effect) bool {
	return e.Cell != nil && e.Cell.CallID == effect.CallID
}

// Completed takes the outcome of the pending effect. The answer is staged, not
// committed: it is the next effect, or the end of the turn, that waits until it
// is durable.
func (m *Machine) Completed(a Answer, now abi.Time) (Ready, error) {
	return m.unbroken(m.completed(a, now))
}

func (m *Machine) completed(a Answer, now abi.Time) (Ready, error) {
	effect := m.pending
	if effect == nil {
		return Ready{}, fmt.Errorf("turn: completed without a pending effect")
	}
	m.pending = nil
	at := m.stamp(now)
	m.last = at
	if a.Message.Role == "" {
		a.Message.Role = abi.RoleAssistant
	}
	event := &abi.Event{
		Kind: abi.EventOutput, ExecutionID: m.opening.Execution, Time: at,
		Message: &a.Message, Cell: &abi.Cell{CallID: effect.CallID},
	}
	if a.Err != nil {
		a.Err = clip(a.Err)
		event.Kind, event.Message, event.Error = abi.EventError, nil, a.Err
	}
	out, err := Stage(event)
	if err != nil {
		// An answer that JSON cannot carry is recorded as the failure it is.
		return m.failed(effect, err, at)
	}
	if a.Err != nil {
		r, err := m.replyError(a.Err)
		r.Stage = []Staged{out}
		return r, err
	}
	staged := []Staged{out}
	if a.Usage != nil {
		used, err := Stage(&abi.Event{
			Kind: abi.EventUsage, ExecutionID: m.opening.Execution, Time: at,
			Usage: a.Usage, Cell: &abi.Cell{CallID: effect.CallID},
		})
		if err != nil {
			return m.failed(effect, err, at)
		}
		staged = append(staged, used)
	}
	// The harness is told what the record says, not what the provider said, so
	// that a replay tells it the same.
	recorded, err := out.Decoded()
	if err != nil {
		return Ready{}, err
	}
	r, err := m.reply(effect, recorded.Message, a.Usage)
	r.Stage = staged
	return r, err
}

func (m *Machine) failed(effect *Effect, cause error, at abi.Time) (Ready, error) {
	failure := clip(&abi.Error{Code: abi.CodeInternal, Description: "the provider's answer cannot be recorded: " + cause.Error()})
	out, err := Stage(&abi.Event{
		Kind: abi.EventError, ExecutionID: m.opening.Execution, Time: at,
		Error: failure, Cell: &abi.Cell{CallID: effect.CallID},
	})
	if err != nil {
		return Ready{}, err
	}
	r, err := m.replyError(failure)
	r.Stage = []Staged{out}
	return r, err
}

func (m *Machine) output(request []byte, now abi.Time) (Ready, error) {
	if most := int64(m.opening.Limits.OutputBytes); m.outputBytes+int64(len(request)) > most {
		return limit(fmt.Sprintf("the turn's output passes the limit of %d bytes", most)), nil
	}
	var message abi.Message
	if err := decode(request, &message); err != nil {
		return malformed(err), nil
	}
	if len(message.Parts) == 0 {
		return malformed(errors.New("an output needs at least one part")), nil
	}
	if message.Role == "" {
		message.Role = abi.RoleAssistant
	}
	r, err := m.oneWay(&abi.Event{Kind: abi.EventOutput, Message: &message}, now)
	if r.Reply != nil && r.Reply.Status == abi.StatusOK {
		m.outputBytes += int64(len(request))
	}
	return r, err
}

func (m *Machine) usage(request []byte, now abi.Time) (Ready, error) {
	usage := new(abi.Usage)
	if err := decode(request, usage); err != nil {
		return malformed(err), nil
	}
	return m.oneWay(&abi.Event{Kind: abi.EventUsage, Usage: usage}, now)
}

// oneWay records an event of the harness that needs no answer.
func (m *Machine) oneWay(e *abi.Event, now abi.Time) (Ready, error) {
	if r, ok := m.spend(); !ok {
		return r, nil
	}
	e.ExecutionID, e.Time = m.opening.Execution, m.stamp(now)
	staged, err := Stage(e)
	if err != nil {
		m.effects--
		return invalid("the request cannot be recorded", err), nil
	}
	recorded, err := m.serve(&staged)
	if err != nil {
		return Ready{}, err
	}
	r := Ready{Reply: &Reply{Now: m.last, Seed: m.handOn()}}
	if !recorded {
		r.Stage = []Staged{staged}
	}
	return r, nil
}

// Finish ends the turn. Live, its END is to be committed with all that is
// staged, and only then shown. In Check, the recorded END must be the same.
func (m *Machine) Finish(end End, now abi.Time) (Ready, error) {
	return m.unbroken(m.finish(end, now))
}

func (m *Machine) finish(end End, now abi.Time) (Ready, error) {
	if m.ended {
		return Ready{}, fmt.Errorf("turn: finished twice")
	}
	if end.Reason.Class() == abi.ClassExternal && m.mode == Live {
		// The run was cut short, so it need not have asked for all that is
		// recorded; what it did not reach still counts.
		for ; m.front != nil; m.pull() {
			if m.front.Event.Kind == abi.EventModelCall {
				m.modelCalls++
			}
		}
	}
	var r Ready
	if end.Reason.Class() == abi.ClassExternal && m.mode == Live {
		if err := m.cutShort(&r, now); err != nil {
			return Ready{}, err
		}
	}
	root := m.opening.BaseRoot
	if end.Reason == abi.ReasonCompleted {
		root = end.Root
	}
	staged, err := Stage(&abi.Event{
		Kind: abi.EventEnd, ExecutionID: m.opening.Execution, Time: m.stamp(now),
		End: &abi.HarnessEnd{State: end.Reason.State(), Error: clip(end.Err)},
		Cell: &abi.Cell{
			Reason: end.Reason, Class: end.Reason.Class(), Root: root, Fuel: abi.Int64(end.Fuel),
			Turn: abi.Int64(m.opening.Turn + 1), ModelCalls: abi.Int64(m.opening.ModelCalls + m.modelCalls),
		},
	})
	if err != nil {
		return Ready{}, err
	}
	recorded, err := m.serve(&staged)
	if err != nil {
		return Ready{}, err
	}
	m.ended = true
	m.pending, m.batch = nil, nil
	if recorded {
		return Ready{}, nil
	}
	r.Stage, r.Commit = append(r.Stage, staged), true
	return r, nil
}

// spend counts an effect against the limit.
func (m *Machine) spend() (Ready, bool) {
	if m.effects >= m.opening.Limits.Effects {
		return m.spent(), false
	}
	m.effects++
	return Ready{}, true
}

// spent answers a request for which no effect is left.
func (m *Machine) spent() Ready {
	return limit(fmt.Sprintf("the turn has used its %d effects", m.opening.Limits.Effects))
}

// stamp is the time of a new record: now, but never before the newest record.
func (m *Machine) stamp(now abi.Time) abi.Time {
	for _, newest := range []abi.Time{m.last, m.floor} {
		if now.Before(newest.Time) {
			now = newest
		}
	}
	return now
}

// reply answers a model call by what the record says.
func (m *Machine) reply(effect *Effect, message *abi.Message, usage *abi.Usage) (Ready, error) {
	result := abi.ModelResult{Usage: usage, ModelCallID: effect.CallID}
	if message != nil {
		result.Message = *message
	}
	body, err := marshal(result)
	if err != nil {
		return Ready{}, err
	}
	return Ready{Reply: &Reply{Body: body, Now: m.last, Seed: m.handOn()}}, nil
}

func (m *Machine) replyError(e *abi.Error) (Ready, error) {
	body, err := marshal(e)
	if err != nil {
		return Ready{}, err
	}
	return Ready{Reply: &Reply{Status: abi.StatusFailed, Body: body, Now: m.last, Seed: m.handOn()}}, nil
}

func refuse(why string) Ready {
	return Ready{Reply: &Reply{Status: abi.StatusRefused, Body: []byte(why)}}
}

func limit(why string) Ready { return Ready{Reply: &Reply{Status: abi.StatusLimit, Body: []byte(why)}} }

// maxNoteBytes bounds a note: an error of a library may quote all of a request.
const maxNoteBytes = 256

// quoted is what errors quote of a request, such as the name of a field.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// invalid answers a malformed request; note is for the operator, whose log holds
// nothing of what a request says (S4).
func invalid(why string, note error) Ready {
	text := quoted.ReplaceAllLiteralString(note.Error(), `"…"`)
	return Ready{Reply: &Reply{Status: abi.StatusInvalid, Body: []byte(why)}, Note: clipText(text, maxNoteBytes)}
}

// malformed answers a request that is not what its import takes.
func malformed(note error) Ready {
	return invalid("the request is not JSON of the form that this import takes", note)
}

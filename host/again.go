package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// again is what the host keeps of a branch that runs turns of the session that it
// grew from again. The commit of the fork fixes it, so that a branch whose process has
// died goes on by the same rule, whoever takes it up. Forks of the branch inherit it.
type again struct {
	Of    abi.SessionID `json:"of"`
	At    abi.Seq       `json:"at"`
	Open  abi.Seq       `json:"open,omitempty"` // EXECUTION_START of the turn that is open at At
	Until abi.Seq       `json:"until"`          // what Of has behind it is none of the branch's
	// What is different from Of's turns.
	Model       string  `json:"model,omitempty"`
	System      *string `json:"system,omitempty"`
	NoLiveTools bool    `json:"no_live_tools,omitempty"`
}

// first is the record from which on turns are run again.
func (a *again) first() abi.Seq {
	if a.Open != 0 {
		return a.Open
	}
	return a.At + 1
}

// has reports whether the turn that began with start, at seq, is one of those that a
// branch runs again.
func (a *again) has(seq abi.Seq, start *abi.Event) bool {
	return a != nil && (seq == a.Open || start.Cell.Source != "")
}

// RerunRequest asks for a branch of a session that runs the turns behind a point again.
type RerunRequest struct {
	Session abi.SessionID
	// From is a point that Fork takes. A turn that is open there is run on.
	From abi.Seq
	// Name and Labels are those of the branch; a name is optional.
	Name   string
	Labels map[string]string
	// Model, if not empty, takes the place of the models of the turns, and System, if not
	// nil, that of the field "system" in their configs. An open turn keeps both.
	Model  string
	System *string
	// NoLiveTools ends a turn that asks for a call without a recorded result.
	NoLiveTools bool
	// TurnModel is the model that each RunAgain will name, if it will: nothing is made
	// for models that are not here.
	TurnModel string
}

// Rerun is a branch that runs turns of another session again.
type Rerun struct {
	// Of is that session, At the point in it, and Until the last of its records that
	// counts.
	Of        abi.SessionID
	At, Until abi.Seq
	// Turns is how many there are to run in all, of which Begun have begun; Open: one
	// of those has not ended.
	Turns, Begun int
	Open         bool
	Model        string
	System       *string
	NoLiveTools  bool
}

// BeginRerun makes the branch, in one commit, and runs nothing: RunAgain does. What
// Fork refuses it refuses too, and with ErrInvalid a point with no turn behind it and a
// config that has no place for a system prompt. Another model or prompt for a turn that
// is open is ErrMidTurn.
func (h *Host) BeginRerun(ctx context.Context, req RerunRequest) (Session, error) {
	s, err := h.beginRerun(ctx, req)
	if err != nil {
		return Session{}, fmt.Errorf("rerun: %w", err)
	}
	return s, nil
}

func (h *Host) beginRerun(ctx context.Context, req RerunRequest) (Session, error) {
	defer h.journal.Hold()() // from Collect
	fork := ForkRequest{Session: req.Session, At: req.From, Count: 1, Labels: req.Labels, Model: req.Model}
	if req.Name != "" {
		fork.Names = []string{req.Name}
	}
	if err := checkFork(fork); err != nil {
		return Session{}, err
	}
	if req.From == 0 {
		return Session{}, fmt.Errorf("%w: no seq to begin from", ErrInvalid)
	}
	parent, err := h.row(req.Session)
	if err != nil {
		return Session{}, err
	}
	at, sum, err := h.forkPoint(parent, req.From)
	if err != nil {
		return Session{}, err
	}
	fork.again = &again{
		Of: parent.UID, At: at, Open: sum.Open, Until: parent.Head.Seq,
		Model: req.Model, System: req.System, NoLiveTools: req.NoLiveTools,
	}
	if sum.Open != 0 && (req.Model != "" || req.System != nil) {
		return Session{}, fmt.Errorf("%w: the turn of seq %d is open there and keeps its model and config: seq %d is the last closed point before it",
			ErrMidTurn, sum.Open, sum.Open-1)
	}
	if err := h.checkAgain(fork.again, req.TurnModel); err != nil {
		return Session{}, err
	}
	if err := h.needImage(ctx, parent, at, sum.Root); err != nil {
		return Session{}, err
	}
	// A decision that the parent's record has need not be waited for, and one that it has
	// not is asked for once more.
	sum.Waiting = slices.Clone(sum.Waiting)
	for i := range sum.Waiting {
		sum.Waiting[i].Settled = sum.Waiting[i].Settled || sum.Waiting[i].Tool != ""
	}
	children, err := h.children(ctx, parent, at, sum, fork)
	if err != nil {
		return Session{}, err
	}
	return children[0], nil
}

// checkAgain refuses a rerun in which there is nothing to run, or not as it is asked
// for.
func (h *Host) checkAgain(a *again, model string) error {
	turns := 0
	for start, err := range h.starts(a.Of, a.first(), a.Until) {
		if err != nil {
			return err
		}
		turns++
		if _, err := a.config(start.Event.ExecutionStart.Config); err != nil {
			return fmt.Errorf("seq %d: %w", start.Seq, err)
		}
		if err := h.knowsModel(a.model(model, start.Event)); err != nil {
			return fmt.Errorf("the turn of seq %d: %w", start.Seq, err)
		}
	}
	if turns == 0 {
		return fmt.Errorf("%w: no turn stands behind seq %d of session %s", ErrInvalid, a.At, a.Of)
	}
	return nil
}

// runAgain makes m that of a fork at a point: of one that runs turns again as a says, or,
// where a is nil, as the session does that it grows from, if it is forked behind the
// point from which that does.
func (m *meta) runAgain(a *again, at abi.Seq) (err error) {
	switch {
	case a != nil:
		m.Again = a
		m.Config, err = a.config(m.Config)
	case m.Again != nil && at <= m.Again.At:
		m.Again = nil
	}
	return err
}

// model is that of the turn that runs the one of start again, if model does not name
// another.
func (a *again) model(model string, start *abi.Event) string {
	return firstOf(model, a.Model, start.Cell.Model)
}

// config is that of a turn which had the given one.
func (a *again) config(config []byte) ([]byte, error) {
	if a.System == nil {
		return config, nil
	}
	fields := map[string]json.RawMessage{}
	if config = bytes.TrimSpace(config); len(config) > 0 {
		if err := json.Unmarshal(config, &fields); err != nil || fields == nil {
			return nil, fmt.Errorf("%w: the config is no JSON object, so it has no place for another system prompt", ErrInvalid)
		}
	}
	fields["system"] = mustJSON(*a.System)
	config = mustJSON(fields)
	return config, checkConfig(config)
}

// Rerun tells of a branch that BeginRerun made how far it has come. Of any other
// session it is ErrConflict.
func (h *Host) Rerun(ctx context.Context, uid abi.SessionID) (Rerun, error) {
	r, err := h.row(uid)
	if err == nil {
		var out Rerun
		if out, err = h.rerunOf(r); err == nil {
			return out, nil
		}
	}
	return Rerun{}, fmt.Errorf("rerun: %w", err)
}

func (h *Host) rerunOf(r row) (Rerun, error) {
	a, last, err := h.lastAgain(r)
	if err != nil {
		return Rerun{}, err
	}
	out := Rerun{Of: a.Of, At: a.At, Until: a.Until, Open: r.sum.Open != 0, Model: a.Model, System: a.System, NoLiveTools: a.NoLiveTools}
	for start, err := range h.starts(a.Of, a.first(), a.Until) {
		if err != nil {
			return Rerun{}, err
		}
		if out.Turns++; start.Seq <= last {
			out.Begun++
		}
	}
	return out, nil
}

// RunAgainRequest asks a branch for its next turn.
type RunAgainRequest struct {
	Session abi.SessionID
	// Model, if not empty, is that of this turn, whatever the others have. The rest is
	// as in ExecRequest.
	Model                 string
	Deadline, CallTimeout time.Duration
	Observe               func(Update)
}

// RunAgain runs the next turn of a branch that BeginRerun made: its open one, or else
// one on the inputs of the next turn of the session that it is a rerun of. Where that
// session's record has the result of an equal call of a tool, the turn is given that:
// of the k-th call with one name and one set of arguments the k-th result. Nothing is
// called then, nobody is asked and no budget is charged; the result's record says
// where it is from. With its errors it is Exec, which also recovers such a turn; it is
// ErrNothingOpen when there is nothing left to run again.
func (h *Host) RunAgain(ctx context.Context, req RunAgainRequest) (Execution, error) {
	end, err := h.runAgain(ctx, req)
	if err != nil {
		return Execution{}, fmt.Errorf("rerun: %w", err)
	}
	return end, nil
}

func (h *Host) runAgain(ctx context.Context, req RunAgainRequest) (Execution, error) {
	r, err := h.row(req.Session)
	if err != nil {
		return Execution{}, err
	}
	exec := ExecRequest{Session: r.UID, Deadline: req.Deadline, CallTimeout: req.CallTimeout, Observe: req.Observe, Expect: &r.Head.Seq}
	a, last, err := h.lastAgain(r)
	if err != nil {
		return Execution{}, err
	}
	if r.sum.Open != 0 {
		return h.Exec(ctx, exec)
	}
	start, err := h.nextAgain(a, last)
	if err != nil {
		return Execution{}, err
	}
	e := start.Event
	if exec.Inputs, err = h.inputsOf(a.Of, start.Seq, e); err != nil {
		return Execution{}, err
	}
	if exec.Config, err = a.config(e.ExecutionStart.Config); err != nil {
		return Execution{}, err
	}
	if exec.Config == nil {
		exec.Config = []byte{} // not the session's
	}
	exec.Model = a.model(req.Model, e)
	exec.again = &start
	return h.Exec(ctx, exec)
}

// lastAgain is the rule of a branch, and the turn of the other session that it ran
// last, by its EXECUTION_START; 0 if it has run none.
func (h *Host) lastAgain(r row) (*again, abi.Seq, error) {
	a := r.meta.Again
	if a == nil {
		return nil, 0, fmt.Errorf("session %s: %w: it is no rerun of another one", r.UID, ErrConflict)
	}
	if _, err := h.row(a.Of); err != nil {
		return nil, 0, fmt.Errorf("session %s is a rerun of it: %w", r.UID, err)
	}
	for rec, err := range h.journal.ReadReverse(r.UID, r.Head.Seq, a.At+1) {
		if err != nil {
			return nil, 0, err
		}
		if !bytes.Contains(rec.Line, []byte(abi.EventExecutionStart)) {
			continue
		}
		e, _, err := h.decode(rec)
		if err != nil {
			return nil, 0, err
		}
		if e.Kind == abi.EventExecutionStart && e.Cell.Source == a.Of {
			return a, e.Cell.SourceSeq, nil
		}
	}
	return a, a.Open, nil
}

// nextAgain is the EXECUTION_START of the first turn behind the last one.
func (h *Host) nextAgain(a *again, last abi.Seq) (Record, error) {
	for start, err := range h.starts(a.Of, max(last, a.At)+1, a.Until) {
		return start, err
	}
	return Record{}, fmt.Errorf("%w, and no turn of session %s is left to run again", ErrNothingOpen, a.Of)
}

// starts yields the EXECUTION_STARTs among the records from from to to.
func (h *Host) starts(uid abi.SessionID, from, to abi.Seq) func(func(Record, error) bool) {
	return func(yield func(Record, error) bool) {
		if from > to {
			return
		}
		for rec, err := range h.journal.Read(uid, from, to) {
			if err == nil && !bytes.Contains(rec.Line, []byte(abi.EventExecutionStart)) {
				continue
			}
			var e *abi.Event
			if err == nil {
				e, _, err = h.decode(rec)
			}
			if err != nil {
				yield(Record{}, err)
				return
			}
			if e.Kind != abi.EventExecutionStart {
				continue
			}
			if !yield(Record{Session: uid, LogRecord: logRecord(rec, e), Line: rec.Line}, nil) {
				return
			}
		}
	}
}

// inputsOf are the inputs of the turn that begins with start.
func (h *Host) inputsOf(uid abi.SessionID, seq abi.Seq, start *abi.Event) ([]abi.Message, error) {
	var inputs []abi.Message
	count := start.ExecutionStart.InputCount
	if count == nil || *count < 1 || *count > MaxInputs {
		return nil, fmt.Errorf("seq %d: incomplete %s: %w", seq, start.Kind, journal.ErrCorrupt)
	}
	for rec, err := range h.read(uid, seq+1, seq+abi.Seq(*count)) {
		if err == nil && rec.Event.Kind != abi.EventInput {
			err = fmt.Errorf("seq %d: no input where one must be: %w", rec.Seq, journal.ErrCorrupt)
		}
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, *rec.Event.Message)
	}
	return inputs, nil
}

// check reports what no host has written into a session's metadata.
func (a *again) check() error {
	if a != nil && (a.Of == "" || a.At < 1 || a.Open < 0 || a.Open > a.At || a.Until < a.At) {
		return errors.New("a rerun of no turns")
	}
	return nil
}

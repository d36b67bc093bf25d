package host

import (
	"errors"
	"slices"
	"time"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// errParked gives a run up because its turn waits for a decision, a time or a
// signal. Nothing is held meanwhile: no instance, no goroutine, no memory.
var errParked = errors.New("the turn is parked")

// Waiting is what a parked turn waits for.
type Waiting struct {
	CallID string `json:"call_id"`
	// Tool and Reason are those of a call that people must decide on: Approvers of them
	// if one is not enough, of whom Approved are there.
	Tool      string   `json:"tool,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	Approvers int      `json:"approvers,omitempty"`
	Approved  []string `json:"approved,omitempty"`
	// Until and Signal are those of a wait, whichever comes first; Until is also when
	// the request for approval expires.
	Until  abi.Time `json:"until,omitzero"`
	Signal string   `json:"signal,omitempty"`
	// Settled: the decision or the signal is there, and the turn can go on.
	Settled bool `json:"settled,omitempty"`
}

func waitingOf(park []turn.Waiting) []Waiting {
	out := make([]Waiting, len(park))
	for i, p := range park {
		if p.Gate != nil {
			out[i] = waitingAt(p.CallID, p.Call.Tool, p.Gate)
		} else {
			out[i] = Waiting{CallID: p.CallID, Until: p.Until, Signal: p.Signal}
		}
	}
	return out
}

// waitingAt is a call that waits at a gate.
func waitingAt(id, tool string, g *turn.Gate) Waiting {
	w := Waiting{CallID: id, Tool: tool, Reason: g.Reason, Until: g.Until, Settled: g.Decision != nil}
	if g.Approvers > 1 {
		w.Approvers = g.Approvers
		for _, a := range g.Approvals {
			w.Approved = append(w.Approved, a.By.Principal)
		}
	}
	return w
}

// parked reports whether running the turn would only park it again.
func parked(waiting []Waiting, now time.Time) bool {
	for _, w := range waiting {
		if w.Settled || !w.Until.IsZero() && !now.Before(w.Until.Time) {
			return false
		}
	}
	return len(waiting) > 0
}

// waitings finds what a turn is parked for from its records, newest first.
type waitings struct {
	decisions map[string][]abi.LogRecord // on calls of which the request is not found yet
	signaled  map[string]bool
	over      map[string]bool // started, done, or listed
	closed    bool            // nothing older can be waiting
	list      []Waiting
}

func (w *waitings) before(seq abi.Seq, e *abi.Event) {
	if w.over == nil {
		w.decisions, w.signaled, w.over = map[string][]abi.LogRecord{}, map[string]bool{}, map[string]bool{}
	}
	add := func(n Waiting) {
		if !w.over[n.CallID] {
			w.over[n.CallID] = true
			w.list = append(w.list, n)
		}
	}
	switch {
	case w.closed:
	case e.Kind == abi.EventLifecycle && e.Cell != nil:
		w.over[e.Cell.CallID] = true
	case e.Result != nil:
		w.over[e.Result.ID] = true
	case e.ApprovalResult != nil:
		id := e.ApprovalResult.ToolCallID
		w.decisions[id] = append(w.decisions[id], abi.LogRecord{Seq: seq, Event: e})
	case e.Approval != nil:
		var g turn.Gate
		id := e.Approval.ToolCallID
		g.Take(seq, e)
		for _, d := range slices.Backward(w.decisions[id]) {
			g.Take(d.Seq, d.Event)
		}
		add(waitingAt(id, "", &g))
	case e.Tool != nil:
		for i := range w.list {
			if w.list[i].CallID == e.Tool.ID {
				w.list[i].Tool = e.Tool.Tool
			}
		}
	case e.Kind == abi.EventSignal && e.Cell != nil:
		w.signaled[e.Cell.CallID] = true
	case e.Kind == abi.EventWait && e.Cell != nil && len(w.over) == 0:
		id := e.Cell.CallID
		add(Waiting{CallID: id, Until: e.Cell.Until, Signal: e.Cell.Signal, Settled: w.signaled[id]})
		w.closed = true
	default:
		w.closed = true
	}
}

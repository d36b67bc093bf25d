package host

import (
	"errors"
	"fmt"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// trail follows a record from its first line: whose it is, and what the session's
// summary is where it ends. It refuses what no record of this host could be.
type trail struct {
	meta   meta
	origin abi.Cell // of the newest CREATE or FORK
	sum    summary
	cloned bool // the turn at hand began with agent_cloned
	// tail has the newest events of the open turn, as far back as they can tell
	// what it is parked for.
	tail []abi.LogRecord
}

// summary is what a session has beside its head where the record ends.
func (t *trail) summary() summary {
	s := t.sum
	var w waitings
	for _, r := range slices.Backward(t.tail) {
		w.before(r.Seq, r.Event)
	}
	slices.Reverse(w.list)
	s.Waiting = w.list
	return s
}

func (t *trail) event(seq abi.Seq, e *abi.Event) error {
	if err := checkWhole(e); err != nil {
		return err
	}
	t.sum.Updated = later(t.sum.Updated, e.Time)
	var life abi.LifecycleKind
	if e.Kind == abi.EventLifecycle && e.Lifecycle != nil {
		life = e.Lifecycle.Kind
	}
	if (life == abi.LifecycleCreate) != (seq == 1) {
		return fmt.Errorf("a session begins with %s and has it nowhere else", abi.LifecycleCreate)
	}
	if e.Cell == nil {
		e.Cell = new(abi.Cell)
	}
	switch {
	case life == abi.LifecycleCreate:
		return t.create(e.Cell)
	case life == abi.LifecycleFork:
		return t.fork(seq, e.Cell)
	case isRest(e):
		if t.sum.Open != 0 {
			return fmt.Errorf("%s stands in the turn of seq %d", life, t.sum.Open)
		}
		t.sum.Closed, t.sum.Suspended = seq, life == abi.LifecycleSuspend
	case life == abi.LifecycleUpgrade:
		return t.upgrade(seq, e.Cell)
	case e.Kind == abi.EventExecutionStart:
		switch {
		case t.sum.Open != 0:
			return fmt.Errorf("a turn begins in the one of seq %d", t.sum.Open)
		case e.Cell.BaseRoot != t.sum.Root:
			return fmt.Errorf("a turn begins from image %s, the one before led to %s", e.Cell.BaseRoot.Short(), t.sum.Root.Short())
		}
		t.sum.Open, t.sum.Execution, t.cloned = seq, e.ExecutionID, e.Cell.Cloned
		t.sum.Suspended = false
		t.tail = nil
	case e.Kind == abi.EventEnd:
		t.tail = nil
		return t.end(seq, e)
	default:
		t.follow(seq, e)
	}
	return nil
}

// follow keeps what waitings may want to know of an event of the open turn.
func (t *trail) follow(seq abi.Seq, e *abi.Event) {
	slim := &abi.Event{
		Kind: e.Kind, Time: e.Time, Actor: e.Actor, Cell: e.Cell, Approval: e.Approval, ApprovalResult: e.ApprovalResult,
	}
	switch {
	case e.Result != nil:
		slim.Result = &abi.ToolResult{ID: e.Result.ID}
	case e.Tool != nil:
		slim.Tool = &abi.ToolCall{ID: e.Tool.ID, Tool: e.Tool.Tool}
	case e.Approval != nil, e.ApprovalResult != nil, e.Kind == abi.EventLifecycle,
		e.Kind == abi.EventSignal, e.Kind == abi.EventWait:
	default: // nothing older can be waiting
		t.tail = nil
		return
	}
	t.tail = append(t.tail, abi.LogRecord{Seq: seq, Event: slim})
}

func (t *trail) create(c *abi.Cell) error {
	if c.Module != t.meta.Module || c.GoldenRoot != t.meta.GoldenRoot || c.Harness != t.meta.Harness {
		return fmt.Errorf("the session was made for harness %q, module %s, golden image %s, not for %q, %s, %s",
			c.Harness, c.Module.Short(), c.GoldenRoot.Short(), t.meta.Harness, t.meta.Module.Short(), t.meta.GoldenRoot.Short())
	}
	t.origin = *c
	t.sum.Root = t.meta.GoldenRoot
	return nil
}

// fork passes on to a child, which has what the parent had there, an open turn
// included.
func (t *trail) fork(seq abi.Seq, c *abi.Cell) error {
	if c.At != seq-1 || c.Parent == "" {
		return errors.New("a fork that does not stand behind the record it grew from")
	}
	t.origin = *c
	t.sum.Forked, t.sum.Suspended = seq, false
	if t.sum.Open == 0 {
		t.sum.Closed = seq
	}
	return nil
}

// upgrade goes on with another module.
func (t *trail) upgrade(seq abi.Seq, c *abi.Cell) error {
	since := abi.Seq(1)
	if t.sum.Upgraded != nil {
		since = t.sum.Upgraded.Seq
	}
	switch {
	case t.sum.Open != 0:
		return fmt.Errorf("%s stands in the turn of seq %d", abi.LifecycleUpgrade, t.sum.Open)
	case c.OldModule != t.meta.Module || c.BaseRoot != t.sum.Root || c.Since != since:
		return fmt.Errorf("an upgrade from module %s of seq %d with image %s, the session has %s of seq %d with %s",
			c.OldModule.Short(), c.Since, c.BaseRoot.Short(), t.meta.Module.Short(), since, t.sum.Root.Short())
	case int64(c.Turn) != t.sum.Turns || int64(c.ModelCalls) != t.sum.ModelCalls:
		return fmt.Errorf("an upgrade behind %d turns and %d model calls, where there are %d and %d", c.Turn, c.ModelCalls, t.sum.Turns, t.sum.ModelCalls)
	case !t.meta.HoldsMemory && c.Root != c.GoldenRoot:
		return errors.New("an upgrade of a harness without memory that leads to an image")
	}
	t.sum.upgrade(seq, c)
	t.meta.pin = t.sum.Upgraded.pin
	return nil
}

func (t *trail) end(seq abi.Seq, e *abi.Event) error {
	if t.sum.Open == 0 || e.End == nil {
		return fmt.Errorf("an %s that ends no turn", abi.EventEnd)
	}
	if t.cloned && t.sum.Open > t.sum.Forked && e.End.State == abi.StateCompleted {
		t.sum.Forked = 0
	}
	t.sum.Open, t.sum.Closed, t.sum.Execution = 0, seq, e.ExecutionID
	t.sum.State, t.sum.Reason = e.End.State, e.Cell.Reason
	t.sum.Turns, t.sum.ModelCalls = int64(e.Cell.Turn), int64(e.Cell.ModelCalls)
	t.sum.Root = endRoot(t.meta, e.Cell.Root)
	return nil
}

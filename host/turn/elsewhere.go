package turn

import "github.com/agentcell/agentcell/sdk/abi"

// Elsewhere finds the result that the record of another session has for a call of a
// tool, nil if it has none; live says whether the call may be made then. The machine
// asks only where the turn's own record ends, in the order of the calls, and of each
// call once. What it is given is recorded, with where it was found, so that a turn that
// is run again finds it in its own record. An error gives the run up.
type Elsewhere func(call abi.ToolCall) (found *Found, live bool, err error)

// Found is the result of a call in the record of another session.
type Found struct {
	Result  abi.ToolResult
	Session abi.SessionID
	Seq     abi.Seq
	// Args are the arguments that a person gave that call, nil if nobody edited them.
	Args abi.Struct
}

// cell is how the TOOL_RESULT names where it was found.
func (f *Found) cell() *abi.Cell {
	if f == nil {
		return nil
	}
	return &abi.Cell{Source: f.Session, SourceSeq: f.Seq, Args: f.Args}
}

// takeFound takes note of where a recorded result was found, if it was.
func (c *toolCall) takeFound(e *abi.Event) {
	if e.Cell != nil && e.Cell.Source != "" {
		c.found = &Found{Result: *e.Result, Session: e.Cell.Source, Seq: e.Cell.SourceSeq, Args: e.Cell.Args}
	}
}

// edited are the arguments that a person gave the call, or the one whose result it was
// given; nil if nobody did.
func (c *toolCall) edited() abi.Struct {
	if c.found != nil {
		return c.found.Args
	}
	return c.gate.Edited()
}

// find gives calls the results that another record has: nothing is made, and nobody
// is asked. It returns the first call that has none and may not be made.
func (m *Machine) find() (*abi.ToolCall, error) {
	var refused *abi.ToolCall
	for _, c := range m.batch {
		if m.opening.Elsewhere == nil || c.result != nil || c.sought {
			continue
		}
		c.sought = true
		found, live, err := m.opening.Elsewhere(c.call)
		switch {
		case err != nil:
			return nil, err
		case found != nil:
			// As it stands there, with the decisions that it names, so that the harness
			// reads what it read then.
			result := found.Result
			result.ID = c.call.ID
			c.result, c.found = &result, found
		case !live && refused == nil:
			refused = &c.call
		}
	}
	return refused, nil
}

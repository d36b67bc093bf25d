package wasm

import (
	"context"
	"fmt"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Save runs agent_save and gives the state that it replied, as a function of the
// module, the instance's state and t, of which Cloned does not matter. The state
// has at most abi.MaxStateBytes, and is the harness's own business: nobody here
// looks into it. Save has an Outcome and errors as Run; a module without agent_save
// ends with abi.CodeUnimplemented. The instance is of no more use then: it is
// Stopped.
func (in *Instance) Save(ctx context.Context, t Turn) ([]byte, Outcome, error) {
	var state []byte
	out, err := in.carry(ctx, inSave, t, func(c *call) error {
		err := c.optional(exportSave)
		if err == nil && c.reply == nil {
			err = endedf(abi.ReasonError, abi.CodeUnknown, "%s did not reply", exportSave)
		}
		state = c.reply
		return err
	})
	in.Stop()
	if err != nil || out.Reason != abi.ReasonCompleted {
		return nil, out, err
	}
	return state, out, nil
}

// Load runs agent_load on an instance that is as it was made, which start gives
// what Save has given. Its Outcome and errors are Run's; a module without
// agent_load ends with abi.CodeUnimplemented. It does not keep state.
func (in *Instance) Load(ctx context.Context, t Turn, state []byte) (Outcome, error) {
	if len(state) > abi.MaxStateBytes {
		in.Stop()
		return Outcome{}, fmt.Errorf("load: a state of %d bytes; the limit is %d", len(state), abi.MaxStateBytes)
	}
	return in.carry(ctx, inLoad, t, func(c *call) error {
		c.state = state
		return c.optional(exportLoad)
	})
}

// carry runs do in a phase in which the guest reaches nobody.
func (in *Instance) carry(ctx context.Context, p phase, t Turn, do func(*call) error) (Outcome, error) {
	call, err := in.enter(ctx, p, nil, t)
	if err != nil {
		return Outcome{}, err
	}
	returned := false
	defer func() { in.leave(returned) }()
	if err = call.fits(); err == nil {
		err = do(call)
	}
	out, err := call.outcome(err)
	if err != nil {
		return Outcome{}, err
	}
	returned = out.Reason == abi.ReasonCompleted
	return out, nil
}

// optional runs an export that the ABI leaves to the module, and that returns 0.
func (c *call) optional(name string) error {
	fn := c.cell.function(name)
	if fn == nil {
		return endedf(abi.ReasonError, abi.CodeUnimplemented, "the module does not export %s", name)
	}
	result, err := c.invoke(fn)
	if err != nil {
		return err
	}
	return c.returned(name, result)
}

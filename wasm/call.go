package wasm

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/rewrite"
)

// Turn is what a turn is a function of, beside the module, the image and the
// handler's answers.
type Turn struct {
	// Seed keys the cell's randomness.
	Seed [32]byte
	// Start is the earliest time the cell's clock may show.
	Start time.Time
	// Limits are the bounds the guest can notice; a zero field stands for that
	// of abi.DefaultLimits. Effects and OutputBytes are the handler's task.
	Limits abi.Limits
	// Cloned: the cell's image is that of a session it was forked from, so
	// agent_cloned runs first, if the module has it.
	Cloned bool
}

// Handler performs the requests of a guest.
type Handler interface {
	// Call performs op: start, model, output, tool_call, report, usage, wait,
	// history or log. The request is valid UTF-8; Call does not keep it. An
	// error gives the turn up; everything the guest may be told is in the
	// Response.
	Call(ctx context.Context, op abi.Op, request []byte) (Response, error)
}

// Response is what a guest gets for a Call.
type Response struct {
	Status abi.Status
	// Body is the answer; with a Status other than OK, the error's text.
	Body []byte
	// Now, if not zero, moves the cell's clock forward to this instant.
	Now time.Time
	// Seed, if set, keys the cell's randomness from here on.
	Seed *[32]byte
}

// withDefaults fills what is not set.
func withDefaults(l abi.Limits) abi.Limits {
	d := abi.DefaultLimits()
	if l.Depth <= 0 {
		l.Depth = d.Depth
	}
	if l.Fuel <= 0 {
		l.Fuel = d.Fuel
	}
	if l.MemoryBytes <= 0 {
		l.MemoryBytes = d.MemoryBytes
	}
	l.MemoryBytes = min(l.MemoryBytes, maxMemory)
	if l.RequestBytes <= 0 {
		l.RequestBytes = d.RequestBytes
	}
	return l
}

// phase says what a guest is being called for.
type phase int

const (
	inGolden   phase = iota // the golden run: no requests
	inDescribe              // agent_describe: reply and fail
	inCloned                // agent_cloned: as the golden run
	inTurn                  // agent_run: everything but reply
	inSave                  // agent_save: reply, with the state, and fail
	inLoad                  // agent_load: start, which gives the state, and fail
)

// call is the state of one call into a guest. It is the context that wazero
// hands on to the host functions, which find their cell through it.
type call struct {
	context.Context
	cell    *cell
	phase   phase
	handler Handler
	limits  abi.Limits

	fuel    meter
	random  random
	started bool       // start was answered
	pending []byte     // what read has not read of the last response
	reply   []byte     // of reply
	state   []byte     // for agent_load
	failure *abi.Error // of fail
	log     logger

	// end is why a host function left the guest.
	end error
}

// meter is a budget of fuel that is given to the guest in slices.
type meter struct {
	limit uint64
	used  uint64 // without what is gone of the slice
	slice uint64 // what was put into the guest's global
}

// sliceFuel is the size of a slice: how much a guest can do between two looks
// at the context. It takes well under a millisecond, and 50 ms in the interpreter
// if a guest does nothing but the longest steps. It does not change what is
// counted.
const sliceFuel = 10_000

// next ends a slice of which left is left, which is negative if it was
// overdrawn, and gives the next one; false if the budget is overdrawn. Because
// no slice reaches beyond the budget, the point at which it is overdrawn does
// not depend on the size of the slices.
func (m *meter) next(left int64) (int64, bool) {
	m.used += uint64(int64(m.slice) - left)
	m.slice = 0
	if m.used > m.limit {
		return 0, false
	}
	m.slice = min(sliceFuel, m.limit-m.used)
	return int64(m.slice), true
}

// total is what was used when left is left of the slice.
func (m *meter) total(left int64) uint64 { return m.used + uint64(int64(m.slice)-left) }

// The price of a call of a host function in units of fuel.
const (
	fuelPerCall       = 1_000
	fuelPerByte       = 1 // that is read or written
	fuelPerRandomByte = 2
)

// charge takes n units of fuel from the guest.
func (c *call) charge(n int) {
	left := int64(c.cell.fuel.Get()) - int64(n)
	c.cell.fuel.Set(uint64(left))
	if left < 0 {
		c.refill()
	}
}

// chargeBytes takes the price of touching n bytes.
func (c *call) chargeBytes(n int) { c.charge(n * fuelPerByte) }

// refill gives the guest its next slice, or ends the call.
func (c *call) refill() {
	slice, ok := c.fuel.next(int64(c.cell.fuel.Get()))
	c.cell.fuel.Set(uint64(slice))
	if !ok {
		c.leave(endedf(abi.ReasonFuel, abi.CodeResourceExhausted, "the turn's %d units of fuel are used up", c.fuel.limit))
	}
	c.checkContext()
}

// checkContext ends the call if its context has ended.
func (c *call) checkContext() {
	if c.Err() != nil {
		c.leave(context.Cause(c))
	}
}

// leave ends the call with err from inside a host function.
func (c *call) leave(err error) {
	c.end = err
	panic(unwind{})
}

// check is the function that the rewritten module calls.
func (c *call) check(args []uint64) {
	if uint32(args[0]) == rewrite.CheckDepth {
		c.leave(endedf(abi.ReasonDepth, abi.CodeResourceExhausted, "more than %d nested calls", c.limits.Depth))
	}
	c.refill()
}

// invoke calls a guest function and returns its result, if it has one. This is
// the one place where whatever a guest has done becomes an error: *ended if it
// ended by itself, anything else if the call was given up.
func (c *call) invoke(fn api.Function) (result int32, err error) {
	cell := c.cell
	cell.depth.Set(uint64(uint32(c.limits.Depth)))
	cell.pages.Set(uint64(c.limits.MemoryBytes / wasmPage))
	cell.refused.Set(0)
	slice, _ := c.fuel.next(int64(cell.fuel.Get()))
	cell.fuel.Set(uint64(slice))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrHost, r, debug.Stack())
		}
	}()
	var stack [1]uint64
	switch err := fn.CallWithStack(c, stack[:]); {
	case err == nil:
		return int32(uint32(stack[0])), nil
	case c.end != nil:
		return 0, c.starved(c.end)
	default:
		return 0, c.starved(endOf(err))
	}
}

// starved is the end of a guest that gave up when memory did not grow any more: it
// tells of the limit, which a trap or an exit does not. Whether growth was refused is a
// fact of the guest's own steps, the same wherever they are taken (M2).
func (c *call) starved(err error) error {
	var end *ended
	if c.cell.refused.Get() == 0 || !errors.As(err, &end) || end.reason != abi.ReasonTrap && end.reason != abi.ReasonExit {
		return err
	}
	return endedf(abi.ReasonLimit, abi.CodeResourceExhausted, "the limit of %d bytes of memory was reached: %s", c.limits.MemoryBytes, end.err.Description)
}

// fuelUsed is what the call has used so far.
func (c *call) fuelUsed() uint64 { return c.fuel.total(int64(c.cell.fuel.Get())) }

// handle performs a request through the handler, and gives the call up if that
// is what the handler asks for.
func (c *call) handle(op abi.Op, request []byte) Response {
	c.checkContext()
	resp, err := c.callHandler(op, request)
	if err != nil {
		c.leave(err)
	}
	c.checkContext()
	return resp
}

func (c *call) callHandler(op abi.Op, request []byte) (resp Response, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %w: %v\n%s", op, ErrHost, r, debug.Stack())
		}
	}()
	resp, err = c.handler.Call(c.Context, op, request)
	if err != nil {
		return resp, fmt.Errorf("%s: %w", op, err)
	}
	return resp, nil
}

package wasm

import (
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/agentcell/agentcell/sdk/abi"
)

// request is the host function of op: (ptr, len) -> status<<32 | n, and the
// response is pending.
func (c *call) request(op abi.Op, ptr, n uint32) uint64 {
	status, body := c.answer(op, ptr, n)
	if len(body) > math.MaxInt32 {
		c.leave(fmt.Errorf("%w: a response of %d bytes to %s", ErrHost, len(body), op))
	}
	c.pending = body
	return uint64(status)<<32 | uint64(len(body))
}

func (c *call) answer(op abi.Op, ptr, n uint32) (abi.Status, []byte) {
	if refusal := c.refuses(op); refusal != "" {
		return abi.StatusRefused, []byte(refusal)
	}
	// The state that a harness saves is not a message: its form is its own.
	state := op == abi.OpReply && c.phase == inSave
	limit := int64(c.limits.RequestBytes)
	if state {
		limit = abi.MaxStateBytes
	}
	if int64(n) > limit {
		return abi.StatusLimit, fmt.Appendf(nil, "%s: a request of %d bytes; the limit is %d", op, n, limit)
	}
	view, ok := c.cell.mem.view(ptr, n)
	if !ok {
		return abi.StatusInvalid, fmt.Appendf(nil, "%s: the request lies outside the memory", op)
	}
	c.chargeBytes(len(view))
	if op == abi.OpLog {
		if err := c.log.write(c, string(view)); err != nil {
			c.leave(err)
		}
		return abi.StatusOK, nil
	}
	if !state && !utf8.Valid(view) {
		return abi.StatusInvalid, fmt.Appendf(nil, "%s: the request is not UTF-8", op)
	}
	// What leaves is a copy: no one else ever holds guest memory.
	request := append([]byte{}, view...)
	switch op {
	case abi.OpReply:
		c.reply = request
		return abi.StatusOK, nil
	case abi.OpFail:
		c.failure = failure(request)
		return abi.StatusOK, nil
	}
	if c.phase == inLoad { // start: nothing else comes here
		return abi.StatusOK, c.state
	}
	resp := c.handle(op, request)
	c.cell.clock.advanceTo(resp.Now)
	if resp.Seed != nil {
		c.random.reset(*resp.Seed)
	}
	if op == abi.OpStart && resp.Status == abi.StatusOK {
		c.started = true
	}
	return resp.Status, resp.Body
}

// refuses says why op is not to be had now, "" if it is.
func (c *call) refuses(op abi.Op) string {
	switch op {
	case abi.OpLog: // never a status that the guest can notice
	case abi.OpReply:
		if c.phase != inDescribe && c.phase != inSave {
			return "reply: only agent_describe and agent_save reply"
		}
		if c.reply != nil {
			return "reply: there was a reply already"
		}
	case abi.OpFail:
		if c.phase == inGolden || c.phase == inCloned {
			return "fail: no turn is running"
		}
	case abi.OpStart:
		if c.phase != inTurn && c.phase != inLoad {
			return "start: no turn is running"
		}
	default:
		if c.phase != inTurn {
			return string(op) + ": no turn is running"
		}
		if !c.started {
			return string(op) + ": call start first"
		}
	}
	return ""
}

// read is the host function that copies the pending response.
func (c *call) read(ptr, room uint32) uint32 {
	n := min(uint64(room), uint64(len(c.pending)))
	view, ok := c.cell.mem.view(ptr, uint32(n))
	if !ok {
		c.leave(endedf(abi.ReasonTrap, abi.CodeInvalidArgument, "trap: read into [%d, +%d), which lies outside the memory", ptr, n))
	}
	c.chargeBytes(len(view))
	copy(view, c.pending)
	c.pending = c.pending[n:]
	return uint32(n)
}

// failure reads what a guest gave to fail.
func failure(request []byte) *abi.Error {
	e := new(abi.Error)
	if err := json.Unmarshal(request, e); err != nil {
		return &abi.Error{Code: abi.CodeUnknown, Description: "the harness failed, and told why in a way that is not an Error in JSON"}
	}
	if e.Code == 0 {
		e.Code = abi.CodeUnknown
	}
	e.Description = clip(e.Description, maxDescription)
	if e.Description == "" {
		e.Description = "the harness failed without saying why"
	}
	return e
}

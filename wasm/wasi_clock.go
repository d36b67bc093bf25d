package wasm

import "math"

// The clocks of WASI preview 1 that a cell has. They are one and the same.
const (
	clockRealtime  = 0
	clockMonotonic = 1
)

func clockResGet(c *call, args []uint64) errno {
	if uint32(args[0]) > clockMonotonic {
		return errnoNotsup
	}
	res, ok := c.cell.mem.view(uint32(args[1]), 8)
	if !ok {
		return errnoFault
	}
	le.PutUint64(res, clockTick)
	return errnoSuccess
}

func clockTimeGet(c *call, args []uint64) errno {
	if uint32(args[0]) > clockMonotonic {
		return errnoNotsup
	}
	now, ok := c.cell.mem.view(uint32(args[2]), 8)
	if !ok {
		return errnoFault
	}
	le.PutUint64(now, uint64(c.cell.clock.read()))
	return errnoSuccess
}

// Layouts and constants of poll_oneoff.
const (
	subscriptionSize = 48
	eventSize        = 32

	eventClock   = 0
	eventFdRead  = 1
	eventFdWrite = 2

	subclockAbsolute = 1
)

// subscription is one thing that poll_oneoff waits for.
type subscription struct {
	userdata uint64
	kind     byte
	err      errno
	// deadline of a clock; descriptors are ready at once.
	deadline int64
}

// pollOneoff never sleeps: if nothing is ready, the clock moves to the first
// deadline.
func pollOneoff(c *call, args []uint64) errno {
	n := uint32(args[2])
	if n == 0 || n > maxVectors {
		return errnoInval
	}
	in, ok1 := c.cell.mem.view(uint32(args[0]), n*subscriptionSize)
	out, ok2 := c.cell.mem.view(uint32(args[1]), n*eventSize)
	count, ok3 := c.cell.mem.view(uint32(args[3]), 4)
	if !ok1 || !ok2 || !ok3 {
		return errnoFault
	}
	c.chargeBytes(len(in))
	now := int64(c.cell.clock)
	// in and out may overlap, so all of in is read first.
	subs := make([]subscription, 0, n)
	first := int64(math.MaxInt64)
	for ; len(in) > 0; in = in[subscriptionSize:] {
		s, ok := readSubscription(in, now)
		if !ok {
			return errnoInval
		}
		subs = append(subs, s)
		first = min(first, s.deadline)
	}
	c.cell.clock.advance(first)
	var events uint32
	for _, s := range subs {
		if s.deadline > max(now, first) {
			continue
		}
		event := out[events*eventSize:][:eventSize]
		clear(event)
		le.PutUint64(event, s.userdata)
		le.PutUint16(event[8:], uint16(s.err))
		event[10] = s.kind
		events++
	}
	le.PutUint32(count, events)
	return errnoSuccess
}

// readSubscription reads one entry; false if its kind is unknown. What is ready
// at once, errors among it, has the deadline now.
func readSubscription(b []byte, now int64) (subscription, bool) {
	s := subscription{userdata: le.Uint64(b), kind: b[8], deadline: now}
	switch s.kind {
	case eventClock:
		timeout := int64(min(le.Uint64(b[24:]), math.MaxInt64))
		switch {
		case le.Uint32(b[16:]) > clockMonotonic:
			s.err = errnoNotsup
		case le.Uint16(b[40:])&subclockAbsolute != 0:
			s.deadline = timeout
		default:
			s.deadline = addClamped(now, timeout)
		}
	case eventFdRead, eventFdWrite:
		if le.Uint32(b[16:]) > 2 {
			s.err = errnoBadf
		}
	default:
		return s, false
	}
	return s, true
}

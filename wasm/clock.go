package wasm

import (
	"math"
	"time"
)

// goldenClock is the clock of the golden run: 2000-01-01T00:00:00Z. Roots
// depend on it.
const goldenClock clock = 946_684_800_000_000_000

// clockTick is what each reading moves the clock by.
const clockTick = 1_000

// clock is the virtual time of a cell in nanoseconds since 1970. It is part of
// the image. No guest ever sees another one.
type clock int64

// read returns the time and moves it by one tick.
func (c *clock) read() int64 {
	now := int64(*c)
	c.advance(addClamped(now, clockTick))
	return now
}

// advance moves the clock forward to t, never back.
func (c *clock) advance(t int64) { *c = max(*c, clock(t)) }

// advanceTo is advance for an instant; the zero one moves nothing.
func (c *clock) advanceTo(t time.Time) {
	switch {
	case t.IsZero():
	case t.Unix() >= math.MaxInt64/int64(time.Second):
		c.advance(math.MaxInt64)
	case t.Unix() > math.MinInt64/int64(time.Second):
		c.advance(t.UnixNano())
	}
}

// addClamped is a+b for b >= 0, at most the largest int64.
func addClamped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

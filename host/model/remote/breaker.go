package remote

import (
	"sync"
	"time"
)

// breaker keeps calls from an endpoint that is down. It is closed until most
// attempts in a row have failed, then open for pause, and then half open: one
// attempt goes through and decides.
type breaker struct {
	most  int
	pause time.Duration

	mu      sync.Mutex
	failed  int // in a row
	until   time.Time
	probing bool
}

// enter asks to make an attempt, which leave must follow. If it may not be made,
// left is how long it is until one may.
func (b *breaker) enter() (left time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed < b.most {
		return 0, true
	}
	left = max(0, time.Until(b.until))
	if left > 0 || b.probing {
		return left, false
	}
	b.probing = true
	return 0, true
}

// leave tells how an attempt went. One that was given up says nothing about the
// endpoint.
func (b *breaker) leave(givenUp, down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.probing = false; {
	case givenUp:
	case !down:
		b.failed = 0
	default:
		b.failed++
		b.until = time.Now().Add(b.pause)
	}
}

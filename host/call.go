package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errCallTimeout reports a call of a model or tool that took too long.
var errCallTimeout = errors.New("no answer in time")

// within makes a call of the world. It runs in a goroutine of its own, so that one
// that ignores its context holds nobody when ctx ends or the time is over, and
// one that panics is an error.
func within[T any](ctx context.Context, limit time.Duration, what string, call func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s: %w: it had %s", what, errCallTimeout, limit))
	defer cancel()
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				o.err = fmt.Errorf("%s panicked: %v", what, p)
			}
			done <- o
		}()
		o.value, o.err = call(ctx)
	}()
	select {
	case o := <-done:
		if o.err != nil && ctx.Err() != nil {
			o.err = context.Cause(ctx)
		}
		return o.value, o.err
	case <-ctx.Done():
		select {
		case o := <-done: // both at once
			if o.err == nil {
				return o.value, nil
			}
		default:
		}
		var none T
		return none, context.Cause(ctx)
	}
}

// stopwatch calls over with its time when it has run for that. It is made running.
type stopwatch struct {
	mu    sync.Mutex
	limit time.Duration
	timer *time.Timer
	since time.Time // when it was set running, zero while it is not
	left  time.Duration
}

func newStopwatch(limit time.Duration, over func(limit time.Duration)) *stopwatch {
	s := &stopwatch{limit: limit, since: time.Now(), left: limit}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(limit, func() {
		s.mu.Lock()
		limit := s.limit
		s.mu.Unlock()
		over(limit)
	})
	return s
}

// pause stops it until resume.
func (s *stopwatch) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return
	}
	s.timer.Stop()
	s.left -= time.Since(s.since)
	s.since = time.Time{}
}

// ran is how long it has been running in all.
func (s *stopwatch) ran() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	ran := s.limit - s.left
	if !s.since.IsZero() {
		ran += time.Since(s.since)
	}
	return ran
}

// lend takes at most half of the time that is left out of its time.
func (s *stopwatch) lend(most time.Duration) (lent time.Duration) {
	s.change(func(left time.Duration) time.Duration {
		lent = max(0, min(most, left/2))
		return -lent
	})
	return lent
}

// give adds to its time.
func (s *stopwatch) give(more time.Duration) {
	s.change(func(time.Duration) time.Duration { return more })
}

func (s *stopwatch) change(by func(left time.Duration) time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := !s.since.IsZero()
	if running {
		s.timer.Stop()
		now := time.Now()
		s.left -= now.Sub(s.since)
		s.since = now
	}
	d := by(s.left)
	s.limit += d
	s.left += d
	if running {
		s.timer.Reset(max(0, s.left))
	}
}

func (s *stopwatch) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.since.IsZero() {
		return
	}
	s.since = time.Now()
	s.timer.Reset(max(0, s.left))
}

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

// stopwatch calls over when it has run for its time. It is made running.
type stopwatch struct {
	limit time.Duration
	mu    sync.Mutex
	timer *time.Timer
	since time.Time // when it was set running, zero while it is not
	left  time.Duration
}

func newStopwatch(limit time.Duration, over func()) *stopwatch {
	return &stopwatch{limit: limit, timer: time.AfterFunc(limit, over), since: time.Now(), left: limit}
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

func (s *stopwatch) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.since.IsZero() {
		return
	}
	s.since = time.Now()
	s.timer.Reset(max(0, s.left))
}

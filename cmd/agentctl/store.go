package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
)

// held is the store that this process has open, with the door through which
// others reach it.
type held struct {
	*edge.Host
	door *door
}

// hold opens the store in dir, unless another process has it: that is a
// *journal.LockedError.
func hold(dir string, options edge.Options) (*held, error) {
	h, err := edge.Open(dir, options)
	if err != nil {
		return nil, err
	}
	return &held{h, openDoor(dir, h)}, nil
}

func (h *held) Close() error {
	h.door.close()
	return h.Host.Close()
}

// hold opens the store in dir once no other process has it.
func (a *app) hold(ctx context.Context, dir string, options edge.Options) (*held, error) {
	p := a.waitFor(dir)
	for {
		h, err := hold(dir, options)
		if err == nil {
			return h, nil
		}
		if err := p.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

const (
	// lockWait is how long to wait for another process that has the store open:
	// commands that run no turn are done long before.
	lockWait = 2 * time.Second
	// lookWait is the same for one that only watches: it has the store for moments,
	// however busy the machine is.
	lookWait = time.Minute
	// lockPoll is how often the store is tried meanwhile.
	lockPoll = 20 * time.Millisecond
	// noteWait is when a person who said to wait is told for whom.
	noteWait = time.Second
)

// waiting is a wait for the store in a directory.
type waiting struct {
	app   *app
	dir   string
	begun time.Time // zero until there is something to wait for
	waits bool      // for as long as it takes
	said  string
}

func (a *app) waitFor(dir string) *waiting {
	return &waiting{app: a, dir: dir, waits: a.waits}
}

// wait is told why the store could not be had, and returns nil when it should be
// tried again. An error says that there is no point in it.
func (p *waiting) wait(ctx context.Context, err error) error {
	var locked *journal.LockedError
	if !errors.As(err, &locked) {
		return err
	}
	if p.begun.IsZero() {
		p.begun = time.Now()
	}
	switch waited := time.Since(p.begun); {
	case p.waits:
		p.tell(locked, waited)
	case waited > lockWait && !(strings.HasSuffix(locked.Command, " watch") && waited < lookWait):
		return p.givenUp(err)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(lockPoll):
		return nil
	}
}

// tell says whom one waits for, once.
func (p *waiting) tell(locked *journal.LockedError, waited time.Duration) {
	who := "another process"
	if locked.PID != 0 {
		who = fmt.Sprintf("process %d (%s)", locked.PID, locked.Command)
	}
	if waited >= noteWait && who != p.said {
		p.said = who
		p.app.note("waiting for %s, which has the store since %s; Ctrl-C gives up", who, locked.Since.Format(time.RFC3339))
	}
}

// givenUp is err with what can be done while the store is in use.
func (p *waiting) givenUp(err error) error {
	if !hasDoor(p.dir) {
		return err
	}
	return &adviceError{err, fmt.Sprintf(
		"meanwhile these work: %s, get, approvals, watch and cancel; %s --wait waits for it", p.app.inPlace("list"), p.app.inPlace("exec"))}
}

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
	// lookWait is the same for one that only watches, which has the store for
	// moments, however busy the machine is; and for any number of processes that
	// have it one after another.
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
	waits bool      // for as long as it takes
	begun time.Time // zero until there is something to wait for
	pid   int       // of the process that has the store
	met   time.Time // when it was found there first
	told  bool      // about it
}

func (a *app) waitFor(dir string) *waiting {
	return &waiting{app: a, dir: dir, waits: a.waits}
}

// wait is told why the store could not be had, and returns nil when it should be
// tried again. An error says that there is no point in it.
func (w *waiting) wait(ctx context.Context, err error) error {
	var locked *journal.LockedError
	if !errors.As(err, &locked) {
		return err
	}
	now := time.Now()
	if w.begun.IsZero() {
		w.begun = now
	}
	if w.met.IsZero() || w.pid != locked.PID {
		w.pid, w.met, w.told = locked.PID, now, false
	}
	most := lockWait
	if strings.HasSuffix(locked.Command, " watch") {
		most = lookWait
	}
	switch {
	case w.waits && now.Sub(w.met) >= noteWait && !w.told:
		w.told = true
		w.tell(locked)
	case !w.waits && (now.Sub(w.met) > most || now.Sub(w.begun) > lookWait):
		return w.givenUp(err)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(lockPoll):
		return nil
	}
}

// tell says whom one waits for.
func (w *waiting) tell(locked *journal.LockedError) {
	who := "another process"
	if locked.PID != 0 {
		who = fmt.Sprintf("process %d (%s), which has the store since %s", locked.PID, locked.Command, locked.Since.Format(time.RFC3339))
	}
	w.app.note("waiting for %s; Ctrl-C gives up", who)
}

// givenUp is err with what can be done while the store is in use.
func (w *waiting) givenUp(err error) error {
	if !hasDoor(w.dir) {
		return err
	}
	return &adviceError{err, fmt.Sprintf(
		"meanwhile these work: %s, get, approvals, watch and cancel; %s --wait waits for it", w.app.inPlace("list"), w.app.inPlace("exec"))}
}

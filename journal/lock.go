package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// lockName is the file in a journal's directory that the process which has it
// open holds locked, and in which it says who it is. The kernel drops the lock
// when the process ends, however it ends.
const lockName = "agentcell.lock"

// Holder is a process that has a journal's directory open, as the lock file says
// it. Command is its name and, if that is a plain word, its first argument.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
}

// LockedError is ErrLocked with the process that has the directory open; the zero
// Holder where the lock file does not say.
type LockedError struct{ Holder }

func (e *LockedError) Error() string {
	const advice = "wait for it or use another --data"
	if e.PID == 0 {
		return fmt.Sprintf("%v: %s", ErrLocked, advice)
	}
	return fmt.Sprintf("%v: process %d (%s) since %s: %s", ErrLocked, e.PID, e.Command, e.Since.Format(time.RFC3339), advice)
}

func (e *LockedError) Unwrap() error { return ErrLocked }

// lockPoll is how often a lock is tried while waiting for it.
const lockPoll = 20 * time.Millisecond

// lockDir takes dir's lock, waiting for at most wait. Closing the file gives it
// back.
func lockDir(dir string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, accessError(err)
	}
	deadline := time.Now().Add(wait)
	for {
		err = tryLock(f)
		if !errors.Is(err, errHeld) || time.Now().After(deadline) {
			break
		}
		time.Sleep(lockPoll)
	}
	if errors.Is(err, errHeld) {
		err = heldError(f)
	} else if err == nil {
		err = writeHolder(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func heldError(f *os.File) error {
	var h Holder
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err != nil || json.Unmarshal(text, &h) != nil {
		h = Holder{}
	}
	return &LockedError{h}
}

// writeHolder replaces the content of the locked file f. It stays when the lock
// is dropped, and means nothing then.
func writeHolder(f *os.File) error {
	text, err := json.Marshal(Holder{
		PID:     os.Getpid(),
		Command: command(os.Args),
		Since:   time.Now().UTC().Truncate(time.Second),
	})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return accessError(err)
	}
	_, err = f.WriteAt(append(text, '\n'), 0)
	return accessError(err)
}

// command is a program's name and the command it was given, if that is a plain
// word: other arguments may be anybody's secrets.
func command(args []string) string {
	name := filepath.Base(args[0])
	if len(args) > 1 && strings.Trim(args[1], "abcdefghijklmnopqrstuvwxyz") == "" {
		name += " " + args[1]
	}
	return name
}

// accessError makes an error that says so ErrReadOnly.
func accessError(err error) error {
	if errors.Is(err, os.ErrPermission) || isReadOnly(err) {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

var errHeld = errors.New("held")

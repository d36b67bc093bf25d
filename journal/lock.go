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

// dirLock is the lock of a directory, until it is closed.
type dirLock struct {
	// file is nil if there is none and none can be made, so that nobody writes here.
	file *os.File
	// why is nil if the lock is this process's alone, as writers need it. Else it
	// says why not, and others that read may have the lock, too.
	why error
}

func (l *dirLock) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// lockDir takes dir's lock, waiting for at most wait.
func lockDir(dir string, wait time.Duration) (*dirLock, error) {
	l, err := openLock(filepath.Join(dir, lockName))
	if err != nil || l.file == nil {
		return l, err
	}
	deadline := time.Now().Add(wait)
	for {
		err = tryLock(l.file, l.why != nil)
		if !errors.Is(err, errHeld) || time.Now().After(deadline) {
			break
		}
		time.Sleep(lockPoll)
	}
	if errors.Is(err, errHeld) {
		err = heldError(l.file)
	} else if err == nil && l.why == nil {
		err = writeHolder(l.file)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// openLock opens the lock file as far as it may be.
func openLock(name string) (*dirLock, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		return &dirLock{file: f}, nil
	}
	why := accessError(err)
	if !readable(why) {
		return nil, why
	}
	f, err = os.Open(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, why
	}
	return &dirLock{file: f, why: why}, nil
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
	text = append(text, '\n')
	_, err = f.WriteAt(text, 0)
	if err = accessError(err); errors.Is(err, ErrFull) {
		text, err = nil, nil // the lock is held, and does not say by whom
	}
	return errors.Join(err, accessError(f.Truncate(int64(len(text)))))
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

// accessError makes an error that says so ErrReadOnly or ErrFull.
func accessError(err error) error {
	switch {
	case err == nil || readable(err):
		return err
	case errors.Is(err, os.ErrPermission) || isReadOnly(err):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case isFull(err):
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// readable reports whether err only keeps a directory from being written.
func readable(err error) bool { return errors.Is(err, ErrReadOnly) || errors.Is(err, ErrFull) }

var errHeld = errors.New("held")

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// talker is the other side of a chat: a person at a terminal, or a pipe.
type talker interface {
	// line gives the next line. It is io.EOF if there is none, errGivenUp if a
	// person began one and changed their mind, and the cause of ctx if that ended.
	line(ctx context.Context) (string, error)
	// ask puts a question that nothing answers but what is said after it. It is
	// errGivenUp where there is nobody to answer, or who will not.
	ask(ctx context.Context, question string) (string, error)
	// interruptible is ctx for a turn that the other side may cancel, until stop.
	interruptible(ctx context.Context) (_ context.Context, stop func())
	// remember makes a line one that was said before.
	remember(line string)
}

// errGivenUp reports a line, or an answer, that will not come.
var errGivenUp = errors.New("given up")

// errQuit ends a chat.
var errQuit = errors.New("quit")

// errDue reports that the time has come that a parked turn waits for.
var errDue = errors.New("the time has come")

// chat is a conversation with one session at a time.
type chat struct {
	*app
	talker
	view view
	host *edge.Host

	session host.Session
	files   turnFlags
	model   string // of all turns; empty for the session's
	config  []byte
	// tried is where the session was when its time had come and it could not go on.
	tried journal.Head
	// ahead is a line that was said in place of an answer.
	ahead string
	// failure is the first that a pipe has met.
	failure error
}

// run takes lines until there are no more. What fails is shown, and the chat goes
// on.
func (c *chat) run(ctx context.Context) error {
	for {
		line, err := c.nextLine(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return c.leave(ctx)
		case errors.Is(err, errGivenUp):
			continue
		case errors.Is(err, errDue):
			var awaiting *awaitingError
			if err = c.resume(ctx); err != nil && !errors.As(err, &awaiting) {
				c.tried = c.session.Head
			}
		case err == nil:
			err = c.say(ctx, line)
		case c.view.live, context.Cause(ctx) != nil:
			return err // there will be no more lines
		default:
			c.tell(err)
			return c.leave(ctx)
		}
		switch {
		case errors.Is(err, errQuit):
			return c.leave(ctx)
		case context.Cause(ctx) != nil:
			return cmp.Or(err, context.Cause(ctx))
		}
		c.tell(err)
		if err := c.failed(); err != nil {
			return err // nobody reads
		}
	}
}

// nextLine waits for a line, or for the time that the session waits for. A turn
// that could not go on when it had come is left to the person.
func (c *chat) nextLine(ctx context.Context) (string, error) {
	if line := c.ahead; line != "" {
		c.ahead = ""
		return strings.TrimSpace(line), nil
	}
	if !c.view.live || c.tried == c.session.Head {
		return c.line(ctx)
	}
	for _, w := range c.session.Waiting {
		if w.Until.IsZero() {
			continue
		}
		if !w.Until.After(c.now()) {
			return "", errDue
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, w.Until.Time, errDue)
		defer cancel()
	}
	return c.line(ctx)
}

// say does what a line says.
func (c *chat) say(ctx context.Context, line string) error {
	switch {
	case strings.TrimSpace(line) == "":
		return nil
	case !utf8.ValidString(line):
		return usagef("the line %.40q is not UTF-8 text", line)
	}
	c.remember(line)
	if after, slash := strings.CutPrefix(line, "/"); slash {
		if !strings.HasPrefix(after, "/") {
			return c.command(ctx, after)
		}
		line = after
	}
	req := host.ExecRequest{
		Session: c.session.UID, Inputs: []abi.Message{abi.Text(abi.RoleUser, line)},
		Model: c.model, Config: c.config, Observe: c.view.update,
	}
	return c.turn(ctx, func(ctx context.Context) (host.Execution, error) { return c.host.Exec(ctx, req) })
}

// sayable is the line that says text.
func sayable(text string) string {
	if strings.HasPrefix(text, "/") {
		return "/" + text
	}
	return text
}

// resume goes on with the open turn.
func (c *chat) resume(ctx context.Context) error { return c.turn(ctx, c.goOn) }

func (c *chat) goOn(ctx context.Context) (host.Execution, error) {
	return c.app.resume(ctx, c.host, c.session.UID, c.view.update)
}

// turn runs a turn. A person is asked for what it waits for, and then it goes on.
func (c *chat) turn(ctx context.Context, run func(context.Context) (host.Execution, error)) error {
	left := map[string]bool{} // calls that are to go on waiting
	for {
		err := c.once(ctx, run)
		var awaiting *awaitingError
		if !errors.As(err, &awaiting) || !c.view.live {
			return err
		}
		decided, askErr := c.decideAll(ctx, awaiting.waits, left)
		if askErr != nil {
			return askErr
		}
		if !decided {
			return err
		}
		run = c.goOn
	}
}

// once runs a turn up to its end, or to where it waits.
func (c *chat) once(ctx context.Context, run func(context.Context) (host.Execution, error)) error {
	turn, stop := c.interruptible(ctx)
	err := c.app.turn(turn, c.host, c.files, func() (host.Execution, error) { return run(turn) })
	stop()
	c.view.end()
	return errors.Join(err, c.refresh(ctx))
}

// refresh reads where the session is now.
func (c *chat) refresh(ctx context.Context) error {
	s, err := c.host.Get(context.WithoutCancel(ctx), c.session.UID)
	if err == nil {
		c.session = s
	}
	return err
}

// tell shows what went wrong, and keeps the first of it for a pipe's exit code.
func (c *chat) tell(err error) {
	var awaiting *awaitingError
	switch {
	case err == nil:
	case c.view.live && (errors.As(err, &awaiting) || exitCode(err) == exitInterrupted):
		c.beside(c.errStyle.dim, c.failureText(err)) // as the person wants it
	case c.view.live:
		c.beside(c.errStyle.bad, c.failureText(err))
	default:
		c.report(err, exitCode(err))
		if c.failure == nil && !errors.As(err, &awaiting) {
			c.failure = err
		}
	}
}

// failureText is an error for a person who goes on chatting.
func (c *chat) failureText(err error) string {
	var (
		// Who chats knows with which session.
		text     = strings.TrimPrefix(err.Error(), "exec: ")
		awaiting *awaitingError
		ended    *turnError
		advice   *adviceError
	)
	text = shortened(strings.TrimPrefix(text, fmt.Sprintf("session %s: ", c.session.UID)))
	switch {
	case errors.As(err, &awaiting):
		return text + "\n" + c.endsWait(awaiting.session.Waiting)
	case errors.As(err, &ended), errors.Is(err, host.ErrInvalid):
		return text
	case errors.Is(err, host.ErrOpenTurn):
		return "that was not said: the turn before it is not over\n" + c.endsWait(c.session.Waiting)
	case c.session.State == host.ExecInterrupted && errors.As(err, &advice):
		return text + "\nleave, and come back with --script FILE for the model's script, --tools FILE for the tools; /cancel drops the turn"
	case c.session.State == host.ExecInterrupted:
		return text + "\n/resume goes on with the turn; /cancel drops it"
	case errors.Is(err, host.ErrExists):
		return text + "\nchoose another name"
	case errors.Is(err, journal.ErrFull), errors.Is(err, journal.ErrReadOnly):
		return text + "\n" + c.nextStep(err)
	}
	return text
}

// leave is the end of a chat: what it has come to.
func (c *chat) leave(ctx context.Context) error {
	switch {
	case c.view.live:
		c.note("%s goes on with it", c.agentctl("chat"))
		return nil
	case c.failure != nil:
		return &reportedError{c.failure}
	case c.session.State != host.ExecAwaiting:
		return nil
	}
	waits, err := waitsOf(ctx, c.host, c.session)
	if err != nil {
		return err
	}
	return &reportedError{&awaitingError{session: c.session, waits: waits}}
}

// reportedError is an error that was reported when it came up. Only its exit code
// is left to tell.
type reportedError struct{ err error }

func (e *reportedError) Error() string { return e.err.Error() }
func (e *reportedError) Unwrap() error { return e.err }

// enter makes s the session to talk to.
func (c *chat) enter(s host.Session) {
	c.session, c.ref = s, string(s.UID)
	if s.Name != "" {
		c.ref = s.Name
	}
	if c.json {
		c.object(newSessionJSON(s))
		return
	}
	c.note("session %s", oneLine(spaced(string(s.UID), s.Name)))
}

// open goes on with a session that was there before: what was said last is shown,
// and a turn that is open is taken up.
func (c *chat) open(ctx context.Context, s host.Session) error {
	c.enter(s)
	if err := c.past(ctx); err != nil {
		return err
	}
	switch s.State {
	case host.ExecInterrupted:
		c.note("the last turn was interrupted; it goes on")
	case host.ExecAwaiting:
	default:
		return nil
	}
	err := c.resume(ctx)
	if context.Cause(ctx) != nil {
		return err
	}
	c.tell(err)
	return nil
}

const (
	// pastRecords bounds how far back a chat looks in a record, pastTurns how much
	// of it is shown.
	pastRecords = 2000
	pastTurns   = 3
)

// past shows the last turns, and remembers what was said in those before.
func (c *chat) past(ctx context.Context) error {
	last := c.session.Head.Seq
	if !c.view.live || last == 0 {
		return nil
	}
	var turns [][]host.Record
	for r, err := range c.host.Replay(ctx, c.session.UID, max(1, last-pastRecords+1), last) {
		if err != nil {
			return err
		}
		switch e := r.Event; {
		case e.Kind == abi.EventExecutionStart:
			turns = append(turns, nil)
		case e.Kind == abi.EventInput && e.Message != nil:
			c.remember(sayable(e.Message.Text()))
		}
		if n := len(turns); n > 0 {
			turns[n-1] = append(turns[n-1], r)
		}
		if len(turns) > pastTurns {
			turns = turns[1:]
		}
	}
	for _, records := range turns {
		for _, r := range records {
			c.view.past(r)
		}
	}
	return nil
}

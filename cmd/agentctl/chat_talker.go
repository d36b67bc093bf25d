package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/agentcell/agentcell/cmd/agentctl/lineedit"
)

const chatPrompt = "> "

// pipe is whoever writes to a stdin that is no terminal.
type pipe struct{ lines *bufio.Scanner }

func newPipe(a *app) *pipe {
	lines := bufio.NewScanner(a.stdin)
	lines.Buffer(nil, maxInput)
	return &pipe{lines}
}

func (p *pipe) line(ctx context.Context) (string, error) {
	return wait(ctx, func() (string, error) {
		if p.lines.Scan() {
			return p.lines.Text(), nil
		}
		err := p.lines.Err()
		switch {
		case err == nil:
			return "", io.EOF
		case errors.Is(err, bufio.ErrTooLong):
			return "", usagef("a line of stdin has more than %d MiB", maxInput>>20)
		}
		return "", fmt.Errorf("read stdin: %w", err)
	})
}

func (*pipe) ask(context.Context, string) (string, error) { return "", errGivenUp }

func (*pipe) interruptible(ctx context.Context) (context.Context, func()) { return ctx, func() {} }

func (*pipe) remember(string) {}

// person is somebody at a terminal.
type person struct {
	app      *app
	terminal *lineedit.Terminal
	// restore gives the terminal back as it was.
	restore func()
}

// person gives who sits at the terminal, nil if stdin or stdout is none.
func (a *app) person() (*person, error) {
	in, ok := a.stdin.(*os.File)
	if !ok || a.json || a.screen == nil || a.getenv("TERM") == "dumb" || !term.IsTerminal(int(in.Fd())) {
		return nil, nil
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("use the terminal: %w", err)
	}
	restore := sync.OnceFunc(func() {
		_ = term.Restore(int(in.Fd()), before) // there is nothing to be done about it
		fmt.Fprint(a.screen, lineedit.End)     // last: nobody may be reading
	})
	fmt.Fprint(a.screen, lineedit.Start)
	t := lineedit.New(lineedit.Config{
		Keys: in, Screen: a.screen,
		Size: func() (columns, rows int) {
			columns, rows, err := term.GetSize(int(a.screen.Fd()))
			if err != nil {
				return 0, 0
			}
			return columns, rows
		},
		Style: a.outStyle.strong, Reset: a.outStyle.reset,
		Words: slashWords(),
	})
	return a.personAt(t, restore), nil
}

// personAt is somebody at t, through which all output goes from now on.
func (a *app) personAt(t *lineedit.Terminal, restore func()) *person {
	back := a.through(t)
	p := &person{app: a, terminal: t, restore: func() {
		back()
		restore()
	}}
	a.beforeExit.Store(&restore)
	return p
}

func (p *person) line(ctx context.Context) (string, error) {
	line, err := p.terminal.ReadLine(ctx, chatPrompt)
	if !errors.Is(err, lineedit.ErrInterrupt) {
		return line, err
	}
	if line == "" {
		p.app.note("Ctrl-D or /quit leaves")
	}
	return "", errGivenUp
}

func (p *person) ask(ctx context.Context, question string) (string, error) {
	answer, err := p.terminal.Ask(ctx, question)
	if errors.Is(err, lineedit.ErrInterrupt) || errors.Is(err, io.EOF) {
		return "", errGivenUp
	}
	return answer, err
}

func (p *person) remember(line string) { p.terminal.Remember(strings.TrimSuffix(line, "\n")) }

// interruptible ends the context at the first Ctrl-C, and the process at the
// second.
func (p *person) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	pressed, over, said := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var first sync.Once
	p.terminal.OnInterrupt(func() {
		again := true
		first.Do(func() {
			again = false
			cancel(errInterrupted)
			close(pressed)
		})
		if again {
			p.app.exit(exitInterrupted)
		}
	})
	go func() {
		defer close(said)
		select {
		case <-over:
			return
		case <-pressed:
		}
		select {
		case <-over: // soon enough to need no words
		case <-time.After(patience):
			p.app.note("canceling; once more leaves at once and the session can be resumed")
		}
	}()
	return ctx, func() {
		p.terminal.OnInterrupt(nil)
		close(over)
		<-said
		cancel(nil)
	}
}

// patience is how long a person is left to wonder whether Ctrl-C was heard.
const patience = 300 * time.Millisecond

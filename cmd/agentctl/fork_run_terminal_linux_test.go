package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// awaitMatch is await for a pattern.
func (p *pty) awaitMatch(pattern string) {
	p.t.Helper()
	want := regexp.MustCompile(pattern)
	for end := time.Now().Add(patienceOfTests); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		text := p.text.Bytes()[p.seen:]
		found := want.FindIndex(text)
		if found != nil {
			p.seen += found[1]
		}
		p.mu.Unlock()
		switch {
		case found != nil:
			return
		case time.Now().After(end):
			p.t.Fatalf("nothing matches %q in %q", want, text)
		}
	}
}

// A terminal shows the turns that run, as many at once as --parallel says, in one place;
// the table of what came of them takes it.
func TestTerminalForkRun(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	answers := writeFile(t, `{"text":"hello"}
{"chunks":["Thinking"],"hang":true}
`)
	p := atTerminal(t, data, "exec", "--name", "talk", "--harness", "chat", "--script", answers, "--input", "hi")
	p.await("COMPLETED")
	p.ends(exitOK)

	p = atTerminal(t, data, "fork", "talk", "--names", "c1,c2,c3", "--run", "x", "--script", answers, "--parallel", "2")
	const running = `c1 +\d+s +model call *\r\nc2 +\d+s +model call *\r\n0 of 3 children done\r\n`
	p.awaitMatch(running)
	p.awaitMatch(`^` + regexp.QuoteMeta("\x1b[3A\r\x1b[J") + running) // in its place
	p.types("\x03")
	p.awaitMatch(`\x1b\[J[^\x1b]*CHILD +STATE +TOKENS +ROOT +OUTPUT\r\nc1 +CANCELED .*\r\nc2 +CANCELED .*\r\nc3 +not run .*\r\n`)
	p.ends(exitInterrupted)
	if n := strings.Count(records(t, data, "c3"), "EVENT_INPUT"); n != 1 {
		t.Errorf("the child that was not run has %d inputs", n)
	}
}

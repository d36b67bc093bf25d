package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/agentcell/agentcell/host/secret"
)

// At a terminal a person is asked, and what is typed does not show (S4). Ctrl-C changes
// nothing.
func TestS4_SecretIsTypedUnseen(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := atTerminal(t, data, "secret", "set", "typed")
	p.await("the value of typed, which is not shown:")
	p.hides()
	p.types("canary typed\n")
	p.await("set typed")
	p.ends(exitOK)
	p.mu.Lock()
	shown := p.text.String()
	p.mu.Unlock()
	if strings.Contains(shown, "canary") {
		t.Errorf("the terminal shows %q", shown)
	}
	again := atTerminal(t, data, "secret", "set", "typed")
	again.await("which is not shown:")
	again.hides()
	again.types("\x03")
	again.ends(exitInterrupted)
	if value, err := secret.In(data, nil).Get("typed"); value != "canary typed" || err != nil {
		t.Errorf("kept %q, %v", value, err)
	}
}

// hides waits until the terminal shows nothing of what is typed.
func (p *pty) hides() {
	p.t.Helper()
	for end := time.Now().Add(patienceOfTests); ; time.Sleep(5 * time.Millisecond) {
		var mode syscall.Termios
		if err := ioctl(p.slave, syscall.TCGETS, unsafe.Pointer(&mode)); err != nil {
			p.t.Fatal(err)
		}
		switch {
		case mode.Lflag&syscall.ECHO == 0:
			return
		case time.Now().After(end):
			p.t.Fatal("the terminal shows what is typed")
		}
	}
}

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// pty is a pseudo terminal with a process on it.
type pty struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	cmd    *exec.Cmd

	paused atomic.Bool // nothing more is read

	mu   sync.Mutex
	text bytes.Buffer // that the process wrote
	seen int          // of text, by await
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// openPty makes a pseudo terminal, or skips the test where there are none.
func openPty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	missing := func(err error) {
		if os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" {
			t.Fatalf("no pseudo terminal: %v", err)
		}
		t.Skipf("no pseudo terminal: %v", err)
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		missing(err)
	}
	t.Cleanup(func() { master.Close() })
	var number, unlocked uint32
	if err := ioctl(master, syscall.TIOCGPTN, unsafe.Pointer(&number)); err != nil {
		missing(err)
	}
	if err := ioctl(master, syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked)); err != nil {
		missing(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		missing(err)
	}
	t.Cleanup(func() { slave.Close() })
	size := struct{ rows, columns, x, y uint16 }{rows: 24, columns: 80}
	if err := ioctl(master, syscall.TIOCSWINSZ, unsafe.Pointer(&size)); err != nil {
		missing(err)
	}
	return master, slave
}

// atTerminal runs agentctl on a pseudo terminal, in a data directory of its own.
func atTerminal(t *testing.T, data string, args ...string) *pty {
	t.Helper()
	cache, err := testCache()
	if err != nil {
		t.Fatal(err)
	}
	return atTerminalWith(t, data, cache, args...)
}

// atTerminalWith is atTerminal with a compile cache of its own.
func atTerminalWith(t *testing.T, data, cache string, args ...string) *pty {
	t.Helper()
	needHarnesses(t)
	program, err := exec.LookPath("agentctl")
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{t: t, cmd: exec.Command(program, args...)}
	p.master, p.slave = openPty(t)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.slave, p.slave, p.slave
	p.cmd.Env = append(os.Environ(), "AGENTCTL_DATA="+data, "AGENTCELL_CACHE="+cache, "USER=ann", "TERM=xterm", "NO_COLOR=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go p.read()
	return p
}

// read takes what the process writes for as long as there is a terminal, or until
// it is paused.
func (p *pty) read() {
	b := make([]byte, 4096)
	for {
		n, err := p.master.Read(b)
		p.mu.Lock()
		p.text.Write(b[:n])
		p.mu.Unlock()
		if err != nil || p.paused.Load() {
			return
		}
	}
}

// types sends keys.
func (p *pty) types(keys string) {
	p.t.Helper()
	if _, err := io.WriteString(p.master, keys); err != nil {
		p.t.Fatal(err)
	}
}

// patienceOfTests is how long a test waits for what must come.
const patienceOfTests = 2 * time.Minute

// await waits until the process has written want, behind what was awaited before.
func (p *pty) await(want string) {
	p.t.Helper()
	for end := time.Now().Add(patienceOfTests); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		text := p.text.String()[p.seen:]
		i := strings.Index(text, want)
		if i >= 0 {
			p.seen += i + len(want)
		}
		p.mu.Unlock()
		switch {
		case i >= 0:
			return
		case time.Now().After(end):
			p.t.Fatalf("no %q in %q", want, text)
		}
	}
}

// ends waits for the end of the process, which leaves the terminal as it was.
func (p *pty) ends(code int) {
	p.t.Helper()
	_ = p.cmd.Wait() // its exit code says it
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d", got, code)
	}
	var mode syscall.Termios
	if err := ioctl(p.slave, syscall.TCGETS, unsafe.Pointer(&mode)); err != nil {
		p.t.Fatal(err)
	}
	if want := uint32(syscall.ECHO | syscall.ICANON | syscall.ISIG); mode.Lflag&want != want || mode.Oflag&syscall.OPOST == 0 {
		p.t.Errorf("the terminal was left with modes %#x and %#x", mode.Lflag, mode.Oflag)
	}
}

// records is what replay says of a session.
func records(t *testing.T, data, session string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	a := newApp(nil, &stdout, &stderr, func(string) string { return "" })
	if code := a.run(t.Context(), []string{"replay", session, "--data", data}); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	return stdout.String()
}

func writeFile(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A person edits a line, cancels a turn, brings a line back, pastes, and leaves.
func TestTerminalChat(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	answers := writeFile(t, `{"chunks":["The first"," answer"]}
{"chunks":["Thinking"],"hang":true}
{"text":"The third answer"}
{"text":"The fourth answer"}
`)
	p := atTerminal(t, data, "chat", "--name", "talk", "--script", answers)
	p.await("> ")
	p.types("helo\x1b[Dl\x05!\r")
	p.await("hello!")
	p.await("The first answer\r\n")
	p.types("hang\r")
	p.await("Thinking")
	p.types("typed ahead\r\x03")
	p.await("\r\nturn canceled\r\n")
	p.types("\x03")
	p.await("Ctrl-D or /quit leaves\r\n")
	p.types("\x1b[A\x1b[A\r")
	p.await("hello!")
	p.await("The third answer\r\n")
	p.types("\x1b[200~two\rlines\x1b[201~\r")
	p.await("The fourth answer\r\n")
	p.types("gone\x03/he\t\r")
	p.await("/help")
	p.await("/undo")
	p.types("\x04")
	p.await("agentctl chat --session talk goes on with it")
	p.ends(exitOK)

	var inputs, ends []string
	for line := range strings.Lines(records(t, data, "talk")) {
		if _, input, found := strings.Cut(line, "user: "); found {
			inputs = append(inputs, strings.TrimSpace(input))
		} else if _, end, found := strings.Cut(line, "EVENT_END"); found {
			ends = append(ends, strings.Fields(end)[0])
		}
	}
	if got, want := fmt.Sprintf("%q", inputs), `["hello!" "hang" "hello!" "two\\nlines"]`; got != want {
		t.Errorf("inputs %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(ends), "[COMPLETED CANCELED COMPLETED COMPLETED]"; got != want {
		t.Errorf("ends %s, want %s", got, want)
	}
}

// What is typed before a question stands there does not answer it.
func TestTerminalChatAsks(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	answers, toolbox := writeFile(t, chatAnswers), writeFile(t, chatTools)
	p := atTerminal(t, data, "chat", "--name", "gated", "--harness", "tools", "--script", answers, "--tools", toolbox)
	p.await("> ")
	p.types("go\ry\ry\r")
	p.await("drop wants to be called with\r\n")
	p.await("leaves it waiting: ")
	p.types("n never\r")
	p.await("c1 denied by ann: never\r\n")
	p.await("leaves it waiting: ")
	p.types("\r")
	p.await("awaiting approval of call \"c2\" to drop\r\n")
	p.types("/quit\r")
	p.await("goes on with it")
	p.ends(exitOK)

	p = atTerminal(t, data, "chat", "gated", "--script", answers, "--tools", toolbox)
	p.await("> go\r\n")
	p.await("leaves it waiting: ")
	p.types("y\r")
	p.await("c2 approved by ann\r\n")
	p.await("Done.\r\n")
	p.types("\x04")
	p.ends(exitOK)
}

// Ctrl-C cancels a turn, and a second one leaves at once, although the turn cannot
// end while nobody reads what it says. It can be resumed.
func TestTerminalChatLeavesAtOnce(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	flood := fmt.Sprintf(`{"text":%q}`+"\n", strings.Repeat("on and on ", 100_000))
	p := atTerminal(t, data, "chat", "--name", "talk", "--script", writeFile(t, flood))
	p.await("> ")
	p.paused.Store(true)
	p.types("flood\r")
	const much = 2000
	end := time.Now().Add(patienceOfTests)
	for waiting := int32(0); waiting < much; time.Sleep(5 * time.Millisecond) {
		if err := ioctl(p.master, syscall.TIOCINQ, unsafe.Pointer(&waiting)); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes wait to be read", waiting)
		}
	}
	p.types("\x03\x03")
	p.ends(exitInterrupted)
}

// A signal from elsewhere ends the turn and the chat.
func TestTerminalChatTerminated(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := atTerminal(t, data, "chat", "--name", "talk", "--script", writeFile(t, `{"chunks":["Thinking"],"hang":true}`+"\n"))
	p.await("> ")
	p.types("hang\r")
	p.await("Thinking")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.await("agentctl: turn canceled")
	p.ends(exitInterrupted)
}

package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentcell/agentcell/host/config"
)

// inherited are the variables of the host's environment that a program gets beside its
// own: what programs need to run at all, and nothing that may be a secret.
func inherited() []string {
	if runtime.GOOS == "windows" {
		return []string{
			"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
			"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE",
		}
	}
	return []string{"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
}

const (
	closeGrace = 5 * time.Second  // for a server to end by itself
	termGrace  = time.Second      // for a program that is told to end
	writeTime  = 30 * time.Second // for a program to read a message
)

// process is a server that is a program, on its stdin and stdout, and the programs
// that it has started.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	screen *screen
	eof    chan struct{} // closed when nothing more is read
	ended  chan struct{} // closed when the program has ended
	once   sync.Once
}

var _ link = (*process)(nil)

// newProcess starts the program.
func newProcess(s *server) (*process, error) {
	env, secrets, err := environment(s)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(s.conf.Command, s.conf.Args...), screen: newScreen(s.conf.Limits.ResultBytes, secrets)}
	p.eof, p.ended = make(chan struct{}), make(chan struct{})
	p.cmd.Env, p.cmd.Dir, p.cmd.WaitDelay = env, s.conf.Dir, termGrace
	p.cmd.Stderr = &stderr{log: s.o.Log, screen: p.screen}
	ownGroup(p.cmd)
	childIn, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer childIn.Close()
	stdout, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	defer childOut.Close()
	p.cmd.Stdin, p.cmd.Stdout, p.stdin, p.stdout = childIn, childOut, stdin, stdout
	if err := start(p.cmd, p.ended); err != nil {
		return nil, errors.Join(err, stdin.Close(), stdout.Close())
	}
	return p, nil
}

// environment is what the program gets, and the secrets among it by their references.
func environment(s *server) (env []string, secrets map[string]string, err error) {
	own, secrets, err := values(s.conf.Env, s.o)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range inherited() {
		if value := s.o.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value) // the last one of a name counts
	}
	return env, secrets, nil
}

// values resolves references.
func values(of map[string]config.Value, o Options) (out, secrets map[string]string, err error) {
	out, secrets = map[string]string{}, map[string]string{}
	for name, v := range of {
		if v.Key == "" {
			out[name] = v.Text
			continue
		}
		secret, err := v.Key.Find(o.Getenv, o.Secret)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name], secrets[string(v.Key)] = v.Text+secret, secret
	}
	return out, secrets, nil
}

// Connect implements mcp.Transport.
func (p *process) Connect(ctx context.Context) (sdk.Connection, error) {
	in := &lines{in: bufio.NewReaderSize(p.stdout, 64<<10), screen: p.screen, end: sync.OnceFunc(func() { close(p.eof) })}
	return (&sdk.IOTransport{Reader: in, Writer: timed{p.stdin}, MaxLineLength: -1}).Connect(ctx)
}

// timed is a pipe to a program that has to read what is written.
type timed struct{ *os.File }

func (t timed) Write(b []byte) (int, error) {
	// A pipe that knows no deadline is written to without one.
	_ = t.SetWriteDeadline(time.Now().Add(writeTime))
	return t.File.Write(b)
}

// leave implements link: it closes the program's stdin, by which a server is asked to
// end, and waits for it.
func (p *process) leave() {
	_ = p.stdin.Close()
	p.ends(closeGrace)
	p.cut()
}

// cut implements link: it ends the program with all others of its group. It is waited
// for only when that is done, as until then nobody else can have the group's number.
func (p *process) cut() {
	p.once.Do(func() {
		_ = p.stdin.Close()
		endGroup(p.cmd.Process, false)
		p.ends(termGrace)
		endGroup(p.cmd.Process, true)
		_ = p.cmd.Wait()
		close(p.ended)
		_ = p.stdout.Close()
	})
}

// ends waits until the program has closed its stdout, or that time is over.
func (p *process) ends(within time.Duration) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.eof:
	case <-timer.C:
	}
}

func (p *process) screened() *screen { return p.screen }

// What a program writes to stderr is logged up to maxLogged bytes, a line up to
// maxLogLine of them.
const (
	maxLogged  = 256 << 10
	maxLogLine = 2 << 10
)

// stderr logs what a program writes there.
type stderr struct {
	log    *slog.Logger
	screen *screen
	line   []byte
	logged int
}

var _ io.Writer = (*stderr)(nil)

// Write implements io.Writer.
func (w *stderr) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0 && w.logged < maxLogged; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		// Where a line is cut a secret may be cut, too, which is no more found.
		kept := maxLogLine + w.screen.longest
		w.line = append(w.line, line[:min(len(line), kept-len(w.line))]...)
		if ended {
			text := w.screen.redact(w.line)
			if len(w.line) == kept {
				text = text[:max(0, len(text)-w.screen.longest)]
			}
			w.log.Debug("stderr", "line", string(text))
			if w.logged += len(w.line) + 1; w.logged >= maxLogged {
				w.log.Debug("stderr: no more is logged")
			}
			w.line = w.line[:0]
		}
		rest = after
	}
	return len(b), nil
}

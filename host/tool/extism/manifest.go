package extism

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// ErrManifest reports a manifest that cannot be. The error that wraps it says what
// is wrong with it.
var ErrManifest = errors.New("malformed manifest of a plug-in")

// What a plug-in may use unless its manifest says otherwise, and at most.
const (
	DefaultMemory  = 64 << 20
	MaxMemory      = 1 << 30
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = 24 * time.Hour
)

// Manifest says what a tool does with its plug-in, and what the plug-in may do. The
// zero value of everything but Export is the least that there is.
type Manifest struct {
	// Export is the function that is called.
	Export string `json:"export"`
	// Input names the argument whose text is the plug-in's input; empty means that
	// the arguments are, as JSON.
	Input string `json:"input,omitempty"`
	// WASI gives the plug-in clocks, random numbers and its Paths, as most compilers
	// want it. It has no environment and no streams in any case.
	WASI bool `json:"wasi,omitempty"`
	// Hosts are those that it may send HTTP requests to: names without a port, in
	// which * stands for any text. See the package comment for private addresses.
	Hosts []string `json:"hosts,omitempty"`
	// Paths are the directories that it sees.
	Paths []Path `json:"paths,omitempty"`
	// Config is what the plug-in can ask for by name. A value secret:NAME stands for
	// that secret, which is looked up for each call.
	Config map[string]string `json:"config,omitempty"`
	// Memory is how many bytes the plug-in may have, and as many again what it
	// exchanges with its host; 0 means DefaultMemory.
	Memory int64 `json:"memory,omitempty"`
	// TimeoutMS is how many milliseconds a call may take; 0 means DefaultTimeout.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// Path is a directory of the host that a plug-in sees as Guest.
type Path struct {
	Host     string `json:"host"`
	Guest    string `json:"guest"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// secretPrefix begins a config value that stands for a secret.
const secretPrefix = "secret:"

// ParsePath reads HOST[:GUEST][:ro]. A relative HOST is one of the working directory;
// without GUEST the plug-in sees the directory under its own name.
func ParsePath(s string) (Path, error) {
	text, readOnly := strings.CutSuffix(s, ":ro")
	host, guest := text, ""
	// The colon of a drive is none.
	if i := strings.LastIndexByte(text, ':'); i > len(filepath.VolumeName(text)) {
		host, guest = text[:i], text[i+1:]
	}
	if host == "" {
		return Path{}, fmt.Errorf("%w: path %q: want HOST[:GUEST][:ro]", ErrManifest, s)
	}
	host, err := filepath.Abs(host)
	if err != nil {
		return Path{}, fmt.Errorf("path %q: %w", s, err)
	}
	if guest == "" {
		guest = filepath.ToSlash(host)
	}
	p := Path{Host: host, Guest: guest, ReadOnly: readOnly}
	return p, p.check()
}

// String is p as ParsePath reads it.
func (p Path) String() string {
	s := p.Host + ":" + p.Guest
	if p.ReadOnly {
		s += ":ro"
	}
	return s
}

func (p Path) check() error {
	if !filepath.IsAbs(p.Host) || p.Guest == "" {
		return fmt.Errorf("%w: path %q as %q: want the whole path of a directory, and what it is for the plug-in", ErrManifest, p.Host, p.Guest)
	}
	info, err := os.Stat(p.Host)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%w: path %q is not a directory", ErrManifest, p.Host)
	}
	if err != nil {
		return fmt.Errorf("path %q: %w", p.Host, errors.Unwrap(err))
	}
	return nil
}

// Check reports with ErrManifest what is wrong with m, and otherwise a directory
// that is not there.
func (m Manifest) Check() error {
	switch {
	case m.Export == "":
		return fmt.Errorf("%w: it names no export", ErrManifest)
	case m.Memory < 0 || m.Memory > MaxMemory:
		return fmt.Errorf("%w: memory is %d bytes; want at most %d", ErrManifest, m.Memory, int64(MaxMemory))
	case m.TimeoutMS < 0 || m.TimeoutMS > MaxTimeout.Milliseconds():
		return fmt.Errorf("%w: the timeout is %d ms; want at most %d", ErrManifest, m.TimeoutMS, MaxTimeout.Milliseconds())
	case len(m.Paths) > 0 && !m.WASI:
		return fmt.Errorf("%w: it has paths but no WASI, through which a plug-in sees them", ErrManifest)
	}
	for _, h := range m.Hosts {
		if _, err := path.Match(h, ""); err != nil || h == "" || strings.ContainsAny(h, "/:@ ") && !strings.HasPrefix(h, "[") {
			return fmt.Errorf("%w: host %.80q; want a name such as api.example.com or *.example.com, without scheme and port", ErrManifest, h)
		}
	}
	for key, value := range m.Config {
		if key == "" || value == secretPrefix {
			return fmt.Errorf("%w: config %q is %q; want a name, and a value or secret:NAME", ErrManifest, key, value)
		}
	}
	for _, p := range m.Paths {
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

// Timeout is the time that a call may take.
func (m Manifest) Timeout() time.Duration {
	if m.TimeoutMS == 0 {
		return DefaultTimeout
	}
	return time.Duration(m.TimeoutMS) * time.Millisecond
}

// MemoryLimit is the memory that the plug-in may have, in bytes.
func (m Manifest) MemoryLimit() int64 {
	if m.Memory == 0 {
		return DefaultMemory
	}
	return m.Memory
}

// Schema is what a model is told of the arguments where nobody says more: the one
// text, or nothing.
func (m Manifest) Schema() abi.Struct {
	if m.Input == "" {
		return abi.Struct(`{"type":"object"}`)
	}
	type object map[string]any
	schema, err := json.Marshal(object{
		"type":       "object",
		"properties": object{m.Input: object{"type": "string"}},
		"required":   []string{m.Input},
	})
	if err != nil {
		panic(err) // strings alone
	}
	return schema
}

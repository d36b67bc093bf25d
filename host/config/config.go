// Package config owns agentcell.yaml: the file that says what a host is made of
// where its defaults do not do. It reads the file, refuses what it does not know,
// and says where the mistake is; what the settings come to is the business of the
// packages that they are for.
//
// A key never stands in the file, only where it is: "env:NAME" or "secret:NAME".
//
// The package imports no other of ours.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// FileName is the name of the file in a data directory.
const FileName = "agentcell.yaml"

// maxFile bounds the file.
const maxFile = 1 << 20

// ErrConfig reports a file that cannot be taken. The error that wraps it says
// where and why.
var ErrConfig = errors.New("bad configuration")

// File is what agentcell.yaml says.
type File struct {
	// DefaultModel serves turns that name none; empty means the host's.
	DefaultModel string `yaml:"default_model"`
	// Providers are the places where models are, by name.
	Providers map[string]Provider `yaml:"providers"`
	// Models is the routing table: the first line that matches a name counts.
	Models []Model `yaml:"models"`
	// MCP are servers of tools, by the name that stands before those of their tools.
	MCP map[string]MCP `yaml:"mcp"`
	// Fetch is the tool fetch; nil means that there is none.
	Fetch *Fetch `yaml:"fetch"`
	// Policy is the file of the policy, seen from this one; empty means policy.yaml in
	// the data directory, if there is one.
	Policy string `yaml:"policy"`

	doc  *yaml.Node // that it was read from
	path string     // of the file, if it is one
}

// Provider is a place where models are. What is left out has a default.
type Provider struct {
	// API is the protocol: "openai" or "anthropic".
	API string `yaml:"api"`
	// BaseURL and Path are where calls go, Query what stands behind them.
	BaseURL string            `yaml:"base_url"`
	Path    *string           `yaml:"path"`
	Query   map[string]string `yaml:"query"`
	// Key is where the key is: "env:NAME" or "secret:NAME". Without one, none is
	// sent. It goes into the header Auth.Header, behind Auth.Scheme.
	Key  Key  `yaml:"key"`
	Auth Auth `yaml:"auth"`
	// Headers are sent with every call. A key does not belong here.
	Headers map[string]string `yaml:"headers"`
	// Stream is false for an endpoint that cannot stream, StreamUsage for one that
	// refuses stream_options, SendReasoning for one that refuses reasoning of turns
	// before.
	// OutputParam is what bounds the tokens of an answer: max_tokens or
	// max_completion_tokens.
	OutputParam   string `yaml:"output_param"`
	Stream        *bool  `yaml:"stream"`
	StreamUsage   *bool  `yaml:"stream_usage"`
	SendReasoning *bool  `yaml:"send_reasoning"`

	Timeouts struct {
		Connect   Duration `yaml:"connect"`
		FirstByte Duration `yaml:"first_byte"`
		Idle      Duration `yaml:"idle"`
	} `yaml:"timeouts"`
	Retry struct {
		Attempts int      `yaml:"attempts"`
		Delay    Duration `yaml:"delay"`
		MaxDelay Duration `yaml:"max_delay"`
	} `yaml:"retry"`
	Breaker struct {
		Failures int      `yaml:"failures"`
		Pause    Duration `yaml:"pause"`
	} `yaml:"breaker"`
	Limits struct {
		AnswerBytes int `yaml:"answer_bytes"`
		Concurrent  int `yaml:"concurrent"`
	} `yaml:"limits"`
}

// Auth is how a key is sent.
type Auth struct {
	Header *string `yaml:"header"`
	Scheme *string `yaml:"scheme"`
}

// Model is a line of the routing table.
type Model struct {
	// Name is a name, or a pattern in which one * stands for any text.
	Name string `yaml:"name"`
	// Provider is one of Providers.
	Provider string `yaml:"provider"`
	// Upstream is what the provider calls the model, in which * stands for what the
	// * of Name stood for. Empty means the name that was asked for.
	Upstream string `yaml:"upstream"`
	// Params are those of calls that do not have them themselves.
	Params map[string]JSON `yaml:"params"`
	// Price is what the model's tokens cost, nil if that is not known.
	Price *Price `yaml:"price"`
}

// Price is what a million tokens cost, in the currency that all prices of the file are
// in.
type Price struct {
	Input  Money `yaml:"input"`
	Output Money `yaml:"output"`
}

// Money is an amount in millionths of a currency.
type Money int64

var moneyRule = regexp.MustCompile(`^([0-9]{1,9})(?:\.([0-9]{1,6}))?$`)

// UnmarshalYAML reads an amount such as 2.50.
func (m *Money) UnmarshalYAML(n *yaml.Node) error {
	parts := moneyRule.FindStringSubmatch(n.Value)
	if parts == nil {
		return wrong(n, "want an amount such as 2.50, with at most 9 digits and 6 decimals")
	}
	v, err := strconv.ParseInt(parts[1]+(parts[2] + "000000")[:6], 10, 64)
	*m = Money(v)
	return err
}

// Key is where a key is.
type Key string

// The places of a key, each before a name.
const (
	FromEnv    = "env:"
	FromSecret = "secret:"
)

var keyRule = regexp.MustCompile(`^(env|secret):[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)

// UnmarshalYAML refuses what is no place of a key, and does not repeat it: it may
// be the key.
func (k *Key) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || !keyRule.MatchString(n.Value) {
		return wrong(n, "want where the key is, env:NAME or secret:NAME; the key itself never stands in this file")
	}
	*k = Key(n.Value)
	return nil
}

// Duration is a time above zero, such as 30s.
type Duration time.Duration

// UnmarshalYAML reads a duration in Go's form.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || v <= 0 {
		return wrong(n, "want a time above 0 and of at most 292 years, such as 30s")
	}
	*d = Duration(v)
	return nil
}

// Load reads the file at path. Where path is empty it is that of the data
// directory dir, which may be missing: then the File is empty.
func Load(dir, path string) (File, error) {
	given := path != ""
	if !given {
		path = filepath.Join(dir, FileName)
	}
	text, err := read(path)
	if err != nil && !given && unreachable(path, err) {
		return File{}, nil
	}
	if err != nil {
		return File{}, fmt.Errorf("configuration: %w", err)
	}
	f, err := Parse(text)
	if err != nil {
		return File{}, fmt.Errorf("%q: %w", path, err)
	}
	f.path = path
	return f, nil
}

// unreachable reports whether err, of reading the file at path, says that there is none.
// Where the directory is none, or cannot be entered, whoever opens the store says so.
func unreachable(path string, err error) bool {
	if errors.Is(err, fs.ErrPermission) {
		_, err = os.Stat(path) // which what is there can be asked for
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%w: %q has more than %d bytes", ErrConfig, path, maxFile)
	}
	return b, nil
}

// Parse reads the text of a file. Its error wraps ErrConfig.
func Parse(text []byte) (File, error) {
	var f File
	doc, err := decode(text, &f)
	if err != nil {
		return File{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	f.doc = doc
	if err := f.check(); err != nil {
		return File{}, f.Wrong(err)
	}
	return f, nil
}

// Wrong is err as that of the setting at path, which the file has and cannot be: it
// wraps ErrConfig, and says where in the file that is.
func (f *File) Wrong(err error, path ...string) error {
	var misplaced *misplacedError
	errors.As(at(err, path...), &misplaced)
	if line := lineOf(f.doc, misplaced.path); line > 0 {
		err = fmt.Errorf("line %d: %w", line, err)
	}
	err = fmt.Errorf("%w: %w", ErrConfig, err)
	if f.path != "" {
		err = fmt.Errorf("%q: %w", f.path, err)
	}
	return err
}

// check finds what YAML has no rules for.
func (f *File) check() error {
	for _, name := range slices.Sorted(maps.Keys(f.Providers)) {
		p := f.Providers[name]
		if err := p.check(); err != nil {
			return at(fmt.Errorf("provider %q: %w", name, err), "providers", name)
		}
	}
	seen := map[string]bool{}
	for i, m := range f.Models {
		if err := m.check(f.Providers, seen); err != nil {
			return at(err, "models", strconv.Itoa(i))
		}
		seen[m.Name] = true
	}
	if f.Fetch != nil {
		if err := f.Fetch.check(); err != nil {
			return at(fmt.Errorf("fetch: %w", err), "fetch")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.MCP)) {
		m := f.MCP[name]
		if err := m.check(name); err != nil {
			return at(fmt.Errorf("mcp server %q: %w", name, err), "mcp", name)
		}
	}
	return nil
}

func (m *Model) check(providers map[string]Provider, seen map[string]bool) error {
	switch {
	case m.Name == "":
		return errors.New("a model has no name")
	case seen[m.Name]:
		return at(fmt.Errorf("model %q stands twice", m.Name), "name")
	case strings.Count(m.Name, "*") > 1:
		return at(fmt.Errorf("model %q: want one * at most, in the name and in upstream", m.Name), "name")
	case strings.Count(m.Upstream, "*") > 1:
		return at(fmt.Errorf("model %q: want one * at most, in the name and in upstream", m.Name), "upstream")
	case strings.Contains(m.Upstream, "*") && !strings.Contains(m.Name, "*"):
		return at(fmt.Errorf("model %q: upstream has a *, and its name has none", m.Name), "upstream")
	}
	if _, ok := providers[m.Provider]; !ok {
		return at(fmt.Errorf("model %q: there is no provider %q", m.Name, m.Provider), "provider")
	}
	return nil
}

func (p *Provider) check() error {
	if p.API != "openai" && p.API != "anthropic" {
		return at(fmt.Errorf("api is %.40q; want openai or anthropic", p.API), "api")
	}
	if o := p.OutputParam; o != "" && o != "max_tokens" && o != "max_completion_tokens" {
		return at(fmt.Errorf("output_param is %.40q; want max_tokens or max_completion_tokens", o), "output_param")
	}
	for _, number := range []struct {
		group, name string
		value       int
	}{
		{"retry", "attempts", p.Retry.Attempts},
		{"breaker", "failures", p.Breaker.Failures},
		{"limits", "answer_bytes", p.Limits.AnswerBytes},
		{"limits", "concurrent", p.Limits.Concurrent},
	} {
		if number.value < 0 {
			return at(fmt.Errorf("%s.%s is below 0", number.group, number.name), number.group, number.name)
		}
	}
	return p.checkHeaders()
}

var schemeRule = regexp.MustCompile(`^[A-Za-z0-9._~+/-]*$`)

// checkHeaders finds headers that cannot be sent, and what may be a key, in headers or
// behind the path.
func (p *Provider) checkHeaders() error {
	own := p.Auth.Header
	if own != nil && !headerRule.MatchString(*own) {
		return at(fmt.Errorf("auth.header: %.40q is no name of a header", *own), "auth", "header")
	}
	if s := p.Auth.Scheme; s != nil && !schemeRule.MatchString(*s) {
		return at(errors.New("auth.scheme: want one word, such as Bearer"), "auth", "scheme")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		switch {
		case own != nil && strings.EqualFold(name, *own) || secretNames.MatchString(name):
			return at(fmt.Errorf("the header %s is for the key; want it as key, with auth.header", name), "headers", name)
		case !headerRule.MatchString(name) || connectionHeader(name):
			return at(fmt.Errorf("headers: %.40q cannot be set", name), "headers", name)
		case strings.ContainsFunc(p.Headers[name], unicode.IsControl):
			return at(fmt.Errorf("headers: %s has a value that a header cannot have", name), "headers", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Query)) {
		if keyParams.MatchString(name) {
			return at(fmt.Errorf("query: %s is for a key, which never stands in this file; want it as key, with auth.header", name), "query", name)
		}
	}
	return nil
}

// keyParams are names behind a path under which keys are known to be sent.
var keyParams = regexp.MustCompile(`(?i)^(key|api[-_]?key|token|(access|auth)[-_]?token)$`)

// Find looks the key up where it is, in the environment or in a secret store, either of
// which may be nil. Its error says what to do, and has nothing of the key.
func (k Key) Find(getenv func(name string) string, secret func(name string) (string, error)) (string, error) {
	name, inEnv := strings.CutPrefix(string(k), FromEnv)
	switch {
	case inEnv && getenv != nil && getenv(name) != "":
		return getenv(name), nil
	case inEnv:
		return "", fmt.Errorf("the variable %s is not set", name)
	case secret == nil:
		return "", fmt.Errorf("%s: there is no secret store", k)
	}
	value, err := secret(strings.TrimPrefix(string(k), FromSecret))
	if err != nil {
		return "", fmt.Errorf("%s: %w", k, err)
	}
	return value, nil
}

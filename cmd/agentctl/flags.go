package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// textFlag is a flag with a text. It takes no empty one, such as a script gives
// whose variable is not set: whoever names a flag does not mean its default.
type textFlag struct{ value *string }

func text(value *string, standard string) textFlag {
	*value = standard
	return textFlag{value}
}

func (f textFlag) Set(s string) error {
	if s == "" {
		return errors.New("it is empty; give it a value or leave it out")
	}
	*f.value = s
	return nil
}

// String is called on the zero value too.
func (f textFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

func (f textFlag) Type() string { return "string" }

// namesFlag is a flag for names with commas between them. None of them may be empty:
// where no names mean all, a variable of a script that is not set would give all.
type namesFlag struct{ names *[]string }

func (f namesFlag) Set(s string) error {
	names := strings.Split(s, ",")
	if slices.Contains(names, "") {
		return errors.New("a name is empty; give names with commas between them, or leave it out")
	}
	*f.names = append(*f.names, names...)
	return nil
}

// String is called on the zero value too.
func (f namesFlag) String() string {
	if f.names == nil {
		return ""
	}
	return strings.Join(*f.names, ",")
}

func (f namesFlag) Type() string { return "strings" }

// durationFlag is a flag for a time above zero.
type durationFlag struct{ value *time.Duration }

func duration(value *time.Duration) durationFlag { return durationFlag{value} }

func (f durationFlag) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return errors.New("want a time above 0 and of at most 292 years, such as 30s")
	}
	*f.value = d
	return nil
}

// String is called on the zero value too.
func (f durationFlag) String() string {
	if f.value == nil || *f.value == 0 {
		return ""
	}
	return f.value.String()
}

func (f durationFlag) Type() string { return "duration" }

// bytesFlag is a flag for a number of bytes.
type bytesFlag struct {
	value *int64
	most  int64
}

func (f bytesFlag) Set(s string) (err error) {
	*f.value, err = limit{bytes: true, most: f.most}.parse(s)
	return err
}

// String is called on the zero value too.
func (f bytesFlag) String() string {
	if f.value == nil || *f.value == 0 {
		return ""
	}
	return bytesText(*f.value)
}

func (f bytesFlag) Type() string { return "SIZE" }

// defaultHarness is what a new session runs when nobody says otherwise.
const defaultHarness = "echo"

// loadHarness finds a harness that needs no store: a bundled one, or a .wasm file.
// Of any other name, which may be that of a pushed one, only the name comes back.
func (a *app) loadHarness(ctx context.Context, ref string) (host.Harness, error) {
	if slices.Contains(harnesses.Names(), ref) {
		return edge.Bundled(ref)
	}
	if _, missing := a.noData(); missing || looksLikeFile(ref) {
		return harnessFile(ctx, ref)
	}
	return host.Harness{Name: ref}, nil
}

// completeHarness finds the harness of which loadHarness knew the name alone.
func completeHarness(ctx context.Context, h *edge.Host, harness *host.Harness) error {
	if harness.Code != nil || harness.Read != nil {
		return nil
	}
	found, err := h.Harness(ctx, harness.Name)
	if errors.Is(err, harnesses.ErrNotBundled) {
		if _, statErr := os.Stat(harness.Name); statErr == nil {
			found, err = harnessFile(ctx, harness.Name)
		}
	}
	*harness = found
	return err
}

// harnessFile reads a harness from a file.
func harnessFile(ctx context.Context, ref string) (host.Harness, error) {
	info, err := os.Stat(ref)
	switch {
	case err == nil && info.IsDir():
		return host.Harness{}, usagef("harness %q is a directory; name a .wasm file in it, or build it: agentctl harness build %s", ref, ref)
	case err != nil && !looksLikeFile(ref):
		_, err := harnesses.Module(ref)
		return host.Harness{}, err
	case err != nil:
		return host.Harness{}, fmt.Errorf("harness %q: %w; the bundled ones are %s", ref, causeOf(err), strings.Join(harnesses.Names(), ", "))
	}
	code, err := readFile(ctx, ref, maxModule)
	if err != nil {
		return host.Harness{}, fmt.Errorf("harness %q: %w", ref, err)
	}
	name := strings.TrimSuffix(filepath.Base(ref), ".wasm")
	return host.Harness{Name: name, Code: code}, nil
}

func looksLikeFile(ref string) bool {
	return strings.ContainsRune(ref, filepath.Separator) || strings.HasSuffix(ref, ".wasm")
}

const (
	// maxModule bounds what is read into memory; the engine has a tighter limit,
	// and better words for it.
	maxModule = 512 << 20
	// maxInput bounds what is read of an input: the host counts it as JSON, which
	// is never shorter.
	maxInput  = host.MaxInputBytes
	maxConfig = 1 << 20
)

// readFile reads a file of at most limit bytes. Its errors leave the file's name
// to the caller.
func readFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	return wait(ctx, func() ([]byte, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, causeOf(err)
		}
		defer f.Close()
		return readAll(f, limit)
	})
}

func readAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, causeOf(err)
	}
	if int64(len(b)) > limit {
		return nil, usagef("it has more than %d MiB", limit>>20)
	}
	return b, nil
}

// causeOf is why a file could not be used, without its name.
func causeOf(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// wait gives what f gives, or leaves it behind when ctx ends: a terminal or a pipe
// may be read, or even opened, for as long as nobody writes.
func wait[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// errNoText is the input of a turn that is empty.
var errNoText = errors.New("the input is empty")

// readInputs reads the messages of a turn, which flag has: each a text, "-" for
// stdin, or "@file".
func (a *app) readInputs(ctx context.Context, flag string, values []string) ([]abi.Message, error) {
	messages := make([]abi.Message, len(values))
	stdin := false
	for i, value := range values {
		if value == "-" {
			if stdin {
				return nil, usagef("stdin can be read once; %s - stands twice", flag)
			}
			stdin = true
		}
		text, err := a.readInput(ctx, flag, value)
		if err != nil {
			return nil, err
		}
		messages[i] = abi.Text(abi.RoleUser, text)
	}
	return messages, nil
}

func (a *app) readInput(ctx context.Context, flag, value string) (string, error) {
	text := value
	file, named := strings.CutPrefix(value, "@")
	switch {
	case value == "-":
		b, err := wait(ctx, func() ([]byte, error) { return readAll(a.stdin, maxInput) })
		if err != nil {
			return "", fmt.Errorf("%s -: %w", flag, err)
		}
		text = withoutNewline(b)
	case value == "@":
		return "", usagef("%[1]s @: the file's name is missing; a text that begins with @ goes in through %[1]s -", flag)
	case named:
		b, err := readFile(ctx, file, maxInput)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EISDIR) {
			return "", fmt.Errorf("%[1]s @%[2]s: %[3]w; a text that begins with @ goes in through %[1]s -", flag, file, err)
		}
		if err != nil {
			return "", fmt.Errorf("%s @%s: %w", flag, file, err)
		}
		text = withoutNewline(b)
	}
	if text == "" {
		return "", usagef("%w: give %s a text, - for stdin, or @file", errNoText, flag)
	}
	if !utf8.ValidString(text) {
		return "", usagef("%s %.40q is not UTF-8 text; encode other bytes, with base64 for one", flag, value)
	}
	return text, nil
}

// withoutNewline drops the one line break that editors and echo put at the end.
func withoutNewline(b []byte) string {
	text, ended := strings.CutSuffix(string(b), "\n")
	if ended {
		text = strings.TrimSuffix(text, "\r")
	}
	return text
}

// readConfig reads a harness's config.
func readConfig(ctx context.Context, value string) ([]byte, error) {
	return readJSON(ctx, "--config", value, `{"system":"be brief"}`)
}

// readJSON reads the value of a flag: JSON such as the example, "@file" that holds it,
// or nothing.
func readJSON(ctx context.Context, flag, value, example string) ([]byte, error) {
	if value == "" {
		return nil, nil
	}
	text := []byte(value)
	if file, named := strings.CutPrefix(value, "@"); named {
		var err error
		if text, err = readFile(ctx, file, maxConfig); err != nil {
			return nil, fmt.Errorf("%s @%s: %w", flag, file, err)
		}
	}
	if _, err := abi.Canonical(text); err != nil {
		return nil, usagef(`%s: %w; want JSON such as '%s', or @file`, flag, err, example)
	}
	return text, nil
}

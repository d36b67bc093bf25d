package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// defaultHarness is what a new session runs when nobody says otherwise.
const defaultHarness = "echo"

// loadHarness finds a harness: a bundled name, or a .wasm file.
func loadHarness(ref string) (host.Harness, error) {
	if slices.Contains(harnesses.Names(), ref) {
		code, err := harnesses.Module(ref)
		return host.Harness{Name: ref, Code: code}, err
	}
	info, err := os.Stat(ref)
	switch {
	case err == nil && info.IsDir():
		return host.Harness{}, usagef("harness %q is a directory; name a .wasm file in it", ref)
	case err != nil && !looksLikeFile(ref):
		_, err := harnesses.Module(ref)
		return host.Harness{}, err
	case err != nil:
		return host.Harness{}, fmt.Errorf("harness: %w; the bundled ones are %s", err, strings.Join(harnesses.Names(), ", "))
	}
	code, err := readFile(ref, maxModule)
	if err != nil {
		return host.Harness{}, fmt.Errorf("harness: %w", err)
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
	// maxInput is the host's bound for one input, known here so that a new
	// session is not made for an input it cannot take.
	maxInput  = host.MaxInputBytes
	maxConfig = 1 << 20
)

func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, path, limit)
}

func readAll(r io.Reader, name string, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(b)) > limit {
		return nil, usagef("%s has more than %d MiB", name, limit>>20)
	}
	return b, nil
}

// readInputs reads the messages of a turn: each a text, "-" for stdin, or
// "@file".
func (a *app) readInputs(ctx context.Context, values []string) ([]abi.Message, error) {
	messages := make([]abi.Message, len(values))
	stdin := false
	for i, value := range values {
		if value == "-" {
			if stdin {
				return nil, usagef("stdin can be read once; --input - stands twice")
			}
			stdin = true
		}
		text, err := a.readInput(ctx, value)
		if err != nil {
			return nil, err
		}
		messages[i] = abi.Text(abi.RoleUser, text)
	}
	return messages, nil
}

func (a *app) readInput(ctx context.Context, value string) (string, error) {
	text := value
	file, named := strings.CutPrefix(value, "@")
	switch {
	case value == "-":
		b, err := a.readStdin(ctx)
		if err != nil {
			return "", err
		}
		text = withoutNewline(b)
	case named:
		b, err := readFile(file, maxInput)
		if err != nil {
			return "", fmt.Errorf("--input @%s: %w; a text that begins with @ goes in through --input -", file, err)
		}
		text = withoutNewline(b)
	}
	if text == "" {
		return "", usagef("the input is empty: give --input a text, - for stdin, or @file; leave it out to recover an interrupted turn")
	}
	if !utf8.ValidString(text) {
		return "", usagef("the input is not UTF-8 text")
	}
	return text, nil
}

// withoutNewline drops the one line break that editors and echo put at the end.
func withoutNewline(b []byte) string {
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
}

// readStdin reads all of stdin, or gives up with ctx: a read from a terminal
// does not end by itself.
func (a *app) readStdin(ctx context.Context) ([]byte, error) {
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := readAll(a.stdin, "stdin", maxInput)
		done <- result{b, err}
	}()
	select {
	case r := <-done:
		return r.b, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readConfig reads a harness's config: JSON, or "@file" that holds it.
func readConfig(value string) ([]byte, error) {
	if value == "" {
		return nil, nil
	}
	text := []byte(value)
	if file, named := strings.CutPrefix(value, "@"); named {
		var err error
		if text, err = readFile(file, maxConfig); err != nil {
			return nil, fmt.Errorf("--config @%s: %w", file, err)
		}
	}
	if _, err := abi.Canonical(text); err != nil {
		return nil, usagef(`--config: %w; want JSON such as '{"system":"be brief"}', or @file`, err)
	}
	return text, nil
}

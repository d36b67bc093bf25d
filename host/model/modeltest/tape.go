package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TapeEnv says what a Tape does: empty to replay, "record" to call the provider and
// write down what is said, "update" to write down the requests alone.
const TapeEnv = "AGENTCELL_TAPE"

// Tape is a transport that replays the exchanges in a file, in order: it fails the
// test when a request is not the one that was recorded. The file is a txtar archive,
// of a part for each request, named "POST path", and each answer, named "status
// content-type". Headers are not in it, and so no key is.
func Tape(t testing.TB, path string) http.RoundTripper {
	t.Helper()
	p := &tape{t: t, mode: os.Getenv(TapeEnv)}
	if p.mode != "record" {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p.comment, p.old = a.Comment, a.Files
	}
	t.Cleanup(func() {
		if len(p.old) != 0 {
			t.Errorf("%s: %d parts were not used", path, len(p.old))
		}
		if p.mode == "" {
			return
		}
		if err := os.WriteFile(path, txtar.Format(&txtar.Archive{Comment: p.comment, Files: p.all}), 0o644); err != nil {
			t.Error(err)
		}
	})
	return p
}

type tape struct {
	t    testing.TB
	mode string

	mu       sync.Mutex
	comment  []byte
	old, all []txtar.File
}

// RoundTrip implements http.RoundTripper.
func (p *tape) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, body, "", "  "); err != nil {
		return nil, fmt.Errorf("the request is not JSON: %w", err)
	}
	asked := txtar.File{Name: r.Method + " " + r.URL.RequestURI(), Data: text.Bytes()}
	if p.mode == "record" {
		return p.record(r, body, asked)
	}
	if len(p.old) < 2 {
		return nil, fmt.Errorf("the tape has no answer to %s %s", asked.Name, text.Bytes())
	}
	want, answer := p.old[0], p.old[1]
	p.old = p.old[2:]
	if p.mode == "" {
		if diff := cmp.Diff(want.Name+"\n"+string(want.Data), asked.Name+"\n"+string(asked.Data)); diff != "" {
			p.t.Errorf("request (-recorded +made):\n%s", diff)
		}
	}
	p.all = append(p.all, asked, answer)
	return response(r, answer)
}

func response(r *http.Request, answer txtar.File) (*http.Response, error) {
	var status int
	var kind string
	if _, err := fmt.Sscanf(answer.Name, "%d %s", &status, &kind); err != nil {
		return nil, fmt.Errorf("part %q of the tape: want a status and a content type: %w", answer.Name, err)
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(answer.Data)), ContentLength: -1,
	}, nil
}

// record calls the provider.
func (p *tape) record(r *http.Request, body []byte, asked txtar.File) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	answer := txtar.File{Name: fmt.Sprintf("%d %s", resp.StatusCode, kind), Data: said}
	p.all = append(p.all, asked, answer)
	return response(r, answer)
}

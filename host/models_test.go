package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/model/modeltest"
	"github.com/agentcell/agentcell/host/model/route"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// chatted is a streamed answer of a chat completion.
func chatted(text string) string {
	return fmt.Sprintf(`data: {"choices":[{"delta":{"content":%q}}]}`, text) + "\n\n" +
		`data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
}

// routes is a table whose models are served by s, with the canary for a key.
func routes(t *testing.T, s http.RoundTripper, log *slog.Logger) *route.Table {
	t.Helper()
	f, err := config.Parse([]byte(`
providers:
  fake: {api: openai, base_url: "http://fake.invalid", key: env:KEY, retry: {delay: 1ns}}
models:
  - {name: "fake-*", provider: fake, upstream: "*"}
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := route.New(f, route.Options{Transport: s, Log: log, Getenv: func(string) string { return modeltest.Canary }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// I1, S4: one completion is recorded of a call that took several attempts; nothing
// leaves to prove it; and the key is neither in an error, nor in the log, nor in a
// byte of the store.
func TestS4_KeyOfAModel(t *testing.T) {
	half := chatted("void")
	s := modeltest.Serve(
		t,
		modeltest.Answer(503, "busy"), modeltest.Cut(half[:len(half)-30]), modeltest.Answer(200, chatted("hello")),
		modeltest.Answer(401, `{"error":{"message":"bad key `+modeltest.Canary+`"}}`),
		modeltest.Echo("Authorization", func(key string) string { return chatted("you sent " + key) }),
		func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			modeltest.Echo("Authorization", func(key string) string { return `{"error":{"message":"` + key + `"}}` })(w, r)
		},
	)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	table := routes(t, s, logger)
	dir := t.TempDir()
	store, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	r.store, r.routes, r.log = store, table, logger
	r.open()
	session, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "steps"), Model: "fake-m"})
	if err != nil {
		t.Fatal(err)
	}
	r.exec(session.UID, "model hi")
	var failures []string
	for range 3 {
		e, err := r.Exec(t.Context(), host.ExecRequest{Session: session.UID, Inputs: say("model hi")})
		if err != nil {
			t.Fatal(err)
		}
		failures = append(failures, fmt.Sprint(e.Err))
	}
	if n := table.Attempts(); n != 6 || len(s.Requests()) != 6 {
		t.Errorf("%d attempts are counted, %d were made; want 6", n, len(s.Requests()))
	}
	r.verify(session.UID)
	if n := len(s.Requests()); n != 6 {
		t.Errorf("verify made %d requests (I1)", n-6)
	}
	var answers []string
	for rec, err := range r.Replay(context.Background(), session.UID, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case rec.Event.Kind == abi.EventOutput && rec.Event.Cell != nil:
			answers = append(answers, rec.Event.Message.Text())
		case rec.Event.Kind == abi.EventError:
			answers = append(answers, rec.Event.Error.Description)
		}
	}
	want := []string{
		"hello",
		`provider "fake": it does not take the key (401 Unauthorized)`,
		`provider "fake": the answer holds the key that was sent with the request; it is not taken`,
		`provider "fake": it answered 400 Bad Request: Bearer [key]`,
	}
	if diff := cmp.Diff(want, answers); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	for i, req := range s.Requests() {
		if req.Header.Get("Authorization") != "Bearer "+modeltest.Canary {
			t.Errorf("request %d went out without the key", i)
		}
	}
	shown := log.String() + strings.Join(failures, "\n") + strings.Join(r.transcript(session.UID), "\n")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	r.Host, r.store = nil, journal.OpenMemory()
	for path, b := range files(t, dir) {
		if bytes.Contains(b, []byte("canary")) {
			t.Errorf("the key is in %s", path)
		}
	}
	if strings.Contains(shown, "canary") {
		t.Errorf("the key is in the log, an error or a record:\n%s", shown)
	}
}

// files reads everything below dir.
func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("the store has no files")
	}
	return all
}

// A fork onto another model says so in its first record, and runs on it; what it
// shares with its parent stays as it was.
func TestFork_Model(t *testing.T) {
	r := newRig(t)
	r.routes = routes(t, modeltest.Serve(t, modeltest.Answer(200, chatted("other"))), nil)
	r.open()
	s := r.create("steps")
	r.exec(s.UID, "model hi")
	child := fork(t, r, host.ForkRequest{Session: s.UID, Model: "fake-m"})[0]
	plain := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	if child.Model != "fake-m" || plain.Model != "" {
		t.Errorf("the children have the models %q and %q", child.Model, plain.Model)
	}
	models := map[abi.SessionID][]string{}
	for _, c := range []host.Session{child, plain} {
		r.exec(c.UID, "model hi")
		for rec, err := range r.Replay(t.Context(), c.UID, 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			e := rec.Event
			switch {
			case e.Kind == abi.EventExecutionStart, e.Kind == abi.EventLifecycle && e.Lifecycle.Kind == abi.LifecycleFork:
				models[c.UID] = append(models[c.UID], e.Cell.Model)
			case e.Kind == abi.EventModelCall:
				models[c.UID] = append(models[c.UID], "called "+e.Model.Model)
			}
		}
		r.verify(c.UID)
	}
	want := map[abi.SessionID][]string{
		child.UID: {"echo", "called echo", "fake-m", "fake-m", "called fake-m"},
		plain.UID: {"echo", "called echo", "", "echo", "called echo"},
	}
	if diff := cmp.Diff(want, models); diff != "" {
		t.Errorf("models in the records (-want +got):\n%s", diff)
	}
	if _, err := r.Fork(t.Context(), host.ForkRequest{Session: s.UID, Model: "nobody"}); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("a model that is not here: %v", err)
	}
	if _, err := r.Fork(t.Context(), host.ForkRequest{Session: s.UID, At: 4, Model: "fake-m"}); !errors.Is(err, host.ErrMidTurn) {
		t.Errorf("at a point inside a turn: %v", err)
	}
}

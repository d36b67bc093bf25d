package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// serveModel is the script command `serve NAME STATUS:FILE…`: a provider of models,
// or another site, whose URL the variable NAME gets. It answers each request with the next status and
// file, which may be left out, and writes the requests to the file NAME.requests, a
// line each: path, headers with a key in them, and body.
func serveModel(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: serve NAME STATUS:FILE...")
	}
	type answer struct {
		status int
		body   string
	}
	var answers []answer
	for _, arg := range args[1:] {
		status, file, _ := strings.Cut(arg, ":")
		code, err := strconv.Atoi(status)
		ts.Check(err)
		a := answer{status: code}
		if file != "" {
			a.body = ts.ReadFile(file)
		}
		answers = append(answers, a)
	}
	requests, err := os.Create(ts.MkAbs(args[0] + ".requests"))
	ts.Check(err)
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // agentctl is gone
		}
		if len(body) == 0 {
			body = nil // which is null
		}
		line := map[string]any{"path": r.URL.RequestURI(), "auth": r.Header.Get("Authorization") + r.Header.Get("X-Api-Key"), "body": json.RawMessage(body)}
		e := json.NewEncoder(requests)
		e.SetEscapeHTML(false)
		if err := e.Encode(line); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if len(answers) == 0 {
			http.Error(w, "the script has no more answers", http.StatusTeapot)
			return
		}
		next := answers[0]
		answers = answers[1:]
		w.WriteHeader(next.status)
		fmt.Fprint(w, next.body)
	}))
	ts.Setenv(args[0], s.URL)
	ts.Defer(func() {
		s.Close()
		_ = requests.Close()
	})
}

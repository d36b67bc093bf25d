// Package route owns the table that finds the provider of a model by its name, as
// the configuration has it: a line for each name, or for a pattern of names.
//
// It imports host/config, host/model and the packages of the APIs, and never the
// host.
package route

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/anthropic"
	"github.com/agentcell/agentcell/host/model/openai"
	"github.com/agentcell/agentcell/host/model/remote"
)

// Options are what a table needs beside the configuration.
type Options struct {
	// Getenv looks up the variable of a key; nil finds none.
	Getenv func(name string) string
	// Secret looks up a key in the secret store; nil means that there is none.
	Secret func(name string) (string, error)
	// Transport carries the requests; nil means the network.
	Transport http.RoundTripper
	// Log is told of each attempt; nil discards.
	Log *slog.Logger
}

// Table is a routing table. It is safe for concurrent use.
type Table struct {
	file    config.File
	clients map[string]*remote.Client // by the provider's name
}

var _ model.Router = (*Table)(nil)

// New makes the table of a configuration. Nothing is called, and no key looked up.
func New(f config.File, o Options) (*Table, error) {
	t := &Table{file: f, clients: map[string]*remote.Client{}}
	for name, p := range f.Providers {
		c, err := remote.New(endpoint(name, p, o))
		if err != nil {
			return nil, f.Wrong(err, "providers", name, "base_url")
		}
		t.clients[name] = c
	}
	for i, m := range f.Models {
		if err := checkParams(f.Providers[m.Provider].API, params(m)); err != nil {
			return nil, f.Wrong(fmt.Errorf("model %q: %w", m.Name, err), "models", strconv.Itoa(i), "params")
		}
	}
	return t, nil
}

// endpoint is where a provider is.
func endpoint(name string, p config.Provider, o Options) remote.Endpoint {
	e := remote.Endpoint{
		Name: name, Key: key(p.Key, o), Header: map[string]string{},
		Connect: time.Duration(p.Timeouts.Connect), FirstByte: time.Duration(p.Timeouts.FirstByte), Idle: time.Duration(p.Timeouts.Idle),
		Attempts: p.Retry.Attempts, Delay: time.Duration(p.Retry.Delay), MaxDelay: time.Duration(p.Retry.MaxDelay),
		Failures: p.Breaker.Failures, Pause: time.Duration(p.Breaker.Pause),
		AnswerBytes: p.Limits.AnswerBytes, Concurrent: p.Limits.Concurrent,
		Transport: o.Transport, Log: o.Log,
	}
	base, path := openai.DefaultURL, openai.DefaultPath
	e.Auth, e.Scheme = openai.DefaultAuth, openai.DefaultScheme
	if p.API == anthropic.API {
		base, path = anthropic.DefaultURL, anthropic.DefaultPath
		e.Auth, e.Scheme = anthropic.DefaultAuth, ""
		e.Header[anthropic.VersionHeader] = anthropic.Version
	}
	maps.Copy(e.Header, p.Headers)
	if p.BaseURL != "" {
		base = p.BaseURL
	}
	if p.Path != nil {
		path = *p.Path
	}
	if p.Auth.Header != nil {
		// The scheme goes with the standard header alone.
		e.Auth, e.Scheme = *p.Auth.Header, ""
	}
	if p.Auth.Scheme != nil {
		e.Scheme = *p.Auth.Scheme
	}
	e.URL = strings.TrimSuffix(base, "/") + path
	if len(p.Query) > 0 {
		query := url.Values{}
		for name, value := range p.Query {
			query.Set(name, value)
		}
		e.URL += "?" + query.Encode()
	}
	return e
}

// key finds a key where the configuration says it is.
func key(k config.Key, o Options) remote.Key {
	place := string(k)
	if name, ok := strings.CutPrefix(place, config.FromEnv); ok {
		return remote.Key{Name: place, Get: func() (string, error) {
			if o.Getenv == nil {
				return "", nil
			}
			return o.Getenv(name), nil
		}}
	}
	if name, ok := strings.CutPrefix(place, config.FromSecret); ok {
		return remote.Key{Name: place, Get: func() (string, error) {
			if o.Secret == nil {
				return "", errors.New("there is no secret store")
			}
			return o.Secret(name)
		}}
	}
	return remote.Key{}
}

// Route implements model.Router.
func (t *Table) Route(name string) model.Provider {
	r, ok := t.Find(name)
	if !ok {
		return nil
	}
	m, p := r.line, t.file.Providers[r.line.Provider]
	standard := params(m)
	noStream, noReasoning := isFalse(p.Stream), isFalse(p.SendReasoning)
	if p.API == anthropic.API {
		return anthropic.New(t.clients[m.Provider], anthropic.Options{
			Model: r.Upstream, Params: standard, NoStream: noStream, NoReasoning: noReasoning,
		})
	}
	output := p.OutputParam
	if output == "" && p.BaseURL == "" {
		output = "max_completion_tokens" // OpenAI's newer models know no other
	}
	return openai.New(t.clients[m.Provider], openai.Options{
		Model: r.Upstream, OutputParam: output, Params: standard, NoStream: noStream, NoReasoning: noReasoning, NoUsage: isFalse(p.StreamUsage),
	})
}

// Price is what a million tokens of a model cost, in millionths of the currency that
// the configuration has; false if it says nothing.
func (t *Table) Price(name string) (input, output int64, ok bool) {
	r, ok := t.Find(name)
	if !ok || r.line.Price == nil {
		return 0, 0, false
	}
	return int64(r.line.Price.Input), int64(r.line.Price.Output), true
}

func isFalse(b *bool) bool { return b != nil && !*b }

// params are the standard parameters of a model, each as the text that a call would
// have.
func params(m config.Model) map[string]string {
	out := make(map[string]string, len(m.Params))
	for name, value := range m.Params {
		out[name] = cmp.Or(string(value), "null")
	}
	return out
}

// checkParams reports a parameter that would be refused in each call.
func checkParams(api string, standard map[string]string) error {
	if api == anthropic.API {
		return anthropic.Options{Params: standard}.Check()
	}
	return openai.Options{Params: standard}.Check()
}

// Names implements model.Router.
func (t *Table) Names() []string {
	names := make([]string, len(t.file.Models))
	for i, m := range t.file.Models {
		names[i] = m.Name
	}
	return names
}

// DefaultModel is the name that the configuration has for turns without one.
func (t *Table) DefaultModel() string { return t.file.DefaultModel }

// Attempts counts the requests that left for all providers.
func (t *Table) Attempts() int64 {
	var n int64
	for c := range maps.Values(t.clients) {
		n += c.Attempts()
	}
	return n
}

// Line is a line of the table, as it is for a name.
type Line struct {
	// Name is the name or pattern, Upstream the provider's name of the model.
	Name, Provider, API, URL, Upstream string
	// Key is where the key is, KeyProblem why it cannot be had there.
	Key, KeyProblem string

	line config.Model
}

// Find gives the line for a name.
func (t *Table) Find(name string) (Line, bool) {
	i := slices.IndexFunc(t.file.Models, func(m config.Model) bool {
		_, ok := match(m.Name, name)
		return ok
	})
	if i < 0 {
		return Line{}, false
	}
	m := t.file.Models[i]
	l := t.line(m)
	part, _ := match(m.Name, name)
	if m.Upstream == "" {
		l.Upstream = name
	} else {
		l.Upstream = strings.Replace(m.Upstream, "*", part, 1)
	}
	return l, true
}

// Lines are all lines, in their order; of a pattern, Upstream is as it is written.
func (t *Table) Lines() []Line {
	lines := make([]Line, len(t.file.Models))
	for i, m := range t.file.Models {
		lines[i] = t.line(m)
		lines[i].Upstream = m.Upstream
		if m.Upstream == "" {
			lines[i].Upstream = m.Name
		}
	}
	return lines
}

func (t *Table) line(m config.Model) Line {
	p, client := t.file.Providers[m.Provider], t.clients[m.Provider]
	l := Line{Name: m.Name, Provider: m.Provider, API: p.API, URL: client.URL(), Key: string(p.Key), line: m}
	if err := client.CheckKey(); err != nil {
		l.KeyProblem = err.Error()
	}
	return l
}

// match reports whether a name is what a pattern stands for, and what its *, if it
// has one, stands for.
func match(pattern, name string) (part string, ok bool) {
	before, after, wild := strings.Cut(pattern, "*")
	if !wild {
		return "", pattern == name
	}
	if len(name) < len(before)+len(after) || !strings.HasPrefix(name, before) || !strings.HasSuffix(name, after) {
		return "", false
	}
	return name[len(before) : len(name)-len(after)], true
}

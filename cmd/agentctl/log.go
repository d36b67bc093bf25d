package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/host/edge"
)

// logWords are from where on the log is shown, from nothing to everything.
func logWords() []string { return []string{"off", "error", "warn", "info", "debug"} }

// logFlag is the flag --log.
type logFlag struct{ word *string }

func (f logFlag) Set(s string) error {
	if !slices.Contains(logWords(), s) {
		return fmt.Errorf("want one of %s", strings.Join(logWords(), ", "))
	}
	*f.word = s
	return nil
}

// String is called on the zero value too.
func (f logFlag) String() string {
	if f.word == nil {
		return ""
	}
	return *f.word
}

func (f logFlag) Type() string { return "string" }

// moreFlag is a flag that counts how often it stands, and takes no value.
type moreFlag struct{ times *int }

func (f moreFlag) Set(s string) error {
	if s != "true" {
		return errors.New("it takes no value; give it twice for more")
	}
	*f.times++
	return nil
}

func (f moreFlag) String() string { return "" }

func (f moreFlag) Type() string { return "bool" }

// logs puts the log of a host on stderr, as far as the flags, or else the environment,
// want it. Without it a person is still told of model calls that are made again.
func (a *app) logs(o *edge.Options) error {
	o.ModelLog = slog.New(attemptNotes{a.output})
	word := a.logFrom
	switch env := a.getenv("AGENTCTL_LOG"); {
	case word != "":
	case a.verbose > 1:
		word = "debug"
	case a.verbose == 1:
		word = "info"
	case env == "":
		return nil
	default:
		if err := (logFlag{&word}).Set(env); err != nil {
			return usagef("AGENTCTL_LOG is %q: %w", env, err)
		}
	}
	if word == "off" {
		return nil
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(word)); err != nil {
		return err
	}
	o.Log = slog.New(logHandler(a.output, level))
	o.HarnessLog = o.Log
	if level <= slog.LevelWarn {
		o.ModelLog = o.Log
	}
	return nil
}

// logHandler writes a line of text or, with --json, an object: apart from those
// three that each has, its members are in "attrs".
func logHandler(o *output, level slog.Level) slog.Handler {
	options := &slog.HandlerOptions{Level: level}
	if o.json {
		options.ReplaceAttr = func(groups []string, at slog.Attr) slog.Attr {
			switch {
			case len(groups) > 0:
			case at.Key == slog.MessageKey:
				at.Key = "log"
			case at.Key == slog.TimeKey:
				at.Value = slog.TimeValue(at.Value.Time().UTC())
			}
			return at
		}
		return slog.NewJSONHandler(logWriter{o}, options).WithGroup("attrs")
	}
	options.ReplaceAttr = func(_ []string, at slog.Attr) slog.Attr {
		if at.Key == slog.TimeKey {
			at.Value = slog.StringValue(at.Value.Time().Format("15:04:05.000"))
		}
		return at
	}
	return slog.NewTextHandler(logWriter{o}, options)
}

// logWriter puts lines of the log among what else is on stderr.
type logWriter struct{ *output }

func (w logWriter) Write(line []byte) (int, error) {
	text := bytes.TrimSuffix(line, []byte("\n"))
	if w.json {
		text = safeJSON(text)
	}
	w.complain(string(text))
	return len(line), nil
}

package host

import (
	"bytes"
	"slices"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// sieve tells of most sessions that a filter leaves out that it does, from the bytes of
// their rows: to decode one takes longer than to read it. It relies on what mustJSON
// writes, and is no more than a shortcut; what it does not drop the filter is asked about.
type sieve struct {
	parent abi.SessionID
	// The metadata has all of meta; the metadata or the summary, where an upgrade has
	// left its name, one of harness; the summary one of state. nil: no matter.
	meta, harness, state [][]byte
}

func newSieve(f Filter) sieve {
	s := sieve{parent: f.Parent}
	member := func(key string, value any) []byte {
		return slices.Concat(mustJSON(key), []byte(":"), mustJSON(value))
	}
	for key, value := range f.Labels {
		if value == "" {
			s.meta = append(s.meta, append(mustJSON(key), ':'))
		} else {
			s.meta = append(s.meta, member(key, value))
		}
	}
	if f.Model != "" {
		s.meta = append(s.meta, member("model", f.Model))
	}
	for _, name := range f.Harnesses {
		s.harness = append(s.harness, member("harness", name))
	}
	for _, state := range f.States {
		switch state {
		case ExecCompleted, ExecFailed, ExecCanceled:
			s.state = append(s.state, member("state", state))
		case ExecAwaiting:
			s.state = append(s.state, []byte(`"waiting":`))
		case ExecInterrupted:
			s.state = append(s.state, []byte(`"open":`))
		default: // which the summary does not tell
			s.state = nil
			return s
		}
	}
	return s
}

// drops reports that the filter leaves the session out.
func (s *sieve) drops(row journal.Session) bool {
	lacks := func(needle []byte) bool { return !bytes.Contains(row.Meta, needle) }
	switch {
	case s.parent != "" && s.parent != row.Parent, slices.ContainsFunc(s.meta, lacks):
		return true
	case s.harness != nil && !containsOne(row.Meta, s.harness) && !containsOne(row.Summary, s.harness):
		return true
	}
	return s.state != nil && !containsOne(row.Summary, s.state)
}

func containsOne(text []byte, needles [][]byte) bool {
	return slices.ContainsFunc(needles, func(needle []byte) bool { return bytes.Contains(text, needle) })
}

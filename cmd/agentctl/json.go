package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// The objects of --json, one a line. Which one a line holds follows from its
// fields: a record has "event", a delta "delta", a session "state", a snapshot
// "snapshot". Numbers are plain; inside "event" they are as the protocol's JSON
// has them.

type recordJSON struct {
	Session     abi.SessionID   `json:"session"`
	Seq         int64           `json:"seq"`
	Time        abi.Time        `json:"time"`
	Kind        abi.EventKind   `json:"kind"`
	Execution   abi.ExecutionID `json:"execution,omitempty"`
	Fence       int64           `json:"fence"`
	PrevHash    abi.Digest      `json:"prev_hash"`
	ContentHash abi.Digest      `json:"content_hash"`
	Event       *abi.Event      `json:"event"`
}

func newRecordJSON(r host.Record) recordJSON {
	return recordJSON{
		Session: r.Session, Seq: int64(r.Seq), Time: r.Event.Time, Kind: r.Event.Kind,
		Execution: r.Event.ExecutionID, Fence: int64(r.Fence),
		PrevHash: r.PrevHash, ContentHash: r.ContentHash, Event: r.Event,
	}
}

type deltaJSON struct {
	Session   abi.SessionID   `json:"session"`
	Execution abi.ExecutionID `json:"execution"`
	Attempt   int             `json:"attempt"`
	Delta     string          `json:"delta"`
	Reset     bool            `json:"reset,omitempty"`
	Done      bool            `json:"done,omitempty"`
}

func newDeltaJSON(d host.Delta) deltaJSON {
	return deltaJSON{
		Session: d.Session, Execution: d.Execution, Attempt: d.Attempt,
		Delta: d.Text, Reset: d.Reset, Done: d.Done,
	}
}

type sessionJSON struct {
	Session   abi.SessionID     `json:"session"`
	Seq       int64             `json:"seq"`
	Time      abi.Time          `json:"time"`
	Project   string            `json:"project"`
	Name      string            `json:"name,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Grants    []string          `json:"grants,omitempty"`
	State     host.ExecState    `json:"state"`
	Reason    abi.EndReason     `json:"reason,omitempty"`
	Compute   host.ComputeState `json:"compute"`
	Suspended bool              `json:"suspended,omitempty"`
	Execution abi.ExecutionID   `json:"execution,omitempty"`
	Harness   string            `json:"harness"`
	Module    abi.Digest        `json:"module"`
	Runtime   string            `json:"runtime"`
	Memory    bool              `json:"holds_memory"`
	Model     string            `json:"model,omitempty"`
	Config    json.RawMessage   `json:"config,omitempty"`
	Limits    map[string]int64  `json:"limits,omitempty"`
	Deadline  int64             `json:"deadline_ms,omitempty"`
	Timeout   int64             `json:"call_timeout_ms,omitempty"`
	Retain    string            `json:"retain,omitempty"`
	Created   abi.Time          `json:"created"`
	Turns     int64             `json:"turns"`
	Closed    int64             `json:"closed_seq"`
	Fence     int64             `json:"fence"`
	Head      abi.Digest        `json:"head"`
	Root      abi.Digest        `json:"root"`
	Parent    abi.SessionID     `json:"parent,omitempty"`
	ForkSeq   int64             `json:"fork_seq,omitempty"`
	Waiting   []waitJSON        `json:"waiting,omitempty"`
}

func newSessionJSON(s host.Session) sessionJSON {
	out := sessionJSON{
		Session: s.UID, Seq: int64(s.Head.Seq), Time: abi.NewTime(s.Updated),
		Project: s.Project, Name: s.Name, Labels: s.Labels, Grants: s.Grants,
		State: s.State, Reason: s.Reason, Compute: s.Compute, Suspended: s.Suspended, Execution: s.Execution,
		Harness: s.Harness, Module: s.Module, Runtime: s.Runtime, Memory: s.HoldsMemory,
		Model: s.Model, Config: s.Config, Limits: limitsJSON(s.Limits),
		Deadline: s.Deadline.Milliseconds(), Timeout: s.CallTimeout.Milliseconds(), Retain: retentionText(s.Retention), Created: abi.NewTime(s.Created),
		Turns: s.Turns, Closed: int64(s.Closed),
		Fence: int64(s.Head.Fence), Head: s.Head.Hash, Root: s.Root,
		Parent: s.Parent, ForkSeq: int64(s.ForkSeq),
	}
	for _, w := range s.Waiting {
		out.Waiting = append(out.Waiting, waitJSON{Waiting: w})
	}
	return out
}

// noteJSON is what is worth knowing under --json, on stderr.
type noteJSON struct {
	Note string `json:"note"`
	// Next is the page token with which a list goes on.
	Next string `json:"next_page_token,omitempty"`
}

// errorJSON is an error under --json, on stderr.
type errorJSON struct {
	Error string `json:"error"`
	Code  int    `json:"code"`
	Next  string `json:"next,omitempty"`
	// Of a turn that did not complete, or not yet.
	Session   abi.SessionID   `json:"session,omitempty"`
	Execution abi.ExecutionID `json:"execution,omitempty"`
	Reason    abi.EndReason   `json:"reason,omitempty"`
	// Of a failed verification: where, and what was there.
	Seq  int64      `json:"seq,omitempty"`
	What string     `json:"what,omitempty"`
	Want abi.Digest `json:"want,omitzero"`
	Got  abi.Digest `json:"got,omitzero"`
}

// encodeLine is v as one line of JSON that any terminal can take.
func encodeLine(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	line := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return append(safeJSON(line), '\n'), nil
}

// removed tells that a name stands for nothing any more.
func (a *app) removed(name string) {
	if a.json {
		a.object(struct {
			Removed string `json:"removed"`
		}{name})
		return
	}
	a.line("removed " + name)
}

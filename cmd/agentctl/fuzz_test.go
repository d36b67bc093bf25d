package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// FuzzQuestion: whatever a peer asks at the door of a process, it is answered or told what
// is wrong, in JSON.
func FuzzQuestion(f *testing.F) {
	for _, seed := range []string{
		`{"op":"get","ref":"demo"}`, `{"op":"list","list":{"page_size":-1,"page_token":"x"}}`, `{"op":"list","ref":"\u0000","project":"../x"}`,
		`{"op":"sessions","sessions":["sess-0",""]}`, `{"op":"approvals","all":true}`, `{"op":"cancel","ref":"demo"}`, `{"op":7}`, `null`,
	} {
		f.Add([]byte(seed))
	}
	h, err := edge.OpenMemory(edge.Options{Paused: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := h.Close(); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, text []byte) {
		var q question
		if json.Unmarshal(text, &q) != nil {
			return // the peer is told that it is none
		}
		r, err := reply(t.Context(), h, q)
		if err != nil {
			r = answer{Fault: newFault(err)}
		}
		var b bytes.Buffer
		if err := encodeAnswer(&b, r); err != nil || !json.Valid(b.Bytes()) {
			t.Fatalf("answered %q, %v", b.Bytes(), err)
		}
	})
}

// FuzzReadJSON: what a flag takes as JSON is JSON that two readers read alike, word for
// word as it was given.
func FuzzReadJSON(f *testing.F) {
	for _, seed := range []string{`{"system":"be brief"}`, `{"a":1,"a":2}`, `{"n":12345678901234567890}`, `"\ud800"`, "[", "@", " {} "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if len(value) > 0 && value[0] == '@' {
			return // a file
		}
		text, err := readConfig(t.Context(), value)
		if err != nil || value == "" {
			return
		}
		if string(text) != value {
			t.Fatalf("%q became %q", value, text)
		}
		canonical, err := abi.Canonical(text)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := abi.Canonical(canonical); err != nil || !bytes.Equal(canonical, again) {
			t.Fatalf("%q has two canonical forms", value)
		}
	})
}

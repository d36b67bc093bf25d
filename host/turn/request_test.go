package turn

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

// recordedCall is the event of a call and the blobs it names.
func recordedCall(t *testing.T, call abi.ModelCall) (*abi.Event, map[abi.Digest][]byte) {
	t.Helper()
	m := &Machine{opening: Opening{Model: "default"}, effects: 3}
	_, staged, err := m.intent(call, abi.Time{})
	if err != nil {
		t.Fatal(err)
	}
	blobs := map[abi.Digest][]byte{}
	for _, b := range staged.Blobs {
		blobs[abi.DigestOf(b)] = b
	}
	return staged.Event, blobs
}

func reader(blobs map[abi.Digest][]byte) func(abi.Digest) ([]byte, error) {
	return func(d abi.Digest) ([]byte, error) {
		b, ok := blobs[d]
		if !ok {
			return nil, fmt.Errorf("no blob %s", d.Short())
		}
		return b, nil
	}
}

// A rebuilt call is the one that was made, to the last digit (I2).
func TestI2_Request(t *testing.T) {
	for name, call := range map[string]abi.ModelCall{
		"empty":    {},
		"one text": {Model: "m", Messages: []abi.Message{abi.Text(abi.RoleUser, "hi")}},
		"order":    {Messages: []abi.Message{abi.Text(abi.RoleSystem, "s"), abi.Text(abi.RoleUser, "a"), abi.Text(abi.RoleUser, "b"), abi.Text(abi.RoleUser, "a")}},
		"all": {
			Params: map[string]string{"temperature": "0"},
			Tools:  []abi.ToolDefinition{{Name: "t", InputSchema: abi.Struct(`{"maximum":9007199254740993}`)}},
			ToolChoice: &abi.ToolChoice{
				Mode: abi.ToolChoiceRequired, Name: "t",
			},
			Messages: []abi.Message{
				{Role: abi.RoleTool, Parts: []abi.Part{
					{ToolResult: &abi.ToolResult{ID: "1", Output: abi.Struct(`{"n":12345678901234567890}`)}},
					{File: &abi.FilePart{Name: "f", Bytes: []byte{0, 255}}},
					{Reasoning: &abi.ReasoningPart{OpaqueBytes: []byte("\x00secret")}},
				}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			event, blobs := recordedCall(t, call)
			got, err := Request(event, reader(blobs))
			if err != nil {
				t.Fatal(err)
			}
			want := call
			if want.Model == "" {
				want.Model = "default"
			}
			want.ID, want.InputHash = "call-3", event.Model.InputHash
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			got.ID, got.InputHash = "", ""
			whole, err := abi.MarshalLossless(&got)
			if err != nil {
				t.Fatal(err)
			}
			if digest := abi.DigestOf(whole).String(); digest != event.Model.InputHash {
				t.Errorf("digest %s, input_hash %s", digest, event.Model.InputHash)
			}
		})
	}
}

func TestRequestRefuses(t *testing.T) {
	event, blobs := recordedCall(t, abi.ModelCall{Messages: []abi.Message{abi.Text(abi.RoleUser, "hi")}})
	if _, err := Request(&abi.Event{Kind: abi.EventInput}, reader(blobs)); !errors.Is(err, ErrNoRequest) {
		t.Errorf("an input: %v", err)
	}
	for d := range blobs {
		rest := map[abi.Digest][]byte{}
		for other, b := range blobs {
			if other != d {
				rest[other] = b
			}
		}
		if _, err := Request(event, reader(rest)); err == nil || !strings.Contains(err.Error(), d.Short()) {
			t.Errorf("without blob %s: %v", d.Short(), err)
		}
	}
	other, more := recordedCall(t, abi.ModelCall{Messages: []abi.Message{abi.Text(abi.RoleUser, "ho")}})
	mixed := *event
	mixed.Cell = other.Cell
	if _, err := Request(&mixed, reader(more)); err == nil || !strings.Contains(err.Error(), event.Model.InputHash) {
		t.Errorf("another call's blobs: %v", err)
	}
}

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

func TestEcho(t *testing.T) {
	host := new(sdktest.Host)
	outputs, err := host.Run(t.Context(), echo{}, "first", "last")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]abi.Message{abi.Text(abi.RoleAssistant, "echo:last")}, outputs); diff != "" {
		t.Error(diff)
	}
	if _, err := host.Run(t.Context(), echo{}, "again"); err != nil {
		t.Fatal(err)
	}
	want := []abi.ModelCall{
		{Messages: []abi.Message{abi.Text(abi.RoleUser, "last")}},
		{Messages: []abi.Message{abi.Text(abi.RoleUser, "again")}},
	}
	if diff := cmp.Diff(want, host.Calls); diff != "" {
		t.Error(diff)
	}
	if host.Pages != 0 {
		t.Errorf("echo read %d pages of history", host.Pages)
	}
}

// Parts that are no text go through, and the role becomes the user's.
func TestEchoSendsAllParts(t *testing.T) {
	host := new(sdktest.Host)
	parts := []abi.Part{{Text: &abi.TextPart{Text: "see"}}, {File: &abi.FilePart{MIME: "image/png", Bytes: []byte{1, 2}}}}
	if _, err := host.RunMessages(t.Context(), echo{}, abi.Message{Role: abi.RoleSystem, Parts: parts}); err != nil {
		t.Fatal(err)
	}
	want := []abi.ModelCall{{Messages: []abi.Message{{Role: abi.RoleUser, Parts: parts}}}}
	if diff := cmp.Diff(want, host.Calls); diff != "" {
		t.Error(diff)
	}
}

func TestEchoWithoutInput(t *testing.T) {
	_, err := new(sdktest.Host).Run(t.Context(), echo{})
	if err == nil || sdk.Failure(err).Code != abi.CodeInvalidArgument {
		t.Errorf("got error %v", err)
	}
}

package main

import (
	"hash/crc32"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// TestConversation holds a session against its transcript in testdata.
func TestConversation(t *testing.T) {
	host, n := new(sdktest.Host), new(notebook)
	for _, inputs := range [][]string{
		{"size"},
		{"note buy milk", "note  feed the cat\n"},
		{"read 1", "read 2", "find milk", "find the", "find dog"},
		{"edit 1 buy oat milk", "read 1", "size"},
		{"note more milk", "find milk"},
		{"sum"},
		{"fill 2", "read 2051"},
		{"sum"},
		{"read 9999"},
		{"fill 129"},
		{"forget", "sum"},
	} {
		// A turn that fails is part of the transcript.
		_, _ = host.Run(t.Context(), n, inputs...)
	}
	if len(host.Calls) != 0 || host.Pages != 0 {
		t.Errorf("notebook made %d model calls and read %d pages of history", len(host.Calls), host.Pages)
	}
	host.Golden(t, "testdata/conversation.txt")
}

func TestFill(t *testing.T) {
	n := new(notebook)
	for _, step := range []struct{ input, want string }{
		{"note the first", "note 1"},
		{"fill 40", "40961 notes, 41943049 bytes"},
		{"edit 40961 short", "note 40961"},
		{"size", "40961 notes, 41942030 bytes"},
		{"fill 88", "131073 notes, 134216718 bytes"},
		{"find the first", "in note 1"},
	} {
		got, err := n.answer(step.input)
		if err != nil || got != step.want {
			t.Errorf("%s: got %q, %v, want %q", step.input, got, err, step.want)
		}
	}
	if sum := crc32.ChecksumIEEE([]byte(strings.Join(n.notes, ""))); sum != n.sum() {
		t.Errorf("sum is %08x, want %08x", n.sum(), sum)
	}
	// What is refused changes nothing.
	size := n.size()
	for _, input := range []string{"fill 1", "note " + strings.Repeat("x", 1<<11), "edit 1 " + strings.Repeat("x", 1<<11)} {
		if _, err := n.answer(input); err == nil || !strings.Contains(err.Error(), "over the bound of 128 MiB") {
			t.Errorf("%.10s: got error %v", input, err)
		}
	}
	if diff := cmp.Diff(size, n.size()); diff != "" {
		t.Error(diff)
	}
}

func TestNotebookErrors(t *testing.T) {
	tests := []struct{ input, err string }{
		{"", `""; want note TEXT, `},
		{"hello", `"hello"; want note TEXT, `},
		{"hello you", `"hello you"; want note TEXT, `},
		{"note", `"note"; want note TEXT, `},
		{"size now", `"size now"; want note TEXT, `},
		{"read one", `there is no note "one"; there are 0`},
		{"read 0", `there is no note "0"; there are 0`},
		{"edit 1 x", `there is no note "1"; there are 0`},
		{"fill x", `fill "x"; want 1 to 128, in MiB`},
		{"fill 0", `fill "0"; want 1 to 128, in MiB`},
		{"fill 129", `fill "129"; want 1 to 128, in MiB`},
	}
	for _, test := range tests {
		host := new(sdktest.Host)
		outputs, err := host.Run(t.Context(), new(notebook), test.input)
		if err == nil || !strings.HasPrefix(err.Error(), "notebook: "+test.err) || sdk.Failure(err).Code != abi.CodeInvalidArgument {
			t.Errorf("%q: got error %v, want notebook: %s", test.input, err, test.err)
		}
		if len(outputs) != 0 {
			t.Errorf("%q: got outputs %v", test.input, outputs)
		}
	}
	n := &notebook{notes: []string{"a"}, bytes: 1}
	if _, err := n.answer("edit 1"); err == nil || !strings.HasPrefix(err.Error(), "edit 1 has no text") {
		t.Errorf("got error %v", err)
	}
}

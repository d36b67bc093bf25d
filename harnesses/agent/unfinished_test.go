package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// TestUnfinished: what tools did in a turn that failed is told to the next one,
// once; what was said in it is not.
func TestUnfinished(t *testing.T) {
	host := &sdktest.Host{Tools: workshop()}
	h := new(agent)
	say := func(input string, list ...abi.Message) {
		t.Helper()
		host.Model = answers(list...)
		_, err := host.Run(t.Context(), h, input)
		if failed := err != nil; failed == (len(list) > 0 && list[len(list)-1].Text() != "") {
			t.Fatalf("%s: %v", input, err)
		}
	}
	call := func(id, tool, args string) abi.Message {
		return wants(abi.ToolCall{ID: id, Tool: tool, Args: abi.Struct(args)})
	}
	say("one", call("a", "files.read", `{"x":1}`), says("1"))
	say("fails before it does anything")
	say("fails in the middle", call("a", "files.read", `{"x":2}`), call("b", "files.lost", `{}`))
	say("fails again", call("a", "db.drop", `{}`))
	// A turn that was given up: while a call was under way, while people were asked
	// about one, and about one that may have been made.
	for _, e := range []*abi.Event{
		{Kind: abi.EventToolCall, Tool: &abi.ToolCall{ID: "a", Tool: "pay", Args: abi.Struct(`{"eur":5}`)}},
		{Kind: abi.EventToolCall, Tool: &abi.ToolCall{ID: "b", Tool: "pay", Args: abi.Struct(`{"eur":6}`)}},
		{Kind: abi.EventToolCall, Tool: &abi.ToolCall{ID: "c", Tool: "pay", Args: abi.Struct(`{"eur":7}`)}},
		{Kind: abi.EventApprovalRequest, Approval: &abi.ApprovalRequest{ToolCallID: "a"}},
		{
			Kind: abi.EventApprovalResult, ApprovalResult: &abi.ApprovalResult{ToolCallID: "a", Approved: true},
			Cell: &abi.Cell{Args: abi.Struct(`{"eur":4}`)},
		},
		{Kind: abi.EventApprovalRequest, Approval: &abi.ApprovalRequest{ToolCallID: "b"}},
		{Kind: abi.EventApprovalRequest, Approval: &abi.ApprovalRequest{ToolCallID: "c"}, Cell: &abi.Cell{Again: true}},
		{Kind: abi.EventEnd, End: &abi.HarnessEnd{State: abi.StateCanceled}},
	} {
		host.Records = append(host.Records, abi.LogRecord{Seq: host.Records[len(host.Records)-1].Seq + 1, Event: e})
	}
	note := func(state, calls string) string {
		return fmt.Sprintf("[A turn before this one ended as %s, and you remember nothing of it. What tools did in it is done:\n%s]", state, calls)
	}
	want := []string{
		"one", "", "", "1",
		note("FAILED", "files.read {\"x\":2}: {\"x\":2}\nfiles.lost {}: no such file"),
		note("FAILED", "db.drop {}: denied: not today"),
		note("CANCELED", "pay {\"eur\":4} (changed by a person): no result is known\n"+
			"pay {\"eur\":6}: not made, as it was not approved\npay {\"eur\":7}: no result is known"),
		"two",
	}
	said := func() []string {
		var texts []string
		for _, m := range host.Calls[len(host.Calls)-1].Messages {
			texts = append(texts, m.Text())
		}
		return texts
	}
	say("two", says("2"))
	if diff := cmp.Diff(want, said()); diff != "" {
		t.Error(diff)
	}
	say("three", says("3"))
	if diff := cmp.Diff(append(want, "2", "three"), said()); diff != "" {
		t.Error(diff)
	}
	// However long the session is, a turn reads its end (F14).
	before := host.Pages
	say("four", says("4"))
	if read := host.Pages - before; read != 2 {
		t.Errorf("%d pages of history were read, want one with an END and one that is empty", read)
	}
}

// TestUnfinishedIsBounded: however much failed, a prompt has room for it.
func TestUnfinishedIsBounded(t *testing.T) {
	host := &sdktest.Host{Tools: workshop()}
	for turn := range maxTurnsTold + 2 {
		var list []abi.Message
		for i := range maxCallsTold + 3 {
			args := fmt.Sprintf(`{"turn":%d,"x":%q}`, turn, strings.Repeat("x", 2*maxTold))
			list = append(list, wants(abi.ToolCall{ID: fmt.Sprint(i), Tool: "files.read", Args: abi.Struct(args)}))
		}
		host.Config = []byte(`{"max_steps":100}`)
		host.Model = answers(list...)
		if _, err := host.Run(t.Context(), new(agent), "go"); err == nil {
			t.Fatal("the turn did not fail")
		}
	}
	host.Model = answers(says("done"))
	if _, err := host.Run(t.Context(), new(agent), "last"); err != nil {
		t.Fatal(err)
	}
	prompt := host.Calls[len(host.Calls)-1].Messages
	if len(prompt) != 1+maxTurnsTold+1 || prompt[0].Text() != "[6 turns before this one did not complete; these are the last of them.]" {
		t.Errorf("%d messages, the first %q", len(prompt), prompt[0].Text())
	}
	for i, m := range prompt[1 : 1+maxTurnsTold] {
		lines := strings.Split(m.Text(), "\n")
		if len(lines) != 2+maxCallsTold || lines[1] != "3 calls, and then" || !strings.HasPrefix(lines[2], fmt.Sprintf(`files.read {"turn":%d,`, 2+i)) {
			t.Errorf("note %d has %d lines: %.80q", i+1, len(lines), lines[1:3])
		}
	}
	if got := sizeOf(prompt...).bytes; got > maxTurnsTold*maxCallsTold*(2*maxTold+50) {
		t.Errorf("%d bytes are told", got)
	}
}

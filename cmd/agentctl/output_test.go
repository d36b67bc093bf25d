package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"": "",
		"plain text, ünïcode 日本 👩‍🚀": "plain text, ünïcode 日本 👩‍🚀",
		"a\nb\r\nc\td":       `a\nb\r\nc\td`,
		`C:\new`:             `C:\\new`,
		"\x1b[31mred\x1b[0m": `\x1b[31mred\x1b[0m`,
		"\u009b31m\x7f\x00":  `\u009b31m\x7f\x00`,
		"\u202eevil\u2066":   `\u202eevil\u2066`,
		"\u2028\ufeff\u00ad": `\u2028\ufeff\u00ad`,
		"\U000e0041":         `\U000e0041`,
		"\xff\xc3(":          `\xff\xc3(`,
		"\ufffd":             "\ufffd",
	} {
		if diff := cmp.Diff(want, oneLine(in)); diff != "" {
			t.Errorf("oneLine(%q) (-want +got):\n%s", in, diff)
		}
	}
	if got, want := lines("a\nb\tc\r\x1b \\"), "a\nb\tc\\r\\x1b \\"; got != want {
		t.Errorf("lines() = %q, want %q", got, want)
	}
}

// Whatever bytes come in, no control character and no direction override comes
// out, and JSON still says the same.
func FuzzEscape(f *testing.F) {
	f.Add("text \x1b]0;title\x07 \u009b \u202e \xff \\ \U000e0001")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range oneLine(s) {
			if unicode.Is(unicode.C, r) && r != '\u200c' && r != '\u200d' {
				t.Fatalf("oneLine(%q) lets %U through", s, r)
			}
		}
		line, err := encodeLine(map[string]string{"text": s})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range strings.TrimSuffix(string(line), "\n") {
			if !safe(r) {
				t.Fatalf("encodeLine(%q) lets %U through", s, r)
			}
		}
		var back map[string]string
		if err := json.Unmarshal(line, &back); err != nil {
			t.Fatal(err)
		}
		// Go writes each byte that is no text as U+FFFD, in both ways.
		if diff := cmp.Diff(string([]rune(s)), back["text"]); diff != "" {
			t.Fatalf("encodeLine changed the value (-want +got):\n%s", diff)
		}
	})
}

func TestEventText(t *testing.T) {
	root := abi.DigestOf([]byte("root"))
	noon := abi.NewTime(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		event abi.Event
		want  string
	}{
		{abi.Event{Kind: abi.EventInput, Message: ptr(abi.Text(abi.RoleUser, "hi"))}, "user: hi"},
		{abi.Event{Kind: abi.EventOutput, Message: &abi.Message{Role: "assistant", Parts: []abi.Part{
			{Text: &abi.TextPart{Text: "see"}},
			{File: &abi.FilePart{Name: "a.png", MIME: "image/png"}},
			{Data: &abi.DataPart{Data: abi.Struct(`{"a":1}`)}},
			{Reasoning: &abi.ReasoningPart{Provider: "p"}},
			{ToolCall: &abi.ToolCall{Tool: "t", Args: abi.Struct(`{}`)}},
			{ToolResult: &abi.ToolResult{Output: abi.Struct(`{"b":2}`)}},
			{},
		}}}, `assistant: see [file a.png image/png] {"a":1} [reasoning p] [tool_call t {}] [tool_result {"b":2}] `},
		{abi.Event{Kind: abi.EventModelCall, Model: &abi.ModelCall{Model: "echo"}}, "echo"},
		{abi.Event{Kind: abi.EventToolCall, Tool: &abi.ToolCall{Tool: "t", Args: abi.Struct(`{"x":1}`)}}, `t {"x":1}`},
		{abi.Event{Kind: abi.EventToolResult, Result: &abi.ToolResult{IsError: true, Error: "no"}}, "error no"},
		{abi.Event{Kind: abi.EventApprovalRequest, Approval: &abi.ApprovalRequest{Reason: "why"}}, "why"},
		{abi.Event{Kind: abi.EventApprovalResult, ApprovalResult: &abi.ApprovalResult{Approved: true}}, "approved"},
		{abi.Event{Kind: abi.EventApprovalResult, ApprovalResult: &abi.ApprovalResult{Reason: "no"}}, "denied: no"},
		{abi.Event{Kind: abi.EventToolCall, Tool: &abi.ToolCall{
			ID: "c1", Tool: "drop", Args: abi.Struct(`{"x":1}`), Mediation: abi.MediationRequiresApproval,
		}}, `c1 drop {"x":1} (gated)`},
		{abi.Event{Kind: abi.EventToolCall, Tool: &abi.ToolCall{ID: "c1", Tool: "now"}}, "c1 now"},
		{abi.Event{Kind: abi.EventToolResult, Result: &abi.ToolResult{ID: "c1", Output: abi.Struct(`{"x":1}`)}}, `c1 {"x":1}`},
		{abi.Event{Kind: abi.EventApprovalRequest, Approval: &abi.ApprovalRequest{ToolCallID: "c1"}}, "c1"},
		{abi.Event{
			Kind: abi.EventApprovalResult, Actor: &abi.IdentityRef{Principal: "ann"},
			ApprovalResult: &abi.ApprovalResult{ToolCallID: "c1", Approved: true, Reason: "fine"},
		}, "c1 approved by ann: fine"},
		{abi.Event{Kind: abi.EventLifecycle, Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleResume}, Cell: &abi.Cell{CallID: "c1"}}, "resume c1"},
		{abi.Event{Kind: abi.EventWait, Cell: &abi.Cell{CallID: "call-2", Signal: "go"}}, `call-2 signal "go"`},
		{abi.Event{Kind: abi.EventWait, Cell: &abi.Cell{CallID: "call-2", Until: noon}}, "call-2 2026-01-02T12:00:00Z"},
		{abi.Event{Kind: abi.EventWait, Cell: &abi.Cell{CallID: "call-2", Until: noon, Signal: "go"}}, `call-2 signal "go" or 2026-01-02T12:00:00Z`},
		{abi.Event{Kind: abi.EventSignal, Cell: &abi.Cell{CallID: "call-2", Signal: "go"}}, `call-2 signal "go"`},
		{abi.Event{Kind: abi.EventSignal, Cell: &abi.Cell{CallID: "call-2", Signal: "go", Payload: root}}, `call-2 signal "go" payload=` + root.Short()},
		{abi.Event{Kind: abi.EventSignal, Cell: &abi.Cell{CallID: "call-2"}}, "call-2 time has come"},
		{abi.Event{Kind: abi.EventUsage, Usage: &abi.Usage{InputTokens: 1, OutputTokens: 2}}, "input_tokens=1 output_tokens=2"},
		{abi.Event{Kind: abi.EventUsage, Usage: &abi.Usage{ReasoningTokens: 3}}, "input_tokens=0 output_tokens=0 reasoning_tokens=3"},
		{abi.Event{Kind: abi.EventLifecycle, Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleCreate}, Cell: &abi.Cell{Harness: "echo"}}, "create echo"},
		{abi.Event{Kind: abi.EventLifecycle, Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleFork, Detail: "sess-1@4"}}, "fork sess-1@4"},
		{abi.Event{Kind: abi.EventLifecycle, Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleSuspend}}, "suspend"},
		{
			abi.Event{Kind: abi.EventLifecycle, Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleUpgrade}, Cell: &abi.Cell{Harness: "echo", Module: root, Root: root}},
			"upgrade echo " + root.Short() + " root=" + root.Short(),
		},
		{abi.Event{Kind: abi.EventExecutionStart, ExecutionID: "exec-1"}, "exec-1"},
		{abi.Event{Kind: abi.EventError, Error: &abi.Error{Description: "boom"}}, "boom"},
		{end(abi.StateCompleted, &abi.Cell{Root: root}, nil), "COMPLETED root=" + root.Short()},
		{end(abi.StateFailed, &abi.Cell{Reason: abi.ReasonTrap}, nil), "FAILED trap"},
		{end(abi.StateFailed, &abi.Cell{Reason: abi.ReasonError}, &abi.Error{Description: "x"}), "FAILED error: x"},
		{end(abi.StateCanceled, &abi.Cell{Reason: abi.ReasonAbandoned}, nil), "CANCELED abandoned"},
		{abi.Event{Kind: "EVENT_NEW"}, ""},
	} {
		if diff := cmp.Diff(c.want, eventText(&c.event)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.event.Kind, diff)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func end(state abi.EndState, cell *abi.Cell, err *abi.Error) abi.Event {
	return abi.Event{Kind: abi.EventEnd, End: &abi.HarnessEnd{State: state, Error: err}, Cell: cell}
}

// terminal is an output whose two streams are one terminal.
func terminal(w io.Writer, colors bool) *output {
	o := newOutput(w, w, func(string) string { return "" })
	o.outTerminal, o.errTerminal = true, true
	if colors {
		o.outStyle = style{dim: "<dim>", bad: "<bad>", reset: "<reset>"}
		o.errStyle = o.outStyle
	}
	return o
}

func updateOf(seq abi.Seq, e abi.Event) host.Update {
	return host.Update{Record: &host.Record{LogRecord: abi.LogRecord{Seq: seq, Event: &e}}}
}

func deltaOf(text string, reset bool) host.Update {
	return host.Update{Delta: &host.Delta{Text: text, Reset: reset}}
}

// A person at a terminal reads an answer while it arrives; records keep lines of
// their own.
func TestDeltasOnATerminal(t *testing.T) {
	var screen strings.Builder
	o := terminal(&screen, true)
	for _, u := range []host.Update{
		updateOf(4, abi.Event{Kind: abi.EventModelCall, Model: &abi.ModelCall{Model: "m"}}),
		deltaOf("Hel", false), deltaOf("lo\x1b[2J", false),
		deltaOf("again", true), deltaOf("", false),
		updateOf(5, abi.Event{Kind: abi.EventOutput, Message: ptr(abi.Text("assistant", "again"))}),
		updateOf(6, end(abi.StateFailed, &abi.Cell{Reason: abi.ReasonTrap}, nil)),
	} {
		o.update(u)
	}
	o.note("done")
	want := `seq=4   <dim>EVENT_MODEL_CALL     <reset>   m
<dim>Hel<reset><dim>lo\x1b[2J<reset>
<dim>again<reset>
seq=5   <dim>EVENT_OUTPUT         <reset>   assistant: again
seq=6   <dim>EVENT_END            <reset>   <bad>FAILED trap<reset>
done
`
	if diff := cmp.Diff(want, screen.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	for name, o := range map[string]*output{
		"quiet":       {quiet: true, errTerminal: true},
		"no terminal": {},
	} {
		var stderr strings.Builder
		o.err = &stderr
		o.delta(host.Delta{Text: "x"})
		if stderr.Len() > 0 {
			t.Errorf("%s: stderr has %q", name, stderr.String())
		}
	}
}

// A terminal is not flooded; a pipe gets everything.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("ü", 50_000)
	record := *updateOf(1, abi.Event{Kind: abi.EventInput, Message: ptr(abi.Text("user", long))}).Record
	var screen, pipe strings.Builder
	o := terminal(&screen, false)
	o.record(record)
	if err := o.flush(); err != nil {
		t.Fatal(err)
	}
	if n := screen.Len(); n > 5_000 || !strings.HasSuffix(screen.String(), " bytes more)\n") {
		t.Errorf("a terminal gets %d bytes, which end in %q", n, screen.String()[n-20:])
	}
	o = newOutput(&pipe, io.Discard, func(string) string { return "" })
	o.record(record)
	if err := o.flush(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(pipe.String(), long) {
		t.Error("a pipe does not get the whole text")
	}
}

func TestStyle(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		env      map[string]string
		colors   bool
	}{
		{true, nil, true},
		{true, map[string]string{"TERM": "xterm-256color"}, true},
		{true, map[string]string{"NO_COLOR": "1"}, false},
		{true, map[string]string{"TERM": "dumb"}, false},
		{false, nil, false},
	} {
		s := styleOf(c.terminal, func(name string) string { return c.env[name] })
		if got := s != (style{}); got != c.colors {
			t.Errorf("terminal %v, environment %v: colors %v, want %v", c.terminal, c.env, got, c.colors)
		}
	}
}

// The stored line goes out as it is, but never raw to a terminal.
func TestExportedLine(t *testing.T) {
	record := host.Record{Line: []byte("{\"a\":\"\u009b\"}")}
	var screen, pipe strings.Builder
	for want, o := range map[string]*output{
		"{\"a\":\"\\u009b\"}\n": terminal(&screen, false),
		"{\"a\":\"\u009b\"}\n":  newOutput(&pipe, io.Discard, func(string) string { return "" }),
	} {
		o.stored(record)
		if err := o.flush(); err != nil {
			t.Fatal(err)
		}
		if got := screen.String() + pipe.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		screen.Reset()
		pipe.Reset()
	}
}

// failingWriter fails every write.
type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestFailedOutput(t *testing.T) {
	getenv := func(string) string { return "" }
	for _, c := range []struct {
		err    error
		want   int
		stderr string
	}{
		{fmt.Errorf("write: %w", syscall.EPIPE), 0, ""},
		{syscall.ENOSPC, 1, "agentctl: write output: no space left on device\n"},
	} {
		var stderr strings.Builder
		a := newApp(nil, failingWriter{c.err}, &stderr, getenv)
		if got := a.run(t.Context(), []string{"version"}); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
		if diff := cmp.Diff(c.stderr, stderr.String()); diff != "" {
			t.Errorf("%v: stderr (-want +got):\n%s", c.err, diff)
		}
	}
	o := newOutput(failingWriter{syscall.EPIPE}, io.Discard, getenv)
	o.line("x")
	if err := o.flush(); !errors.Is(err, errReaderGone) {
		t.Errorf("flush() = %v, want %v", err, errReaderGone)
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 59 * time.Minute: "59m",
		time.Hour: "1h", 23 * time.Hour: "23h", 24 * time.Hour: "1d", 1000 * time.Hour: "41d",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%v) = %q, want %q", d, got, want)
		}
	}
}

// On a terminal that is too narrow, names are cut and the rest is not.
func TestTableFits(t *testing.T) {
	row := []string{"sess-1", strings.Repeat("né", 20), strings.Repeat("h", 12), "COMPLETED"}
	for most, want := range map[int]string{
		0:   "sess-1  " + row[1] + "  hhhhhhhhhhhh  COMPLETED\n",
		100: "sess-1  " + row[1] + "  hhhhhhhhhhhh  COMPLETED\n",
		60:  "sess-1  nénénénénénénénénénénénéné…  hhhhhhhhhhhh  COMPLETED\n",
		38:  "sess-1  nénénén…  hhhhhhhh…  COMPLETED\n",
		10:  "sess-1  nénénén…  hhhhhhh…  COMPLETED\n",
	} {
		table := table{most: most, elastic: []int{1, 2}, begun: true, widths: make([]int, 4)}
		got := table.format(nil, [][]string{row})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in %d columns (-want +got):\n%s", most, diff)
		}
		if n := len([]rune(got)) - 1; most >= 38 && n > most {
			t.Errorf("in %d columns: a line of %d", most, n)
		}
	}
}

func TestShortened(t *testing.T) {
	for _, long := range []string{
		"create session: " + strings.Repeat("é", 1<<20) + ": use letters",
		"create session: x" + strings.Repeat("é", 1<<20) + ": use letters",
		strings.Repeat("\x80", 1<<20),
	} {
		got := shortened(long)
		if len(got) > 2100 || !strings.Contains(got, " bytes left out) ") {
			t.Errorf("%d bytes of %.30q become %d", len(long), long, len(got))
		}
		if utf8.ValidString(long) && (!utf8.ValidString(got) || !strings.HasPrefix(got, "create session: ") || !strings.HasSuffix(got, ": use letters")) {
			t.Errorf("the ends of %.30q are lost: %.30q %q", long, got, got[len(got)-30:])
		}
	}
	if got := shortened("short"); got != "short" {
		t.Errorf("a short text becomes %q", got)
	}
}

// Columns of later portions are at least as wide as those before.
func TestTable(t *testing.T) {
	var table table
	got := table.format([]string{"A", "B"}, [][]string{{"longer", "x"}}) +
		table.format([]string{"A", "B"}, [][]string{{"y", ""}, {"the longest", "z"}})
	want := "A       B\nlonger  x\ny\nthe longest  z\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

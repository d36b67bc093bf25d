package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/script"
	tools "github.com/agentcell/agentcell/host/tool/script"
	"github.com/agentcell/agentcell/sdk/abi"
)

// actor is somebody who chats by a script: lines, of which "wait" is none but waits
// for what the session waits for, and answers to questions as long as there are any.
type actor struct {
	lines, answers []string
	remembered     []string
}

func (s *actor) line(ctx context.Context) (string, error) {
	if len(s.lines) == 0 {
		return "", io.EOF
	}
	line := s.lines[0]
	s.lines = s.lines[1:]
	if line != "wait" {
		return line, nil
	}
	if _, waits := ctx.Deadline(); !waits {
		return "", nil
	}
	<-ctx.Done()
	return "", context.Cause(ctx)
}

func (s *actor) ask(context.Context, string) (string, error) {
	if len(s.answers) == 0 {
		return "", errGivenUp
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return answer, nil
}

func (s *actor) interruptible(ctx context.Context) (context.Context, func()) { return ctx, func() {} }

func (s *actor) remember(line string) { s.remembered = append(s.remembered, line) }

const (
	chatAnswers = `{"text":"On it.","tool_calls":[{"id":"c1","tool":"drop","args":{"table":"users","where":{"id":1}}},{"id":"c2","tool":"drop"}]}
{"text":"Done."}
{"text":"And again."}
`
	chatTools = `{"name":"drop","approval":true,"output":{"rows":1204}}` + "\n"
)

// chatting is a chat of an actor with a new session of the harness, under a policy if
// there is one.
func chatting(t *testing.T, harness host.Harness, who *actor, policy ...string) (c *chat, stdout, stderr *strings.Builder) {
	t.Helper()
	needHarnesses(t)
	cache, err := testCache()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := script.New(strings.NewReader(chatAnswers))
	if err != nil {
		t.Fatal(err)
	}
	toolbox, err := tools.New(strings.NewReader(chatTools))
	if err != nil {
		t.Fatal(err)
	}
	policyFile := ""
	for _, text := range policy {
		policyFile = writeFile(t, text)
	}
	h, err := edge.OpenMemory(edge.Options{
		PolicyFile: policyFile, CacheDir: cache, Models: map[string]model.Provider{scriptModel: answers}, DefaultModel: scriptModel, Tools: toolbox.Tools(),
		Paused: true, // as those that agentctl opens
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := h.Create(t.Context(), host.CreateRequest{Name: "talk", Harness: harness})
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr = new(strings.Builder), new(strings.Builder)
	env := map[string]string{"USER": "ann"}
	a := newApp(strings.NewReader(""), stdout, stderr, func(name string) string { return env[name] })
	a.project = defaultProject
	c = &chat{app: a, talker: who, view: view{output: a.output, live: true}, host: h}
	c.enter(s)
	return c, stdout, stderr
}

// masksSession makes the session's uid one that does not vary.
func masksSession(c *chat, text string) string {
	return strings.ReplaceAll(text, string(c.session.UID), "UID")
}

// A person is asked about each call that waits, with its arguments in full, and
// the turn goes on with what was decided.
func TestChatAsks(t *testing.T) {
	const (
		first = `session UID talk
drop {"table":"users","where":{"id":1}}
drop
`
		users = `drop wants to be called with
  {
    "table": "users",
    "where": {
      "id": 1
    }
  }
`
		logs    = "drop wants to be called, without arguments\n"
		allowed = "= {\"rows\":1204}\n"
		bye     = "agentctl chat --session talk goes on with it\n"
	)
	tests := []struct {
		name           string
		lines, answers []string
		stdout, stderr string
	}{
		{
			"both are decided",
			[]string{"go"},
			[]string{"y", "no  not that "},
			"On it.\nDone.\n",
			first + users + "c1 approved by ann\n" + logs + "c2 denied by ann: not that\n" + allowed + "= error denied: not that\n" + bye,
		},
		{
			"until there is an answer",
			[]string{"go"},
			[]string{"perhaps", "yes the backup is there", "YES"},
			"On it.\nDone.\n",
			first + users + "c1 approved by ann: the backup is there\n" + logs + "c2 approved by ann\n" + allowed + allowed + bye,
		},
		{
			"neither",
			[]string{"go", "so?", "/approve c2", "/deny never", "/resume"},
			nil,
			"On it.\nDone.\n",
			first + users + `awaiting approval of call "c1" to drop {"table":"users","where":{"id":1}}
awaiting approval of call "c2" to drop
/approve allows it, /deny refuses it; /cancel drops the turn
that was not said: the turn before it is not over
/approve allows it, /deny refuses it; /cancel drops the turn
c2 approved by ann
` + allowed + users + `awaiting approval of call "c1" to drop {"table":"users","where":{"id":1}}
/approve allows it, /deny refuses it; /cancel drops the turn
c1 denied by ann: never
= error denied: never
no open turn to recover
` + bye,
		},
		{
			"a command in place of an answer",
			[]string{"go"},
			[]string{" /session ", "y"},
			"On it.\n",
			first + users + `awaiting approval of call "c1" to drop {"table":"users","where":{"id":1}}
awaiting approval of call "c2" to drop
/approve allows it, /deny refuses it; /cancel drops the turn
session UID talk
harness tools, turns 0, seq 9, AWAITING approval
` + bye,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			harness, err := edge.Bundled("tools")
			if err != nil {
				t.Skip(err)
			}
			c, stdout, stderr := chatting(t, harness, &actor{lines: test.lines, answers: test.answers})
			if err := c.run(t.Context()); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(test.stdout, stdout.String()); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.stderr, masksSession(c, stderr.String())); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

// Who chats is asked once about a call that others must approve too, and told of them.
func TestChatAsksOneOfSeveral(t *testing.T) {
	harness, err := edge.Bundled("tools")
	if err != nil {
		t.Skip(err)
	}
	c, stdout, stderr := chatting(t, harness, &actor{lines: []string{"go", "/resume"}, answers: []string{"y", "y", "", "n"}}, "rules: []\napprovers: 2\n")
	if err := c.run(t.Context()); err != nil {
		t.Error(err)
	}
	const (
		args    = "{\"table\":\"users\",\"where\":{\"id\":1}}"
		waiting = `awaiting approval of call "c1" to drop ` + args + `, 1 of 2 (ann)
awaiting approval of call "c2" to drop, 1 of 2 (ann)
/approve allows it, /deny refuses it; /cancel drops the turn
`
		users = "drop wants to be called with\n  {\n    \"table\": \"users\",\n    \"where\": {\n      \"id\": 1\n    }\n  }\n"
	)
	want := "session UID talk\ndrop " + args + "\ndrop\n" +
		users + "  approved by 0 of 2\nc1 approved by ann\n" +
		"drop wants to be called, without arguments\n  approved by 0 of 2\nc2 approved by ann\n" + waiting +
		users + "  approved by 1 of 2 (ann)\n" +
		"drop wants to be called, without arguments\n  approved by 1 of 2 (ann)\nc2 denied by ann\n= error denied\n" +
		`awaiting approval of call "c1" to drop ` + args + `, 1 of 2 (ann)
/approve allows it, /deny refuses it; /cancel drops the turn
agentctl chat --session talk goes on with it
`
	if diff := cmp.Diff(want, masksSession(c, stderr.String())); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
	if stdout.String() != "On it.\n" {
		t.Errorf("stdout %q", stdout)
	}
}

// A turn that waits for a time goes on when it has come, while a person is there.
func TestChatGoesOnWhenDue(t *testing.T) {
	// However long it takes until the turn is parked, it ends.
	until := time.Now().Add(time.Second).UTC()
	harness := host.Harness{Name: "sleeps", Code: waits(fmt.Sprintf(`{"until":%q}`, until.Format(time.RFC3339Nano)))().Bytes()}
	c, stdout, stderr := chatting(t, harness, &actor{lines: []string{"sleep", "wait"}})
	if err := c.run(t.Context()); err != nil {
		t.Error(err)
	}
	if want := "the wait is over\n"; stdout.String() != want {
		t.Errorf("stdout %q, want %q; stderr:\n%s", stdout, want, stderr)
	}
	if c.session.State != host.ExecCompleted {
		t.Errorf("the session is %s", c.session.State)
	}
}

// A signal may have any name. One that does not look like itself is not shown as
// something to type.
func TestChatSignals(t *testing.T) {
	tests := []struct{ name, signal, stdout, next string }{
		{"with spaces", "is paid", "the wait is over\n", "/signal is paid ends the wait; /cancel drops the turn"},
		{"another", "other", "", "/signal other ends the wait; /cancel drops the turn"},
		{"hostile", "\x1b[2J\n> /approve", "", "/signal NAME ends the wait; /cancel drops the turn"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			request, err := json.Marshal(map[string]string{"signal": test.signal})
			if err != nil {
				t.Fatal(err)
			}
			harness := host.Harness{Name: "waits", Code: waits(string(request))().Bytes()}
			c, stdout, stderr := chatting(t, harness, &actor{lines: []string{"go", `/signal is paid {"amount":42}`}})
			if err := c.run(t.Context()); err != nil {
				t.Error(err)
			}
			if stdout.String() != test.stdout {
				t.Errorf("stdout %q, want %q", stdout, test.stdout)
			}
			if !strings.Contains(stderr.String(), "\n"+test.next+"\n") || strings.ContainsRune(stderr.String(), '\x1b') {
				t.Errorf("stderr %q, want %q in it", stderr, test.next)
			}
		})
	}
}

// What is said last is shown to who comes back, and what was said before can be
// brought back.
func TestChatShowsThePast(t *testing.T) {
	harness, err := edge.Bundled("tools")
	if err != nil {
		t.Skip(err)
	}
	c, _, _ := chatting(t, harness, &actor{lines: []string{"one", "two", "//three", "four\nlines"}, answers: []string{"y", "y"}})
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	who := new(actor)
	var stdout, stderr strings.Builder
	a := newApp(nil, &stdout, &stderr, func(string) string { return "" })
	again := &chat{app: a, talker: who, view: view{output: a.output, live: true}, host: c.host}
	if err := again.open(t.Context(), c.session); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one", "two", "//three", "four\nlines"}, who.remembered); diff != "" {
		t.Errorf("remembered (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("> two\nAnd again.\n> /three\n> four\nlines\n", stdout.String()); diff != "" {
		t.Errorf("stdout (-want +got):\n%s", diff)
	}
	const fails = "FAILED error: model: failed: script has 3 lines; call %d has no answer\n"
	want := "session UID talk\n" + fmt.Sprintf(fails, 4) + fmt.Sprintf(fails, 5)
	if diff := cmp.Diff(want, masksSession(c, stderr.String())); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
}

func TestAnswerText(t *testing.T) {
	text := func(s string) abi.Part { return abi.Part{Text: &abi.TextPart{Text: s}} }
	file := abi.Part{File: &abi.FilePart{Name: "a.png", MIME: "image/png"}}
	call := abi.Part{ToolCall: &abi.ToolCall{Tool: "look"}}
	tests := []struct {
		parts []abi.Part
		want  string
	}{
		{nil, ""},
		{[]abi.Part{text("a"), text("b")}, "ab"},
		{[]abi.Part{text("a"), call, text("b"), call}, "ab"},
		{[]abi.Part{text("a"), file, file, text("b"), {Data: &abi.DataPart{Data: abi.Struct(`{}`)}}}, "a\n[file a.png image/png]\n[file a.png image/png]\nb\n{}"},
		{[]abi.Part{call, {Reasoning: &abi.ReasoningPart{Provider: "p"}}}, ""},
	}
	for _, test := range tests {
		if got := answerText(abi.Message{Parts: test.parts}); got != test.want {
			t.Errorf("%v: %q, want %q", test.parts, got, test.want)
		}
	}
}

// An answer is shown as it comes, and once: whatever pieces were dropped, voided or
// not what the harness says in the end, the whole answer stands there.
func TestChatView(t *testing.T) {
	delta := func(text string) host.Update { return host.Update{Delta: &host.Delta{Text: text}} }
	reset := host.Update{Delta: &host.Delta{Reset: true}}
	record := func(e abi.Event) host.Update {
		return host.Update{Record: &host.Record{LogRecord: abi.LogRecord{Event: &e}}}
	}
	said := func(text string) host.Update {
		m := abi.Text(abi.RoleAssistant, text)
		return record(abi.Event{Kind: abi.EventOutput, Message: &m})
	}
	call := record(abi.Event{Kind: abi.EventToolCall, Tool: &abi.ToolCall{ID: "c", Tool: "look", Args: abi.Struct(`{"at":"\u001b[2J"}`)}})
	tests := []struct {
		name           string
		live           bool
		updates        []host.Update
		stdout, stderr string
	}{
		{"in pieces", true, []host.Update{delta("Hel"), delta("lo"), said("Hello")}, "Hello\n", ""},
		{"at once", true, []host.Update{said("Hello")}, "Hello\n", ""},
		{"to a pipe", false, []host.Update{delta("Hel"), delta("lo"), said("Hello")}, "Hello\n", ""},
		{"its end was dropped", true, []host.Update{delta("Hel"), said("Hello")}, "Hello\n", ""},
		{"its middle was dropped", true, []host.Update{delta("H"), delta("lo"), said("Hello")}, "Hlo\nHello\n", "the answer is:\n"},
		{"the harness says something else", true, []host.Update{delta("Hello"), said("Bye")}, "Hello\nBye\n", "the answer is:\n"},
		{"again", true, []host.Update{delta("Hel"), reset, delta("Bye"), said("Bye")}, "Hel\nBye\n", "the answer broke off and is asked for again\n"},
		{"line breaks", true, []host.Update{delta("a\n"), delta("b\n"), said("a\nb\n"), said("c")}, "a\nb\nc\n", ""},
		{"nothing", true, []host.Update{said("")}, "", ""},
		{"two answers", true, []host.Update{delta("a"), said("a"), delta("b"), said("b")}, "a\nb\n", ""},
		{"a call beside it", true, []host.Update{delta("a"), said("a"), call, delta("b"), said("b")}, "a\nb\n", "look {\"at\":\"\\\\u001b[2J\"}\n"},
		{
			"hostile", true,
			[]host.Update{delta("\x1b[2J"), delta("\u202e\r"), said("\x1b[2J\u202e\r")},
			`\x1b[2J\u202e\r` + "\n", "",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			v := view{output: newOutput(&stdout, &stderr, func(string) string { return "" }), live: test.live}
			for _, u := range test.updates {
				v.update(u)
			}
			v.end()
			if diff := cmp.Diff(test.stdout, stdout.String()); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.stderr, stderr.String()); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

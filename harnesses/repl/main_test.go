package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// session is a console and its host.
type session struct {
	t    *testing.T
	host *sdktest.Host
	repl *repl
}

func newSession(t *testing.T) *session {
	return &session{t, new(sdktest.Host), newRepl()}
}

// says is the text that an input gives.
func (s *session) says(input string) string {
	s.t.Helper()
	outputs, err := s.host.Run(s.t.Context(), s.repl, input)
	if err != nil {
		s.t.Fatalf("%s: %v", input, err)
	}
	return outputs[len(outputs)-1].Text()
}

// check runs pairs of code and what it gives, a turn each.
func (s *session) check(pairs ...string) {
	s.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if diff := cmp.Diff(pairs[i+1], s.says(pairs[i])); diff != "" {
			s.t.Errorf("%s:\n%s", pairs[i], diff)
		}
	}
}

// TestRemembers: what code leaves is there in later turns.
func TestRemembers(t *testing.T) {
	newSession(t).check(
		"x = 1", "1",
		"let y = 2; const z = [x, y]", "undefined",
		"z", "[1, 2]",
		"let y = 5", "undefined",
		"y", "5",
		"let y", "undefined",
		"y", "undefined",
		"function adder(n) { return m => n += m } const add = adder(40)", "undefined",
		"add(1); add(1)", "42",
		"add(1)", "43",
		"class A { #n = 1; next() { return this.#n++ } } const a = new A(); a.next()", "1",
		"a.next()", "2",
		"class A {}; [new A(), a]", "[A {}, A {}]",
		"const m = new Map([['k', new Set([1])]])", "undefined",
		"m", `Map(1) { "k" => Set(1) { 1 } }`,
		"function* g() { yield 1; yield 2 } const it = g(); it.next().value", "1",
		"it.next()", "{ value: 2, done: false }",
		"let settle; const later = new Promise(r => settle = r).then(v => v + 1); later", "Promise { <pending> }",
		"settle(6); later", "Promise { 7 }",
		"{ a: x, b: { c: y } }", "{ a: 1, b: { c: undefined } }",
		"{ let inner = 1 }; typeof inner", `"undefined"`,
		"console.log('n', x, { a: 'b' }); console.error([1]); 4", "n 1 { a: \"b\" }\n[1]\n4",
		"> x", "1",
	)
}

// TestAwait: await may stand at the top level, beside what is declared there.
func TestAwait(t *testing.T) {
	newSession(t).check(
		"await Promise.resolve(5)", "5",
		"const r = await (async () => 7)(), { a, ...rest } = await { a: 1, b: 2 }; function f() { return r }", "undefined",
		"[r, a, rest, f()]", "[7, 1, { b: 2 }, 7]",
		"for (const x of [Promise.resolve(1)]) console.log(await x)", "1\nundefined",
		"await new Promise(() => {})", "Uncaught Error: await waits for a promise that nothing settles",
		"x = 'await'", `"await"`,
		"await 1; }); (() => {", "Uncaught SyntaxError: Unexpected number\n    at #7:1:7",
		"Promise.reject(new Error('nobody')); 1", "Uncaught (in promise) Error: nobody\n    at #8:1:16\n1",
		"const p = Promise.reject(new Error('somebody')); p.catch(() => {}); 2", "2",
	)
}

// TestThrown: an exception is what code comes to, with where it was.
func TestThrown(t *testing.T) {
	newSession(t).check(
		"function f() {\n  throw new TypeError('no')\n}\nf()", "Uncaught TypeError: no\n    at f (#1:2:9)\n    at #1:4:2",
		"await f()", "Uncaught TypeError: no\n    at f (#1:2:9)\n    at #2:1:8\n    at #2:2:3",
		"missing", "Uncaught ReferenceError: missing is not defined\n    at #3:1:1",
		"1 +", "Uncaught SyntaxError: Unexpected end of input\n    at #4:1:4",
		"if (1) { let v; let v }", "Uncaught SyntaxError: Identifier 'v' has already been declared\n    at #5:1:21",
		"f() = 1", "Uncaught SyntaxError: Invalid left-hand side in assignment\n    at #6:1:1",
		"throw null", "Uncaught null\n    at #7:1:1",
		"throw { toString() { for (;;); } }", "Uncaught { toString: [Function: toString] }\n    at #8:1:1",
		"throw Symbol('s')", "Uncaught Symbol(s)\n    at #9:1:1",
		"Object.assign(new Error('m'), { code: 5 })", "Error: m\n    at #10:1:15\n    code: 5",
		"done = 1; throw new Error('late')", "Uncaught Error: late\n    at #11:1:17",
		"done", "1",
		"//# sourceMappingURL=/etc/passwd\n1", "1",
	)
}

// TestInspect: a value is shown whatever it is, and none of its code is run for it.
func TestInspect(t *testing.T) {
	newSession(t).check(
		"-0", "-0", "123n", "123n", "'a\"b\\n<é>'", `"a\"b\n<é>"`, "Symbol('q')", "Symbol(q)", "NaN", "NaN", "null", "null",
		"new Date(0)", "1970-01-01T00:00:00.000Z", "new Date(NaN)", "Invalid Date",
		"/a\\/+/gi", `/a\/+/gi`,
		"[1,,3]", "[1, <empty>, 3]", "[]", "[]", "({})", "{}",
		"() => 1", "[Function: (anonymous)]", "tools.call", "[Function: call]",
		"new Uint8Array(3)", "Uint8Array(3) [0, 0, 0]",
		"Object.create(null)", "[null prototype] {}",
		"new Set", "Set(0) {}", "Map.prototype", "Map {}",
		"[new RangeError('q')]", "[[RangeError: q]]",
		"Promise.resolve({ a: [1] })", "Promise { { a: [1] } }",
		"({ a: { b: { c: { d: {} } } } })", "{ a: { b: { c: { d: [Object] } } } }",
		"({ 'a-b': 1, [Symbol('s')]: 2, 3: 4, $: 5 })", `{ "3": 4, "a-b": 1, $: 5, [Symbol(s)]: 2 }`,
		"o = { get a() { for (;;); } }; o.self = [o]; o", "{ a: [Getter], self: [[Circular]] }",
		"new Proxy({ a: 1 }, { get() { for (;;); }, ownKeys() { for (;;); }, getPrototypeOf() { for (;;); } })", "Proxy { a: 1 }",
		"new Proxy(() => 1, {})", "Proxy [Function: (anonymous)]",
		"(r = Proxy.revocable({}, {})).revoke(); r.proxy", "Proxy (revoked)",
		"e = new Error('m'); Object.defineProperty(e, 'message', { get() { for (;;); } }); e", "Error",
		"class B { get [Symbol.toStringTag]() { for (;;); } static get name() { for (;;); } }; new B()", "{}",
		"Object.getOwnPropertyDescriptor = Reflect.ownKeys = Map.prototype.entries = () => { for (;;); }; new Map([[1, { a: 2 }]])", "Map(1) { 1 => { a: 2 } }",
		"Object.defineProperty(Object.prototype, 'value', { get() { for (;;); } }); ({ a: 1 })", "{ a: [Getter] }",
	)
}

// TestBounds: what is shown has a bound, however much there is.
func TestBounds(t *testing.T) {
	s := newSession(t)
	s.host.Config = []byte(`{"result_bytes":1000}`)
	for code, want := range map[string]string{
		"'é'.repeat(1e6)": " more bytes",
		"Array(1e9)":      "<empty>, … 999999900 more]",
		"new Map(Array.from(Array(1e4), (_, i) => [i, i]))":                  " more bytes",
		"for (let i = 0; i < 1e4; i++) console.log('line', i)":               " more bytes",
		"Object.fromEntries(Array.from(Array(1e4), (_, i) => ['k' + i, i]))": "k99: 99, … 9900 more }",
		"let deep = []; for (let i = 0; i < 1e5; i++) deep = [deep]; deep":   "[[[[[Array]]]]]",
		"throw 'x'.repeat(1e6)": " more bytes",
	} {
		if got := s.says(code); len(got) > 2500 || !strings.Contains(got, want) {
			t.Errorf("%s: %d bytes: %.100s … %s", code, len(got), got, got[max(0, len(got)-60):])
		}
	}
}

// TestRecursion: calls that go too deep are an exception, on every way round.
func TestRecursion(t *testing.T) {
	s := newSession(t)
	for _, code := range []string{
		"function a() { return a() } a()",
		"function b() { return [1].map(b) } b()",
		"c = new Proxy({}, { get(t, k, r) { return r[k] } }); c.x",
		"d = { get x() { return this.x } }; d.x",
		"e = { toString() { return '' + this } }; '' + e",
		"f = { toJSON() { return JSON.stringify(this) } }; JSON.stringify(f)",
		"'a'.replace(/a/, function g() { return 'a'.replace(/a/, g) })",
		"Promise.resolve().then(a)",
	} {
		if got := s.says(code); !strings.Contains(got, "RangeError: too many calls within calls\n    at ") {
			t.Errorf("%s: %.200s", code, got)
		}
	}
	s.check("function deep(n) { return n ? deep(n - 1) : 'there' } deep(1000)", `"there"`)
	s.host.Limits = &abi.Limits{Depth: 1600}
	s.check("typeof deep(90)", `"string"`)
	if got := s.says("deep(110)"); !strings.HasPrefix(got, "Uncaught RangeError") {
		t.Errorf("a lower limit: %.100s", got)
	}
}

// TestWorld: time and randomness are the turn's.
func TestWorld(t *testing.T) {
	run := func() (text string) {
		s := newSession(t)
		return s.says("[Math.random(), Math.random()]") + s.says("Math.random()")
	}
	if first, second := run(), run(); first != second {
		t.Errorf("two sessions with the same randomness: %s and %s", first, second)
	}
	s := newSession(t)
	if one, other := s.says("Math.random()"), s.says("Math.random()"); one == other {
		t.Errorf("two turns drew %s", one)
	}
	var waits []abi.WaitRequest
	s.host.Wait = func(r abi.WaitRequest) abi.WaitResponse {
		waits = append(waits, r)
		switch r.Signal {
		case "paid":
			return abi.WaitResponse{Signal: "paid", Payload: []byte(`{"n":12345678901234567890}`)}
		case "bare":
			return abi.WaitResponse{Signal: "bare"}
		}
		return abi.WaitResponse{}
	}
	s.check(
		"sleep(86400e3)", "undefined",
		"signal('paid')", "{ n: 12345678901234567890n }",
		"signal('bare', 1000)", "null",
		"signal('never', 1000)", "undefined",
		"sleep(0)", "undefined",
	)
	if len(waits) != 4 || waits[0].Until.Before(time.Now().Add(23*time.Hour)) || !waits[1].Until.IsZero() || waits[2].Until.IsZero() {
		t.Errorf("waits: %+v", waits)
	}
	for code, want := range map[string]string{
		"sleep(-1)": "RangeError: want a time in milliseconds", "sleep('x')": "RangeError: want a time",
		"sleep(1e300)": "RangeError: want a time", "signal(5)": "TypeError: the name of a signal must be a string",
	} {
		if got := s.says(code); !strings.HasPrefix(got, "Uncaught "+want) {
			t.Errorf("%s: %s", code, got)
		}
	}
}

// workshop are the tools of a session.
func workshop() map[string]func(abi.ToolCall) (abi.ToolResult, error) {
	text := func(t string) abi.Part { return abi.Part{Text: &abi.TextPart{Text: t}} }
	return map[string]func(abi.ToolCall) (abi.ToolResult, error){
		"echo": func(c abi.ToolCall) (abi.ToolResult, error) { return abi.ToolResult{Output: c.Args}, nil },
		"read": func(abi.ToolCall) (abi.ToolResult, error) {
			return abi.ToolResult{Content: []abi.Part{text("one"), text("two")}}, nil
		},
		"scan": func(abi.ToolCall) (abi.ToolResult, error) {
			return abi.ToolResult{Content: []abi.Part{text("page"), {File: &abi.FilePart{MIME: "image/png", Bytes: []byte{1}}}}}, nil
		},
		"nothing": func(abi.ToolCall) (abi.ToolResult, error) { return abi.ToolResult{}, nil },
		"lost":    func(abi.ToolCall) (abi.ToolResult, error) { return abi.ToolResult{}, errors.New("no such file") },
		"drop": func(abi.ToolCall) (abi.ToolResult, error) {
			return abi.ToolResult{IsError: true, Error: "denied: not today", Code: abi.ToolApprovalDenied}, nil
		},
	}
}

// TestTools: code calls the tools of the session.
func TestTools(t *testing.T) {
	s := newSession(t)
	s.host.Tools = workshop()
	s.check(
		"tools.list().map(t => t.name)", `["drop", "echo", "lost", "nothing", "read", "scan"]`,
		"tools.call('echo', { a: [1, 2.5, null], b: 'x' })", `{ a: [1, 2.5, null], b: "x" }`,
		// I2: a number survives, whatever its size.
		"id = tools.call('echo', { id: 12345678901234567890n }).id", "12345678901234567890n",
		"tools.call('echo', { id, small: -9007199254740991, big: -9007199254740992n, f: 0.1, e: 1e21 })",
		"{ id: 12345678901234567890n, small: -9007199254740991, big: -9007199254740992n, f: 0.1, e: 1e+21 }",
		"Object.keys(tools.call('echo', JSON.parse('{\"__proto__\": 1}')))", `["__proto__"]`,
		"tools.call('read')", `"one\ntwo"`,
		"tools.call('scan')[1].file.mime", `"image/png"`,
		"tools.call('nothing')", "undefined",
		"try { tools.call('drop') } catch (e) { [e.name, e.message, e.code] }", `["ToolError", "denied: not today", "APPROVAL_DENIED"]`,
		"tools.all([['echo', { n: 1 }], ['lost']])", "[{ value: { n: 1 } }, { error: [ToolError: no such file] }]",
		"tools.all([])", "[]",
	)
	for code, want := range map[string]string{
		"tools.call('lost')":                               "ToolError: no such file\n    at #",
		"tools.call('none')":                               `ToolError: there is no tool "none"; tools.list() has those that there are`,
		"tools.call(5)":                                    "TypeError: the name of a tool must be a string",
		"tools.call('echo', [1])":                          "TypeError: the arguments of a tool must be an object",
		"tools.call('echo', () => 1)":                      "TypeError: a function or symbol is no JSON",
		"c = {}; c.c = c; tools.call('echo', c)":           "TypeError: Converting circular structure to JSON",
		"tools.call('echo', { get a() { throw 'mine' } })": `"mine"`,
		"tools.all(5)":                                     "TypeError: ",
	} {
		if got := s.says(code); !strings.HasPrefix(got, "Uncaught "+want) {
			t.Errorf("%s: %s, want %s", code, got, want)
		}
	}
	calls := 0
	for _, r := range s.host.Records {
		if r.Event.Kind == abi.EventToolCall {
			calls++
		}
	}
	if want := 11; calls != want {
		t.Errorf("%d calls are recorded, want %d", calls, want)
	}
}

// TestGivenUp: natively a turn that is given up ends, even in code that catches all.
func TestGivenUp(t *testing.T) {
	s := newSession(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("given up")
	s.host.Tools = map[string]func(abi.ToolCall) (abi.ToolResult, error){
		"stop": func(abi.ToolCall) (abi.ToolResult, error) {
			cancel(gone)
			return abi.ToolResult{}, nil
		},
	}
	_, err := s.host.Run(ctx, s.repl, "for (;;) try { tools.call('stop') } catch {}")
	if !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	s.check("1 + 1", "[A turn before this one ended as FAILED (tool_call: given up): what it did to variables is undone. What came of its tool calls is not:\nstop(): done]\n2")
}

// TestLost: the next turn is told of those that did not complete, once.
func TestLost(t *testing.T) {
	s := newSession(t)
	s.check("x = 1", "1")
	record := func(e abi.Event) {
		s.host.Records = append(s.host.Records, abi.LogRecord{Seq: s.host.Records[len(s.host.Records)-1].Seq + 1, Event: &e})
	}
	pay := func(id string) {
		record(abi.Event{Kind: abi.EventToolCall, Tool: &abi.ToolCall{ID: id, Tool: "pay", Args: abi.Struct(`{"id":"` + id + `"}`)}})
	}
	result := func(r abi.ToolResult) { record(abi.Event{Kind: abi.EventToolResult, Result: &r}) }
	for _, id := range []string{"made", "lost", "open", "denied", "withheld"} {
		pay(id)
	}
	record(abi.Event{Kind: abi.EventApprovalRequest, Approval: &abi.ApprovalRequest{ToolCallID: "open"}})
	result(abi.ToolResult{ID: "made", Output: abi.Struct(`{"ok":true}`)})
	result(abi.ToolResult{ID: "denied", IsError: true, Code: abi.ToolApprovalDenied, Error: "denied: not today"})
	result(abi.ToolResult{ID: "withheld", IsError: true, Error: "not made: the budget has nothing left for it"})
	record(abi.Event{Kind: abi.EventEnd, End: &abi.HarnessEnd{State: abi.StateFailed, Error: &abi.Error{Description: "no fuel"}}})
	record(abi.Event{Kind: abi.EventEnd, End: &abi.HarnessEnd{State: abi.StateCanceled}})
	s.check(
		"x", "[A turn before this one ended as FAILED (no fuel): what it did to variables is undone. What came of its tool calls is not:\n"+
			"pay({\"id\":\"made\"}): done\npay({\"id\":\"lost\"}): no result is known\npay({\"id\":\"open\"}): not made, as it was not approved\n"+
			"pay({\"id\":\"denied\"}): denied: not today\npay({\"id\":\"withheld\"}): not made: the budget has nothing left for it]\n"+
			"[A turn before this one ended as CANCELED: what it did to variables is undone.]\n1",
		"x", "1",
	)
	// However long the session is, a turn reads its end (F14).
	before := s.host.Pages
	s.says("x")
	if read := s.host.Pages - before; read != 2 {
		t.Errorf("%d pages of history were read, want one with an END and one that is empty", read)
	}
}

func TestConfig(t *testing.T) {
	for config, want := range map[string]string{
		`{"mode":"chat"}`:    `config: mode: "chat"; want code or model`,
		`{"max_steps":0}`:    "config: max_steps: want at least 1",
		`{"result_bytes":1}`: "config: result_bytes: want 100 to 1048576",
		`{"talk_bytes":-1}`:  "config: talk_bytes: want at least 0",
		`{"modus":"code"}`:   `config: unknown field "modus"`,
	} {
		host := &sdktest.Host{Config: []byte(config)}
		_, err := host.Run(t.Context(), newRepl(), "1")
		if err == nil || err.Error() != want || sdk.Failure(err).Code != abi.CodeInvalidArgument {
			t.Errorf("%s: %v, want %s", config, err, want)
		}
	}
	if _, err := new(sdktest.Host).Run(t.Context(), newRepl()); err == nil || err.Error() != "repl: the turn has no input" {
		t.Errorf("no input: %v", err)
	}
}

// TestNotPortable: there is no way to another build, and it says so.
func TestNotPortable(t *testing.T) {
	_, err := sdk.SaveState(newRepl())
	for _, err := range []error{err, sdk.LoadState(newRepl(), nil)} {
		if err == nil || sdk.Failure(err).Code != abi.CodeUnimplemented || !strings.Contains(err.Error(), "begin a new session") {
			t.Errorf("got %v", err)
		}
	}
}

// fakeModel answers with one message after another.
func fakeModel(list ...abi.Message) func(abi.ModelCall) (abi.ModelResult, error) {
	return func(abi.ModelCall) (abi.ModelResult, error) {
		if len(list) == 0 {
			return abi.ModelResult{}, errors.New("no answer is left")
		}
		next := list[0]
		list = list[1:]
		return abi.ModelResult{Message: next}, nil
	}
}

func runs(id, code string) abi.Message {
	return abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{{ToolCall: &abi.ToolCall{ID: id, Tool: toolName, Args: abi.Struct(fmt.Sprintf(`{"code":%s}`, quoted(code)))}}}}
}

func answers(text string) abi.Message { return abi.Text(abi.RoleAssistant, text) }

// TestModel: a model writes code, which is run here, and is told what came of it and
// what people ran in between.
func TestModel(t *testing.T) {
	s := newSession(t)
	s.host.Tools = workshop()
	s.host.Config = []byte(`{"mode":"model","system":"Be brief.","params":{"temperature":0.2}}`)
	s.host.Model = fakeModel(
		runs("a", "const list = tools.call('echo', { list: [3, 1, 2] }).list; list.length"),
		runs("b", "list.sort(); console.log('sorted'); list"),
		runs("", "list.missing.name"),
		abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{
			{ToolCall: &abi.ToolCall{ID: "c", Tool: "echo", Args: abi.Struct(`{}`)}},
			{ToolCall: &abi.ToolCall{ID: "d", Tool: toolName, Args: abi.Struct(`{"code":1}`)}},
			{ToolCall: &abi.ToolCall{ID: "e", Tool: toolName}},
		}},
		answers("1, 2 and 3."),
		answers("Six."),
	)
	s.says("Sort the list.")
	s.says("> sum = list.reduce((a, b) => a + b)")
	s.says("?What is the sum?")
	s.host.Golden(t, "testdata/session.txt")
}

// TestModelSteps: in the last step a model must answer.
func TestModelSteps(t *testing.T) {
	s := newSession(t)
	s.host.Config = []byte(`{"max_steps":2}`)
	s.host.Model = fakeModel(runs("a", "x = 1"), runs("b", "x = 2"))
	_, err := s.host.Run(t.Context(), s.repl, "? go")
	const want = "repl: the model runs code where it must answer, after 2 steps (max_steps)"
	if err == nil || err.Error() != want || sdk.Failure(err).Code != abi.CodeResourceExhausted {
		t.Errorf("got %v", err)
	}
	last := s.host.Calls[1]
	if last.ToolChoice.Mode != abi.ToolChoiceNone || last.Messages[len(last.Messages)-1].Text() != lastStep {
		t.Errorf("the last call: %+v", last)
	}
	s.host.Model = fakeModel()
	if _, err := s.host.Run(t.Context(), s.repl, "? go"); !errors.Is(err, sdk.ErrFailed) {
		t.Errorf("a failed model call: %v", err)
	}
}

// TestTalkIsBounded: what was said is left out when it grows too long; the variables
// are told in its place.
func TestTalkIsBounded(t *testing.T) {
	s := newSession(t)
	s.host.Config = []byte(`{"talk_bytes":3000}`)
	for i := range 20 {
		s.says(fmt.Sprintf("var v%d = [%q]; v%d", i%3, strings.Repeat("x", 500), i%3))
	}
	s.host.Model = fakeModel(answers("yes"))
	s.says("? Are you there?")
	said := s.host.Calls[0].Messages
	size := 0
	for _, m := range said[1:] {
		size += sizeOf(m)
	}
	const want = "[Earlier parts of the conversation are left out. Variables that there are: v0 (Array), v1 (Array), v2 (Array)]"
	if said[1].Text() != want || size > 3500 || len(said) < 4 {
		t.Errorf("%d messages of %d bytes: %s", len(said), size, said[1].Text())
	}
	if got := len(s.repl.talk.said); got > 4 {
		t.Errorf("%d pieces of talk are kept", got)
	}
}

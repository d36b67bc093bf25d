package host_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// choices are bytes that decide something; when they are used up everything is
// decided as 0.
type choices struct{ left []byte }

func (c *choices) byte() byte {
	if len(c.left) == 0 {
		return 0
	}
	b := c.left[0]
	c.left = c.left[1:]
	return b
}

// below is a number below n.
func (c *choices) below(n int) int {
	v := int(c.byte())
	if n > 256 {
		v = v<<8 | int(c.byte())
	}
	return v % n
}

func (c *choices) take(n int) []byte {
	n = min(n, len(c.left))
	b := c.left[:n]
	c.left = c.left[n:]
	return b
}

// bodies are requests that their imports may take; %d is a number that no other
// body of the program has.
var bodies = map[string][]string{
	"model": {
		`{"messages":[{"role":"user","parts":[{"text":{"text":"say %d"}}]}]}`,
		`{"model":"fails","messages":[{"parts":[{"text":{"text":"x"}}]}],"params":{"a":"b"}}`,
		`{"model":"lies","messages":[{"parts":[{"data":{"data":{"n":9007199254740993.10}}}]}]}`,
		`{"model":"deep","messages":[{"parts":[]}]}`, `{"model":"nobody","messages":[{}]}`, `{"messages":[]}`,
	},
	"output": {
		`{"parts":[{"text":{"text":"out %d"}}]}`, `{"role":"tool","parts":[{"data":{"data":{"b":1,"a":[1e400]}}}]}`,
		`{"parts":[{"reasoning":{"opaque_bytes":"AAEC","summary":[{"text":{}}]}},{"file":{"bytes":"!"}}]}`, `{"parts":[{}]}`,
		`{"parts":[{"data":{"data":{"n":12345678901234567890,"m":0.1000000000000000000001}}}]}`,
	},
	"tool_call": {
		`{"calls":[{"id":"c%d","tool":"read","args":{"n":9007199254740993},"idempotency_key":"k"}]}`,
		`{"calls":[{"id":"d%d","tool":"breaks","idempotency_key":"k"},{"id":"e","tool":"lies","idempotency_key":"k"},{"id":"f","tool":"panics","idempotency_key":"k"}]}`,
		`{"calls":[{"id":"g%d","tool":"drop","idempotency_key":"k"},{"id":"h%[1]d","tool":"read","args":{},"idempotency_key":"k"}]}`,
		`{"calls":[{"id":"i","tool":"read","idempotency_key":"k"},{"id":"i","tool":"read","idempotency_key":"k"}]}`,
		`{"calls":[{"id":"j","tool":"absent","idempotency_key":"k"}]}`, `{"calls":[{"id":"l%d","tool":"read","args":"x","mediation":"MEDIATION_REQUIRES_APPROVAL","idempotency_key":"k"}]}`,
	},
	"report":  {`{"id":"r%d","output":{"x":1}}`, `{"id":"r","code":"APPROVAL_DENIED"}`, `{"id":"r","content":[{"text":{"text":"x"}}],"is_error":true}`},
	"usage":   {`{"model":"m","input_tokens":"%d","output_tokens":3}`, `{"input_tokens":"99999999999999999999"}`},
	"wait":    {`{"signal":"s%d"}`, `{"until":"2001-01-01T00:00:00Z"}`, `{"until":"2900-01-01T00:00:00Z","signal":"later"}`, `{"until":"x"}`},
	"history": {`{}`, `{"from_seq":"2","limit":3}`, `{"reverse":true,"kinds":["EVENT_OUTPUT"],"limit":-1}`, `{"reverse":true,"limit":2}`, `{"from_seq":"9223372036854775807"}`},
	"log":     {"line %d\n", "\xff\xfe", "no end"},
	"reply":   {`{"id":"x"}`},
	"fail":    {`{"code":8,"description":"no %d"}`, `{"code":"x"}`, `[]`},
	"start":   {``},
}

// broken are bodies that no import takes.
var broken = []string{
	``, `null`, `{}`, `[]`, `{"parts":`, `{"x":1}`, `"\ud800"`, "{\"parts\":[{\"text\":{\"text\":\"\xff\"}}]}", `{"a":1,"a":2} {}`,
	strings.Repeat("[", 3000), `{"parts":[{"data":{"data":` + strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600) + `}}]}`,
	`{"parts":[{"text":{"text":"` + strings.Repeat(`\u0000`, 300) + `"}}]}`,
	`{"messages":[` + strings.TrimSuffix(strings.Repeat(`{},`, 300), ",") + `]}`,
}

// request places a body for an import and gives where it is and how long.
func (c *choices) request(p *program, name string, unique int) (ptr, n uint64) {
	body := []byte(broken[c.below(len(broken))])
	if kind := c.byte(); kind < 200 {
		list := bodies[name]
		text := list[c.below(len(list))]
		if strings.Contains(text, "%") {
			text = fmt.Sprintf(text, unique)
		}
		body = []byte(text)
		if kind > 150 && len(body) > 0 { // one byte of it is another one
			body[c.below(len(body))] = c.byte()
		}
	} else if kind > 230 {
		body = c.take(c.below(200))
	}
	at, ok := p.place(body)
	if !ok {
		return c.word(), c.word()
	}
	switch n := len(body); c.byte() {
	case 255:
		return uint64(at), c.word()
	case 254:
		return c.word(), uint64(n)
	default:
		return uint64(at), uint64(n)
	}
}

// words are arguments that go wrong, or just do not.
var words = []uint64{
	0, 1, 2, 3, 4, 7, 8, 64, 1000, 65535, 65536, dataAt, programAt, scratchAt, guestSize - 8, guestSize - 1, guestSize, guestSize + 1,
	1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 8, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1,
}

// word is any argument.
func (c *choices) word() uint64 {
	if c.byte() < 220 {
		return words[c.below(len(words))]
	}
	return binary.LittleEndian.Uint64(append(slices.Clone(c.take(8)), make([]byte, 8)...))
}

// rash are the instructions that mostly end a turn.
var rash = []string{"proc_exit", "abort", "trap", "divide", "indirect", "jump", "load", "store", "fill", "copy"}

// program makes a program of what is left to choose.
func (c *choices) program() string {
	list, _ := instructions()
	p := &program{list: list}
	if c.byte() < 220 {
		p.do("start", 1, 0, 0)
	}
	for n := 1 + c.below(24); n > 0 && len(c.left) > 0; n-- {
		in := c.below(len(list))
		if c.byte() < 150 { // mostly what a harness does
			in = c.below(12)
		}
		if slices.Contains(rash, list[in].name) && c.byte() < 200 {
			continue
		}
		args := make([]uint64, len(list[in].params))
		for i := range args {
			args[i] = c.word()
		}
		switch name := list[in].name; {
		case bodies[name] != nil:
			args[0], args[1] = c.request(p, name, len(p.code))
		case name == "grow":
			args[0] %= 40
		case name == "again" && c.byte() < 100: // and again, for ever
			loop := len(p.code)
			p.do("again", 1, 0)
			p.do("jump", 1, uint64(loop-8)) // it moves on by its argument
		}
		times := byte(1)
		if c.byte() > 230 {
			times = c.byte()
		}
		p.op(in, times, args)
		if c.byte() < 60 { // so that the root depends on the answer
			p.do("read", 1, uint64(8*c.below(4096)), uint64(c.below(3000)))
		}
	}
	return p.input(c.byte() % 3)
}

// arena is a host on one engine that does the same whenever it is asked the same.
type arena struct {
	*host.Host
	store *journal.Journal
}

func newArena(t testing.TB, interpreter bool) *arena {
	t.Helper()
	store := journal.OpenMemory()
	random := rand.NewChaCha8([32]byte{1})
	limits := abi.DefaultLimits()
	limits.Fuel, limits.Depth, limits.Effects = 300_000, 100, 40
	limits.MemoryBytes, limits.RequestBytes, limits.OutputBytes = 2<<20, 32<<10, 64<<10
	answers := func(r model.Result, err error) model.Provider {
		return providerFunc(func(context.Context, model.Request, func(model.Delta)) (model.Result, error) { return r, err })
	}
	data := func(text string) model.Result {
		return model.Result{Message: abi.Message{Parts: []abi.Part{{Data: &abi.DataPart{Data: abi.Struct(text)}}}}}
	}
	h, err := host.New(host.Config{
		Journal: store, Runtimes: []runtimes.Runtime{engine(t, interpreter)},
		Models: map[string]model.Provider{
			"echo": providerFunc(func(_ context.Context, r model.Request, _ func(model.Delta)) (model.Result, error) {
				text := ""
				for _, m := range r.Call.Messages {
					text += m.Text()
				}
				return model.Result{Message: abi.Text("", "echo: "+text), Usage: &abi.Usage{InputTokens: abi.Int64(len(text))}}, nil
			}),
			"fails": answers(model.Result{}, errors.New("no answer")),
			"lies":  answers(data(`{"x":`), nil),
			"deep":  answers(data(strings.Repeat(`{"a":`, 600)+"1"+strings.Repeat("}", 600)), nil),
		},
		DefaultModel: "echo", Tools: new(toolbox).tools(), Limits: limits, FlushDelay: -1,
		Now:    func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) },
		Random: random,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &arena{h, store}
}

func (w *arena) close(t testing.TB) {
	t.Helper()
	if err := errors.Join(w.Host.Close(), w.store.Close()); err != nil {
		t.Error(err)
	}
}

// played is all that can be told of what the choices led to.
type played struct {
	Ends    []host.Execution
	Records []string
	Honest  []string
}

// play lets a session run what is chosen, and then shows that an honest one, which
// runs beside it, is none the worse.
func (w *arena) play(t testing.TB, guest host.Harness, chosen []byte) (out played) {
	t.Helper()
	ctx, c := context.Background(), &choices{chosen}
	create := func(h host.Harness) abi.SessionID {
		s, err := w.Create(ctx, host.CreateRequest{Harness: h})
		if err != nil {
			t.Fatal(err)
		}
		return s.UID
	}
	uid := create(guest)
	all := []abi.SessionID{uid}
	exec := func(req host.ExecRequest) host.Execution {
		req.Session = uid
		e, err := w.Exec(ctx, req)
		if err != nil {
			t.Fatalf("a turn did not end: %v", err)
		}
		out.Ends = append(out.Ends, e)
		return e
	}
	// settle brings a turn that is parked to an end.
	settle := func(e host.Execution) abi.EndReason {
		for range 3 {
			if len(e.Waiting) == 0 || c.byte() < 60 {
				break
			}
			var err error
			if wait := e.Waiting[0]; wait.Tool != "" {
				_, err = w.Decide(ctx, host.DecideRequest{Session: uid, CallID: wait.CallID, Approved: c.byte() < 128})
			} else {
				_, err = w.Signal(ctx, uid, wait.Signal, []byte(`{"n":1}`))
			}
			if err != nil {
				t.Fatal(err)
			}
			e = exec(host.ExecRequest{})
		}
		if len(e.Waiting) > 0 {
			e = exec(host.ExecRequest{Abandon: true})
		}
		return e.Reason
	}
	for range 1 + c.below(3) {
		exec(host.ExecRequest{Inputs: say(c.program())})
		if c.byte() < 40 { // agent_cloned runs the program then
			children, err := w.Fork(ctx, host.ForkRequest{Session: uid})
			if err != nil {
				t.Fatal(err)
			}
			uid = children[0].UID
			all = append(all, uid)
		}
		if settle(exec(host.ExecRequest{Inputs: say("run")})) != abi.ReasonCompleted {
			// Its memory is what it was, with the program still to run.
			uid = create(guest)
			all = append(all, uid)
		}
	}
	for _, uid := range all {
		if _, err := w.Verify(ctx, host.VerifyRequest{Session: uid, Reexecute: true, Strict: true}); err != nil {
			t.Errorf("verify: %v", err)
		}
		for r, err := range w.Replay(ctx, uid, 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			out.Records = append(out.Records, string(r.Line))
		}
	}
	honest := create(tally())
	for range 2 {
		e, err := w.Exec(ctx, host.ExecRequest{Session: honest, Inputs: say("x")})
		if err != nil {
			t.Fatal(err)
		}
		out.Honest = append(out.Honest, fmt.Sprint(e.State, e.Root))
	}
	return out
}

// duel plays the same on both engines and compares everything.
func duel(t testing.TB, compiler, interpreter *arena, guest host.Harness, chosen []byte) played {
	t.Helper()
	want, got := compiler.play(t, guest, chosen), interpreter.play(t, guest, chosen)
	inMemory := cmpopts.IgnoreFields(host.Session{}, "Compute")
	if diff := cmp.Diff(want, got, inMemory); diff != "" {
		t.Fatalf("the engines differ (-compiler +interpreter):\n%s", diff)
	}
	for _, state := range want.Honest {
		if !strings.HasPrefix(state, string(abi.StateCompleted)) {
			t.Fatalf("beside it an honest turn ended %s", state)
		}
	}
	return want
}

// FuzzImports: whatever a guest calls, with whatever arguments and in whatever
// order, its turns end in the same way, with the same record, fuel and root, on
// both engines and when they are run again; and other sessions never know.
func FuzzImports(f *testing.F) {
	if testing.Short() {
		f.Skip("the interpreter takes long under the race detector")
	}
	for seed := range uint64(20) {
		f.Add(randomChoices(seed))
	}
	guest := importsGuest()
	f.Fuzz(func(t *testing.T, chosen []byte) {
		a, b := newArena(t, false), newArena(t, true)
		defer a.close(t)
		defer b.close(t)
		duel(t, a, b, guest, chosen)
	})
}

func randomChoices(seed uint64) []byte {
	random := rand.NewChaCha8([32]byte(binary.LittleEndian.AppendUint64(make([]byte, 24), seed)))
	b := make([]byte, 200+random.Uint64()%1800)
	_, _ = random.Read(b)
	return b
}

// S3, M2: FuzzImports for many random programs, and with AGENTCELL_SOAK for five
// minutes. All ends there are come up.
func TestS3_RandomImports(t *testing.T) {
	if testing.Short() {
		t.Skip("the interpreter takes long under the race detector")
	}
	seed, enough := uint64(1_000_000), func(n int) bool { return n == 150 }
	if os.Getenv("AGENTCELL_SOAK") != "" {
		seed = rand.Uint64()
		until := time.Now().Add(5 * time.Minute)
		enough = func(int) bool { return time.Now().After(until) }
		t.Logf("seed %d", seed)
	}
	guest := importsGuest()
	ends, kinds := map[abi.EndReason]int{}, map[abi.EventKind]int{}
	var a, b *arena
	n := 0
	for ; !enough(n); n++ {
		if n%50 == 0 {
			if n > 0 {
				a.close(t)
				b.close(t)
			}
			a, b = newArena(t, false), newArena(t, true)
		}
		out := duel(t, a, b, guest, randomChoices(seed+uint64(n)))
		for _, e := range out.Ends {
			ends[e.Reason]++
		}
		for _, line := range out.Records {
			if _, rest, ok := strings.Cut(line, `"kind":"EVENT_`); ok {
				kind, _, _ := strings.Cut(rest, `"`)
				kinds[abi.EventKind("EVENT_"+kind)]++
			}
		}
	}
	a.close(t)
	b.close(t)
	t.Logf("%d programs: ends %v, records %v", n, ends, kinds)
	for _, want := range []abi.EndReason{abi.ReasonCompleted, abi.ReasonError, abi.ReasonTrap, abi.ReasonFuel, abi.ReasonDepth, abi.ReasonExit, abi.ReasonAbandoned} {
		if ends[want] == 0 {
			t.Errorf("no turn ended for reason %q; the test shows less than it says", want)
		}
	}
	for _, want := range []abi.EventKind{
		abi.EventModelCall, abi.EventOutput, abi.EventError, abi.EventToolCall, abi.EventToolResult, abi.EventApprovalResult, abi.EventWait, abi.EventSignal, abi.EventUsage,
	} {
		if kinds[want] == 0 {
			t.Errorf("there is no %s; the test shows less than it says", want)
		}
	}
}

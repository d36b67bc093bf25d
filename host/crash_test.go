package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/echo"
	"github.com/agentcell/agentcell/host/tool"
	hostturn "github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	runtime "github.com/agentcell/agentcell/runtimes/wasm"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm"
)

// crashEnv makes the test binary a process that dies at one point: its value is a
// crash.
const crashEnv = "AGENTCELL_TEST_CRASH_CHILD"

// crash is a point at which a host dies in a turn with a tool call.
type crash struct {
	// Phase is what the host is at: asking (the turn runs until it parks),
	// deciding, or running (the turn goes on); or upgrading, outside of turns.
	Phase string
	// Point is one of the host's fault points; or "call", in the tool itself; or
	// "clock", when the time of a decision is read; or "return", behind the phase.
	Point string
	// Record is what the record then ends with: it tells points of one name apart.
	Record string
	Denied bool
	Free   bool // no gate: the tool asks nobody before the call
	// Policy is what a policy says of the call, if there is one.
	Policy hostturn.Verdict
	// Edited: who approves the call gives it other arguments.
	Edited bool
	// Decided is how many people have decided before the phase.
	Decided int
	// Late is how much later the phase is than what was before it.
	Late time.Duration

	// For a child.
	Dir, Cache string
	Session    abi.SessionID
	Rule       abi.OnCrash
	By         int // whose turn it is to decide
}

// crashes are the rows of the table in docs/reliability.md, by what stands in its
// first column. Not all kill a process each time, and those whose rules do not
// differ only with one of them, which takes its time; make soak does.
var crashes = []struct {
	what  string
	kills bool
	crash
}{
	{"before the call's intent is durable", false, crash{Phase: "asking", Point: "staged", Record: "END"}},
	{"before the request to approve it is durable", false, crash{Phase: "asking", Point: "staged", Record: "TOOL_CALL TOOL_CALL"}},
	{"after the request is durable", true, crash{Phase: "asking", Point: "committed", Record: "APPROVAL_REQUEST"}},
	{"before the decision is durable", true, crash{Phase: "deciding", Point: "clock", Record: "APPROVAL_REQUEST"}},
	{"after the decision is durable", true, crash{Phase: "deciding", Point: "return", Record: "APPROVAL_RESULT"}},
	{"before the start of the call is durable", false, crash{Phase: "running", Decided: 1, Point: "staged", Record: "APPROVAL_RESULT"}},
	{"after the start is durable, before the call", true, crash{Phase: "running", Decided: 1, Point: "committed", Record: "LIFECYCLE"}},
	{"in the call", true, crash{Phase: "running", Decided: 1, Point: "call", Record: "LIFECYCLE"}},
	{"after the call, before its result is durable", true, crash{Phase: "running", Decided: 1, Point: "answered", Record: "LIFECYCLE"}},
	{"after the result is durable", true, crash{Phase: "running", Decided: 1, Point: "committed", Record: "TOOL_RESULT OUTPUT MODEL_CALL"}},
	{"before the turn's END is durable", false, crash{Phase: "running", Decided: 1, Point: "ending", Record: "MODEL_CALL"}},
	{"after END is durable", false, crash{Phase: "running", Decided: 1, Point: "ended", Record: "END"}},
	{"denied: after the decision is durable", true, crash{Phase: "deciding", Point: "return", Record: "APPROVAL_RESULT", Denied: true}},
	{"denied: before that is durable as the call's result", false, crash{Phase: "running", Decided: 1, Point: "staged", Record: "APPROVAL_RESULT", Denied: true}},
	{"no gate: before the call's intent is durable", false, crash{Phase: "asking", Point: "staged", Record: "END", Free: true}},
	{"no gate: after the intent is durable, before the call", false, crash{Phase: "asking", Point: "committed", Record: "TOOL_CALL", Free: true}},
	{"no gate: in the call", true, crash{Phase: "asking", Point: "call", Record: "TOOL_CALL", Free: true}},
	{"no gate: after the call, before its result is durable", false, crash{Phase: "asking", Point: "answered", Record: "TOOL_CALL", Free: true}},
	{"no gate: after the result is durable", false, crash{Phase: "asking", Point: "committed", Record: "TOOL_RESULT OUTPUT MODEL_CALL", Free: true}},
	{"allowed by a policy: before the call's intent is durable", false, crash{Phase: "asking", Point: "staged", Record: "END", Policy: allowed}},
	{"allowed by a policy: after intent and decision are durable, before the call", false, crash{Phase: "asking", Point: "committed", Record: "TOOL_CALL APPROVAL_RESULT", Policy: allowed}},
	{"allowed by a policy: in the call", true, crash{Phase: "asking", Point: "call", Record: "TOOL_CALL APPROVAL_RESULT", Policy: allowed}},
	{"allowed by a policy: after the call, before its result is durable", false, crash{Phase: "asking", Point: "answered", Record: "TOOL_CALL APPROVAL_RESULT", Policy: allowed}},
	{"denied by a policy: before that is durable", false, crash{Phase: "asking", Point: "staged", Record: "END", Policy: denied, Free: true}},
	{"denied by a policy: after the decision is durable", false, crash{Phase: "asking", Point: "committed", Record: "TOOL_CALL APPROVAL_RESULT", Policy: denied, Free: true}},
	{"denied by a policy: after that is durable as the call's result", false, crash{Phase: "asking", Point: "committed", Record: "TOOL_RESULT OUTPUT MODEL_CALL", Policy: denied, Free: true}},
	{"asked about by a policy: before the request is durable", false, crash{Phase: "asking", Point: "staged", Record: "END", Policy: asked, Free: true}},
	{"asked about by a policy: after intent and request are durable", false, crash{Phase: "asking", Point: "committed", Record: "TOOL_CALL APPROVAL_REQUEST", Policy: asked, Free: true}},
	{"asked about by a policy: after the decision is durable", false, crash{Phase: "deciding", Point: "return", Record: "APPROVAL_RESULT", Policy: asked, Free: true}},
	{"asked about by a policy: after the start is durable, before the call", false, crash{Phase: "running", Point: "committed", Record: "LIFECYCLE", Policy: asked, Free: true, Decided: 1}},
	{"expired: before that is durable", false, crash{Phase: "running", Point: "staged", Record: "APPROVAL_REQUEST", Policy: expires, Late: 2 * time.Hour}},
	{"expired: after that is durable", false, crash{Phase: "running", Point: "committed", Record: "APPROVAL_RESULT TOOL_RESULT OUTPUT MODEL_CALL", Policy: expires, Late: 2 * time.Hour}},
	{"expired, decided in time: before the start of the call is durable", false, crash{Phase: "running", Point: "staged", Record: "APPROVAL_RESULT", Policy: expires, Late: 2 * time.Hour, Decided: 1}},
	{"expired and asked again: before the new request is durable", false, crash{Phase: "running", Point: "staged", Record: "TOOL_RESULT APPROVAL_REQUEST", Policy: reasks, Late: 2 * time.Hour}},
	{"expired and asked again: after the new request is durable", false, crash{Phase: "running", Point: "committed", Record: "APPROVAL_REQUEST APPROVAL_REQUEST", Policy: reasks, Late: 2 * time.Hour}},
	{"two people: after the first decision is durable", true, crash{Phase: "deciding", Point: "return", Record: "APPROVAL_RESULT", Policy: two}},
	{"two people: before the second decision is durable", false, crash{Phase: "deciding", Point: "clock", Record: "APPROVAL_RESULT", Policy: two, Decided: 1}},
	{"two people: after the second decision is durable", false, crash{Phase: "deciding", Point: "return", Record: "APPROVAL_RESULT APPROVAL_RESULT", Policy: two, Decided: 1}},
	{"two people: after the start is durable, before the call", false, crash{Phase: "running", Point: "committed", Record: "LIFECYCLE", Policy: two, Decided: 2}},
	{"edited: after the decision is durable", false, crash{Phase: "deciding", Point: "return", Record: "APPROVAL_RESULT", Edited: true}},
	{"edited: after the start is durable, before the call", false, crash{Phase: "running", Point: "committed", Record: "LIFECYCLE", Edited: true, Decided: 1}},
	{"edited: in the call", true, crash{Phase: "running", Point: "call", Record: "LIFECYCLE", Edited: true, Decided: 1}},
	{"edited: after the call, before its result is durable", false, crash{Phase: "running", Point: "answered", Record: "LIFECYCLE", Edited: true, Decided: 1}},
}

// What the policies say.
var (
	allowed = verdict(hostturn.Verdict{Action: hostturn.Allow})
	denied  = verdict(hostturn.Verdict{Action: hostturn.Deny})
	asked   = verdict(hostturn.Verdict{Action: hostturn.Ask})
	expires = verdict(hostturn.Verdict{Expires: time.Hour})
	reasks  = verdict(hostturn.Verdict{Expires: time.Hour, OnExpiry: hostturn.ExpiryAsks})
	two     = verdict(hostturn.Verdict{Action: hostturn.Ask, Approvers: 2})
)

func verdict(v hostturn.Verdict) hostturn.Verdict {
	v.Rule, v.Policy = "rule", abi.DigestOf([]byte("policy"))
	return v
}

// editedArgs are those of an edited call.
const editedArgs = `{"n":1}`

var crashRules = []abi.OnCrash{abi.OnCrashRetry, abi.OnCrashUnknown, abi.OnCrashAsk}

// crashTable reads the table of docs/reliability.md: its cells by what stands in
// the first one.
func crashTable(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) == 2+len(crashRules) {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows[cells[0]] = cells[1:]
		}
	}
	return rows
}

// I3: a host that dies at any step of a tool call, in
// memory and by kill -9 on a real store, leaves what docs/reliability.md says, and
// what becomes of the call is what it says for the tool's rule.
func TestI3_CrashTable(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a big module")
	}
	table, long := crashTable(t), os.Getenv("AGENTCELL_SOAK") != ""
	for _, tt := range crashes {
		want := table[tt.what]
		if want == nil {
			t.Errorf("docs/reliability.md has no row %q", tt.what)
			continue
		}
		for _, kills := range []bool{false, true} {
			switch {
			case !kills && tt.Point == "call": // only a process can die in a tool
				continue
			case kills && !tt.kills && !long:
				continue
			}
			t.Run(fmt.Sprintf("%s/kill=%t", tt.what, kills), func(t *testing.T) {
				same := want[1] == want[2] && want[2] == want[3]
				for i, rule := range crashRules {
					if kills && !long && same && rule != abi.OnCrashUnknown {
						continue
					}
					c := tt.crash
					c.Rule = rule
					state, outcome := c.run(t, kills)
					if diff := cmp.Diff([]string{want[0], want[1+i]}, []string{state, outcome}); diff != "" {
						t.Errorf("%s (-docs/reliability.md +host)\n%s", rule, diff)
					}
				}
			})
		}
		delete(table, tt.what)
	}
	for what, cells := range table {
		if !strings.HasPrefix(what, "-") && cells[1] != "`retry`" {
			t.Errorf("docs/reliability.md has a row %q that is not tested", what)
		}
	}
}

// input is what the turn is told to do.
func (c crash) input() string {
	if c.Free && c.Policy.Rule == "" {
		return "tools d:work; model y; count"
	}
	return "tools a:read d:work; model y; count"
}

// run lets a host die and another one go on. It gives the state that the session
// was left in, and what became of the call.
func (c crash) run(t *testing.T, kills bool) (state, outcome string) {
	t.Helper()
	dir := t.TempDir() // removed after the rig has closed its store
	r := newRig(t)
	if kills {
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
		r.reopenDir(dir)
	}
	calls := 0
	r.tools, r.policy = c.tools(func() { calls++ }), c.policy
	r.now = func() time.Time { return time.Now().Add(r.late) }
	r.open()
	s := r.create("steps")
	r.exec(s.UID, "output before")
	if c.Phase != "asking" {
		r.park(s.UID, c.input())
	}
	for range c.Decided {
		if err := c.decide(r.Host, s.UID, !c.Denied); err != nil {
			t.Fatal(err)
		}
		c.By++
	}
	r.late = c.Late
	if kills {
		c.Dir, c.Cache, c.Session = dir, compileCache(t), s.UID
		calls += r.die(c)
	} else {
		r.drops(c, s.UID)
	}
	if got := kinds(t, r, s.UID); !strings.HasSuffix(got, c.Record) {
		t.Fatalf("the record is %s, want %s at its end", got, c.Record)
	}
	left := mustGet(t, r, s.UID)
	return string(left.State), c.goOn(r, left, &calls)
}

// goOn brings the session to the end of its turn as its users would, and gives
// what became of the call in the words of the table.
func (c crash) goOn(r *rig, left host.Session, calls *int) string {
	r.t.Helper()
	ctx, uid := context.Background(), left.UID
	req := host.ExecRequest{Session: uid}
	if open := left.Closed != left.Head.Seq; open {
		if _, err := r.Exec(ctx, host.ExecRequest{Session: uid, Inputs: say("x")}); !errors.Is(err, host.ErrOpenTurn) {
			r.t.Errorf("new input while it is %s: %v", left.State, err)
		}
	} else if left.Turns == 1 {
		req.Inputs = say(c.input()) // nothing is left of it
	}
	c.By = min(1, c.Decided)
	if decided := slices.ContainsFunc(left.Waiting, func(w host.Waiting) bool { return w.Tool != "" && w.Settled }); decided {
		for _, approved := range []bool{!c.Denied, c.Denied} {
			err := c.decide(r.Host, uid, approved)
			if again := approved == !c.Denied; again && err != nil || !again && !errors.Is(err, host.ErrConflict) {
				r.t.Errorf("decided again, approved=%t: %v", approved, err)
			}
		}
	}
	asked := ""
	for left.Turns == 1 {
		e, err := r.Exec(ctx, req)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, w := range e.Waiting {
			if w.Reason != "" {
				asked = "a person is asked again; approved, "
			}
			for c.By = range max(1, w.Approvers) {
				if err := c.decide(r.Host, uid, !c.Denied); err != nil {
					r.t.Fatal(err)
				}
			}
		}
		req, left.Turns = host.ExecRequest{Session: uid}, e.Session.Turns
	}
	r.policy = func(hostturn.Subject) (hostturn.Policy, error) { return nil, errors.New("a proof needs no policy") }
	r.open().verify(uid)
	var result *abi.ToolResult
	want := big
	if c.Edited {
		want = editedArgs
	}
	for rec, err := range r.Replay(ctx, uid, 0, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		if rec.Event.Result != nil && rec.Event.Result.ID == "d" {
			result = rec.Event.Result
		}
	}
	made := map[int]string{0: "never made", 1: "made once", 2: "made twice, under one key"}[*calls]
	switch {
	case result == nil:
		return "no result"
	case result.Code == abi.ToolApprovalDenied:
		return "denied; " + made
	case strings.HasPrefix(result.Error, "outcome unknown"):
		return asked + "outcome unknown; " + made
	case result.IsError || string(result.Output) != want:
		return "wrong: " + result.Error + string(result.Output)
	}
	return asked + made
}

// policy is the one that there is, if any.
func (c crash) policy(hostturn.Subject) (hostturn.Policy, error) {
	if c.Policy.Rule == "" {
		return nil, nil
	}
	return func(call abi.ToolCall, _ abi.ToolGrant) hostturn.Verdict {
		if call.ID != "d" {
			return hostturn.Verdict{}
		}
		return c.Policy
	}, nil
}

// decide decides on the call, for the person whose turn it is.
func (c crash) decide(h *host.Host, uid abi.SessionID, approved bool) error {
	req := host.DecideRequest{
		Session: uid, CallID: "d", Approved: approved, Actor: &abi.IdentityRef{Principal: []string{"ann", "bob"}[c.By]},
	}
	if c.Edited && approved {
		req.Args = abi.Struct(editedArgs)
	}
	_, err := h.Decide(context.Background(), req)
	return err
}

// tools are one of the rule, and one that is called beside it.
func (c crash) tools(called func()) map[string]tool.Tool {
	mediation := abi.MediationRequiresApproval
	if c.Free {
		mediation = abi.MediationControllerMediated
	}
	return map[string]tool.Tool{
		"work": {
			Definition: abi.ToolDefinition{Name: "work"}, Mediation: mediation, OnCrash: c.Rule,
			Executor: executorFunc(func(_ context.Context, call tool.Call) (abi.ToolResult, error) {
				called()
				return abi.ToolResult{Output: call.Args}, nil
			}),
		},
		"read": {
			Definition: abi.ToolDefinition{Name: "read"}, OnCrash: abi.OnCrashRetry,
			Executor: executorFunc(func(context.Context, tool.Call) (abi.ToolResult, error) { return abi.ToolResult{}, nil }),
		},
	}
}

// perform does what the phase is about.
func (c crash) perform(h *host.Host, uid abi.SessionID) error {
	ctx := context.Background()
	var err error
	switch c.Phase {
	case "asking":
		_, err = h.Exec(ctx, host.ExecRequest{Session: uid, Inputs: say(c.input())})
	case "deciding":
		err = c.decide(h, uid, !c.Denied)
	case "running":
		_, err = h.Resume(ctx, uid, nil)
	case "upgrading":
		_, err = h.Upgrade(ctx, host.UpgradeRequest{Session: uid, Harness: version(10)})
	}
	return err
}

// here reports whether a host that is at a point is where it is to die.
func (c crash) here(h *host.Host, uid abi.SessionID, point string) bool {
	if point != c.Point {
		return false
	}
	var record []string
	for rec, err := range h.Replay(context.Background(), uid, 0, 0) {
		if err != nil {
			return false
		}
		record = append(record, strings.TrimPrefix(string(rec.Event.Kind), "EVENT_"))
	}
	return strings.HasSuffix(strings.Join(record, " "), c.Record)
}

// drops lets the rig's host die in memory, and opens the next one.
func (r *rig) drops(c crash, uid abi.SessionID) {
	r.t.Helper()
	var want error
	switch c.Point {
	case "return":
	case "clock": // no fault point: nothing of it was written
		r.open()
		return
	default:
		want = errDropped
		r.SetFault(func(point string) error {
			if c.here(r.Host, uid, point) {
				return errDropped
			}
			return nil
		})
	}
	if err := c.perform(r.Host, uid); !errors.Is(err, want) {
		r.t.Fatalf("%v, want %v", err, want)
	}
	r.open()
}

// die lets a process die on the rig's store, opens that again, and counts the
// calls that reached the tool there.
func (r *rig) die(c crash) (calls int) {
	r.t.Helper()
	if err := errors.Join(r.Close(), r.store.Close()); err != nil {
		r.t.Fatal(err)
	}
	spec, err := json.Marshal(c)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+string(spec))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		r.t.Fatalf("the process ended by itself: %s\n%s", cmd.ProcessState, &stderr)
	}
	r.reopenDir(c.Dir)
	r.open()
	return strings.Count(stdout.String(), "called\n")
}

// reopenDir opens the journal in a directory.
func (r *rig) reopenDir(dir string) {
	r.t.Helper()
	store, err := journal.Open(dir, journal.Options{FreeReserve: -1, LockWait: 10 * time.Second})
	if err != nil {
		r.t.Fatal(err)
	}
	r.store = store
}

// runCrash kills its own process at the point that spec names.
func runCrash(spec string) error {
	var c crash
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		return err
	}
	store, err := journal.Open(c.Dir, journal.Options{FreeReserve: -1, LockWait: 10 * time.Second})
	if err != nil {
		return err
	}
	e, err := wasm.New(wasm.Config{CacheDir: c.Cache})
	if err != nil {
		return err
	}
	var h *host.Host
	at := func(point string) error {
		if c.here(h, c.Session, point) {
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				return err
			}
			select {} // the signal is on its way
		}
		return nil
	}
	h, err = host.New(host.Config{
		Journal: store, Runtimes: []runtimes.Runtime{runtime.New(e)},
		Models: map[string]model.Provider{"echo": echo.Provider{}}, DefaultModel: "echo", FlushDelay: -1, Paused: true,
		Tools: c.tools(func() {
			if _, err := os.Stdout.WriteString("called\n"); err == nil {
				_ = at("call")
			}
		}),
		Now: func() time.Time {
			if h != nil && c.Point == "clock" {
				_ = at("clock")
			}
			return time.Now().Add(c.Late)
		},
		Policy: c.policy,
	})
	if err != nil {
		return err
	}
	h.SetFault(at)
	if err := c.perform(h, c.Session); err != nil {
		return err
	}
	return errors.Join(at("return"), errors.New("it did not die"))
}

package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model/script"
	"github.com/agentcell/agentcell/sdk/abi"
)

// same leaves out of a conversation what a child may see in another way: its own
// randomness, and that its record is longer by its FORK. At the end it asks how
// often the cell was cloned.
func (c conversation) same() conversation {
	var inputs []string
	for _, input := range c.inputs {
		steps := slices.DeleteFunc(strings.Split(input, "; "), func(step string) bool { return step == "rand" || step == "history" })
		if len(steps) == 0 {
			steps = []string{"count"}
		}
		inputs = append(inputs, strings.Join(steps, "; "))
	}
	c.inputs = append(inputs, "clones", "clones")
	return c
}

// A child that is forked at any record of a session, in the midst of a turn and of
// one that is parked, too, and whose host is dropped on the way, says and does what
// its parent did from there: the shared record is its parent's, what is answered
// there is not asked again, and agent_cloned runs once (I1, M2, M3).
func TestEquivalence_ForkedAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles big modules")
	}
	parked, inside := 0, 0
	for i, c := range conversations() {
		// With make soak all of them.
		if c.harness != "steps" || i%3 > 0 && os.Getenv("AGENTCELL_SOAK") == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			f := newForkedSession(t, c.same())
			for at := abi.Seq(1); at <= f.session.Head.Seq; at++ {
				children, err := f.Fork(t.Context(), host.ForkRequest{Session: f.session.UID, At: at})
				if errors.Is(err, host.ErrMidTurn) { // in an opening
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				switch children[0].State {
				case host.ExecAwaiting:
					parked++
				case host.ExecInterrupted:
					inside++
				}
				t.Run(fmt.Sprint(at), func(t *testing.T) { f.check(t, children[0]) })
			}
			if diff := cmp.Diff(f.record, f.transcript(f.session.UID)); diff != "" {
				t.Errorf("the parent changed (-before +after)\n%s", diff)
			}
		})
	}
	if parked == 0 || inside == 0 {
		t.Errorf("%d children of parked turns, %d of others: the test shows nothing", parked, inside)
	}
}

// forkedSession is a session that has had its conversation.
type forkedSession struct {
	*rig
	conversation
	provider *counted
	session  host.Session
	record   []string
	events   []string
}

func newForkedSession(t *testing.T, c conversation) *forkedSession {
	t.Helper()
	answers, err := script.New(strings.NewReader(c.script))
	if err != nil {
		t.Fatal(err)
	}
	f := &forkedSession{rig: newRig(t), conversation: c, provider: &counted{Provider: answers}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.now, f.tools = func() time.Time { return at }, new(toolbox).tools()
	f.models["echo"], f.retention = f.provider, c.keep
	f.open()
	uid := f.create(c.harness).UID
	for _, input := range c.inputs {
		f.give(f.provider, uid, input)
	}
	f.session, f.record, f.events = mustGet(t, f.rig, uid), f.transcript(uid), f.told(uid)
	return f
}

// told is what a session's record says of what was done, whatever the order in
// which a person was asked and tools answered.
func (f *forkedSession) told(uid abi.SessionID) []string {
	f.t.Helper()
	var told, results []string
	for rec, err := range f.Replay(context.Background(), uid, 0, 0) {
		if err != nil {
			f.t.Fatal(err)
		}
		switch e := rec.Event; {
		case e.Message != nil && len(e.Message.Parts) > 0 && e.Message.Parts[0].Data != nil:
			told = append(told, string(e.Kind)+" "+string(e.Message.Parts[0].Data.Data))
		case e.Message != nil:
			told = append(told, string(e.Kind)+" "+e.Message.Text())
		case e.Error != nil:
			told = append(told, string(e.Kind)+" "+e.Error.Description)
		case e.Result != nil:
			results = append(results, fmt.Sprintf("%s %s %s %s", e.Result.ID, e.Result.Output, e.Result.Code, e.Result.Error))
		case e.End != nil:
			slices.Sort(results)
			told = append(told, fmt.Sprintf("%s %s with results %q", e.Kind, e.End.State, results))
			results = nil
		case e.Usage != nil && e.Cell != nil && e.Cell.CallID != "":
			// A child that is forked between an answer and this did not pay for it.
		case e.Usage != nil:
			told = append(told, fmt.Sprintf("%s %d", e.Kind, e.Usage.OutputTokens))
		case e.Kind == abi.EventModelCall || e.Kind == abi.EventExecutionStart:
			told = append(told, string(e.Kind))
		}
	}
	return told
}

// check lets a child go its way to the end of the conversation.
func (f *forkedSession) check(t *testing.T, child host.Session) {
	uid, at := child.UID, child.ForkSeq
	known := f.answers(uid)
	calls := f.provider.calls.Load()
	fault, _ := dropAt(1 + int(at)%7)
	f.SetFault(fault)
	var lost int64
	inputs := f.inputs[child.Turns:]
	if child.State == host.ExecInterrupted || child.State == host.ExecAwaiting {
		inputs = slices.Concat([]string{""}, inputs[1:])
	}
	for _, input := range inputs {
		lost += f.give(f.provider, uid, input)
	}
	f.SetFault(nil)
	f.verify(uid)
	if diff := cmp.Diff(f.record[:at], f.transcript(uid)[:at]); diff != "" {
		t.Errorf("the shared record (-parent +child)\n%s", diff)
	}
	if got, want := f.provider.calls.Load()-calls, f.answers(uid)-known+lost; got != want {
		t.Errorf("I1: it called the model %d times, for %d answers of its own and %d that were lost", got, want-lost, lost)
	}
	// Each of the last two turns tells how often it was cloned: once, if it is not
	// one that its parent has begun.
	want := slices.Clone(f.events)
	for n := range min(2, len(inputs)) {
		if turn := len(inputs) - 1 - n; inputs[turn] != "" {
			want[len(want)-2-4*n] = "EVENT_OUTPUT 1" // between INPUT and END
		}
	}
	got := f.told(uid)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-parent +child)\n%s", diff)
	}
}

package turn_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

var update = flag.Bool("update", false, "rewrite the scenario files with what the machine does now")

// A scenario file is a conversation with one machine: a line that begins at the
// margin is a command, the indented lines behind it are what the machine said.
//
//	opening KEY=VALUE…            a new machine without record
//	again live|check [N]          a new machine on the first N records so far
//	edit N OLD => NEW             change the text of record N
//	call OP [JSON]                a call of the harness
//	answer TEXT [IN OUT]          the pending effect is done, with usage if given
//	fails TEXT                    the pending effect has failed
//	done ID JSON                  a tool call is done, with that output
//	breaks ID TEXT                a tool call has failed
//	decide ID yes|no [REASON]     a person decided, behind the record so far
//	person NAME ID yes|no [JSON]  so did one with a name, and edited the arguments
//	policy [JSON]                 machines from now on have that policy, a verdict for
//	                              each tool or call; or none
//	pass SECONDS                  time passes
//	signal ID NAME JSON           a signal came for a wait, likewise
//	fork SEED                     a child was forked there, likewise
//	finish REASON [FUEL] [ROOT]   the harness is done
//
// The tools are read (safe to repeat), write (its outcome may be unknown), pay
// (asks before it is repeated) and drop (asks first).
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenario files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := new(scenario).run(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("(-file +machine; -update rewrites)\n%s", diff)
			}
		})
	}
}

type scenario struct {
	opening turn.Opening
	policy  turn.Policy
	machine *turn.Machine
	clock   int
	records []turn.Recorded
	out     strings.Builder
}

func (s *scenario) run(t *testing.T, text string) string {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "  ") {
			continue
		}
		s.out.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if err := s.command(line); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return s.out.String()
}

func (s *scenario) say(format string, args ...any) { fmt.Fprintf(&s.out, "  "+format+"\n", args...) }

// now is a clock that moves a second with each look at it.
func (s *scenario) now() abi.Time {
	s.clock++
	return abi.NewTime(time.Date(2026, 1, 2, 3, 0, s.clock, 0, time.UTC))
}

func (s *scenario) command(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	args := strings.Fields(rest)
	switch word {
	case "opening":
		return s.open(args)
	case "again":
		return s.again(args)
	case "edit":
		return s.edit(rest)
	case "call":
		op, request, _ := strings.Cut(rest, " ")
		s.show(s.machine.Call(abi.Op(op), []byte(request), s.now()))
	case "answer":
		a := turn.Answer{Message: abi.Text("", args[0])}
		if len(args) == 3 {
			in, _ := strconv.Atoi(args[1])
			out, _ := strconv.Atoi(args[2])
			a.Usage = &abi.Usage{InputTokens: abi.Int64(in), OutputTokens: abi.Int64(out)}
		}
		s.show(s.machine.Completed(a, s.now()))
	case "data":
		a := turn.Answer{Message: abi.Message{Parts: []abi.Part{{Data: &abi.DataPart{Data: abi.Struct(rest)}}}}}
		s.show(s.machine.Completed(a, s.now()))
	case "fails":
		s.show(s.machine.Completed(turn.Answer{Err: &abi.Error{Code: abi.CodeUnavailable, Description: rest}}, s.now()))
	case "done":
		id, output, _ := strings.Cut(rest, " ")
		s.show(s.machine.ToolDone(id, turn.ToolOutcome{Result: abi.ToolResult{Output: abi.Struct(output)}}, s.now()))
	case "breaks":
		id, why, _ := strings.Cut(rest, " ")
		s.show(s.machine.ToolDone(id, turn.ToolOutcome{Err: errors.New(why)}, s.now()))
	case "withheld":
		var effects []turn.ToolEffect
		for _, id := range args {
			effects = append(effects, turn.ToolEffect{Call: abi.ToolCall{ID: id}})
		}
		s.machine.Withheld(effects)
	case "decide":
		return s.append(&abi.Event{Kind: abi.EventApprovalResult, ApprovalResult: &abi.ApprovalResult{
			ToolCallID: args[0], Approved: args[1] == "yes", Reason: strings.Join(args[2:], " "),
		}}, nil)
	case "person":
		e := &abi.Event{
			Kind: abi.EventApprovalResult, Actor: &abi.IdentityRef{Principal: args[0]},
			ApprovalResult: &abi.ApprovalResult{ToolCallID: args[1], Approved: args[2] == "yes"},
		}
		if len(args) > 3 {
			e.Cell = &abi.Cell{Args: abi.Struct(args[3])}
		}
		return s.append(e, nil)
	case "policy":
		return s.setPolicy(rest)
	case "pass":
		n, err := strconv.Atoi(rest)
		s.clock += n
		return err
	case "signal":
		return s.append(&abi.Event{Kind: abi.EventSignal, Cell: &abi.Cell{CallID: args[0], Signal: args[1]}}, []byte(args[2]))
	case "fork":
		seq := abi.Seq(10 + len(s.records))
		return s.append(&abi.Event{
			Kind: abi.EventLifecycle, Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleFork},
			Cell: &abi.Cell{UID: "sess-child", Parent: "sess-parent", At: seq - 1, Seed: []byte(args[0])},
		}, nil)
	case "finish":
		end := turn.End{Reason: abi.EndReason(args[0])}
		if end.Reason != abi.ReasonCompleted {
			end.Err = &abi.Error{Code: abi.CodeUnknown, Description: "it says why"}
		}
		if len(args) > 1 {
			fuel, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil {
				return err
			}
			end.Fuel = fuel
		}
		if len(args) > 2 {
			end.Root = abi.DigestOf([]byte(args[2]))
		}
		s.show(s.machine.Finish(end, s.now()))
	default:
		return errors.New("unknown command")
	}
	return nil
}

func (s *scenario) open(args []string) error {
	limits := abi.DefaultLimits()
	s.opening = turn.Opening{
		Execution: "exec-0", Time: s.now(), Seq: 9, Policy: s.policy, Start: []byte(`{"inputs":[]}`), Model: "echo",
		BaseRoot: abi.DigestOf([]byte("base")), Turn: 4, ModelCalls: 7,
		Tools: map[string]abi.ToolGrant{
			"read":  {Mediation: abi.MediationControllerMediated, OnCrash: abi.OnCrashRetry},
			"write": {Mediation: abi.MediationControllerMediated},
			"pay":   {Mediation: abi.MediationControllerMediated, OnCrash: abi.OnCrashAsk},
			"drop":  {Mediation: abi.MediationRequiresApproval},
		},
	}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		switch key {
		case "effects":
			limits.Effects = int32(n)
		case "output_bytes":
			limits.OutputBytes = abi.Int64(n)
		case "request_bytes":
			limits.RequestBytes = abi.Int64(n)
		default:
			return errors.New("unknown key " + key)
		}
	}
	s.opening.Limits = limits
	s.records = nil
	s.machine = turn.New(s.opening, turn.Live, nil)
	return nil
}

func (s *scenario) setPolicy(rest string) error {
	s.policy = nil
	if rest == "" {
		return nil
	}
	var verdicts map[string]turn.Verdict
	if err := json.Unmarshal([]byte(rest), &verdicts); err != nil {
		return err
	}
	s.policy = func(call abi.ToolCall, _ abi.ToolGrant) turn.Verdict {
		s.say("policy is asked about %s %s %s", call.ID, call.Tool, call.Args)
		v, ok := verdicts[call.ID]
		if !ok {
			v = verdicts[call.Tool]
		}
		v.Policy = abi.DigestOf([]byte("policy"))
		return v
	}
	return nil
}

// append adds a record that comes from outside the turn.
func (s *scenario) append(e *abi.Event, payload []byte) error {
	e.ExecutionID, e.Time = s.opening.Execution, s.now()
	staged, err := turn.Stage(e)
	s.records = append(s.records, turn.Recorded{Seq: abi.Seq(10 + len(s.records)), Encoded: staged.Encoded, Event: e, Payload: payload})
	return err
}

func (s *scenario) again(args []string) error {
	mode := turn.Live
	if args[0] == "check" {
		mode = turn.Check
	}
	if len(args) > 1 {
		n, err := strconv.Atoi(args[1])
		if err != nil || n > len(s.records) {
			return fmt.Errorf("there are %d records", len(s.records))
		}
		s.records = s.records[:n]
	}
	s.opening.Policy = s.policy
	s.machine = turn.New(s.opening, mode, turn.Records(slices.Clone(s.records)))
	if seed := s.machine.Seed(); seed != nil {
		s.say("begins with seed %s", seed)
	}
	return nil
}

func (s *scenario) edit(rest string) error {
	at, change, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(at)
	if err != nil {
		return err
	}
	old, text, _ := strings.Cut(change, " => ")
	r := &s.records[n-1]
	edited := strings.Replace(string(r.Encoded), old, text, 1)
	if edited == string(r.Encoded) {
		return errors.New("no such text in " + edited)
	}
	r.Encoded = []byte(edited)
	r.Event, err = abi.DecodeEvent(r.Encoded)
	return err
}

func (s *scenario) show(r turn.Ready, err error) {
	if err != nil {
		s.say("error: %v", err)
		return
	}
	for _, st := range r.Stage {
		event, err := st.Decoded()
		if err != nil {
			s.say("error: %v", err)
		}
		s.records = append(s.records, turn.Recorded{Seq: abi.Seq(10 + len(s.records)), Encoded: st.Encoded, Event: event})
		s.say("stage %s", st.Encoded)
		for _, b := range st.Blobs {
			s.say("blob %s", b)
		}
	}
	if r.Commit {
		s.say("commit")
	}
	if r.Note != "" {
		s.say("note: %s", r.Note)
	}
	for _, e := range r.Tools {
		s.say("run %s %s %s", e.Call.ID, e.Call.Tool, e.Call.Args)
	}
	for _, w := range r.Park {
		s.say("park %s%s", w.CallID, waitsFor(w))
	}
	switch {
	case r.Effect != nil:
		call, err := json.Marshal(r.Effect.Call)
		if err != nil {
			s.say("error: %v", err)
		}
		s.say("effect %s index=%d %s", r.Effect.CallID, r.Effect.Index, call)
	case r.History != nil:
		req, err := json.Marshal(r.History)
		if err != nil {
			s.say("error: %v", err)
		}
		s.say("history %s", req)
	case r.Reply != nil:
		s.say("reply status=%d now=%s %s", r.Reply.Status, r.Reply.Now, r.Reply.Body)
		if r.Reply.Seed != nil {
			s.say("from here seed %s", r.Reply.Seed)
		}
	}
}

// waitsFor says what ends a wait.
func waitsFor(w turn.Waiting) string {
	var b strings.Builder
	if w.Gate != nil {
		fmt.Fprintf(&b, " for %d of %d to approve [%s]", len(w.Gate.Approvals), w.Gate.Approvers, w.Call.Args)
		for _, a := range w.Gate.Approvals {
			fmt.Fprintf(&b, ", %s approved [%s]", a.By.Principal, a.Args)
		}
	}
	if w.Signal != "" {
		fmt.Fprintf(&b, " for %q", w.Signal)
	}
	if !w.Until.IsZero() {
		fmt.Fprintf(&b, " until %s", w.Until)
	}
	if w.Gate != nil && w.Gate.Reason != "" {
		fmt.Fprintf(&b, " because %s", w.Gate.Reason)
	}
	return b.String()
}

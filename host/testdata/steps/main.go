// Steps is a harness for tests: its input is what it does, step by step. It
// holds memory: a count of all steps it ever did.
//
//	model TEXT     ask the model; its failure is put out
//	output TEXT    put TEXT out
//	big N          put N bytes out
//	data           put out a number that no double holds
//	usage N        account for N tokens
//	count          put out how many steps were done
//	clones         put out how often it was cloned
//	rand, clock    put out what the turn's randomness, the clock give
//	tools ID:T …   call the tools T side by side, put their results out; with a
//	               gate that the harness asks for where T ends in "!"
//	report ID      report the result of a tool that the harness ran itself
//	wait SIGNAL    wait for it, put its payload out
//	sleep D        wait that long
//	history        put out how many records there were before this turn
//	fail TEXT      fail with TEXT
//	panic          panic
//	loop           never end
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

type steps struct{ done, clones int }

func (s *steps) Cloned() { s.clones++ }

func (*steps) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{
		ID: "steps", Version: "1",
		Capabilities: &abi.Capabilities{Resumability: abi.RequiresMemorySnapshot},
	}
}

func (s *steps) Run(ctx context.Context, t *sdk.Turn) error {
	for _, in := range t.Inputs() {
		for step := range strings.SplitSeq(in.Text(), "; ") {
			word, rest, _ := strings.Cut(step, " ")
			if err := s.step(ctx, t, word, rest); err != nil {
				return err
			}
			s.done++
		}
	}
	return nil
}

func (s *steps) step(ctx context.Context, t *sdk.Turn, word, rest string) error {
	switch word {
	case "model":
		_, err := t.Model(ctx, abi.ModelCall{Messages: []abi.Message{abi.Text(abi.RoleUser, rest)}})
		if errors.Is(err, sdk.ErrFailed) {
			return t.OutputText(ctx, "the model failed: "+err.Error())
		}
		return err
	case "output":
		return t.OutputText(ctx, rest)
	case "big":
		n, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		return t.OutputText(ctx, strings.Repeat("0123456789abcdef", n/16))
	case "data":
		return t.Output(ctx, abi.Message{Parts: []abi.Part{{Data: &abi.DataPart{Data: abi.Struct(`{"n":9007199254740993}`)}}}})
	case "usage":
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return err
		}
		return t.Usage(ctx, abi.Usage{OutputTokens: abi.Int64(n)})
	case "count":
		return t.OutputText(ctx, strconv.Itoa(s.done))
	case "tools":
		var calls []abi.ToolCall
		for word := range strings.FieldsSeq(rest) {
			id, name, _ := strings.Cut(word, ":")
			name, gated := strings.CutSuffix(name, "!")
			call := abi.ToolCall{ID: id, Tool: name, Args: abi.Struct(`{"n":9007199254740993}`)}
			if gated {
				call.Mediation = abi.MediationRequiresApproval
			}
			calls = append(calls, call)
		}
		results, err := t.CallTools(ctx, calls...)
		if err != nil {
			return err
		}
		var texts []string
		for _, r := range results {
			texts = append(texts, fmt.Sprintf("%s%s=%s%s", r.ID, r.EditedArgs(), r.Output, r.Error))
		}
		return t.OutputText(ctx, strings.Join(texts, " "))
	case "report":
		return t.Report(ctx, abi.ToolResult{ID: rest, Output: abi.Struct(`{"ran":true}`)})
	case "wait":
		r, err := t.Wait(ctx, time.Time{}, rest)
		if err != nil {
			return err
		}
		return t.OutputText(ctx, r.Signal+string(r.Payload))
	case "sleep":
		d, err := time.ParseDuration(rest)
		if err != nil {
			return err
		}
		return t.Sleep(ctx, d)
	case "clones":
		return t.OutputText(ctx, strconv.Itoa(s.clones))
	case "rand":
		return t.OutputText(ctx, strconv.FormatUint(t.Rand().Uint64(), 16))
	case "clock":
		return t.OutputText(ctx, time.Now().UTC().Format(time.RFC3339Nano))
	case "history":
		n := 0
		for _, err := range t.History(ctx, sdk.HistoryQuery{}) {
			if err != nil {
				return err
			}
			n++
		}
		return t.OutputText(ctx, strconv.Itoa(n))
	case "fail":
		return errors.New(rest)
	case "panic":
		panic("as asked")
	case "loop":
		for {
			s.done++
		}
	}
	return fmt.Errorf("unknown step %q", word)
}

func init() { sdk.Register(&steps{}) }

func main() {}

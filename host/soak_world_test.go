package host_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

// world is what a soaked host finds outside of it: a model and tools that take
// their time, fail, hang and panic, by the seed and by what they are asked. What
// reaches them is told to say before they do anything.
type world struct {
	seed uint64
	say  func(said)
}

// The tools of a world, by mediation and by what becomes of a call that was under
// way in a crash.
var worldTools = map[string]struct {
	gated   bool
	onCrash abi.OnCrash
}{
	"read":      {false, abi.OnCrashRetry},
	"write":     {false, abi.OnCrashUnknown},
	"pay":       {false, abi.OnCrashAsk},
	"drop":      {true, abi.OnCrashRetry},
	"drop-once": {true, abi.OnCrashUnknown},
	"drop-ask":  {true, abi.OnCrashAsk},
}

// dice gives the randomness of one event of the world, the same for all runs of
// one seed.
func (w world) dice(parts ...any) *rand.Rand {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, w.seed)
	fmt.Fprintln(h, parts...)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// latency is mostly a moment, sometimes long enough to be killed in.
func latency(dice *rand.Rand) time.Duration {
	if dice.IntN(4) == 0 {
		return time.Duration(dice.IntN(60)) * time.Millisecond
	}
	return time.Duration(dice.IntN(2000)) * time.Microsecond
}

// pause waits, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// mark finds the mark of a model call: each question that a soak asks has one of
// its own, which stands in its answer, too.
func mark(text string) string {
	_, rest, found := strings.Cut(text, "q-")
	if !found {
		return ""
	}
	word, _, _ := strings.Cut(rest, " ")
	return "q-" + strings.TrimSuffix(word, ";")
}

// Complete implements model.Provider.
func (w world) Complete(ctx context.Context, req model.Request, deltas func(model.Delta)) (model.Result, error) {
	last := req.Call.Messages[len(req.Call.Messages)-1]
	asked := mark(last.Text())
	w.say(said{Kind: saidAsked, Session: req.Session, Mark: asked, Attempt: req.Attempt})
	dice := w.dice("model", asked, req.Attempt)
	wait := func() error { return pause(ctx, latency(dice)) }
	switch n := dice.IntN(100); {
	case n < 8:
		return model.Result{}, errors.Join(wait(), fmt.Errorf("no answer to %s", asked))
	case n < 12:
		<-ctx.Done()
		return model.Result{}, ctx.Err()
	case n < 14:
		panic("no answer to " + asked)
	}
	text := "to " + asked + " " + strings.Repeat("word ", dice.IntN(30))
	if dice.IntN(25) == 0 {
		text += strings.Repeat("long ", 20_000) // a record whose body is a blob
	}
	if err := model.Stream(model.Pieces(text, 1+dice.IntN(4)), req.Attempt, deltas, wait); err != nil {
		return model.Result{}, err
	}
	result := model.Result{Message: abi.Text(abi.RoleAssistant, text)}
	if dice.IntN(2) == 0 {
		result.Usage = &abi.Usage{InputTokens: 1, OutputTokens: abi.Int64(dice.IntN(100))}
	}
	return result, nil
}

// tools are the world's, for a host.
func (w world) tools() map[string]tool.Tool {
	tools := map[string]tool.Tool{}
	for name, rule := range worldTools {
		t := tool.Tool{
			Definition: abi.ToolDefinition{Name: name}, OnCrash: rule.onCrash, Executor: executorFunc(w.call),
		}
		if rule.gated {
			t.Mediation = abi.MediationRequiresApproval
		}
		tools[name] = t
	}
	return tools
}

func (w world) call(ctx context.Context, c tool.Call) (abi.ToolResult, error) {
	w.say(said{Kind: saidCalled, Session: c.Session, Call: c.ID, Key: c.IdempotencyKey, Tool: c.Tool})
	dice := w.dice("tool", c.IdempotencyKey)
	switch n := dice.IntN(100); {
	case n < 8:
		return abi.ToolResult{}, errors.Join(pause(ctx, latency(dice)), errors.New("no such file"))
	case n < 12:
		<-ctx.Done()
		return abi.ToolResult{}, ctx.Err()
	case n < 14:
		panic("a tool that breaks")
	}
	if err := pause(ctx, latency(dice)); err != nil {
		return abi.ToolResult{}, err
	}
	return abi.ToolResult{Output: c.Args}, nil
}

// input is what a turn of the harness steps is told to do. id makes the marks and
// call ids in it its own.
func (w world) input(id string, dice *rand.Rand) string {
	var steps []string
	names := []string{"read", "read!", "write", "write!", "pay", "drop", "drop-once", "drop-ask", "read", "write", "pay", "read", "write", "pay"}
	for i := range 1 + dice.IntN(5) {
		own := fmt.Sprintf("%s-%d", id, i)
		var step string
		switch n := dice.IntN(100); {
		case n < 35:
			step = "model q-" + own
		case n < 55:
			step = "tools"
			for k := range 1 + dice.IntN(3) {
				step += fmt.Sprintf(" t%s-%d:%s", own, k, names[dice.IntN(len(names))])
			}
		case n < 58:
			step = "wait go"
		case n < 62:
			step = fmt.Sprintf("sleep %dms", 1+dice.IntN(50))
		case n < 65:
			step = "report own-" + own
		case n < 67:
			step = "big 70000"
		case n < 70:
			step = []string{"fail as told", "panic", "nonsense"}[dice.IntN(3)]
		default:
			step = []string{"output x", "count", "rand", "clock", "history", "data", "clones", "usage 7"}[dice.IntN(8)]
		}
		steps = append(steps, step)
	}
	return strings.Join(steps, "; ")
}

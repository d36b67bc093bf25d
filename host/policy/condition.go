package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"

	"github.com/agentcell/agentcell/host/config"
)

// What a decision may take. CEL's cost is nearly that of the work, at much less than a
// microsecond for each unit, and is the same for the same call; patience is for what it
// leaves out, such as a long text that is looked up in a map again and again.
const (
	maxCost  = 1_000_000
	patience = 5 * time.Second
	// interruptEvery is how many steps of a loop go by before patience is looked at: one
	// step may take as long as the arguments are large.
	interruptEvery = 1
)

var (
	errCost     = fmt.Errorf("it costs more than %d on these arguments", maxCost)
	errPatience = fmt.Errorf("it takes longer than %s on these arguments", patience)
)

// condition is the compiled condition of a rule. It is safe for concurrent use.
type condition struct{ program cel.Program }

// holds evaluates the condition, and tells what it cost.
func (c condition) holds(ctx context.Context, f *facts) (bool, uint64, error) {
	out, details, err := c.program.ContextEval(ctx, f)
	var cost uint64
	if spent := details.ActualCost(); spent != nil {
		cost = *spent
	}
	var canceled interpreter.EvalCancelledError
	switch {
	case errors.As(err, &canceled) && canceled.Cause == interpreter.CostLimitExceeded:
		return false, cost, errCost
	case errors.Is(err, context.DeadlineExceeded):
		return false, cost, errPatience
	case err != nil:
		return false, cost, err
	}
	holds, ok := out.(types.Bool)
	if !ok {
		return false, cost, fmt.Errorf("it is a %s and no bool", out.Type().TypeName())
	}
	return bool(holds), cost, nil
}

// words is an error in one short line: CEL puts parts of arguments into some.
func words(err error) string {
	const most = 200
	text := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) + "…"
	}
	return text
}

// compile compiles the rules of a policy, and says what is wrong with them.
func compile(file config.Policy) (rules []rule, wrong []string, err error) {
	known := &patterns{}
	env, err := environment(known)
	if err != nil {
		return nil, nil, err
	}
	rules = make([]rule, len(file.Rules))
	for i, r := range file.Rules {
		wrong = append(wrong, beyond(r.Name.Text, r.Approval)...)
		if strings.TrimSpace(r.When.Text) == "" {
			continue // which has been told
		}
		program, problems := program(env, known, r.When)
		for _, text := range problems {
			wrong = append(wrong, fmt.Sprintf("rule %q: %s", r.Name.Text, text))
		}
		rules[i] = rule{newRule(r, file.Approval), condition{program}}
	}
	return rules, wrong, nil
}

// program compiles one condition, or says what is wrong with it.
func program(env *cel.Env, p *patterns, when config.Text) (cel.Program, []string) {
	ast, issues := env.Compile(when.Text)
	if issues.Err() != nil {
		var texts []string
		for _, e := range issues.Errors() {
			texts = append(texts, pointed(when, e))
		}
		return nil, texts
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, []string{fmt.Sprintf("line %d: when is a %s; want a bool", when.Line, t)}
	}
	compiled, err := env.Program(ast,
		cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost), cel.CostTracking(linear{p}),
		cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return nil, []string{fmt.Sprintf("line %d: %v", when.Line, err)}
	}
	return compiled, nil
}

// pointed says what is wrong with a condition, and points to where.
func pointed(when config.Text, e *cel.Error) string {
	line, column := e.Location.Line(), e.Location.Column()
	text := strings.TrimSuffix(e.Message, " (in container '')")
	all := strings.Split(when.Text, "\n")
	if line < 1 || line > len(all) {
		return fmt.Sprintf("line %d: %s", when.Line, text)
	}
	before := []rune(all[line-1])
	before = before[:min(max(column, 0), len(before))]
	for i, r := range before {
		if r != '\t' {
			before[i] = ' '
		}
	}
	return fmt.Sprintf("line %d: %s\n  %s\n  %s^", when.Line+line-1, text, all[line-1], string(before))
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// toolName is the tool by which a model runs code.
const toolName = "js"

const instructions = `You work in a JavaScript console, which is your memory. The tool js runs code in it and gives you what the code prints and the value of its last expression. Variables, functions and classes that you declare at the top level stay, in later calls and later turns, for as long as the session lives; earlier parts of the conversation may be left out. So keep data in variables, work on it with code, and look at small parts of it: what is shown of a value is cut off.
There is ECMAScript with Promise and top-level await, and console.log. There is no require or import, no setTimeout, no DOM, no file and no network: the world is reached by tools.call(name, args), which gives a tool's result or throws, and tools.all([[name, args], ...]), which makes calls side by side and gives {value} or {error} for each. sleep(ms) waits, and signal(name, ms) waits for a signal and gives its payload.`

// jsTool tells the model of the tool, and of those that code can call.
func jsTool(granted []abi.ToolDefinition) abi.ToolDefinition {
	var b strings.Builder
	b.WriteString("Runs JavaScript in the console, and gives what it prints and the value of its last expression.")
	if len(granted) == 0 {
		b.WriteString(" There are no tools for tools.call.")
	} else {
		b.WriteString(" Tools for tools.call:")
	}
	for _, d := range granted {
		fmt.Fprintf(&b, "\n- %s", quoted(d.Name))
		if d.Description != "" {
			fmt.Fprintf(&b, ": %s", d.Description)
		}
		if len(d.InputSchema) > 0 {
			fmt.Fprintf(&b, "\n  args: %s", d.InputSchema)
		}
	}
	return abi.ToolDefinition{
		Name: toolName, Description: b.String(),
		InputSchema: abi.Struct(`{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}`),
	}
}

// lastStep is said behind the results of the last step that may run code.
const lastStep = "[This was the last step in which you may run code. Answer now with what you have.]"

// answer lets the model answer a question, and run code for it.
func (r *repl) answer(ctx context.Context, t *sdk.Turn, c config, lost string, question abi.Message) error {
	said := []abi.Message{question}
	if lost != "" {
		said = []abi.Message{abi.Text(abi.RoleUser, lost), question}
	}
	for step := 1; ; step++ {
		call := abi.ModelCall{Model: c.Model, Params: c.params(), Messages: r.prompt(c, said), Tools: []abi.ToolDefinition{jsTool(t.Tools())}}
		if step == c.MaxSteps {
			call.ToolChoice = &abi.ToolChoice{Mode: abi.ToolChoiceNone}
		}
		answer, err := t.Model(ctx, call)
		if err != nil {
			return err
		}
		said = append(said, answer.Message)
		results, err := r.run(ctx, t, answer.Message)
		switch {
		case err != nil:
			return err
		case len(results.Parts) == 0:
			r.talk.add(said)
			return nil
		case step == c.MaxSteps:
			return &abi.Error{
				Code:        abi.CodeResourceExhausted,
				Description: fmt.Sprintf("repl: the model runs code where it must answer, after %d steps (max_steps)", step),
			}
		}
		said = append(said, results)
		if step+1 == c.MaxSteps {
			said = append(said, abi.Text(abi.RoleUser, lastStep))
		}
	}
}

// prompt is what is sent to the model: what was said before, as far as there is room,
// and then what belongs to the question.
func (r *repl) prompt(c config, said []abi.Message) []abi.Message {
	r.talk.fit(c.TalkBytes)
	system := instructions
	if c.System != "" {
		system += "\n\n" + c.System
	}
	prompt := []abi.Message{abi.Text(abi.RoleSystem, system)}
	if r.talk.left > 0 {
		prompt = append(prompt, abi.Text(abi.RoleUser, "[Earlier parts of the conversation are left out. Variables that there are: "+r.console.names()+"]"))
	}
	for _, messages := range r.talk.said {
		prompt = append(prompt, messages...)
	}
	return append(prompt, said...)
}

// maxNames bounds what names tells.
const maxNames = 200

// names are the variables that code has declared, each with its class.
func (c *console) names() string {
	i := inspector{console: c, out: text{most: c.most}}
	var names []string
	for _, name := range c.vm.GlobalObject().GetOwnPropertyNames() {
		if c.own[name] {
			continue
		}
		value, _, _ := i.property(c.vm.GlobalObject(), c.vm.ToValue(name))
		if o, ok := value.(interface{ ClassName() string }); ok && value != nil {
			name += " (" + o.ClassName() + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	if more := len(names) - maxNames; more > 0 {
		names = append(names[:maxNames], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// run runs the code of an answer, and gives a message with what came of each piece. It
// has no parts if there was no code.
func (r *repl) run(ctx context.Context, t *sdk.Turn, answer abi.Message) (abi.Message, error) {
	message := abi.Message{Role: abi.RoleTool}
	for _, part := range answer.Parts {
		if part.ToolCall == nil {
			continue
		}
		result, err := r.runCall(*part.ToolCall)
		if err != nil {
			return abi.Message{}, err
		}
		if result.ID != "" { // else it cannot be reported
			if err := t.Report(ctx, result); err != nil {
				return abi.Message{}, err
			}
		}
		message.Parts = append(message.Parts, abi.Part{ToolResult: &result})
	}
	return message, nil
}

func (r *repl) runCall(call abi.ToolCall) (abi.ToolResult, error) {
	wrong := func(format string, args ...any) (abi.ToolResult, error) {
		return abi.ToolResult{ID: call.ID, IsError: true, Error: fmt.Sprintf(format, args...), Code: abi.ToolExecutorError}, nil
	}
	if call.Tool != toolName {
		return wrong("there is no tool %q here; code can call tools, as tools.call(%[1]q, args)", call.Tool)
	}
	var args struct {
		Code *string `json:"code"`
	}
	if len(call.Args) > 0 {
		if err := json.Unmarshal(call.Args, &args); err != nil {
			return wrong("the arguments: %s", abi.JSONProblem(err))
		}
	}
	if args.Code == nil {
		return wrong("the arguments have no code")
	}
	result, err := r.console.eval(*args.Code)
	if err != nil {
		return abi.ToolResult{}, err
	}
	if result.failed {
		return wrong("%s", result.text())
	}
	return abi.ToolResult{ID: call.ID, Content: []abi.Part{{Text: &abi.TextPart{Text: result.text()}}}}, nil
}

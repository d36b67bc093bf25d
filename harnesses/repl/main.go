// Repl is a JavaScript console whose heap is the memory of the session: what code
// leaves in variables, functions and closures is there in the next turn, after a
// suspend, a crash, and in every fork. A person types code, or a model writes it.
//
//	$ agentctl exec --harness repl --name console --input 'let total = 40'
//	$ agentctl exec --session console --input 'total + 2'
//	$ agentctl exec --session console --input '? What is the total?' --model gpt-5
//
// An input that begins with '>' is code and one with '?' is a question for the model;
// what others are is the mode of the configuration, which is that of docs/repl.md.
//
//	main.go      a turn, and what a session remembers
//	config.go    what can be configured
//	console.go   the interpreter, and the evaluation of code
//	toplevel.go  code as a console takes it: declared anew, with await
//	inspect.go   values as text, without running any code of theirs
//	world.go     what code has of the world: tools, time, randomness
//	values.go    JSON to values and back
//	model.go     the loop of a model that writes code
//	talk.go      what was said, and what is left out of it
package main

import (
	"context"
	"strings"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// repl is all that a session remembers.
type repl struct {
	console *console
	talk    talk
	// seen is the last record of earlier turns that was looked at.
	seen abi.Seq
}

func newRepl() *repl { return &repl{console: newConsole()} }

func (*repl) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{
		ID:           "repl",
		Version:      "1",
		Capabilities: &abi.Capabilities{Resumability: abi.RequiresMemorySnapshot, ForkSafe: true, ReasoningReplay: true},
	}
}

// Run takes the inputs one after another.
func (r *repl) Run(ctx context.Context, t *sdk.Turn) error {
	c, err := readConfig(t)
	if err != nil {
		return err
	}
	if len(t.Inputs()) == 0 {
		return &abi.Error{Code: abi.CodeInvalidArgument, Description: "repl: the turn has no input"}
	}
	lost, err := r.lost(ctx, t)
	if err != nil {
		return err
	}
	defer r.console.enter(ctx, t, c)()
	for _, input := range t.Inputs() {
		text, question := c.isQuestion(input.Text())
		if question {
			err = r.answer(ctx, t, c, lost, asked(input, text))
		} else {
			err = r.show(ctx, t, lost, text)
		}
		if err != nil {
			return err
		}
		lost = ""
	}
	return nil
}

// isQuestion tells a question from code, and gives it without its mark.
func (c config) isQuestion(input string) (text string, question bool) {
	trimmed := strings.TrimLeft(input, " \t\r\n")
	if text, ok := strings.CutPrefix(trimmed, ">"); ok {
		return text, false
	}
	if text, ok := strings.CutPrefix(trimmed, "?"); ok {
		return strings.TrimSpace(text), true
	}
	return input, c.Mode == modeModel
}

// asked is an input with its text in place of what it was.
func asked(input abi.Message, text string) abi.Message {
	message := abi.Message{Role: input.Role, Parts: []abi.Part{{Text: &abi.TextPart{Text: text}}}}
	for _, part := range input.Parts {
		if part.Text == nil {
			message.Parts = append(message.Parts, part)
		}
	}
	return message
}

// show runs code of a person and puts out what came of it. A model that is asked
// later is told of it.
func (r *repl) show(ctx context.Context, t *sdk.Turn, lost, code string) error {
	result, err := r.console.eval(code)
	if err != nil {
		return err
	}
	text := result.text()
	r.talk.add([]abi.Message{abi.Text(abi.RoleUser, ranHead+strings.TrimSpace(code)+ranResult+text)})
	if lost != "" {
		text = lost + "\n" + text
	}
	return t.OutputText(ctx, text)
}

// Save implements sdk.Portable. It has nothing to give, and says why.
func (*repl) Save() ([]byte, error) { return nil, errNotPortable() }

// Load implements sdk.Portable.
func (*repl) Load([]byte) error { return errNotPortable() }

func errNotPortable() error {
	return &abi.Error{
		Code: abi.CodeUnimplemented,
		Description: "repl: a JavaScript heap, with its functions and closures, means something to the build that it is the memory of, and to no other; " +
			"the session stays with its build. Put what is to be kept out as JSON, and begin a new session with it",
	}
}

var _ sdk.Portable = (*repl)(nil)

// Before the first session the interpreter is made, and has run a little.
func init() { sdk.Register(newRepl()) }

func main() {}

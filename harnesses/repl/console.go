package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dop251/goja"

	"github.com/agentcell/agentcell/sdk"
)

// console is the interpreter with its heap.
type console struct {
	vm *goja.Runtime
	in intrinsics
	// own are the names that the global object has by itself.
	own map[string]bool
	// count is how many pieces of code were evaluated; each is a source of its own
	// in the traces of exceptions.
	count int

	// What is there while a turn runs.
	ctx     context.Context
	turn    *sdk.Turn
	most    int // bytes of a result
	printed text
	// rejected are the promises that were, and that nobody has handled yet.
	rejected []*goja.Promise
}

// newConsole makes an interpreter and lets it run a little, so that what it sets up
// when it is first used is there before the first session is.
func newConsole() *console {
	c := &console{vm: goja.New(), own: map[string]bool{}, most: minResultBytes}
	c.vm.SetRandSource(func() float64 { return c.turn.Rand().Float64() })
	c.vm.SetTimeSource(time.Now) // of the cell: it is virtual
	c.vm.SetPromiseRejectionTracker(c.track)
	c.in = newIntrinsics(c.vm)
	c.offer()
	for _, key := range c.vm.GlobalObject().GetOwnPropertyNames() {
		c.own[key] = true
	}
	if result, err := c.eval(warmUp); err != nil || result.failed {
		panic(fmt.Sprintf("repl: the interpreter does not work: %v %s", err, result.text()))
	}
	c.count = 0
	return c
}

// warmUp uses what most code uses, and leaves nothing behind.
const warmUp = `(async () => {
	class A { #x = 1; get x() { return this.#x } }
	const { a, ...rest } = { a: [1, 2.5, 3n], b: new Map([["k", new Set([1])]]), c: new A(), d: new Date(0), e: /a+/g };
	const text = JSON.stringify(JSON.parse('{"a":[1,2.5,"x"]}')) + "ä".normalize() + "a-b".split("-").join();
	console.log(a.filter(Boolean).map(String).sort(), rest, text.replace(/x/g, "y"), new Uint8Array(2), Symbol("s"), null);
	try { null.x } catch (e) { console.log(e, Object.entries(rest).length, Math.max(1, 2)) }
	for (const x of (function* () { yield 1 })()) await x;
	return new Proxy({}, Reflect.ownKeys({}));
})()`

// enter gives the console the turn to work for, until the function it returns is
// called.
func (c *console) enter(ctx context.Context, t *sdk.Turn, cfg config) (leave func()) {
	c.ctx, c.turn, c.most = ctx, t, cfg.ResultBytes
	if depth := int(t.Limits().Depth); depth > 0 {
		c.vm.SetMaxCallStackSize(max(depth/framesPerCall, 1))
	} else {
		c.vm.SetMaxCallStackSize(defaultCalls)
	}
	return func() { c.ctx, c.turn = nil, nil }
}

// Each call in JavaScript takes up to so many call frames of the cell: when it goes
// through functions of the interpreter, as that of Array.map does. It must find its own
// bound, which is an exception, before it meets that of the cell, which ends the turn.
const (
	framesPerCall = 16
	defaultCalls  = 1250
)

// result is what came of a piece of code.
type result struct {
	printed string
	value   string // or what was thrown
	failed  bool
}

// text is a result as it is shown.
func (r result) text() string {
	value := r.value
	if r.failed {
		value = "Uncaught " + value
	}
	return r.printed + value
}

// eval evaluates code in the global scope, with all the jobs of promises that come of
// it. What goes wrong with the code is its result; an error means that the turn
// cannot go on.
func (c *console) eval(code string) (result, error) {
	c.count++
	c.printed, c.rejected = text{most: c.most}, nil
	program, waits, err := compile(fmt.Sprintf("#%d", c.count), code)
	if err != nil {
		return result{value: err.Error(), failed: true}, nil
	}
	value, err := c.vm.RunProgram(program)
	var interrupted *goja.InterruptedError
	if errors.As(err, &interrupted) {
		return result{}, interrupted.Unwrap()
	}
	r := c.outcome(value, err, waits)
	for _, p := range c.rejected {
		c.printed.write("Uncaught (in promise) " + c.thrown(p.Result(), nil) + "\n")
	}
	r.printed = c.printed.String()
	return r, nil
}

// outcome tells what came of a program that gave value or err. If it waits, value is
// the promise of what it comes to.
func (c *console) outcome(value goja.Value, err error, waits bool) result {
	var (
		thrown   *goja.Exception
		overflow *goja.StackOverflowError
	)
	switch {
	case errors.As(err, &overflow):
		frames := overflow.Stack()
		return result{value: "RangeError: too many calls within calls" + trace(frames[:min(len(frames), maxFrames)]), failed: true}
	case errors.As(err, &thrown):
		return result{value: c.thrown(thrown.Value(), thrown.Stack()), failed: true}
	case err != nil:
		return result{value: err.Error(), failed: true}
	case !waits:
		return result{value: c.inspect(value)}
	}
	promise := value.Export().(*goja.Promise)
	switch promise.State() {
	case goja.PromiseStateFulfilled:
		return result{value: c.inspect(promise.Result())}
	case goja.PromiseStateRejected:
		c.track(promise, goja.PromiseRejectionHandle)
		return result{value: c.thrown(promise.Result(), nil), failed: true}
	}
	return result{value: "Error: await waits for a promise that nothing settles", failed: true}
}

// track keeps account of promises that were rejected.
func (c *console) track(p *goja.Promise, operation goja.PromiseRejectionOperation) {
	if operation == goja.PromiseRejectionReject {
		c.rejected = append(c.rejected, p)
		return
	}
	for i, rejected := range c.rejected {
		if rejected == p {
			c.rejected = append(c.rejected[:i:i], c.rejected[i+1:]...)
			return
		}
	}
}

// maxFrames is how much is shown of where an exception comes from.
const maxFrames = 8

// thrown is a value that was thrown, with where it was.
func (c *console) thrown(value goja.Value, stack []goja.StackFrame) string {
	text := c.inspect(value)
	if len(stack) > 0 && !strings.Contains(text, "\n    at ") {
		text += trace(stack[:min(len(stack), maxFrames)])
	}
	return text
}

// trace is where something was thrown, a line a call.
func trace(stack []goja.StackFrame) string {
	var b strings.Builder
	for _, frame := range stack {
		name := frame.FuncName()
		if frame.SrcName() == "<native>" {
			fmt.Fprintf(&b, "\n    at %s (native)", name)
			continue
		}
		position := frame.Position()
		fmt.Fprintf(&b, "\n    at %s", place(name, frame.SrcName(), position.Line, position.Column))
	}
	return b.String()
}

// place is a place in code.
func place(function, source string, line, column int) string {
	source, wrapped := strings.CutSuffix(source, wrappedMark)
	if wrapped {
		line--
	}
	at := fmt.Sprintf("%s:%d:%d", source, line, column)
	if function == "" || function == "<anonymous>" {
		return at
	}
	return fmt.Sprintf("%s (%s)", function, at)
}

// frame is a line of the stack that an error has as a text.
var frame = regexp.MustCompile(`^\tat (?:(.*) \()?(#\d+~?):(\d+):(\d+)\(\d+\)\)?$`)

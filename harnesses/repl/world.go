package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dop251/goja"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// errNoTurn is for code that would reach the host outside of a turn, where none runs.
var errNoTurn = errors.New("no turn is running")

// method is a function that code can call.
type method struct {
	name string
	call func(goja.FunctionCall) goja.Value
}

// offer gives code what it has of the world.
func (c *console) offer() {
	global := c.vm.GlobalObject()
	of := func(name string) *goja.Object {
		o := c.vm.NewObject()
		c.must(global.Set(name, o))
		return o
	}
	c.define(of("console"), method{"log", c.print}, method{"info", c.print}, method{"debug", c.print}, method{"warn", c.print}, method{"error", c.print})
	c.define(of("tools"), method{"list", c.listTools}, method{"call", c.callTool}, method{"all", c.callTools})
	c.define(global, method{"sleep", c.sleep}, method{"signal", c.signal})
}

// define gives an object methods.
func (c *console) define(o *goja.Object, methods ...method) {
	for _, m := range methods {
		f := c.vm.ToValue(m.call).(*goja.Object)
		c.must(f.DefineDataProperty("name", c.vm.ToValue(m.name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
		c.must(o.Set(m.name, f))
	}
}

// must throws err as an exception of JavaScript. The turn ends where the host has given it
// up.
func (c *console) must(err error) {
	var refused *sdk.Error
	switch {
	case err == nil:
		return
	case c.ctx != nil && c.ctx.Err() != nil && !errors.As(err, &refused):
		c.vm.Interrupt(err)
	}
	panic(c.exception("Error", err.Error()))
}

// exception is an Error of JavaScript.
func (c *console) exception(name, message string) *goja.Object {
	e, err := c.vm.New(c.in.errorClass, c.vm.ToValue(message))
	if err == nil && name != "Error" {
		err = e.DefineDataProperty("name", c.vm.ToValue(name), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE)
	}
	if err != nil {
		panic(err)
	}
	return e
}

// print is console.log: strings as they are, and what else there is as it is shown.
func (c *console) print(call goja.FunctionCall) goja.Value {
	for n, v := range call.Arguments {
		if n > 0 {
			c.printed.write(" ")
		}
		if s, ok := v.(goja.String); ok {
			c.printed.write(s.String())
		} else {
			c.printed.write(c.inspect(v))
		}
	}
	c.printed.write("\n")
	return goja.Undefined()
}

// listTools gives the tools that the session may call.
func (c *console) listTools(goja.FunctionCall) goja.Value {
	if c.turn == nil {
		c.must(errNoTurn)
	}
	var list []any
	for _, d := range c.turn.Tools() {
		tool := c.vm.NewObject()
		c.must(tool.Set("name", d.Name))
		c.must(tool.Set("description", d.Description))
		if len(d.InputSchema) > 0 {
			c.must(tool.Set("input_schema", c.decode(d.InputSchema)))
		}
		list = append(list, tool)
	}
	return c.vm.NewArray(list...)
}

// callTool is tools.call(name, args): what the tool gives, or an exception.
func (c *console) callTool(call goja.FunctionCall) goja.Value {
	results := c.perform([]abi.ToolCall{c.toolCall(call.Argument(0), call.Argument(1))})
	if r := results[0]; r.IsError {
		panic(c.toolError(r))
	}
	return c.output(results[0])
}

// callTools is tools.all([[name, args], …]): the calls go out side by side, and each
// comes to {value} or {error}.
func (c *console) callTools(call goja.FunctionCall) goja.Value {
	var calls []abi.ToolCall
	c.vm.ForOf(call.Argument(0), func(pair goja.Value) bool {
		o := pair.ToObject(c.vm)
		calls = append(calls, c.toolCall(o.Get("0"), o.Get("1")))
		return true
	})
	var list []any
	for _, r := range c.perform(calls) {
		o := c.vm.NewObject()
		if r.IsError {
			c.must(o.Set("error", c.toolError(r)))
		} else {
			c.must(o.Set("value", c.output(r)))
		}
		list = append(list, o)
	}
	return c.vm.NewArray(list...)
}

func (c *console) toolCall(name, args goja.Value) abi.ToolCall {
	if _, ok := name.(goja.String); !ok {
		panic(c.exception("TypeError", "the name of a tool must be a string"))
	}
	call := abi.ToolCall{Tool: name.String()}
	if args == nil || goja.IsUndefined(args) {
		return call
	}
	call.Args = c.encode(args)
	if !strings.HasPrefix(string(call.Args), "{") {
		panic(c.exception("TypeError", "the arguments of a tool must be an object"))
	}
	return call
}

// perform makes calls. While a person decides on one of them, or the host is gone, nothing of
// this is there; the turn is then run again, with the results that are recorded.
func (c *console) perform(calls []abi.ToolCall) []abi.ToolResult {
	if c.turn == nil {
		c.must(errNoTurn)
	}
	offered := map[string]bool{}
	for _, d := range c.turn.Tools() {
		offered[d.Name] = true
	}
	for _, call := range calls {
		if !offered[call.Tool] {
			panic(c.exception("ToolError", fmt.Sprintf("there is no tool %q; tools.list() has those that there are", call.Tool)))
		}
	}
	if len(calls) == 0 {
		return nil
	}
	results, err := c.turn.CallTools(c.ctx, calls...)
	c.must(err)
	return results
}

func (c *console) toolError(r abi.ToolResult) *goja.Object {
	message := r.Error
	if message == "" {
		message = "the call failed"
	}
	e := c.exception("ToolError", message)
	if r.Code != "" {
		c.must(e.Set("code", string(r.Code)))
	}
	return e
}

// output is what a tool gave: its JSON, or its text, or the parts of its content.
func (c *console) output(r abi.ToolResult) goja.Value {
	if len(r.Output) > 0 {
		return c.decode(r.Output)
	}
	var texts []string
	var parts []any
	for _, part := range r.Content {
		if part.Text != nil {
			texts = append(texts, part.Text.Text)
		}
		parts = append(parts, c.part(part))
	}
	switch {
	case len(parts) == 0:
		return goja.Undefined()
	case len(texts) == len(parts):
		return c.vm.ToValue(strings.Join(texts, "\n"))
	}
	return c.vm.NewArray(parts...)
}

// sleep is sleep(ms). The turn is parked meanwhile.
func (c *console) sleep(call goja.FunctionCall) goja.Value {
	if c.turn == nil {
		c.must(errNoTurn)
	}
	c.must(c.turn.Sleep(c.ctx, c.duration(call.Argument(0))))
	return goja.Undefined()
}

// signal is signal(name, ms): the payload of the signal, when somebody sends it, or
// undefined if that takes longer than so many milliseconds.
func (c *console) signal(call goja.FunctionCall) goja.Value {
	if c.turn == nil {
		c.must(errNoTurn)
	}
	name, ok := call.Argument(0).(goja.String)
	if !ok {
		panic(c.exception("TypeError", "the name of a signal must be a string"))
	}
	var until time.Time
	if limit := call.Argument(1); !goja.IsUndefined(limit) {
		until = time.Now().Add(c.duration(limit))
	}
	ended, err := c.turn.Wait(c.ctx, until, name.String())
	c.must(err)
	switch {
	case ended.Signal == "":
		return goja.Undefined()
	case len(ended.Payload) == 0:
		return goja.Null()
	}
	return c.decode(ended.Payload)
}

// maxSleep is how long a sleep may be: a hundred years.
const maxSleep = 100 * 366 * 24 * time.Hour

func (c *console) duration(v goja.Value) time.Duration {
	ms := v.ToFloat()
	if math.IsNaN(ms) || ms < 0 || ms > float64(maxSleep/time.Millisecond) {
		panic(c.exception("RangeError", "want a time in milliseconds"))
	}
	return time.Duration(ms * float64(time.Millisecond))
}

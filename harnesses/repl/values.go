package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/dop251/goja"

	"github.com/agentcell/agentcell/sdk/abi"
)

// decode makes a value of JSON. A whole number that a double cannot hold is a BigInt.
func (c *console) decode(text []byte) goja.Value {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := c.decodeNext(d)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("text after the value")
		}
	}
	if err != nil {
		panic(c.exception("SyntaxError", "JSON: "+abi.JSONProblem(err)))
	}
	return v
}

// decodeNext reads the next value. It goes through tokens so that the members of an
// object stay in their order.
func (c *console) decodeNext(d *json.Decoder) (goja.Value, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return c.decodeArray(d)
		}
		return c.decodeObject(d)
	case json.Number:
		return c.number(t.String()), nil
	case nil:
		return goja.Null(), nil
	}
	return c.vm.ToValue(token), nil
}

func (c *console) decodeArray(d *json.Decoder) (goja.Value, error) {
	var list []any
	for d.More() {
		v, err := c.decodeNext(d)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := d.Token()
	return c.vm.NewArray(list...), err
}

func (c *console) decodeObject(d *json.Decoder) (goja.Value, error) {
	o := c.vm.NewObject()
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := c.decodeNext(d)
		if err != nil {
			return nil, err
		}
		// Set would take __proto__ for something else.
		if err := o.DefineDataProperty(fmt.Sprint(name), v, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return o, err
}

// maxSafe is the greatest whole number up to which a double has all.
const maxSafe = 1<<53 - 1

func (c *console) number(text string) goja.Value {
	if strings.ContainsAny(text, ".eE") {
		f, _ := strconv.ParseFloat(text, 64) // what is too big is infinite, as for JSON.parse
		return c.vm.ToValue(f)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && -maxSafe <= n && n <= maxSafe && text != "-0" {
		return c.vm.ToValue(n)
	}
	n, ok := new(big.Int).SetString(text, 10)
	if !ok || n.Sign() == 0 {
		f, _ := strconv.ParseFloat(text, 64)
		return c.vm.ToValue(f)
	}
	return c.vm.ToValue(n)
}

// bigMark stands before the digits of a BigInt in the JSON that the interpreter makes,
// which has no form for it.
const bigMark = "\u0001big:"

var bigNumber = regexp.MustCompile(`"\\u0001big:(-?[0-9]+)"`)

// encode is JSON.stringify, and takes a BigInt for a number.
func (c *console) encode(v goja.Value) []byte {
	replace := c.vm.ToValue(func(call goja.FunctionCall) goja.Value {
		member := call.Argument(1)
		if n, ok := member.Export().(*big.Int); ok && !isObject(member) {
			return c.vm.ToValue(bigMark + n.String())
		}
		return member
	})
	text, err := c.in.stringify(nil, v, replace)
	var thrown *goja.Exception
	if errors.As(err, &thrown) {
		panic(thrown.Value())
	}
	if err != nil {
		panic(err) // too many calls, or an interrupt: for the interpreter to hand on
	}
	if goja.IsUndefined(text) {
		panic(c.exception("TypeError", "a function or symbol is no JSON"))
	}
	return bigNumber.ReplaceAll([]byte(text.String()), []byte("$1"))
}

func isObject(v goja.Value) bool {
	_, ok := v.(*goja.Object)
	return ok
}

// part is a part of what a tool gave, as an object.
func (c *console) part(p abi.Part) goja.Value {
	text, err := json.Marshal(p)
	c.must(err)
	return c.decode(text)
}

// A JavaScript interpreter and a small program for it: the real module that
// metering is measured on.
package main

import "github.com/dop251/goja"

const program = `
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) }
var text = ""
for (var i = 0; i < 100; i++) text += String.fromCharCode(97 + i % 26)
var list = []
for (var i = 0; i < 20; i++) list.push({id: i, name: text.slice(i, i + 5), tags: [i, i * 2]})
var back = JSON.parse(JSON.stringify(list))
fib(8) + back.length + text.length
`

var vm = goja.New()

//go:wasmexport run
func run() uint32 {
	v, err := vm.RunString(program)
	if err != nil {
		return 0
	}
	return uint32(v.ToInteger())
}

func main() {}

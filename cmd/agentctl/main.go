// Command agentctl owns what a person or a script sees of agentcell: flags,
// output, exit codes, and the wiring of the parts into one process.
//
// One file holds one command: newXCommand makes it, xOptions has its flags, and
// runX does the work. Every decision about sessions and turns is the host's;
// this package never touches a journal, a runtime or a model itself.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A reader that goes away must not end a turn half-way: without the signal
	// the write fails, the turn goes on, and the output is dropped.
	signal.Ignore(syscall.SIGPIPE)
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	ctx, stop := a.interrupts(os.Exit)
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

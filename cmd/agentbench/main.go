// Command agentbench owns measurements that are too large for go test: it builds a
// world, measures it beside references of the same run, and takes it away again.
//
//	agentbench scale [flags]    suspended and warm sessions by the ten thousand
//
// It uses a host as an embedder does, through host/edge and host, and never looks
// below: no journal, engine or store.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const usage = `agentbench measures what go test is too small for.

Usage:
  agentbench scale [flags]    suspended and warm sessions by the ten thousand

See agentbench scale -h for the flags.
`

// run is the program; it returns the exit code: 1 for a measurement that failed, 2
// for wrong usage.
func run(ctx context.Context, args []string, out, progress io.Writer) int {
	var err error
	switch {
	case len(args) > 0 && args[0] == "scale":
		err = scale(ctx, args[1:], out, progress)
	case len(args) > 0 && (args[0] == "help" || args[0] == "-h" || args[0] == "--help"):
		fmt.Fprint(out, usage)
	default:
		fmt.Fprint(progress, usage)
		return 2
	}
	var wrong usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintln(progress, "agentbench:", err)
		return 2
	}
	fmt.Fprintln(progress, "agentbench:", err)
	return 1
}

// usageError is what the caller has to change.
type usageError struct{ error }

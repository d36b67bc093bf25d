// Package tooltest owns the conformance suite that every tool.Executor passes, and the
// MCP server of the tests of several packages.
//
// It is imported by tests alone and imports host/tool and sdk/abi, and never an
// executor.
package tooltest

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Run checks e against the contract of tool.Executor. The calls must be such
// that e answers quick, at once and each time, and takes minutes over slow or never
// answers it.
func Run(t *testing.T, e tool.Executor, quick, slow tool.Call) {
	t.Helper()
	t.Run("Concurrent", func(t *testing.T) { concurrent(t, e, quick) })
	t.Run("KeepsTheCall", func(t *testing.T) { keepsTheCall(t, e, quick) })
	t.Run("DoneBefore", func(t *testing.T) { doneBefore(t, e, quick) })
	t.Run("DoneInCall", func(t *testing.T) { doneInCall(t, e, slow) })
}

func concurrent(t *testing.T, e tool.Executor, quick tool.Call) {
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := e.Call(t.Context(), quick); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// keepsTheCall checks that an executor changes nothing of the call, and keeps
// nothing of it in the result.
func keepsTheCall(t *testing.T, e tool.Executor, quick tool.Call) {
	call := quick
	call.Args = append(abi.Struct(nil), quick.Args...)
	first, err := e.Call(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(call.Args, append(abi.Struct(nil), quick.Args...)) {
		t.Errorf("the call changed its arguments to %s", call.Args)
	}
	output := string(first.Output)
	for i := range call.Args {
		call.Args[i] = 'x'
	}
	if string(first.Output) != output {
		t.Error("the result is made of the call's arguments themselves")
	}
}

func doneBefore(t *testing.T, e tool.Executor, quick tool.Call) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Call(ctx, quick); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v; want one that wraps ctx.Err()", err)
	}
}

func doneInCall(t *testing.T, e tool.Executor, slow tool.Call) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := e.Call(ctx, slow); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v; want one that wraps ctx.Err()", err)
	}
}

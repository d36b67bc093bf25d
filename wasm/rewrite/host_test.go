package rewrite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

var errAbort = errors.New("abort")

// agentHost has the imports of a harness. It gives one input, and whatever else
// it is asked it answers alike.
type agentHost struct {
	input   string
	said    string // the last request that answers the input, or fails
	pending string
}

func (h *agentHost) answer(op, request string) string {
	switch op {
	case "start":
		return fmt.Sprintf(`{"inputs":[{"role":"user","parts":[{"text":{"text":%q}}]}]}`, h.input)
	case "model":
		h.said = request
		return `{"message":{"role":"assistant","parts":[{"text":{"text":"seven"}}]}}`
	case "output", "fail":
		h.said = request
	}
	return ""
}

// instantiate gives the imports to a runtime.
func (h *agentHost) instantiate(t testing.TB, r wazero.Runtime) {
	t.Helper()
	i32, i64 := []api.ValueType{api.ValueTypeI32, api.ValueTypeI32}, []api.ValueType{api.ValueTypeI64}
	b := r.NewHostModuleBuilder("agent")
	for _, op := range []string{"start", "model", "output", "usage", "history", "log", "reply", "fail", "tool_call", "report", "wait"} {
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, args []uint64) {
			request, _ := m.Memory().Read(uint32(args[0]), uint32(args[1]))
			h.pending = h.answer(op, string(request))
			args[0] = uint64(len(h.pending))
		}), i32, i64).Export(op)
	}
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, args []uint64) {
		n := min(len(h.pending), int(uint32(args[1])))
		m.Memory().WriteString(uint32(args[0]), h.pending[:n])
		h.pending, args[0] = h.pending[n:], uint64(n)
	}), i32, i32[:1]).Export("read")
	if _, err := b.Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	abort := func(message, file, line, column uint32) { panic(errAbort) }
	if _, err := r.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(abort).Export("abort").Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

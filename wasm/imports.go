package wasm

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/rewrite"
)

// The modules that a guest may import from.
const (
	moduleABI  = "agent"
	moduleWASI = "wasi_snapshot_preview1"
	moduleEnv  = "env"
)

// hostFunc is a function that the engine gives to guests.
type hostFunc struct {
	module, name string
	params       []api.ValueType
	results      []api.ValueType
	// call gets the parameters in args and leaves the result in args[0].
	call func(c *call, args []uint64)
	// free: no fuel is charged for the call itself.
	free bool
}

// values reads a signature's types from letters: i for i32, I for i64.
func values(letters string) []api.ValueType {
	list := make([]api.ValueType, 0, len(letters))
	for _, l := range letters {
		if l == 'I' {
			list = append(list, api.ValueTypeI64)
		} else {
			list = append(list, api.ValueTypeI32)
		}
	}
	return list
}

// hostFuncs lists everything that a module may import, and the rewriting's
// check.
func hostFuncs() []hostFunc {
	funcs := []hostFunc{
		{module: rewrite.Reserved, name: rewrite.CheckName, params: values("i"), call: (*call).check, free: true},
		{module: moduleABI, name: string(abi.OpRead), params: values("ii"), results: values("i"), call: func(c *call, args []uint64) {
			args[0] = uint64(c.read(uint32(args[0]), uint32(args[1])))
		}},
		{module: moduleEnv, name: "abort", params: values("iiii"), call: func(c *call, args []uint64) {
			c.leave(endedf(abi.ReasonTrap, abi.CodeAborted, "trap: abort at line %d, column %d", uint32(args[2]), uint32(args[3])))
		}},
	}
	for _, op := range abi.Ops() {
		funcs = append(funcs, hostFunc{module: moduleABI, name: string(op), params: values("ii"), results: values("I"), call: func(c *call, args []uint64) {
			args[0] = c.request(op, uint32(args[0]), uint32(args[1]))
		}})
	}
	return append(funcs, wasiFuncs()...)
}

// instantiate makes the host functions known to rt.
func instantiateHost(ctx context.Context, rt wazero.Runtime, funcs []hostFunc) error {
	builders := map[string]wazero.HostModuleBuilder{}
	for _, f := range funcs {
		b := builders[f.module]
		if b == nil {
			b = rt.NewHostModuleBuilder(f.module)
			builders[f.module] = b
		}
		b.NewFunctionBuilder().WithGoFunction(f.goFunc(), f.params, f.results).Export(f.name)
	}
	for module, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("host module %q: %w", module, err)
		}
	}
	return nil
}

func (f hostFunc) goFunc() api.GoFunc {
	return func(ctx context.Context, args []uint64) {
		c := ctx.(*call)
		if !f.free {
			c.charge(fuelPerCall)
		}
		f.call(c, args)
	}
}

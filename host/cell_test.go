package host_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// cell is a harness in a few instructions: it compiles at once, under the race
// detector too.
type cell struct {
	stateless bool
	early     bool // it does not call start by itself
	locals    string
	// run is the body of agent_run, cloned that of agent_cloned if it has one;
	// "$json N" in it is a request, pointer and length, made of texts[N].
	run, cloned string
	// save and load are those of agent_save and agent_load.
	save, load string
	texts      []string
}

// description is the descriptor of a cell.
const description = `{"id":%q,"capabilities":{"resumability":%q}}`

// textsAt is where the texts of a cell begin; what lies below is a guest's own.
const textsAt = 32 << 10

// harness assembles the cell. The name makes a module of its own.
func (c cell) harness(name string) host.Harness {
	var data []byte
	place := func(s string) string {
		at := textsAt + len(data)
		data = append(data, s...)
		return fmt.Sprintf("i32.const %d i32.const %d ", at, len(s))
	}
	resumability := "RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT"
	if c.stateless {
		resumability = "RESUMABILITY_STATELESS_REPLAY"
	}
	describe := place(fmt.Sprintf(description, name, resumability))
	for i, text := range c.texts {
		c.run = strings.ReplaceAll(c.run, fmt.Sprintf("$json %d ", i), place(text))
	}
	if !c.early {
		c.run = "i32.const 0 i32.const 0 call $start drop " + c.run
	}
	funcs := []wasmtest.Func{
		{Export: "agent_abi_v1"},
		{Export: "agent_describe", Type: "-> i32", Body: describe + "call $reply drop i32.const 0"},
		{Export: "agent_run", Type: "-> i32", Locals: c.locals, Body: c.run},
	}
	for _, optional := range []wasmtest.Func{
		{Export: "agent_cloned", Body: c.cloned},
		{Export: "agent_save", Type: "-> i32", Body: c.save},
		{Export: "agent_load", Type: "-> i32", Body: c.load},
	} {
		if optional.Body != "" {
			funcs = append(funcs, optional)
		}
	}
	request, wasi := wasmtest.Type("i32 i32 -> i64"), "wasi_snapshot_preview1"
	return host.Harness{Name: name, Code: wasmtest.Module{
		Imports: []wasmtest.Import{
			{Module: "agent", Name: "reply", Type: request},
			{Module: "agent", Name: "start", Type: request},
			{Module: "agent", Name: "model", Type: request},
			{Module: "agent", Name: "output", Type: request},
			{Module: "agent", Name: "usage", Type: request},
			{Module: "agent", Name: "history", Type: request},
			{Module: "agent", Name: "log", Type: request},
			{Module: "agent", Name: "fail", Type: request},
			{Module: "agent", Name: "tool_call", Type: request},
			{Module: "agent", Name: "report", Type: request},
			{Module: "agent", Name: "wait", Type: request},
			{Module: "agent", Name: "read", Type: "i32 i32 -> i32"},
			{Module: wasi, Name: "proc_exit", Type: "i32 ->"},
			{Module: wasi, Name: "random_get", Type: "i32 i32 -> i32"},
			{Module: wasi, Name: "clock_time_get", Type: "i32 i64 i32 -> i32"},
		},
		Funcs:    funcs,
		Memories: []wasmtest.Memory{{Min: uint32(textsAt+len(data)+1<<16-1) >> 16, Export: "memory"}},
		Globals:  []wasmtest.Global{{Type: "i32", Mutable: true, Init: "i32.const 0"}},
		Datas:    []wasmtest.Data{{Offset: textsAt, Bytes: data}},
	}.Bytes()}
}

// tally counts its turns, in memory and in a global, which must agree. Each turn
// asks the model, puts the count out, and takes randomness and the time into
// memory, so that the root depends on both.
func tally() host.Harness { return counting("tally", 1, "", "") }

// counting is a tally that counts in steps.
func counting(name string, step int, save, load string) host.Harness {
	const digits = `{"parts":[{"text":{"text":"`
	c := cell{
		locals: "i32", save: save, load: load,
		texts: []string{`{"messages":[{"role":"user","parts":[{"text":{"text":"how much is it?"}}]}]}`, digits + `0000"}}]}`},
	}
	// The digits of texts[1], last one first, are where they are put.
	at := textsAt + len(fmt.Sprintf(description, name, "RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT")) + len(c.texts[0]) + len(digits)
	c.run = fmt.Sprintf(`
		global.get 0 i32.const 256 i32.load i32.ne if unreachable end
		global.get 0 i32.const %d i32.add global.set 0
		i32.const 256 global.get 0 i32.store
		i32.const 4096 i32.const 16 call $random_get drop
		i32.const 0 i64.const 1 i32.const 8192 call $clock_time_get drop
		$json 0 call $model drop
		global.get 0 local.set 0 `, step)
	for i := range 4 {
		c.run += fmt.Sprintf("i32.const %d local.get 0 i32.const 10 i32.rem_u i32.const 48 i32.add i32.store8 local.get 0 i32.const 10 i32.div_u local.set 0 ", at+3-i)
	}
	c.run += "$json 1 call $output drop i32.const 0"
	return c.harness(name)
}

// createFrom makes a session of a harness.
func (r *rig) createFrom(h host.Harness) host.Session {
	r.t.Helper()
	s, err := r.Create(context.Background(), host.CreateRequest{Harness: h, Retention: r.retention})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// guests are modules that harness authors would not write: each does one thing
// that must end its turn, or be refused, and nothing else.
func guests() map[string]func() wasmtest.Module {
	turn := func(body string) func() wasmtest.Module {
		return func() wasmtest.Module { return guest(body) }
	}
	return map[string]func() wasmtest.Module{
		"quiet":     turn(`i32.const 0`),
		"loop":      turn(`loop br 0 end i32.const 0`),
		"recursion": turn(`call $deeper i32.const 0`),
		"trap":      turn(`unreachable`),
		"exit":      turn(`i32.const 0 call $proc_exit i32.const 0`),
		"bomb":      turn(`loop i32.const 1024 memory.grow drop br 0 end i32.const 0`),
		"pointer":   turn(`i32.const -16 i32.const 1024 call $output drop i32.const 1`),
		"badjson":   turn(`i32.const 512 i32.const 9 call $output drop i32.const 1`),
		"fails":     turn(`i32.const 640 i32.const ` + fmt.Sprint(len(failure)) + ` call $fail drop i32.const 1`),
		// What it says is an attack on the terminal that shows it.
		"ansi": turn(`i32.const 256 i32.const ` + fmt.Sprint(len(hostileText)) + ` call $output drop i32.const 0`),
		// They wait, and then say that they have.
		"waits":  waits(`{"signal":"paid"}`),
		"sleeps": waits(`{"until":"2999-01-01T00:00:00Z"}`),
		// It logs a line, waits, and logs another.
		"logs": func() wasmtest.Module {
			m := waits(`{"signal":"paid"}`)()
			texts := []string{"before \x1b[2J the wait", "behind the wait"}
			for i, text := range texts {
				at := 2048 + 256*i
				behind := []string{"call $start drop", "call $wait drop"}[i]
				run := &m.Funcs[2].Body
				*run = strings.Replace(*run, behind, fmt.Sprintf(`%s i32.const %d i32.const %d call $log drop`, behind, at, len(text)), 1)
				m.Datas = append(m.Datas, wasmtest.Data{Offset: int32(at), Bytes: []byte(text)})
			}
			m.Imports = append(m.Imports, wasmtest.Import{Module: "agent", Name: "log", Type: "i32 i32 -> i64"})
			return m
		},
		// Its name for what it waits for is one for the terminal that shows it.
		"lies": waits(`{"signal":"-x'\nagentctl: \u001b[2J all is well"}`),
		// Builds of one harness: two that remember their turns and can carry that over,
		// and one that cannot; two that hold no memory and say one thing, and one that
		// says another.
		"first":  remembers("first", true),
		"second": remembers("second", true),
		"stays":  remembers("stays", false),
		"says":   says("1", "hello"),
		"says2":  says("2", "hello"),
		"says3":  says("3", "goodbye"),
		// It asks a model about a picture, and is done.
		"looks": func() wasmtest.Module {
			const at = 2048
			m := guest(fmt.Sprintf(`i32.const %d i32.const %d call $model drop i32.const 0`, at, len(picture)))
			m.Imports = append(m.Imports, wasmtest.Import{Module: "agent", Name: "model", Type: "i32 i32 -> i64"})
			m.Datas = append(m.Datas, wasmtest.Data{Offset: at, Bytes: []byte(picture)})
			return m
		},
		"noabi": func() wasmtest.Module {
			m := guest(`i32.const 0`)
			for i := range m.Funcs {
				if m.Funcs[i].Export == "agent_abi_v1" {
					m.Funcs[i].Export = "something_else"
				}
			}
			return m
		},
		"socket": func() wasmtest.Module {
			m := guest(`i32.const 0`)
			m.Imports = append(m.Imports, wasmtest.Import{Module: "env", Name: "connect", Type: "i32 i32 -> i32"})
			return m
		},
		"gpu": func() wasmtest.Module {
			return described(`{"id":"gpu","version":"1","capabilities":{"requires_gpu":true}}`, `i32.const 0`)
		},
	}
}

const (
	hostileText = `{"role":"assistant","parts":[{"text":{"text":"\u001b]0;owned\u0007 \u001b[2J line\nbreak \u009b31m \u202e"}}]}`
	picture     = `{"messages":[{"role":"user","parts":[{"text":{"text":"What is\u001b[2J this?"}},{"file":{"mime":"image/png","bytes":"cG5n"}}]}],` +
		`"tools":[{"name":"zoom.in","description":"Look closer.","input_schema":{"type":"object","max":9007199254740993}}],` +
		`"tool_choice":{"mode":"MODE_AUTO"},"params":{"temperature":"0.1"}}`
	failure = `{"code":13,"description":"no \u001b[31m luck"}`
)

// waits is a guest that makes one wait, and then puts out that it is over.
func waits(request string) func() wasmtest.Module {
	const over = `{"role":"assistant","parts":[{"text":{"text":"the wait is over"}}]}`
	return func() wasmtest.Module {
		m := guest(fmt.Sprintf(`i32.const 768 i32.const %d call $wait drop i32.const 1024 i32.const %d call $output drop i32.const 0`,
			len(request), len(over)))
		m.Imports = append(m.Imports, wasmtest.Import{Module: "agent", Name: "wait", Type: "i32 i32 -> i64"})
		m.Datas = append(m.Datas, wasmtest.Data{Offset: 768, Bytes: []byte(request)}, wasmtest.Data{Offset: 1024, Bytes: []byte(over)})
		return m
	}
}

// says is a guest that puts out a text.
func says(version, text string) func() wasmtest.Module {
	return func() wasmtest.Module {
		message := fmt.Sprintf(`{"role":"assistant","parts":[{"text":{"text":%q}}]}`, text)
		m := described(fmt.Sprintf(`{"id":"says","version":%q}`, version), fmt.Sprintf(`i32.const 1024 i32.const %d call $output drop i32.const 0`, len(message)))
		m.Datas = append(m.Datas, wasmtest.Data{Offset: 1024, Bytes: []byte(message)})
		return m
	}
}

// remembers is a guest that counts its turns, up to nine, and puts that out.
func remembers(build string, portable bool) func() wasmtest.Module {
	return func() wasmtest.Module {
		begin, end := `{"role":"assistant","parts":[{"text":{"text":"`+build+` build, turn `, `0"}}]}`
		m := described(`{"id":"remembers","capabilities":{"resumability":"RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT"}}`, fmt.Sprintf(
			`i32.const 2048 i32.const 2048 i32.load i32.const 1 i32.add i32.store
			i32.const %d i32.const 2048 i32.load i32.const 48 i32.add i32.store8
			i32.const 1024 i32.const %d call $output drop i32.const 0`, 1024+len(begin), len(begin)+len(end)))
		m.Datas = append(m.Datas, wasmtest.Data{Offset: 1024, Bytes: []byte(begin + end)})
		if portable {
			m.Imports = append(m.Imports, wasmtest.Import{Module: "agent", Name: "read", Type: "i32 i32 -> i32"})
			m.Funcs = append(m.Funcs,
				wasmtest.Func{Export: "agent_save", Type: "-> i32", Body: `i32.const 2048 i32.const 4 call $reply drop i32.const 0`},
				wasmtest.Func{Export: "agent_load", Type: "-> i32", Body: `
					i32.const 0 i32.const 0 call $start drop i32.const 2048 i32.const 4 call $read i32.const 4 i32.ne`})
		}
		return m
	}
}

func guest(run string) wasmtest.Module {
	return described(`{"id":"guest","version":"1"}`, run)
}

// described is a guest that describes itself by the descriptor, and whose turn is
// run after it has asked for its Start.
func described(descriptor, run string) wasmtest.Module {
	request := wasmtest.Type("i32 i32 -> i64")
	return wasmtest.Module{
		Imports: []wasmtest.Import{
			{Module: "agent", Name: "start", Type: request},
			{Module: "agent", Name: "output", Type: request},
			{Module: "agent", Name: "reply", Type: request},
			{Module: "agent", Name: "fail", Type: request},
			{Module: "wasi_snapshot_preview1", Name: "proc_exit", Type: "i32 ->"},
		},
		Funcs: []wasmtest.Func{
			{Export: "agent_abi_v1"},
			{Export: "agent_describe", Type: "-> i32", Body: fmt.Sprintf(
				`i32.const 16 i32.const %d call $reply drop i32.const 0`, len(descriptor))},
			{Export: "agent_run", Type: "-> i32", Body: `i32.const 0 i32.const 0 call $start drop ` + run},
			{Name: "deeper", Body: `call $deeper`},
		},
		Memories: []wasmtest.Memory{{Min: 1, Export: "memory"}},
		Datas: []wasmtest.Data{
			{Offset: 16, Bytes: []byte(descriptor)},
			{Offset: 256, Bytes: []byte(hostileText)},
			{Offset: 512, Bytes: []byte(`{"parts":`)},
			{Offset: 640, Bytes: []byte(failure)},
		},
	}
}

// makeGuest is the script command `mkguest KIND FILE`.
func makeGuest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || guests()[args[0]] == nil {
		ts.Fatalf("usage: mkguest KIND FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), guests()[args[0]]().Bytes(), 0o644))
}

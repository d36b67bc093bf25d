package wasm

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

func with(m wasmtest.Module) []byte { return guest{run: "i32.const 0", module: m}.bytes() }

func importing(module, name, typ string) []byte {
	return with(wasmtest.Module{Imports: []wasmtest.Import{{Module: module, Name: name, Type: wasmtest.Type(typ)}}})
}

func exporting(funcs ...wasmtest.Func) []byte { return wasmtest.Module{Funcs: funcs}.Bytes() }

func TestS1_LoadRefuses(t *testing.T) {
	marker := wasmtest.Func{Export: exportMarker}
	describe := wasmtest.Func{Export: exportDescribe, Type: "-> i32", Body: "i32.const 0"}
	run := wasmtest.Func{Export: exportRun, Type: "-> i32", Body: "i32.const 0"}
	e := newEngine(t, Config{MaxModuleBytes: 1 << 20})
	for _, test := range []struct {
		name string
		code []byte
		want string
	}{
		{"empty", nil, "empty"},
		{"script", []byte("#!/bin/sh\n"), "not a WebAssembly file"},
		{"text", []byte("  (module)"), "text form"},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), "component"},
		{"version", []byte("\x00asm\x02\x00\x00\x00"), "version"},
		{"cut", guest{run: "i32.const 0"}.bytes()[:60], ""},
		{"too big", make([]byte, 1<<20+1), "the limit is 1048576"},
		{"no marker", exporting(describe, run), "no ABI marker"},
		{"no run", exporting(marker, describe), "agent_run"},
		{"no describe", exporting(marker, run), "agent_describe"},
		{"run's type", exporting(marker, describe, wasmtest.Func{Export: exportRun, Type: "-> i64", Body: "i64.const 0"}), "want () -> (i32)"},
		{"marker's type", exporting(wasmtest.Func{Export: exportMarker, Type: "i32 ->"}, describe, run), "agent_abi_v1 has type (i32) -> ()"},
		{"initialize's type", exporting(marker, describe, run, wasmtest.Func{Export: exportInitialize, Type: "-> i32", Body: "i32.const 0"}), "_initialize"},
		{"cloned's type", exporting(marker, describe, run, wasmtest.Func{Export: "agent_cloned", Type: "-> i32", Body: "i32.const 0"}), "agent_cloned"},
		{"run is a memory", wasmtest.Module{Funcs: []wasmtest.Func{marker, describe}, Exports: []wasmtest.Export{{Name: exportRun, Kind: 2}}}.Bytes(), "not a function"},
		{"no memory", wasmtest.Module{Funcs: []wasmtest.Func{marker, describe, run}, Memories: []wasmtest.Memory{{Min: 1}}}.Bytes(), `"memory"`},
		{"huge memory", with(wasmtest.Module{Memories: []wasmtest.Memory{{Min: 5000, Export: "memory"}}}), "5000"},
		{"unknown module", importing("env", "getpid", "-> i32"), `"getpid"`},
		{"unknown function", importing("agent", "spawn", "i32 i32 -> i64"), `"spawn"`},
		{"socket of an extension", importing("wasi_snapshot_preview1", "sock_open", "i32 i32 i32 -> i32"), `"sock_open"`},
		{"old WASI", importing("wasi_unstable", "fd_write", "i32 i32 i32 i32 -> i32"), `"wasi_unstable"`},
		{"host's own check", importing("agentcell", "check", "i32 ->"), "agentcell"},
		{"wrong type", importing("agent", "model", "i32 i32 -> i32"), "(i32, i32) -> (i64)"},
		{"wrong WASI type", importing("wasi_snapshot_preview1", "fd_write", "i32 i32 i32 -> i32"), "(i32, i32, i32, i32) -> (i32)"},
		{"table mutation", guest{run: "i32.const 0 ref.null funcref table.set 0 i32.const 0", module: wasmtest.Module{Tables: []wasmtest.Table{{Min: 1}}}}.bytes(), "table.set"},
		{"ill-typed", guest{run: "i64.const 0"}.bytes(), "compile"},
		{"start traps", with(wasmtest.Module{Funcs: []wasmtest.Func{{Name: "boot", Body: "unreachable"}}, Start: "boot"}), "agentcell.start: trap: unreachable"},
		{"initialize exits", guest{
			run: "i32.const 0", imports: []string{"wasi_snapshot_preview1.proc_exit"},
			module: wasmtest.Module{Funcs: []wasmtest.Func{{Export: exportInitialize, Body: "i32.const 3 call $proc_exit"}}},
		}.bytes(), "_initialize: the harness called proc_exit(3)"},
		{"initialize recurses", with(wasmtest.Module{Funcs: []wasmtest.Func{{Export: exportInitialize, Body: "call $_initialize"}}}), "nested calls"},
		{"data beyond memory", with(wasmtest.Module{Datas: []wasmtest.Data{{Offset: 65530, Bytes: make([]byte, 100)}}}), "data segment 0 ends at 65630, memory begins with 65536 bytes"},
		{"data that no constant places", bytes.Replace(with(wasmtest.Module{
			Globals: []wasmtest.Global{{Type: "i32", Init: "i32.const 1"}}, Datas: []wasmtest.Data{{Offset: 5, Bytes: []byte("data")}},
		}), []byte("\x41\x05\x0b\x04data"), []byte("\x23\x00\x0b\x04data"), 1), "a data segment whose offset is not a constant"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := e.Load(t.Context(), test.name, test.code)
			if !errors.Is(err, ErrModule) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestLoaded(t *testing.T) {
	onEngines(t, func(t *testing.T, e *Engine) {
		code := guest{
			run: "i32.const 0", imports: []string{"wasi_snapshot_preview1.fd_write", "agent.model", "agent.log", "env.abort"},
			module: wasmtest.Module{
				Globals: []wasmtest.Global{{Type: "i64", Mutable: true, Init: "i64.const 7"}, {Type: "i32", Init: "i32.const 9"}},
				Funcs:   []wasmtest.Func{{Name: "boot", Body: "i64.const 8 global.set 0 i32.const 4096 i32.const 1 i32.store8"}},
				Start:   "boot",
				Datas:   []wasmtest.Data{{Offset: 0, Bytes: []byte("data")}},
			},
		}.bytes()
		c := loaded(t, e, code)
		want := []string{"agent.log", "agent.model", "env.abort", "wasi_snapshot_preview1.fd_write"}
		if diff := cmp.Diff(want, c.Imports()); diff != "" {
			t.Errorf("imports (-want +got):\n%s", diff)
		}
		if c.Size() != int64(len(code)) || c.Digest() != abi.DigestOf(code) {
			t.Errorf("size %d, digest %s", c.Size(), c.Digest())
		}
		golden := c.Golden()
		global := abi.Global{Type: 0x7e, Value: [16]byte{8}}
		if diff := cmp.Diff([]abi.Global{global}, golden.Globals); diff != "" {
			t.Errorf("globals (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]uint32{0, 1}, golden.Changed); golden.Size != wasmPage || golden.Clock != int64(goldenClock) || diff != "" {
			t.Errorf("golden: size %d, clock %d, pages (-want +got):\n%s", golden.Size, golden.Clock, diff)
		}
		var p page
		if err := golden.Pages.ReadPage(1, p[:]); err != nil || p[0] != 1 {
			t.Errorf("page 1 begins with %d, %v", p[0], err)
		}
	})
}

func TestDescribe(t *testing.T) {
	describing := func(json, after string) []byte {
		return guest{
			run: "i32.const 0", imports: []string{"agent.reply", "agent.fail", "agent.model"},
			module: wasmtest.Module{
				Funcs: []wasmtest.Func{{Export: exportDescribe, Type: "-> i32", Body: "i32.const 16 i32.const " + itoa(len(json)) + " call $reply drop " + after}},
				Datas: []wasmtest.Data{{Offset: 16, Bytes: []byte(json)}},
			},
		}.bytes()
	}
	onEngines(t, func(t *testing.T, e *Engine) {
		for _, test := range []struct{ json, after, want string }{
			{`{"id":"x","version":"2"}`, "i32.const 0", ""},
			{`{"id":"x"}`, "i32.const 3", "agent_describe returned 3"},
			{`{"code":2,"description":"no luck"}`, "i32.const 16 i32.const 34 call $fail drop i32.const 1", "agent_describe failed: no luck"},
			{`{"id":`, "i32.const 0", "not one"},
			{`{"version":"2"}`, "i32.const 0", "id is empty"},
			{`{"id":"x","capabilities":{"resumability":"MAYBE"}}`, "i32.const 0", "MAYBE"},
			{`{"id":"x","version":"` + strings.Repeat("v", 257) + `"}`, "i32.const 0", "version is longer"},
			{strings.Repeat("[", 20_000), "i32.const 0", "not one"},
			{"\xff", "i32.const 0", "did not reply"},
			{`{"id":"x"}`, "unreachable", "unreachable"},
			{`{"id":"x"}`, "i32.const 0 i32.const 0 call $reply i64.const 32 i64.shr_u i32.wrap_i64 i32.const 2 i32.ne", ""},
			{`{"id":"x"}`, "i32.const 0 i32.const 0 call $model i64.const 32 i64.shr_u i32.wrap_i64 i32.const 2 i32.ne", ""},
		} {
			c := loaded(t, e, describing(test.json, test.after))
			d, err := c.Describe(t.Context())
			switch {
			case test.want == "" && (err != nil || d.ID != "x"):
				t.Errorf("%s: %v, %v", test.json, d, err)
			case test.want != "" && (!errors.Is(err, ErrModule) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%s: error %v, want %q", test.json, err, test.want)
			}
		}
	})
}

package wasm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/rewrite"
)

// The exports of ABI version 1.
const (
	exportInitialize = "_initialize"
	exportMarker     = "agent_abi_v1"
	exportDescribe   = "agent_describe"
	exportRun        = "agent_run"
	exportCloned     = "agent_cloned"
	exportSave       = "agent_save"
	exportLoad       = "agent_load"
)

// abiExport is an export that the ABI gives a meaning to.
type abiExport struct {
	name     string
	results  string
	required bool
}

func abiExports() []abiExport {
	return []abiExport{
		{exportMarker, "", true},
		{exportDescribe, "i", true},
		{exportRun, "i", true},
		{exportInitialize, "", false},
		{exportCloned, "", false},
		{exportSave, "i", false},
		{exportLoad, "i", false},
	}
}

// refusef is an error that wraps ErrModule.
func refusef(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrModule, fmt.Errorf(format, args...))
}

// checkHeader tells what code is if it is not a core module.
func checkHeader(code []byte) error {
	text := bytes.TrimLeft(code, " \t\r\n")
	switch {
	case len(code) == 0:
		return refusef("the file is empty")
	case bytes.HasPrefix(code, []byte("\x00asm\x01\x00\x00\x00")):
		return nil
	case bytes.HasPrefix(code, []byte("\x00asm\x0d\x00\x01\x00")):
		return refusef("it is a WebAssembly component; build a core module instead (for Go: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared)")
	case bytes.HasPrefix(code, []byte("\x00asm")):
		return refusef("it is WebAssembly of a version other than 1")
	case bytes.HasPrefix(text, []byte("(module")), bytes.HasPrefix(text, []byte("(component")), bytes.HasPrefix(text, []byte(";;")):
		return refusef("it is WebAssembly in its text form; assemble it first, for instance with wat2wasm")
	default:
		return refusef("it is not a WebAssembly file, which would begin with %q", "\x00asm")
	}
}

// signature prints types as "(i32, i32) -> (i64)".
func signature(params, results []api.ValueType) string {
	return rewrite.FuncType{Params: params, Results: results}.String()
}

// allowImports returns the rule for what a module may import.
func allowImports(funcs []hostFunc) func(module, name string, t rewrite.FuncType) error {
	known := map[[2]string]hostFunc{}
	modules := map[string]bool{}
	for _, f := range funcs {
		if f.module != rewrite.Reserved {
			known[[2]string{f.module, f.name}] = f
			modules[f.module] = true
		}
	}
	return func(module, name string, t rewrite.FuncType) error {
		f, ok := known[[2]string{module, name}]
		switch {
		case !ok && !modules[module]:
			return fmt.Errorf("a cell has no module %q; it has agent and %s", module, moduleWASI)
		case !ok:
			return fmt.Errorf("%q has no function %q", module, name)
		case !slices.Equal(f.params, t.Params) || !slices.Equal(f.results, t.Results):
			return fmt.Errorf("its type is %s, not %s", signature(f.params, f.results), t)
		}
		return nil
	}
}

// checkExports holds a module to the ABI. The rewriting has seen to its memory.
func checkExports(m *rewrite.Module) error {
	exports := map[string]rewrite.Export{}
	for _, e := range m.Exports {
		exports[e.Name] = e
	}
	if _, ok := exports[exportMarker]; !ok {
		return refusef("no ABI marker: it does not export %s; build it with the agentcell SDK", exportMarker)
	}
	for _, want := range abiExports() {
		e, ok := exports[want.name]
		results := values(want.results)
		switch {
		case !ok && want.required:
			return refusef("it does not export the function %s", want.name)
		case !ok:
		case e.Kind != rewrite.KindFunc:
			return refusef("its export %s is not a function", want.name)
		case len(e.Type.Params) != 0 || !slices.Equal(e.Type.Results, results):
			return refusef("its export %s has type %s, want %s", want.name, e.Type, signature(nil, results))
		}
	}
	return nil
}

// importNames lists a module's imports as "module.name", sorted.
func importNames(m *rewrite.Module) []string {
	names := make([]string, 0, len(m.Imports))
	for _, i := range m.Imports {
		names = append(names, i.Module+"."+i.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// prepare checks code and rewrites it.
func (e *Engine) prepare(code []byte) (rewritten, error) {
	if len(code) > e.cfg.MaxModuleBytes {
		return rewritten{}, refusef("it has %d bytes; the limit is %d", len(code), e.cfg.MaxModuleBytes)
	}
	if err := checkHeader(code); err != nil {
		return rewritten{}, err
	}
	m, err := rewrite.Rewrite(code, rewrite.Options{
		MaxBytes:       e.cfg.MaxModuleBytes,
		MaxMemoryPages: uint32(e.golden.MemoryBytes / wasmPage),
		Allowed:        e.allowed,
	})
	if errors.Is(err, rewrite.ErrRefused) {
		return rewritten{}, refusef("%s", strings.TrimPrefix(err.Error(), rewrite.ErrRefused.Error()+": "))
	}
	if err == nil {
		err = checkExports(m)
	}
	if err != nil {
		return rewritten{}, err
	}
	r := rewritten{
		Size: int64(len(code)), Imports: importNames(m), Globals: m.Globals,
		Memory: uint64(m.MemoryMin) * wasmPage,
	}
	// What memory has at first is in the golden image: no cell need be given it.
	if r.code, r.data, err = rewrite.TakeData(m.Code); err != nil {
		return rewritten{}, refusef("%w", err)
	}
	for i, s := range r.data {
		if end := uint64(s.Offset) + uint64(len(s.Content)); end > r.Memory {
			return rewritten{}, refusef("data segment %d ends at %d, memory begins with %d bytes", i, end, r.Memory)
		}
	}
	if m.HasStart {
		r.Start = append(r.Start, rewrite.ExportStart)
	}
	if slices.ContainsFunc(m.Exports, func(x rewrite.Export) bool { return x.Name == exportInitialize }) {
		r.Start = append(r.Start, exportInitialize)
	}
	return r, nil
}

// checkDescriptor tells what is wrong with what a harness says of itself.
func checkDescriptor(d abi.HarnessDescriptor) error {
	if d.ID == "" || len(d.ID) > 256 {
		return errors.New("its id is empty or longer than 256 bytes")
	}
	if len(d.Version) > 256 { // every turn records it
		return errors.New("its version is longer than 256 bytes")
	}
	if c := d.Capabilities; c != nil {
		switch c.Resumability {
		case "", abi.StatelessReplay, abi.RequiresMemorySnapshot:
		default:
			return fmt.Errorf("its resumability %.64q is unknown", c.Resumability)
		}
	}
	return nil
}

package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"unsafe"

	"github.com/agentcell/agentcell/sdk/abi"
)

// endpoint is an import of the ABI. Each method of Turn names its own, and no
// table lists them all: so the linker keeps only the imports that a harness can
// reach, and the module's import list is its capability list.
type endpoint struct {
	op       abi.Op
	imported func(request unsafe.Pointer, size uint32) uint64
}

var (
	opStart    = endpoint{abi.OpStart, importStart}
	opModel    = endpoint{abi.OpModel, importModel}
	opOutput   = endpoint{abi.OpOutput, importOutput}
	opToolCall = endpoint{abi.OpToolCall, importToolCall}
	opReport   = endpoint{abi.OpReport, importReport}
	opUsage    = endpoint{abi.OpUsage, importUsage}
	opWait     = endpoint{abi.OpWait, importWait}
	opHistory  = endpoint{abi.OpHistory, importHistory}
	opLog      = endpoint{abi.OpLog, importLog}
	opReply    = endpoint{abi.OpReply, importReply}
	opFail     = endpoint{abi.OpFail, importFail}
)

//go:wasmimport agent start
//go:noescape
func importStart(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent model
//go:noescape
func importModel(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent output
//go:noescape
func importOutput(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent tool_call
//go:noescape
func importToolCall(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent report
//go:noescape
func importReport(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent usage
//go:noescape
func importUsage(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent wait
//go:noescape
func importWait(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent history
//go:noescape
func importHistory(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent log
//go:noescape
func importLog(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent reply
//go:noescape
func importReply(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent fail
//go:noescape
func importFail(request unsafe.Pointer, size uint32) uint64

//go:wasmimport agent read
//go:noescape
func importRead(response unsafe.Pointer, size uint32) uint32

//go:wasmimport wasi_snapshot_preview1 random_get
//go:noescape
func importRandom(p unsafe.Pointer, size uint32) uint32

// send performs one request through the import of e and reads the response.
func (e endpoint) send(request []byte) (abi.Status, []byte) {
	packed := e.imported(unsafe.Pointer(unsafe.SliceData(request)), uint32(len(request)))
	response := make([]byte, uint32(packed))
	for n := 0; n < len(response); {
		rest := response[n:]
		read := importRead(unsafe.Pointer(unsafe.SliceData(rest)), uint32(len(rest)))
		if read == 0 {
			response = response[:n]
		}
		n += int(read)
	}
	return abi.Status(packed >> 32), response
}

func (t *Turn) call(ctx context.Context, e endpoint, request []byte) (abi.Status, []byte, error) {
	if t.transport != nil {
		return t.transport.Call(ctx, e.op, request)
	}
	status, response := e.send(request)
	return status, response, nil
}

func (t *Turn) random(p []byte) {
	if t.transport != nil {
		t.transport.Random(p)
		return
	}
	if errno := importRandom(unsafe.Pointer(unsafe.SliceData(p)), uint32(len(p))); errno != 0 {
		panic(fmt.Sprintf("random_get: errno %d", errno))
	}
}

// agentABI marks the version of the ABI. It is never called.
//
//go:wasmexport agent_abi_v1
func agentABI() {}

//go:wasmexport agent_describe
func agentDescribe() int32 { return exit(describe()) }

//go:wasmexport agent_run
func agentRun() int32 { return exit(RunTurn(context.Background(), registered, nil)) }

//go:wasmexport agent_cloned
func agentCloned() {
	if c, ok := registered.(Cloner); ok {
		c.Cloned()
	}
}

//go:wasmexport agent_save
func agentSave() int32 {
	state, err := SaveState(registered)
	if err == nil {
		if status, text := opReply.send(state); status != abi.StatusOK {
			err = newError(abi.OpReply, status, text)
		}
	}
	return exit(err)
}

//go:wasmexport agent_load
func agentLoad() int32 {
	status, state := opStart.send(nil)
	if status != abi.StatusOK {
		return exit(newError(abi.OpStart, status, state))
	}
	return exit(LoadState(registered, state))
}

func describe() (err error) {
	defer recovered(&err)
	if registered == nil {
		return ErrNoHarness
	}
	body, err := json.Marshal(registered.Describe())
	if err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	if status, text := opReply.send(body); status != abi.StatusOK {
		return newError(abi.OpReply, status, text)
	}
	return nil
}

// exit turns err into the result of an exported function, and tells the host
// the reason.
func exit(err error) int32 {
	if err == nil {
		return 0
	}
	if body, err := json.Marshal(Failure(err)); err == nil {
		opFail.send(body)
	}
	return 1
}

// The golden image, from which a harness without memory starts every turn, is
// taken after this. So what encoding/json finds out about a type when it first
// sees it is found out here, and not again in each turn.
func init() {
	for _, message := range []any{
		new(abi.Start), new(abi.ModelCall), new(abi.ModelResult), new(abi.Message), new(abi.HistoryRequest), new([]abi.LogRecord),
		new(abi.ToolCallRequest), new(abi.ToolCallResponse), new(abi.WaitRequest), new(abi.WaitResponse),
	} {
		body, err := json.Marshal(message)
		if err == nil {
			err = json.Unmarshal(body, message)
		}
		if err != nil {
			panic(err)
		}
	}
}

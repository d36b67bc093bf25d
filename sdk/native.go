//go:build !wasip1

package sdk

import (
	"context"

	"github.com/agentcell/agentcell/sdk/abi"
)

// endpoint is an import of the ABI; natively there is no more to it than its
// name.
type endpoint struct{ op abi.Op }

var (
	opStart    = endpoint{abi.OpStart}
	opModel    = endpoint{abi.OpModel}
	opOutput   = endpoint{abi.OpOutput}
	opToolCall = endpoint{abi.OpToolCall}
	opReport   = endpoint{abi.OpReport}
	opUsage    = endpoint{abi.OpUsage}
	opWait     = endpoint{abi.OpWait}
	opHistory  = endpoint{abi.OpHistory}
	opLog      = endpoint{abi.OpLog}
)

func (t *Turn) call(ctx context.Context, e endpoint, request []byte) (abi.Status, []byte, error) {
	return t.transport.Call(ctx, e.op, request)
}

func (t *Turn) random(p []byte) { t.transport.Random(p) }

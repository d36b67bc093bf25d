package sdk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Harness is the control loop of an agent.
type Harness interface {
	// Describe says what the harness is and needs. It is called outside of
	// turns and must always say the same.
	Describe() abi.HarnessDescriptor

	// Run drives one turn. An error, or a panic, ends the turn FAILED: the
	// journal keeps what it did, and its changes to memory are dropped. To
	// choose the code that END records, return or wrap an *abi.Error.
	//
	// In a cell ctx is never done: a turn that is canceled simply ends, wherever
	// it is. Natively ctx is done when the turn was given up.
	//
	// Neither ctx nor t may be used after Run has returned.
	Run(ctx context.Context, t *Turn) error
}

// Cloner is a Harness that wants to know when its session was forked.
type Cloner interface {
	Harness
	// Cloned is called before Run in the first turn of a session that was
	// forked from another one, on a copy of that one's memory: the place to drop
	// what must not be shared with parent and siblings, such as ids and cached
	// random numbers. It cannot reach the host. If that turn does not complete,
	// Cloned is called again in the next.
	Cloned()
}

// Transport carries the requests of one turn to its host, where a harness runs
// natively. In a cell the imports of the ABI take its place.
type Transport interface {
	// Call performs op. An error means that the turn was given up: it is
	// handed to the harness, whose result no longer matters. Call may keep
	// neither request nor the answer it gave.
	Call(ctx context.Context, op abi.Op, request []byte) (abi.Status, []byte, error)

	// Random fills p from the turn's own stream of random bytes.
	Random(p []byte)
}

// ErrNoHarness reports a module that registers no harness.
var ErrNoHarness = errors.New("no harness registered: call sdk.Register from an init function")

// registered is the guest's harness. A guest is a library without a main, whose
// only entry points are exported functions; so this is the one place where a
// harness can wait for them.
var registered Harness

// Register makes h the harness of this module. It is called once, from an init
// function of the harness's package main, and panics if called again.
func Register(h Harness) {
	if h == nil {
		panic("sdk.Register: the harness is nil")
	}
	if registered != nil {
		panic("sdk.Register: called twice")
	}
	registered = h
}

// RunTurn runs one turn of h over transport and returns what Run returns; a
// panic of Run comes back as an error. Failure makes of an error what END
// records.
func RunTurn(ctx context.Context, h Harness, transport Transport) (err error) {
	if h == nil {
		return ErrNoHarness
	}
	t := &Turn{transport: transport}
	if err := t.ask(ctx, opStart, nil, &t.start); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			t.Logf("panic: %v\n%s", r, debug.Stack())
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return h.Run(ctx, t)
}

// maxDescription is how much of an error's text is recorded.
const maxDescription = 4 << 10

// Failure is the record of a turn that ended with err: the text of err, and the
// code of the *abi.Error or *Error it wraps, or else CodeUnknown.
func Failure(err error) *abi.Error {
	failure := &abi.Error{Code: abi.CodeUnknown, Description: err.Error()}
	if own := (*abi.Error)(nil); errors.As(err, &own) && own.Code != 0 {
		failure.Code = own.Code
	} else if host := (*Error)(nil); errors.As(err, &host) && host.Code != 0 {
		failure.Code = host.Code
	}
	if len(failure.Description) > maxDescription {
		failure.Description = failure.Description[:maxDescription] + " …"
	}
	failure.Description = strings.ToValidUTF8(failure.Description, "\uFFFD")
	return failure
}

// source draws each number from the cell's own stream, keeping nothing: what
// was drawn ahead would be the same in every child of a fork.
type source func(p []byte)

func (s source) Uint64() uint64 {
	var p [8]byte
	s(p[:])
	return binary.LittleEndian.Uint64(p[:])
}

package sdk

import (
	"fmt"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Portable is a Harness that holds memory and can carry it over to another
// build of itself: agentctl upgrade calls Save in the module that a session has
// and Load in the one it gets. Without it a session keeps its module for ever, as
// what a memory means only the module knows that made it.
//
// What passes between the two is a form of its own, such as JSON with a version in
// it, and not the memory. A build that can be left must have Save; one that can be
// moved to, Load, for what the builds before it gave.
type Portable interface {
	Harness
	// Save gives what the harness remembers, at most abi.MaxStateBytes. It is
	// called on a copy of the session's memory, which is dropped.
	Save() ([]byte, error)
	// Load takes what Save gave, in a harness that remembers nothing yet. An error,
	// or a panic, leaves the session with the module it had. Load may keep state.
	Load(state []byte) error
}

// SaveState calls Save of h. A panic comes back as an error, and a harness that
// is not Portable as an *abi.Error with CodeUnimplemented.
func SaveState(h Harness) (state []byte, err error) {
	p, err := portable(h)
	if err != nil {
		return nil, err
	}
	defer recovered(&err)
	return p.Save()
}

// LoadState calls Load of h, with errors as SaveState.
func LoadState(h Harness, state []byte) (err error) {
	p, err := portable(h)
	if err != nil {
		return err
	}
	defer recovered(&err)
	return p.Load(state)
}

func portable(h Harness) (Portable, error) {
	if h == nil {
		return nil, ErrNoHarness
	}
	p, ok := h.(Portable)
	if !ok {
		return nil, &abi.Error{Code: abi.CodeUnimplemented, Description: "the harness is not an sdk.Portable: it has no Save and Load"}
	}
	return p, nil
}

// recovered makes an error of a panic.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v", r)
	}
}

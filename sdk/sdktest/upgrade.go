package sdktest

import (
	"fmt"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Upgrade carries what old remembers over to fresh, which remembers nothing, as
// agentctl upgrade does between two builds. Later turns are then run with fresh. An
// error is what would leave the session with old.
func (s *Host) Upgrade(old, fresh sdk.Harness) error {
	state, err := sdk.SaveState(old)
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	if len(state) > abi.MaxStateBytes {
		return fmt.Errorf("save: a state of %d bytes; the limit is %d", len(state), abi.MaxStateBytes)
	}
	if err := sdk.LoadState(fresh, state); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	s.record(abi.Event{Kind: abi.EventLifecycle, Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleUpgrade}})
	return nil
}

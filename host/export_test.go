package host

import "github.com/agentcell/agentcell/sdk/abi"

// SetFault lets a test decide, at each point where the process could die,
// whether it does: f's error drops the turn there.
func (h *Host) SetFault(f func(point string) error) { h.fault = f }

// Queued is how many turns wait for a session.
func (h *Host) Queued(uid abi.SessionID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.claims.queue[uid])
}

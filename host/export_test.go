package host

// SetFault lets a test decide, at each point where the process could die,
// whether it does: f's error drops the turn there.
func (h *Host) SetFault(f func(point string) error) { h.fault = f }

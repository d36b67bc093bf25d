package host

import (
	"fmt"
	"time"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// pin is the harness that the turns of a session run.
type pin struct {
	Harness    string     `json:"harness"`
	Module     abi.Digest `json:"module"`
	GoldenRoot abi.Digest `json:"golden_root,omitzero"`
}

// upgraded is the pin since the UPGRADE at seq. A session that never was upgraded
// has none, and the pin that it was made with. Forks inherit both.
type upgraded struct {
	pin
	Seq abi.Seq `json:"seq"`
}

// pinned is the pin of a session where an upgrade was the newest.
func (r *row) pinned(up *upgraded) pin {
	if up == nil {
		return r.made
	}
	return up.pin
}

// since is the seq of the record since which turns run the session's module.
func (r *row) since() abi.Seq {
	if up := r.sum.Upgraded; up != nil {
		return up.Seq
	}
	return 1
}

// isUpgrade reports whether a record is that of an upgrade.
func isUpgrade(e *abi.Event) bool {
	return e.Kind == abi.EventLifecycle && e.Lifecycle != nil && e.Lifecycle.Kind == abi.LifecycleUpgrade
}

// upgrade is what an UPGRADE at seq changes.
func (s *summary) upgrade(seq abi.Seq, c *abi.Cell) {
	s.Upgraded = &upgraded{pin{Harness: c.Harness, Module: c.Module, GoldenRoot: c.GoldenRoot}, seq}
	s.Root, s.Closed, s.Suspended = c.Root, seq, false
}

// upgradeAt is the newest upgrade up to a record, nil if there is none. Each UPGRADE
// names the one before, so that no record between them is read.
func (h *Host) upgradeAt(r row, at abi.Seq) (*upgraded, error) {
	up := r.sum.Upgraded
	for up != nil && up.Seq > at {
		newer, err := h.upgradeRecord(r, up.Seq)
		if err != nil {
			return nil, err
		}
		since := newer.Cell.Since
		if since == 1 {
			return nil, nil
		}
		older, err := h.upgradeRecord(r, since)
		if err != nil {
			return nil, err
		}
		var s summary
		s.upgrade(since, older.Cell)
		up = s.Upgraded
	}
	return up, nil
}

// upgradeRecord reads the UPGRADE at a seq.
func (h *Host) upgradeRecord(r row, seq abi.Seq) (*abi.Event, error) {
	for rec, err := range h.journal.Read(r.UID, seq, seq) {
		if err != nil {
			return nil, err
		}
		e, _, err := h.decode(rec)
		if err != nil {
			return nil, err
		}
		if isUpgrade(e) && e.Cell.Since < seq {
			return e, nil
		}
	}
	return nil, fmt.Errorf("seq %d: no %s where one must be: %w", seq, abi.LifecycleUpgrade, journal.ErrCorrupt)
}

// clockTime is what a cell's clock shows.
func clockTime(nanoseconds int64) time.Time { return time.Unix(0, nanoseconds) }

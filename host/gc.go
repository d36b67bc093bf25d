package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Collect takes away what nobody needs: of deleted sessions all but what their forks
// and snapshots need, and what imports and saves left that came to nothing. Sessions may run
// meanwhile. It can be ended at any moment, by ctx or by a crash, and does the rest
// the next time. What is needed but cannot be read is a journal.ErrCorrupt, and
// nothing is taken away.
func (h *Host) Collect(ctx context.Context) (journal.Collected, error) {
	h.images.clear() // or they would be in use
	c, err := h.journal.Collect(ctx, h.namer())
	if err != nil {
		return c, err
	}
	h.log.Info("collected", "sessions", c.Sessions, "records", c.Records, "blobs", c.Blobs,
		"images", c.Images, "pages", c.Pages, "bytes", c.Bytes)
	return c, nil
}

// namer tells the journal what sessions, records and refs name.
func (h *Host) namer() journal.Namer {
	return journal.Namer{
		Session: sessionNames,
		Record: func(_ abi.SessionID, r journal.Record, n *journal.Names) error {
			encoded, _, _, err := journal.ParseLine(r.Line)
			if err != nil {
				return err
			}
			e, err := abi.DecodeEvent(encoded)
			if err != nil {
				return fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
			}
			return h.eventNames(e, n)
		},
		Pins: h.pins,
	}
}

// sessionNames are what a session names: its module, and the image that its next
// turn begins from.
func sessionNames(s journal.Session, n *journal.Names) error {
	r, err := decodeRow(s)
	if err != nil {
		return fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
	}
	err = n.Blob(r.meta.Module)
	if err == nil && !s.IsDeleted() {
		err = n.Image(r.sum.Root)
	}
	return err
}

// eventNames are what a record names, as it stands in its line.
func (h *Host) eventNames(e *abi.Event, n *journal.Names) error {
	if e.Cell == nil {
		return nil
	}
	for _, d := range []abi.Digest{e.Cell.Module, e.Cell.Body, e.Cell.Tools, e.Cell.Payload, e.Cell.Request} {
		if d.IsZero() {
			continue
		}
		if err := n.Blob(d); err != nil {
			return err
		}
	}
	for _, root := range []abi.Digest{e.Cell.GoldenRoot, e.Cell.BaseRoot, e.Cell.Root} {
		if root.IsZero() {
			continue
		}
		if err := n.Image(root); err != nil {
			return err
		}
	}
	return h.messageNames(e.Cell.Messages, n)
}

// messageNames are a list of messages, back to the first one that was told.
func (h *Host) messageNames(head abi.Digest, n *journal.Names) error {
	for !head.IsZero() && n.Once(head) {
		b, err := h.journal.Blob(head)
		if errors.Is(err, journal.ErrNotFound) {
			err = fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
		}
		if err != nil {
			return err
		}
		node, err := decodeMessageNode(head, b)
		if err != nil {
			return err
		}
		for _, d := range []abi.Digest{head, node.Message} {
			if err := n.Blob(d); err != nil {
				return err
			}
		}
		head = node.Prev
	}
	return nil
}

// pins are what refs name: modules that were pushed, and points that were saved.
func (h *Host) pins(n *journal.Names) error {
	harnesses, err := h.journal.Refs(harnessRef)
	if err != nil {
		return err
	}
	for _, r := range harnesses {
		if err := n.Blob(r.Digest); err != nil {
			return err
		}
	}
	snapshots, err := h.journal.Refs(snapshotRef)
	if err != nil {
		return err
	}
	for _, r := range snapshots {
		s, err := readSnapshot(r)
		if err != nil {
			return err
		}
		if err := n.Point(s.Session, s.At, r.Name); err != nil {
			return err
		}
	}
	return nil
}

// messageNode is an element of a list of messages.
type messageNode struct {
	Message abi.Digest `json:"message"`
	Prev    abi.Digest `json:"prev"`
}

func decodeMessageNode(d abi.Digest, b []byte) (messageNode, error) {
	var node messageNode
	if err := json.Unmarshal(b, &node); err != nil {
		return node, fmt.Errorf("%w: blob %v is no list of messages: %w", journal.ErrCorrupt, d, err)
	}
	return node, nil
}

// Usage tells what takes room in the store, and for whom.
type Usage struct {
	// Keepers are all sessions and snapshots, sessions first.
	Keepers []Keeper
	// Deleted are the deleted sessions of which others still need something.
	Deleted []Remains
	// Garbage is what Collect would take away, and perhaps more: what imports and
	// saves left that came to nothing is found by Collect alone.
	Garbage journal.Amount
	// Disk is what the store's files take, zero if there are none.
	Disk int64
}

// Keeper is a session or snapshot.
type Keeper struct {
	Session Session
	// Snapshot is the name of a snapshot of the session, with its Project; empty for
	// the session itself.
	Project, Snapshot string
	// Total is all that it needs; Own what would go with it.
	Total, Own journal.Amount
}

// Remains are what is left of a deleted session: how much, and who needs it.
type Remains struct {
	Session Session
	Kept    journal.Amount
	For     []Keeper
}

// Usage walks all that is stored. Collect waits for it, and nobody else.
func (h *Host) Usage(ctx context.Context) (Usage, error) {
	u, err := h.journal.Usage(ctx, h.namer())
	if err != nil {
		return Usage{}, err
	}
	out := Usage{Garbage: u.Garbage}
	if out.Disk, err = h.journal.DiskBytes(); err != nil {
		return Usage{}, err
	}
	known := map[*journal.Keeper]Keeper{}
	for _, k := range u.Keepers {
		keeper, err := h.keeper(k)
		if err != nil {
			return Usage{}, err
		}
		known[k] = keeper
		out.Keepers = append(out.Keepers, keeper)
	}
	for _, r := range u.Deleted {
		decoded, err := decodeRow(r.Session)
		if err != nil {
			return Usage{}, err
		}
		remains := Remains{Session: h.show(decoded), Kept: r.Kept}
		for _, k := range r.For {
			remains.For = append(remains.For, known[k])
		}
		if len(remains.For) > 0 {
			out.Deleted = append(out.Deleted, remains)
		}
	}
	return out, nil
}

func (h *Host) keeper(k *journal.Keeper) (Keeper, error) {
	r, err := decodeRow(k.Session)
	if err != nil {
		return Keeper{}, err
	}
	out := Keeper{Session: h.show(r), Project: r.Project, Total: k.Total, Own: k.Own}
	if k.Pin != "" {
		out.Project, out.Snapshot = cutSnapshotName(k.Pin)
	}
	return out, nil
}

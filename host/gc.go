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
// and snapshots need, images of past turns that no Retention keeps, and what imports and
// saves left that came to nothing. Sessions may run meanwhile. It can be ended at any moment, by ctx or by a crash, and does the rest
// the next time. Where something that is needed cannot be read, all that is named by its
// content stays, deleted sessions go, and the error is a *journal.Unreadable.
func (h *Host) Collect(ctx context.Context) (journal.Collected, error) {
	return h.collect(ctx, h.namer(ctx))
}

// namer tells the journal what sessions, records and refs name, in one walk.
func (h *Host) namer(ctx context.Context) journal.Namer {
	images := h.retained(ctx)
	return journal.Namer{
		Session: func(s journal.Session, n *journal.Names) error { return sessionNames(images, s, n) },
		Record: func(uid abi.SessionID, r journal.Record, n *journal.Names) error {
			e, err := lineEvent(r)
			if err != nil {
				return fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
			}
			if e.Cell == nil {
				return nil
			}
			if err := imageNames(images, uid, e, n); err != nil {
				return err
			}
			return h.blobNames(e.Cell, n)
		},
		Pins: h.pins,
	}
}

// sessionNames are what a session names: its module, and the image that its next
// turn, or the open one, begins from.
func sessionNames(images *retained, s journal.Session, n *journal.Names) error {
	r, err := decodeRow(s)
	if err != nil {
		return fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
	}
	images.meet(r)
	err = errors.Join(n.Blob(r.made.Module), n.Blob(r.meta.Module))
	if err == nil && !s.IsDeleted() {
		err = n.Image(r.sum.Root)
	}
	return err
}

// imageNames are the images that a record names. Those that turns have led to are
// kept as the session's Retention says. What a turn begins from is what the one before
// has led to, or else a session names it.
func imageNames(images *retained, uid abi.SessionID, e *abi.Event, n *journal.Names) error {
	switch e.Kind {
	case abi.EventExecutionStart:
		return images.began(uid, e)
	case abi.EventEnd:
		kept, err := images.ended(uid, e)
		switch {
		case err != nil:
			return err
		case kept:
			return n.Image(e.Cell.Root)
		default:
			return n.Spare(e.Cell.Root)
		}
	}
	if isUpgrade(e) {
		images.upgraded(e.Cell)
		return n.Image(e.Cell.Root) // whatever became of the module before
	}
	for _, root := range []abi.Digest{e.Cell.GoldenRoot, e.Cell.BaseRoot, e.Cell.Root} {
		if root.IsZero() {
			continue
		}
		if err := n.Image(root); err != nil {
			return err
		}
	}
	return nil
}

// blobNames are the blobs that a record names, as it stands in its line.
func (h *Host) blobNames(c *abi.Cell, n *journal.Names) error {
	for _, d := range []abi.Digest{c.Module, c.Body, c.Tools, c.Payload, c.Request} {
		if d.IsZero() {
			continue
		}
		if err := n.Blob(d); err != nil {
			return err
		}
	}
	return h.messageNames(c.Messages, n)
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

// pins are what refs name: modules of harnesses and tools, policies, and points that
// were saved.
func (h *Host) pins(n *journal.Names) error {
	for _, kind := range []string{harnessRef, toolRef, policyRef} {
		blobs, err := h.journal.Refs(kind)
		if err != nil {
			return err
		}
		for _, r := range blobs {
			if err := n.Blob(r.Digest); err != nil {
				return err
			}
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
		if err := n.Point(s.Session, s.At, r.Name, s.Root); err != nil {
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
	// All is what all that is stored takes, each thing once, Garbage with it.
	All journal.Amount
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

// Usage walks all that is stored. Collect waits for it, and nobody else. Of what cannot be
// read it counts what is known, and gives a *journal.Unreadable beside it.
func (h *Host) Usage(ctx context.Context) (Usage, error) {
	u, damage := h.journal.Usage(ctx, h.namer(ctx))
	if damage != nil && !isUnreadable(damage) {
		return Usage{}, damage
	}
	out := Usage{Garbage: u.Garbage, All: u.All}
	var err error
	if out.Disk, err = h.journal.DiskBytes(); err != nil {
		return Usage{}, err
	}
	known := map[*journal.Keeper]Keeper{}
	for _, k := range u.Keepers {
		keeper, err := h.keeper(k)
		if err != nil {
			continue // it is among the damage
		}
		known[k] = keeper
		out.Keepers = append(out.Keepers, keeper)
	}
	for _, r := range u.Deleted {
		decoded, err := decodeRow(r.Session)
		if err != nil {
			continue
		}
		remains := Remains{Session: h.show(decoded), Kept: r.Kept}
		for _, k := range r.For {
			if keeper, ok := known[k]; ok {
				remains.For = append(remains.For, keeper)
			}
		}
		if len(remains.For) > 0 {
			out.Deleted = append(out.Deleted, remains)
		}
	}
	return out, damage
}

// isUnreadable reports that the walk has gone on to its end in spite of err.
func isUnreadable(err error) bool {
	var damage *journal.Unreadable
	return errors.As(err, &damage)
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

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Snapshot is a name for a point of a session's record. While the name is there
// the store keeps the record up to that point, and its memory, also when the
// session is deleted.
type Snapshot struct {
	Project string
	// Name is unique among the snapshots of the project; a session may have the
	// same.
	Name string
	// Session is whose record it is a point of, At the seq there, and Hash the
	// hash of that record.
	Session abi.SessionID
	At      abi.Seq
	Hash    abi.Digest
	// Open: At lies inside a turn. Sessions that are made from it own that turn,
	// open.
	Open bool
	// Root is the memory root that the next turn, or the open one, begins from.
	Root abi.Digest
	// Turns counts the turns that had ended there.
	Turns   int64
	Harness string
	Module  abi.Digest
	Saved   time.Time
}

// SaveRequest asks for a snapshot.
type SaveRequest struct {
	Session abi.SessionID
	// At is a point that Fork takes; 0 means the last closed point.
	At abi.Seq
	// Name is the snapshot's, in the session's project.
	Name string
}

// FromSnapshotRequest asks for a session that begins from a snapshot.
type FromSnapshotRequest struct {
	Project  string // empty: DefaultProject
	Snapshot string
	Name     string // optional; unique in the project
	Labels   map[string]string
}

// snapshotRef is the kind of the refs that name snapshots, as project/name.
const snapshotRef = "snapshot"

func snapshotName(project, name string) string { return project + "/" + name }

func cutSnapshotName(ref string) (project, name string) {
	project, name, _ = strings.Cut(ref, "/")
	return project, name
}

// snapshotNote is what stands beside the hash of the record.
type snapshotNote struct {
	UID     abi.SessionID `json:"uid"`
	At      abi.Seq       `json:"at"`
	Open    bool          `json:"open,omitempty"`
	Root    abi.Digest    `json:"root,omitzero"`
	Turns   int64         `json:"turns,omitempty"`
	Harness string        `json:"harness"`
	Module  abi.Digest    `json:"module"`
	Saved   abi.Time      `json:"saved"`
}

// Save gives a point of a session a name, durably when it returns. Nothing is
// copied, and the session, which may be running, neither stops nor changes. A
// name stands for one point for as long as it is there: Save wraps ErrExists for
// one that is taken, and of two calls at once one succeeds.
func (h *Host) Save(ctx context.Context, req SaveRequest) (Snapshot, error) {
	s, err := h.save(ctx, req)
	if err != nil {
		return Snapshot{}, fmt.Errorf("save: %w", err)
	}
	return s, nil
}

func (h *Host) save(ctx context.Context, req SaveRequest) (Snapshot, error) {
	defer h.journal.Hold()() // from Collect
	if err := checkName("snapshot", req.Name); err != nil {
		return Snapshot{}, err
	}
	if req.At < 0 {
		return Snapshot{}, fmt.Errorf("%w: seq %d", ErrInvalid, req.At)
	}
	r, err := h.row(req.Session)
	if err != nil {
		return Snapshot{}, err
	}
	at, sum, err := h.forkPoint(r, req.At)
	if err != nil {
		return Snapshot{}, err
	}
	if err := h.needImage(ctx, r, at, sum.Root); err != nil {
		return Snapshot{}, err
	}
	hash, err := h.hashAt(r.UID, at)
	if err != nil {
		return Snapshot{}, err
	}
	had := r.pinned(sum.Upgraded)
	note := snapshotNote{
		UID: r.UID, At: at, Open: sum.Open != 0, Root: sum.Root, Turns: sum.Turns,
		Harness: had.Harness, Module: had.Module, Saved: abi.NewTime(h.cfg.Now()),
	}
	ref := journal.Ref{Name: snapshotName(r.Project, req.Name), Digest: hash, Note: mustJSON(note)}
	switch err := h.journal.AddRef(ctx, snapshotRef, ref, r.UID); {
	case errors.Is(err, journal.ErrExists):
		return Snapshot{}, fmt.Errorf("snapshot %q in project %q: %w", req.Name, r.Project, ErrExists)
	case errors.Is(err, journal.ErrNotFound):
		return Snapshot{}, wasDeleted(r.UID)
	case err != nil:
		return Snapshot{}, err
	}
	h.log.Info("session saved", "session", r.UID, "at", at, "snapshot", req.Name)
	return readSnapshot(ref)
}

// hashAt is the hash of one record of a session.
func (h *Host) hashAt(uid abi.SessionID, at abi.Seq) (hash abi.Digest, err error) {
	for rec, readErr := range h.journal.Read(uid, at, at) {
		hash, err = rec.Hash, readErr
	}
	return hash, err
}

// Snapshot tells what a snapshot's name stands for. It wraps ErrNotFound. An empty
// project is DefaultProject.
func (h *Host) Snapshot(ctx context.Context, project, name string) (Snapshot, error) {
	if project == "" {
		project = DefaultProject
	}
	ref, err := h.journal.Ref(snapshotRef, snapshotName(project, name))
	if err != nil {
		return Snapshot{}, snapshotError(project, name, err)
	}
	return readSnapshot(ref)
}

// Snapshots lists the snapshots of a project by name. An empty project is
// DefaultProject.
func (h *Host) Snapshots(ctx context.Context, project string) ([]Snapshot, error) {
	if project == "" {
		project = DefaultProject
	}
	refs, err := h.journal.Refs(snapshotRef)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var snapshots []Snapshot
	for _, ref := range refs {
		if !strings.HasPrefix(ref.Name, snapshotName(project, "")) {
			continue
		}
		s, err := readSnapshot(ref)
		if err != nil {
			return nil, fmt.Errorf("list snapshots: %w", err)
		}
		snapshots = append(snapshots, s)
	}
	return snapshots, nil
}

// RemoveSnapshot takes a snapshot's name away, durably when it returns. Sessions
// that were made from it stay; what only it held can be collected. It wraps
// ErrNotFound. An empty project is DefaultProject.
func (h *Host) RemoveSnapshot(ctx context.Context, project, name string) error {
	if project == "" {
		project = DefaultProject
	}
	if err := h.journal.RemoveRef(ctx, snapshotRef, snapshotName(project, name)); err != nil {
		return snapshotError(project, name, err)
	}
	h.log.Info("snapshot removed", "snapshot", name, "project", project)
	return nil
}

// CreateFromSnapshot makes a session that begins from a snapshot: a fork at that
// point of the session that was saved, which need not be there any more. It wraps
// ErrNotFound if the snapshot is not there, ErrExists if the name is taken.
func (h *Host) CreateFromSnapshot(ctx context.Context, req FromSnapshotRequest) (Session, error) {
	s, err := h.createFromSnapshot(ctx, req)
	if err != nil {
		return Session{}, fmt.Errorf("create session: %w", err)
	}
	return s, nil
}

func (h *Host) createFromSnapshot(ctx context.Context, req FromSnapshotRequest) (Session, error) {
	defer h.journal.Hold()() // from Collect
	fork := ForkRequest{Count: 1, Labels: req.Labels}
	if req.Name != "" {
		fork.Names = []string{req.Name}
	}
	if err := checkFork(fork); err != nil {
		return Session{}, err
	}
	saved, err := h.Snapshot(ctx, req.Project, req.Snapshot)
	if err != nil {
		return Session{}, err
	}
	children, err := h.forkSaved(ctx, saved, fork)
	if err != nil {
		// Never ErrNotFound of a deleted session: the snapshot is there.
		return Session{}, fmt.Errorf("snapshot %q: %w", saved.Name, err)
	}
	return children[0], nil
}

// forkSaved makes children of a snapshot, whose session may have been deleted.
func (h *Host) forkSaved(ctx context.Context, saved Snapshot, req ForkRequest) ([]Session, error) {
	stored, err := h.journal.Session(saved.Session)
	if err != nil {
		return nil, err
	}
	parent, err := decodeRow(stored)
	if err != nil {
		return nil, err
	}
	if hash, err := h.hashAt(parent.UID, saved.At); err != nil {
		return nil, err
	} else if hash != saved.Hash {
		return nil, fmt.Errorf("%w: seq %d has the hash %s, %s was saved", journal.ErrCorrupt, saved.At, hash.Short(), saved.Hash.Short())
	}
	at, sum, err := h.forkPoint(parent, saved.At)
	if err != nil {
		return nil, err
	}
	if err := h.needImage(ctx, parent, at, sum.Root); err != nil {
		return nil, err
	}
	return h.children(ctx, parent, at, sum, req)
}

// readSnapshot is the snapshot that a ref stands for.
func readSnapshot(ref journal.Ref) (Snapshot, error) {
	var note snapshotNote
	if err := json.Unmarshal(ref.Note, &note); err != nil {
		return Snapshot{}, fmt.Errorf("snapshot %q: %w", ref.Name, err)
	}
	project, name := cutSnapshotName(ref.Name)
	return Snapshot{
		Project: project, Name: name,
		Session: note.UID, At: note.At, Hash: ref.Digest, Open: note.Open, Root: note.Root, Turns: note.Turns,
		Harness: note.Harness, Module: note.Module, Saved: note.Saved.Time,
	}, nil
}

// snapshotError is an error of looking a snapshot up, in words of the host.
func snapshotError(project, name string, err error) error {
	if errors.Is(err, journal.ErrNotFound) {
		return fmt.Errorf("snapshot %q: %w in project %q", name, ErrNotFound, project)
	}
	return fmt.Errorf("snapshot %q in project %q: %w", name, project, err)
}

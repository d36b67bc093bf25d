package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Fork makes children that begin from a point of a session: they share its record
// and its image up to there and go their own ways from there. Nothing is copied
// and the parent is not touched; it may be running. Inside a turn there is no
// image: a child then owns that turn, open, and Exec without input runs it over the
// record up to the fork and goes on live. All children are made in one commit, or
// none is.
//
// A point in the opening of a turn is ErrMidTurn, one behind the head ErrNotFound, a
// session that has never run ErrConflict, a name that is taken ErrExists. What the
// Sessions it returns have alike, such as labels, they share.
func (h *Host) Fork(ctx context.Context, req ForkRequest) ([]Session, error) {
	children, err := h.fork(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	return children, nil
}

func (h *Host) fork(ctx context.Context, req ForkRequest) ([]Session, error) {
	defer h.journal.Hold()() // from Collect
	if req.Count == 0 {
		req.Count = 1
	}
	if err := checkFork(req); err != nil {
		return nil, err
	}
	parent, err := h.row(req.Session)
	if err != nil {
		return nil, err
	}
	if req.Key != "" {
		if made, err := h.forked(parent, req); made != nil || err != nil {
			return made, err
		}
	}
	at, sum, err := h.forkPoint(parent, req.At)
	if err != nil {
		return nil, err
	}
	if err := h.checkForkModel(req.Model, sum); err != nil {
		return nil, err
	}
	if err := h.needImage(ctx, parent, at, sum.Root); err != nil {
		return nil, err
	}
	return h.children(ctx, parent, at, sum, req)
}

// checkForkModel refuses a model that children cannot have: one that is not here,
// or any where they get an open turn, which keeps the one it began with.
func (h *Host) checkForkModel(name string, sum summary) error {
	switch {
	case name == "":
		return nil
	case sum.Open != 0:
		return fmt.Errorf("%w: the turn of seq %d is open there and keeps its model: fork with another at a closed point", ErrMidTurn, sum.Open)
	}
	return h.knowsModel(name)
}

// children makes what req asks for of a point that forkPoint found.
func (h *Host) children(ctx context.Context, parent row, at abi.Seq, sum summary, req ForkRequest) ([]Session, error) {
	childMeta := parent.meta
	childMeta.pin, childMeta.Labels = parent.made, req.Labels
	if req.Model != "" {
		childMeta.Model = req.Model
	}
	if err := childMeta.runAgain(req.again, at); err != nil {
		return nil, err
	}
	now := later(abi.NewTime(h.cfg.Now()), sum.Updated)
	sum.Updated, sum.Forked, sum.Suspended = now, at+1, false
	// Whatever the point, a child has used what its parent has.
	sum.Used, sum.Inherited, sum.Held = parent.sum.Used, parent.sum.Used, Amounts{}
	sum.Budget, sum.Tree = parent.sum.Budget, parent.sum.Tree
	if sum.Open == 0 {
		sum.Closed = at + 1
	}
	encodedMeta, encodedSum := mustJSON(childMeta), mustJSON(sum)
	births := make([]birth, req.Count)
	if err := h.bear(births); err != nil {
		return nil, err
	}
	if req.Key != "" {
		for i := range births {
			births[i].uid = keyedChild(parent.UID, req.Key, i)
		}
	}
	events, err := forkEvents(parent.UID, at, now, req.Model, births)
	if err != nil {
		return nil, err
	}
	children := make([]journal.ForkChild, req.Count)
	for i := range children {
		children[i] = journal.ForkChild{UID: births[i].uid, Meta: encodedMeta, Event: events[i], Summary: encodedSum}
		if len(req.Names) > 0 {
			children[i].Name = req.Names[i]
		}
	}
	stored, err := h.journal.Fork(ctx, parent.UID, at, now.Time, children)
	if errors.Is(err, journal.ErrExists) {
		if req.Key != "" { // another request with it may have been quicker
			if made, err := h.forked(parent, req); made != nil || err != nil {
				return made, err
			}
			if len(req.Names) == 0 {
				return nil, fmt.Errorf("key %q: %w: the children that it made are deleted", req.Key, ErrConflict)
			}
		}
		return nil, h.takenName(parent.Project, req.Names)
	}
	if err != nil {
		return nil, err
	}
	child, err := decodeRow(stored[0])
	if err != nil {
		return nil, err
	}
	sessions := make([]Session, len(stored))
	for i, s := range stored {
		child.Session = s
		sessions[i] = h.show(child)
		h.arm(s.UID, child.sum.Waiting)
		h.watches.committed(s.UID)
	}
	h.log.Info("session forked", "session", parent.UID, "at", at, "children", len(sessions))
	return sessions, nil
}

// birth is what a child has that its siblings have not.
type birth struct {
	uid  abi.SessionID
	seed [32]byte
}

// bear fills births with what is random in them.
func (h *Host) bear(births []birth) error {
	const id, each = 12, 12 + 32
	random := make([]byte, len(births)*each)
	if err := h.random(random); err != nil {
		return err
	}
	for i := range births {
		b := random[i*each:][:each]
		births[i] = birth{uid: abi.NewSessionID([id]byte(b)), seed: [32]byte(b[id:])}
	}
	return nil
}

// forkEvents are the encoded FORK records of children. The first is encoded; the
// others are like it but for what each has of its own, which stands in one place.
func forkEvents(parent abi.SessionID, at abi.Seq, now abi.Time, model string, births []birth) ([][]byte, error) {
	first, err := abi.EncodeEvent(&abi.Event{
		Kind: abi.EventLifecycle, Time: now, SchemaVersion: abi.SchemaVersion,
		Lifecycle: &abi.Lifecycle{
			Kind:   abi.LifecycleFork,
			Detail: fmt.Sprintf("%s@%d", parent, at),
		},
		Cell: &abi.Cell{UID: births[0].uid, Parent: parent, At: at, Model: model, Seed: births[0].seed[:]},
	})
	if err != nil {
		return nil, err
	}
	before, after, ok := bytes.Cut(first, births[0].encoded())
	if !ok {
		return nil, fmt.Errorf("a fork's record without the child's uid and seed: %s", first)
	}
	events := make([][]byte, len(births))
	for i, b := range births {
		events[i] = slices.Concat(before, b.encoded(), after)
	}
	return events, nil
}

// encoded is b as it stands in its record.
func (b *birth) encoded() []byte {
	own := base64.StdEncoding.AppendEncode([]byte(`"seed":"`), b.seed[:])
	own = append(own, `","uid":"`...)
	return append(append(own, b.uid...), '"')
}

// takenName is ErrExists with the first of the names that the project has.
func (h *Host) takenName(project string, names []string) error {
	for _, name := range names {
		if _, err := h.journal.FindName(project, name); err == nil {
			return fmt.Errorf("name %q in project %q: %w", name, project, ErrExists)
		}
	}
	return fmt.Errorf("a name in project %q: %w", project, ErrExists)
}

func checkFork(req ForkRequest) error {
	switch {
	case req.Count < 1 || req.Count > MaxForkCount:
		return fmt.Errorf("%w: count %d: want 1 to %d", ErrInvalid, req.Count, MaxForkCount)
	case len(req.Names) != 0 && len(req.Names) != req.Count:
		return fmt.Errorf("%w: %d names for %d children: give none or exactly one each", ErrInvalid, len(req.Names), req.Count)
	case req.At < 0:
		return fmt.Errorf("%w: seq %d", ErrInvalid, req.At)
	}
	if err := checkKey(req.Key); err != nil {
		return err
	}
	if err := checkLabels(req.Labels); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, name := range req.Names {
		if err := checkName("name", name); err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("%w: name %q stands twice", ErrInvalid, name)
		}
		seen[name] = true
	}
	return nil
}

// forkPoint finds the point to fork from, and what a child's summary is there.
func (h *Host) forkPoint(parent row, at abi.Seq) (abi.Seq, summary, error) {
	switch {
	case at > parent.Head.Seq:
		return 0, summary{}, fmt.Errorf("%w: seq %d: session %s ends at seq %d", ErrNotFound, at, parent.UID, parent.Head.Seq)
	case at == 0 && parent.sum.Closed == 0:
		return 0, summary{}, fmt.Errorf("session %s: %w: it has no finished turn to fork from", parent.UID, ErrConflict)
	case at == 0 || at == parent.sum.Closed:
		return parent.sum.Closed, closedSummary(parent.sum), nil
	}
	sum, err := h.summaryAt(parent, at)
	if err != nil {
		return 0, summary{}, fmt.Errorf("session %s: %w", parent.UID, err)
	}
	return at, sum, nil
}

// summaryAt is the summary a session had at a record: at a closed point that of
// the END it goes back to, inside a turn with that turn open.
func (h *Host) summaryAt(r row, at abi.Seq) (summary, error) {
	up, err := h.upgradeAt(r, at)
	if err != nil {
		return summary{}, err
	}
	r.meta.pin = r.pinned(up)
	var (
		updated abi.Time
		sum     = summary{Upgraded: up} // of the open turn, if at lies in one
		inside  bool                    // of a turn whose start is not found yet
		root    abi.Digest              // that an upgrade behind the last END has led to
		waiting waitings
	)
	for rec, err := range h.journal.ReadReverse(r.UID, at, 1) {
		if err != nil {
			return summary{}, err
		}
		e, _, err := h.decode(rec)
		if err != nil {
			return summary{}, err
		}
		if updated.IsZero() {
			updated = e.Time
		}
		switch {
		case e.Kind == abi.EventLifecycle && e.Lifecycle.Kind == abi.LifecycleFork, isRest(e):
			// It has the state of the point it stands behind.
		case e.Kind == abi.EventLifecycle && e.Lifecycle.Kind == abi.LifecycleCreate && sum.Open == 0 && !inside:
			sum.Updated, sum.Root = updated, cmp.Or(root, r.meta.GoldenRoot)
			return sum, nil
		case isUpgrade(e):
			root = cmp.Or(root, e.Cell.Root)
		case e.Kind == abi.EventExecutionStart:
			if e.ExecutionStart == nil || e.ExecutionStart.InputCount == nil || e.Cell == nil {
				return summary{}, fmt.Errorf("seq %d: incomplete %s: %w", rec.Seq, e.Kind, journal.ErrCorrupt)
			}
			if first := rec.Seq + abi.Seq(*e.ExecutionStart.InputCount); at < first {
				return summary{}, fmt.Errorf("%w: seq %d is in the opening of a turn: take seq %d, before it, or seq %d or later", ErrMidTurn, at, rec.Seq-1, first)
			}
			inside = false
			slices.Reverse(waiting.list)
			sum = summary{Open: rec.Seq, Execution: e.ExecutionID, Root: e.Cell.BaseRoot, Waiting: waiting.list, Upgraded: up}
		case e.Kind == abi.EventEnd:
			sum.Updated = updated
			sum.Closed, sum.State, sum.Reason = rec.Seq, e.End.State, e.Cell.Reason
			sum.Turns, sum.ModelCalls = int64(e.Cell.Turn), int64(e.Cell.ModelCalls)
			if sum.Open == 0 {
				sum.Execution, sum.Root = e.ExecutionID, cmp.Or(root, endRoot(r.meta, e.Cell.Root))
			}
			return sum, nil
		case sum.Open == 0 && (e.Kind != abi.EventLifecycle || e.Lifecycle.Kind == abi.LifecycleResume):
			inside = true
			waiting.before(rec.Seq, e)
		case sum.Open != 0 && e.Kind == abi.EventLifecycle: // CREATE
			sum.Updated = updated
			return sum, nil
		}
	}
	return summary{}, fmt.Errorf("no %s below seq %d: %w", abi.EventExecutionStart, at, journal.ErrCorrupt)
}

// closedSummary is the summary of a session at its last closed point, also while
// a turn is open behind it: State, Reason, counts and Root change only at an END.
func closedSummary(s summary) summary {
	s.Execution, s.Open, s.Waiting = "", 0, nil
	return s
}

// endRoot is the root that the turn behind an END begins from: a harness that
// holds no memory begins each turn from the golden image.
func endRoot(m meta, root abi.Digest) abi.Digest {
	if !m.HoldsMemory {
		return m.GoldenRoot
	}
	return root
}

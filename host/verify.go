package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Verify checks a session's record from its first line: the chain, and with
// req.Reexecute every turn, by running it again on what was recorded and
// comparing every request, the end and the memory root. The first thing that does
// not hold is the error: a *journal.Broken (journal.ErrCorrupt) or a
// *turn.Divergence (ErrDivergence). All images of the session that are stored are read,
// too: one that is damaged is an *ImageDamage.
func (h *Host) Verify(ctx context.Context, req VerifyRequest) (Verification, error) {
	r, err := h.row(req.Session)
	if err != nil {
		return Verification{}, fmt.Errorf("verify: %w", err)
	}
	calls := h.ProviderCalls()
	records, head, err := h.journal.Verify(ctx, req.Session, journal.VerifyOptions{Strict: req.Strict, Head: req.Head})
	if err != nil {
		return Verification{}, fmt.Errorf("verify: session %s: %w", req.Session, err)
	}
	v := Verification{Records: records, Head: head, Root: r.sum.Root}
	c := checker{host: h, row: r}
	for _, check := range []func() error{c.origin, c.summary, c.upgraded} {
		if err := check(); err != nil {
			return Verification{}, fmt.Errorf("verify: session %s: %w", req.Session, err)
		}
	}
	if req.Reexecute && records > 0 {
		if err := h.reexecute(ctx, r, &v); err != nil {
			return Verification{}, fmt.Errorf("verify: session %s: %w", req.Session, err)
		}
	}
	if v.Images, err = h.checkImages(ctx, r); err != nil {
		return Verification{}, fmt.Errorf("verify: session %s: %w", req.Session, err)
	}
	v.ProviderCalls = h.ProviderCalls() - calls
	return v, nil
}

// checker checks what is not in the chain of a session's record.
type checker struct {
	host *Host
	row  row
}

// origin checks that the record is this session's own: its first record, and
// that of every fork on its way, name the session and parent they belong to (I8).
// An imported session has its ancestors' records and need not have them: then
// who they were stands in the record alone.
func (c *checker) origin() error {
	for s := c.row.Session; ; {
		if s.Head.Seq == 0 {
			return nil
		}
		seq := s.At + 1
		var point abi.Digest // of the record it grew from
		want := abi.Cell{UID: s.UID, Parent: s.Parent, At: s.At}
		for r, err := range c.host.journal.Read(s.UID, seq, seq) {
			if err != nil {
				return err
			}
			e, _, err := c.host.decode(r)
			if err != nil {
				return err
			}
			if e.Cell == nil || e.Cell.UID != want.UID || e.Cell.Parent != want.Parent || e.Cell.At != want.At {
				return &journal.Broken{
					Session: s.UID, Seq: seq, Got: r.Hash,
					What: fmt.Sprintf("the first record is not this session's own: it names %+v", e.Cell),
				}
			}
			point = r.Prev
		}
		if s.Parent == "" {
			return nil
		}
		parent, err := c.host.row(s.Parent)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if s.At > parent.Head.Seq {
			return nil // imported before it had grown that far
		}
		for r, err := range c.host.journal.Read(parent.UID, s.At, s.At) {
			if err != nil {
				return err
			}
			if r.Hash != point {
				return &journal.Broken{
					Session: s.UID, Seq: seq, Want: r.Hash, Got: point,
					What: fmt.Sprintf("it says it grew from record %d of session %s, which is another one here", s.At, parent.UID),
				}
			}
		}
		s = parent.Session
	}
}

// summary checks that what is kept beside the head, which no hash covers, is what
// the record says.
func (c *checker) summary() error {
	if c.row.Head.Seq == 0 {
		return nil
	}
	sum := c.row.sum
	wrong := func(seq abi.Seq, what string) error {
		return &journal.Broken{Session: c.row.UID, Seq: seq, What: "the session's summary does not say what the record does: " + what}
	}
	if sum.Open == 0 && sum.Closed != c.row.Head.Seq {
		return wrong(c.row.Head.Seq, fmt.Sprintf("no turn is open, yet the last closed point is seq %d", sum.Closed))
	}
	seq := max(sum.Closed, sum.Open)
	for r, err := range c.host.journal.Read(c.row.UID, seq, seq) {
		if err != nil {
			return err
		}
		e, _, err := c.host.decode(r)
		if err != nil {
			return err
		}
		switch {
		case sum.Open != 0 && (e.Kind != abi.EventExecutionStart || e.ExecutionID != sum.Execution):
			return wrong(seq, fmt.Sprintf("turn %s is open", sum.Execution))
		case sum.Open == 0 && sum.Suspended != (isRest(e) && e.Lifecycle.Kind == abi.LifecycleSuspend):
			return wrong(seq, fmt.Sprintf("suspended is %t", sum.Suspended))
		case isUpgrade(e) && (e.Cell.Root != sum.Root || c.row.since() != seq):
			return wrong(seq, fmt.Sprintf("the upgrade of seq %d led to root %s", c.row.since(), sum.Root.Short()))
		case e.Kind == abi.EventEnd && (endRoot(c.row.meta, e.Cell.Root) != sum.Root || int64(e.Cell.Turn) != sum.Turns || int64(e.Cell.ModelCalls) != sum.ModelCalls):
			return wrong(seq, fmt.Sprintf("turn %d reached root %s", sum.Turns, sum.Root.Short()))
		}
	}
	return nil
}

// upgraded checks that the module of the next turn is that of the newest record which
// names one, and what the summary says of the newest upgrade.
func (c *checker) upgraded() error {
	for rec, err := range c.host.journal.ReadReverse(c.row.UID, c.row.Head.Seq, 1) {
		if err != nil {
			return err
		}
		e, err := lineEvent(rec)
		if err != nil {
			return fmt.Errorf("seq %d: %w", rec.Seq, err)
		}
		if e.Cell == nil || e.Cell.Module.IsZero() {
			continue
		}
		if e.Cell.Module != c.row.meta.Module {
			return &journal.Broken{
				Session: c.row.UID, Seq: rec.Seq, Want: e.Cell.Module, Got: c.row.meta.Module,
				What: "the session is pinned to another module than the record",
			}
		}
		break
	}
	up := c.row.sum.Upgraded
	if up == nil {
		return nil
	}
	e, err := c.host.upgradeRecord(c.row, up.Seq)
	if err != nil {
		return err
	}
	var sum summary
	sum.upgrade(up.Seq, e.Cell)
	if *sum.Upgraded != *up {
		return &journal.Broken{
			Session: c.row.UID, Seq: up.Seq, Want: sum.Upgraded.Module, Got: up.Module,
			What: "the session's summary names another module than the upgrade",
		}
	}
	return nil
}

// reexecute runs all turns of a session again and counts in out what that came to.
func (h *Host) reexecute(ctx context.Context, r row, out *Verification) error {
	again, err := h.rerun(ctx, r, beginning(r), r.Head.Seq)
	if err != nil {
		return err
	}
	defer again.close(ctx)
	for {
		o, ok, err := again.next()
		if err != nil || !ok {
			return err
		}
		proof, err := again.turn(ctx, o)
		switch {
		case err != nil:
			return err
		case o.upgrade != nil:
			out.Upgrades++
			out.Root = o.upgrade.Cell.Root
		case proof == proofWhole:
			out.Reexecuted++
			out.Root = o.end.Cell.Root
		case proof == proofPrefix:
			out.Prefix++
		default:
			out.ChainOnly++
		}
	}
}

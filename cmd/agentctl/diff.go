package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

func newDiffCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two sessions, such as two forks of one",
		Long: `diff tells where two sessions part, and how they go on. First it says which records they
share, as a fork does with its parent. Behind that it compares what each turn was given,
asked, was told and said, side by side: ids, times, hashes, usage and memory are left out, so that
two runs of the same conversation are alike. Rows with - are A's, rows with + B's. Of a model
call the prompt is compared; agentctl show prints it.

With --json it prints an object for what is shared, one for each step, and one that sums up. The
exit code is 0 whether they differ or not.`,
		Example: `  agentctl fork demo --names left,right
  agentctl diff left right
  agentctl diff demo left --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("which sessions? Name two, by uid, a unique prefix of it, or name; agentctl list shows them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDiff(cmd.Context(), a, args[0], args[1])
		},
	}
}

func runDiff(ctx context.Context, a *app, first, second string) error {
	return a.withSession(ctx, "", first, func(h *edge.Host, x host.Session) error {
		y, err := a.session2(ctx, h, second)
		if err != nil {
			return err
		}
		d := comparison{app: a, a: x, b: y}
		if err := d.findShared(ctx, h); err != nil {
			return err
		}
		d.showShared()
		if err := d.walk(
			told(h.Replay(ctx, x.UID, d.shared+1, 0), d.shared < x.Head.Seq),
			told(h.Replay(ctx, y.UID, d.shared+1, 0), d.shared < y.Head.Seq),
		); err != nil {
			return err
		}
		d.showSum()
		return nil
	})
}

// session2 finds a second session, where withSession has found one.
func (a *app) session2(ctx context.Context, h *edge.Host, ref string) (host.Session, error) {
	uid, err := h.Resolve(ctx, a.project, ref)
	if errors.Is(err, host.ErrNotFound) {
		a.ref = ""
		err = &adviceError{err, a.agentctl("list") + " shows the sessions"}
	}
	if err != nil {
		return host.Session{}, err
	}
	return h.Get(ctx, uid)
}

// comparison is one run of diff. It holds two records at a time.
type comparison struct {
	*app
	a, b host.Session

	// shared is the last record that both have, hash its hash.
	shared abi.Seq
	hash   abi.Digest

	alike, differ, onlyA, onlyB int64
	run                         int64   // alike steps since the last row
	firstA, firstB              abi.Seq // where they first differ
}

// findShared finds the last record that both have. A record's hash covers all
// before it, so halving the distance finds it.
func (d *comparison) findShared(ctx context.Context, h *edge.Host) error {
	hashAt := func(s host.Session, seq abi.Seq) (abi.Digest, error) {
		for r, err := range h.Journal().Read(s.UID, seq, seq) {
			return r.Hash, err
		}
		return abi.Digest{}, fmt.Errorf("seq %d: session %s: %w", seq, s.UID, host.ErrNotFound)
	}
	for low, high := abi.Seq(1), min(d.a.Head.Seq, d.b.Head.Seq); low <= high; {
		if err := ctx.Err(); err != nil {
			return err
		}
		middle := low + (high-low)/2
		x, err := hashAt(d.a, middle)
		if err != nil {
			return err
		}
		y, err := hashAt(d.b, middle)
		if err != nil {
			return err
		}
		if x == y {
			d.shared, d.hash, low = middle, x, middle+1
		} else {
			high = middle - 1
		}
	}
	return nil
}

// told leaves out of a record what no comparison is about.
func told(records iter.Seq2[host.Record, error], any bool) iter.Seq2[host.Record, error] {
	return func(yield func(host.Record, error) bool) {
		if !any {
			return
		}
		for r, err := range records {
			if err == nil && (r.Event.Kind == abi.EventLifecycle || r.Event.Kind == abi.EventUsage) {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// cursor is a place in a walk over records.
type cursor struct {
	next   func() (host.Record, error, bool)
	record *host.Record // nil behind the last one
}

func (c *cursor) advance() error {
	r, err, ok := c.next()
	c.record = nil
	if ok {
		c.record = &r
	}
	return err
}

// walk compares the records of both, two at a time. Where one turn is longer than
// the other, the rest of it stands alone, so that the next turns stand side by
// side again.
func (d *comparison) walk(as, bs iter.Seq2[host.Record, error]) error {
	nextA, stopA := iter.Pull2(as)
	defer stopA()
	nextB, stopB := iter.Pull2(bs)
	defer stopB()
	a, b := cursor{next: nextA}, cursor{next: nextB}
	if err := errors.Join(a.advance(), b.advance()); err != nil {
		return err
	}
	for a.record != nil || b.record != nil {
		x, y := a.record, b.record
		if x != nil && y != nil && x.Event.Kind != y.Event.Kind {
			switch abi.EventEnd {
			case x.Event.Kind:
				x = nil
			case y.Event.Kind:
				y = nil
			}
		}
		if err := d.step(x, y); err != nil {
			return err
		}
		if err := d.failed(); err != nil {
			return err
		}
		var err error
		if x != nil {
			err = a.advance()
		}
		if y != nil {
			err = errors.Join(err, b.advance())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// step compares two records, of which one may be missing.
func (d *comparison) step(x, y *host.Record) error {
	alike := false
	switch {
	case y == nil:
		d.onlyA++
	case x == nil:
		d.onlyB++
	default:
		var err error
		if alike, err = sameMeaning(x.Event, y.Event); err != nil {
			return err
		}
		if alike {
			d.alike++
		} else {
			d.differ++
		}
	}
	if !alike && d.firstA == 0 && d.firstB == 0 {
		d.firstA, d.firstB = seqOf(x), seqOf(y)
	}
	d.showStep(alike, x, y)
	return nil
}

func seqOf(r *host.Record) abi.Seq {
	if r == nil {
		return 0
	}
	return r.Seq
}

// sameMeaning reports whether two events say the same, whoever says it and when.
func sameMeaning(x, y *abi.Event) (bool, error) {
	a, err := abi.EncodeEvent(meaning(x))
	if err != nil {
		return false, err
	}
	b, err := abi.EncodeEvent(meaning(y))
	return bytes.Equal(a, b), err
}

// meaning is an event without what differs from run to run: ids, times, seeds,
// hashes of what does, fuel, and memory.
func meaning(e *abi.Event) *abi.Event {
	m := *e
	m.ExecutionID, m.Time, m.Cell = "", abi.Time{}, nil
	if e.Cell != nil {
		m.Cell = &abi.Cell{Module: e.Cell.Module, Model: e.Cell.Model, Limits: e.Cell.Limits, Reason: e.Cell.Reason}
	}
	if e.ExecutionStart != nil {
		start := *e.ExecutionStart
		start.ResumeFromSeq = 0
		m.ExecutionStart = &start
	}
	if e.Model != nil {
		m.Model = &abi.ModelCall{Model: e.Model.Model, InputHash: e.Model.InputHash}
	}
	if e.Tool != nil {
		tool := *e.Tool
		tool.ID, tool.IdempotencyKey = "", ""
		m.Tool = &tool
	}
	if e.Result != nil {
		result := *e.Result
		result.ID, result.ApprovalRequestSeq, result.ApprovalDecisionSeq = "", 0, 0
		m.Result = &result
	}
	if e.Approval != nil {
		m.Approval = &abi.ApprovalRequest{Reason: e.Approval.Reason}
	}
	if e.ApprovalResult != nil {
		m.ApprovalResult = &abi.ApprovalResult{Approved: e.ApprovalResult.Approved, Reason: e.ApprovalResult.Reason}
	}
	return &m
}

type sharedJSON struct {
	A    abi.SessionID `json:"a"`
	B    abi.SessionID `json:"b"`
	Seq  int64         `json:"shared_seq"`
	Hash abi.Digest    `json:"shared_hash,omitzero"`
}

func (d *comparison) showShared() {
	if d.json {
		d.object(sharedJSON{d.a.UID, d.b.UID, int64(d.shared), d.hash})
		return
	}
	d.line(sideLine("-", d.a))
	d.line(sideLine("+", d.b))
	switch d.shared {
	case 0:
		d.line("  no record is shared")
	case 1:
		d.line("  seq=1 is shared")
	default:
		d.line(fmt.Sprintf("  seq=1 to seq=%d are shared", d.shared))
	}
}

func sideLine(mark string, s host.Session) string {
	line := mark + " " + string(s.UID)
	if s.Name != "" {
		line += " " + s.Name
	}
	return fmt.Sprintf("%s harness=%s seq=%d", line, s.Harness, s.Head.Seq)
}

type stepJSON struct {
	Kind  abi.EventKind `json:"kind"`
	Alike bool          `json:"alike"`
	A     *recordJSON   `json:"a,omitempty"`
	B     *recordJSON   `json:"b,omitempty"`
}

func (d *comparison) showStep(alike bool, x, y *host.Record) {
	if d.json {
		s := stepJSON{Alike: alike}
		if y != nil {
			r := newRecordJSON(*y)
			s.Kind, s.B = r.Kind, &r
		}
		if x != nil {
			r := newRecordJSON(*x)
			s.Kind, s.A = r.Kind, &r
		}
		d.object(s)
		return
	}
	if alike {
		d.run++
		return
	}
	d.showRun()
	if x != nil {
		d.side("-", *x)
	}
	if y != nil {
		d.side("+", *y)
	}
}

// showRun says how many steps were alike since the last row.
func (d *comparison) showRun() {
	if d.run > 0 {
		d.line(fmt.Sprintf("  %d alike", d.run))
		d.run = 0
	}
}

// side writes one side of a difference.
func (d *comparison) side(mark string, r host.Record) {
	d.data([]byte(mark + " " + d.rowOf(r, comparedText(r.Event))))
}

// comparedText is what a row says of an event: what is compared of it.
func comparedText(e *abi.Event) string {
	switch {
	case e.Model != nil:
		return fmt.Sprintf("%s prompt=%.12s", e.Model.Model, e.Model.InputHash)
	case e.ExecutionStart != nil && e.Cell != nil:
		text := fmt.Sprintf("%s %s module=%s model=%s %s", e.ExecutionStart.Harness, e.ExecutionStart.HarnessVersion,
			e.Cell.Module.Short(), e.Cell.Model, e.ExecutionStart.Config)
		return strings.TrimSpace(text)
	}
	return eventText(e)
}

type sumJSON struct {
	Differs bool  `json:"differs"`
	Alike   int64 `json:"steps_alike"`
	Differ  int64 `json:"steps_different"`
	OnlyA   int64 `json:"steps_only_a"`
	OnlyB   int64 `json:"steps_only_b"`
	// The first difference, 0 where only the other side has a record.
	FirstA int64 `json:"first_a,omitempty"`
	FirstB int64 `json:"first_b,omitempty"`
}

func (d *comparison) showSum() {
	differs := d.differ+d.onlyA+d.onlyB > 0
	if d.json {
		d.object(sumJSON{differs, d.alike, d.differ, d.onlyA, d.onlyB, int64(d.firstA), int64(d.firstB)})
		return
	}
	d.showRun()
	if !differs {
		d.line("no difference")
		return
	}
	var where []string
	if d.firstA > 0 {
		where = append(where, fmt.Sprintf("-seq=%d", d.firstA))
	}
	if d.firstB > 0 {
		where = append(where, fmt.Sprintf("+seq=%d", d.firstB))
	}
	d.line(fmt.Sprintf("first difference at %s: %d steps differ, %d are only in -, %d only in +, %d are alike",
		strings.Join(where, " "), d.differ, d.onlyA, d.onlyB, d.alike))
}

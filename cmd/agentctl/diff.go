package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

func newDiffCommand(a *app) *cobra.Command {
	var records bool
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two sessions, such as two forks of one",
		Long: `diff tells where two sessions part, and how they go on. First it says which records they
share, as a fork does with its parent. Behind that it compares what each turn was given,
asked, was told and said, side by side: ids, times, hashes, usage and memory are left out, so that
two runs of the same conversation are alike. Between the two columns | marks what differs, < what
only A has, > what only B has; a turn's input stands there where anything in the turn differs.
That a person was asked on one side alone is left out. Of a model call the prompt is compared; agentctl show prints it.

Then it says what each took since they part: turns, one that goes on behind what they share too,
calls that were made, those of tools that a recorded result was served for in place of that, as
agentctl rerun does, tokens, and what they cost where the models have prices.
The first difference comes last.

Columns are as wide as the terminal, or 120 characters together. With --records what differs
stands there in full, one record below the other: rows with - are A's, rows with + B's.

With --json it prints an object for what is shared, one for each step, and one that sums up. The
exit code is 0 whether they differ or not.`,
		Example: `  agentctl fork demo --names left,right
  agentctl diff left right
  agentctl diff left right --records
  agentctl diff demo left --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("which sessions? Name two, by uid, a unique prefix of it, or name; agentctl list shows them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDiff(cmd.Context(), a, args[0], args[1], records)
		},
	}
	cmd.Flags().BoolVar(&records, "records", false, "print the records that differ in full, one below the other")
	return cmd
}

func runDiff(ctx context.Context, a *app, first, second string, records bool) error {
	return a.withSession(ctx, "", first, func(h *edge.Host, x host.Session) error {
		y, err := a.session2(ctx, h, second)
		if err != nil {
			return err
		}
		d := newComparison(a, x, y)
		if err := d.findShared(ctx, h); err != nil {
			return err
		}
		switch {
		case a.json:
			d.view = objectsView{a.output}
		case records:
			d.view = &recordsView{output: a.output}
		default:
			d.view = newColumnsView(a, x, y)
		}
		d.showShared()
		if err := d.countTurns(h); err != nil {
			return err
		}
		for i, s := range []host.Session{x, y} {
			if d.tallies[i], err = tallyBehind(ctx, h, s.UID, d.shared); err != nil {
				return err
			}
		}
		if err := d.walk(
			told(d.tallies[0].follow(h.Replay(ctx, x.UID, d.shared+1, 0)), d.shared < x.Head.Seq),
			told(d.tallies[1].follow(h.Replay(ctx, y.UID, d.shared+1, 0)), d.shared < y.Head.Seq),
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
	a, b    host.Session
	tallies [2]*tally // of what stands behind the shared records
	view    diffView

	// shared is the last record that both have, hash its hash.
	shared abi.Seq
	hash   abi.Digest
	ended  [2]int64 // turns, so far

	alike, differ, onlyA, onlyB int64
	first                       parting
}

// parting is where two sessions differ first.
type parting struct {
	turn int64
	kind abi.EventKind
	a, b abi.Seq // 0 where only the other side has a record
}

func newComparison(a *app, x, y host.Session) *comparison {
	return &comparison{app: a, a: x, b: y}
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

// countTurns finds how many turns have ended in what both share.
func (d *comparison) countTurns(h *edge.Host) error {
	if d.shared == 0 {
		return nil
	}
	for r, err := range h.Journal().ReadReverse(d.a.UID, d.shared, 1) {
		if err != nil {
			return err
		}
		e, err := eventOf(r)
		if err != nil {
			return err
		}
		if e.Kind == abi.EventEnd && e.Cell != nil {
			d.ended = [2]int64{int64(e.Cell.Turn), int64(e.Cell.Turn)}
			return nil
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

// place orders what stands between one model call of a turn and the next. Of two records
// the one that comes first there stands alone, so that what follows stands side by side
// again: the rest of a turn that is longer than the other, the second of two calls, a
// request for approval where nobody was asked.
func place(kind abi.EventKind) int {
	order := [...]abi.EventKind{
		abi.EventExecutionStart, abi.EventInput, abi.EventOutput, abi.EventToolCall, abi.EventApprovalRequest,
		abi.EventApprovalResult, abi.EventToolResult, abi.EventWait, abi.EventSignal, abi.EventModelCall, abi.EventEnd,
	}
	if kind == abi.EventError { // in place of an output
		kind = abi.EventOutput
	}
	return slices.Index(order[:], kind)
}

// walk compares the records of both, two at a time.
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
		if x != nil && y != nil {
			switch p, q := place(x.Event.Kind), place(y.Event.Kind); {
			case p < q:
				y = nil
			case q < p:
				x = nil
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

// step compares two records, of which one may be missing. That a person was asked on one
// side alone, about a call that both made, is no difference.
func (d *comparison) step(x, y *host.Record) error {
	alike := false
	switch kind := kindOf(x, y); {
	case (x == nil || y == nil) && (kind == abi.EventApprovalRequest || kind == abi.EventApprovalResult):
		return nil
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
	turn := d.ended[0] + 1
	if x == nil {
		turn = d.ended[1] + 1
	}
	if !alike && d.first == (parting{}) {
		d.first = parting{turn: turn, kind: kindOf(x, y), a: seqOf(x), b: seqOf(y)}
	}
	d.view.step(turn, alike, x, y)
	for i, r := range []*host.Record{x, y} {
		if r != nil && r.Event.Kind == abi.EventEnd {
			d.ended[i]++
		}
	}
	return nil
}

func seqOf(r *host.Record) abi.Seq {
	if r == nil {
		return 0
	}
	return r.Seq
}

// kindOf is the kind of a step: A's where both have one.
func kindOf(x, y *host.Record) abi.EventKind {
	if x != nil {
		return x.Event.Kind
	}
	return y.Event.Kind
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
	if e.Message != nil {
		m.Message = &abi.Message{Role: e.Message.Role, Parts: slices.Clone(e.Message.Parts)}
		for i, p := range m.Message.Parts {
			if p.ToolCall != nil {
				m.Message.Parts[i].ToolCall = &abi.ToolCall{Tool: p.ToolCall.Tool, Args: p.ToolCall.Args}
			}
		}
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
		m.Cell = nil // where it is from
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

type sumJSON struct {
	Differs bool  `json:"differs"`
	Alike   int64 `json:"steps_alike"`
	Differ  int64 `json:"steps_different"`
	OnlyA   int64 `json:"steps_only_a"`
	OnlyB   int64 `json:"steps_only_b"`
	// The first difference, 0 where only the other side has a record.
	FirstA    int64         `json:"first_a,omitempty"`
	FirstB    int64         `json:"first_b,omitempty"`
	FirstTurn int64         `json:"first_turn,omitempty"`
	FirstKind abi.EventKind `json:"first_kind,omitempty"`
	// What both took behind what they share.
	A tallyJSON `json:"a"`
	B tallyJSON `json:"b"`
}

func (d *comparison) showSum() {
	differs := d.differ+d.onlyA+d.onlyB > 0
	if d.json {
		d.object(sumJSON{
			differs, d.alike, d.differ, d.onlyA, d.onlyB,
			int64(d.first.a), int64(d.first.b), d.first.turn, d.first.kind, d.tallies[0].json(), d.tallies[1].json(),
		})
		return
	}
	d.view.end()
	if d.tallies[0].turns+d.tallies[1].turns > 0 {
		d.totals("since they part", [2]string{calledName(d.a), calledName(d.b)}, d.tallies)
	}
	if !differs {
		d.line("no difference")
		return
	}
	var where []string
	if d.first.a > 0 {
		where = append(where, fmt.Sprintf("-seq=%d", d.first.a))
	}
	if d.first.b > 0 {
		where = append(where, fmt.Sprintf("+seq=%d", d.first.b))
	}
	d.line(fmt.Sprintf("%d steps differ, %d are only in -, %d only in +, %d are alike", d.differ, d.onlyA, d.onlyB, d.alike))
	d.line(fmt.Sprintf("first difference in turn %d, %s, at %s", d.first.turn, stepName(d.first.kind), strings.Join(where, " ")))
}

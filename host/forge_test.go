package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// forge copies a session into a new journal, with its events and summary as edit
// leaves them: a chain that is whole and tells something else.
func (r *rig) forge(s host.Session, as abi.SessionID, edit func(*abi.Event), summary func(map[string]any)) *journal.Journal {
	r.t.Helper()
	fatal := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	ctx := context.Background()
	to := journal.OpenMemory()
	row, err := r.store.Session(s.UID)
	fatal(err)
	row.UID = as
	_, err = to.Create(ctx, row)
	fatal(err)
	a := journal.Append{Fence: row.Head.Fence}
	now, err := r.Get(ctx, s.UID)
	fatal(err)
	if now.HoldsMemory && now.Turns > 0 {
		a.Image = copyImage(r.t, r.store, to, now.Root)
	}
	for rec, err := range r.Replay(ctx, s.UID, 0, 0) {
		fatal(err)
		if c := rec.Event.Cell; rec.Event.Kind == abi.EventLifecycle && c != nil && !c.Module.IsZero() {
			code, err := r.store.Blob(c.Module)
			fatal(err)
			a.Blobs = append(a.Blobs, code)
		}
		edit(rec.Event)
		encoded, body, err := abi.EncodeRecord(rec.Event)
		fatal(err)
		if body != nil {
			a.Blobs = append(a.Blobs, body)
		}
		a.Events = append(a.Events, encoded)
	}
	var sum map[string]any
	fatal(json.Unmarshal(row.Summary, &sum))
	summary(sum)
	a.Summary, err = json.Marshal(sum)
	fatal(err)
	_, err = to.Append(ctx, as, a)
	fatal(err)
	return to
}

// copyImage is the image of a root in another journal.
func copyImage(t testing.TB, from, to *journal.Journal, root abi.Digest) *journal.Image {
	t.Helper()
	im, err := from.LoadImage(root)
	if err != nil {
		t.Fatal(err)
	}
	zero, err := from.NewImage(nil, journal.ImageSpec{})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := from.DiffImages(zero, im)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := to.NewImage(nil, journal.ImageSpec{
		Size: im.Size(), Globals: im.Globals(), Clock: im.Clock(), Changed: pages,
		Read: func(index uint32, dst []byte) error { return from.ReadPage(im, index, dst) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

// I8, M2: a whole chain that somebody made up is found by what it says: it is
// another session's, or running it leads elsewhere.
func TestI8_ForgedHistory(t *testing.T) {
	r := newRig(t).open()
	s := r.createFrom(curious())
	for _, input := range []string{"one", "two", "three"} {
		r.exec(s.UID, input)
	}
	whole := func(*abi.Event) {}
	same := func(map[string]any) {}
	turn := 0
	// second edits an event of that kind in the second turn alone.
	second := func(kind abi.EventKind, edit func(*abi.Event)) func(*abi.Event) {
		turn = 0
		return func(e *abi.Event) {
			if e.Kind == abi.EventExecutionStart {
				turn++
			}
			if turn == 2 && e.Kind == kind {
				edit(e)
			}
		}
	}
	other := abi.DigestOf([]byte("another"))
	for _, tt := range []struct {
		name    string
		as      abi.SessionID
		edit    func() func(*abi.Event)
		summary func(map[string]any)
		want    error // nil: it is good
	}{
		{"nothing", s.UID, func() func(*abi.Event) { return whole }, same, nil},
		{"session", "sess-00", func() func(*abi.Event) { return whole }, same, journal.ErrCorrupt},
		{"input", s.UID, func() func(*abi.Event) {
			return second(abi.EventInput, func(e *abi.Event) { e.Message.Parts[0].Text.Text = "TWO" })
		}, same, host.ErrDivergence},
		{"limits", s.UID, func() func(*abi.Event) {
			return second(abi.EventExecutionStart, func(e *abi.Event) { e.Cell.Limits.Effects++ })
		}, same, host.ErrDivergence},
		{"seed", s.UID, func() func(*abi.Event) {
			return second(abi.EventExecutionStart, func(e *abi.Event) { e.Cell.Seed[0]++ })
		}, same, host.ErrDivergence},
		{"request", s.UID, func() func(*abi.Event) {
			return second(abi.EventModelCall, func(e *abi.Event) { e.Cell.Request = other })
		}, same, host.ErrDivergence},
		{"base root", s.UID, func() func(*abi.Event) {
			return second(abi.EventExecutionStart, func(e *abi.Event) { e.Cell.BaseRoot = other })
		}, same, host.ErrDivergence},
		{"rewriter", s.UID, func() func(*abi.Event) {
			return second(abi.EventExecutionStart, func(e *abi.Event) { e.Cell.Rewriter++ })
		}, same, host.ErrPlacement},
		{"module", s.UID, func() func(*abi.Event) {
			return second(abi.EventExecutionStart, func(e *abi.Event) { e.Cell.Module = other })
		}, same, host.ErrPlacement},
		{"output", s.UID, func() func(*abi.Event) {
			return second(abi.EventOutput, func(e *abi.Event) { e.Message.Parts[0].Text.Text += "!" })
		}, same, host.ErrDivergence},
		{"root", s.UID, func() func(*abi.Event) {
			return second(abi.EventEnd, func(e *abi.Event) { e.Cell.Root = other })
		}, same, host.ErrDivergence},
		{"fuel", s.UID, func() func(*abi.Event) {
			return second(abi.EventEnd, func(e *abi.Event) { e.Cell.Fuel++ })
		}, same, host.ErrDivergence},
		{"turns in the summary", s.UID, func() func(*abi.Event) { return whole }, func(m map[string]any) { m["turns"] = 7 }, journal.ErrCorrupt},
		{"root in the summary", s.UID, func() func(*abi.Event) { return whole }, func(m map[string]any) { m["root"] = other.String() }, journal.ErrCorrupt},
		{"open turn in the summary", s.UID, func() func(*abi.Event) { return whole }, func(m map[string]any) { m["open"] = 9 }, journal.ErrCorrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forged := newRig(t)
			if err := forged.store.Close(); err != nil {
				t.Fatal(err)
			}
			forged.store = r.forge(s, tt.as, tt.edit(), tt.summary)
			forged.open()
			_, err := forged.Verify(t.Context(), host.VerifyRequest{Session: tt.as, Reexecute: true, Strict: true})
			if !errors.Is(err, tt.want) {
				t.Errorf("verify: %v, want %v", err, tt.want)
			}
		})
	}
}

// I8: a fork's first record names its parent and where it grew from; one that
// names others is not taken for its own.
func TestI8_ForgedFork(t *testing.T) {
	r := newRig(t).open()
	parent, other := r.createFrom(tally()), r.createFrom(tally())
	r.exec(parent.UID, "x")
	r.exec(other.UID, "x")
	row, err := r.store.Session(parent.UID)
	if err != nil {
		t.Fatal(err)
	}
	at := row.Head.Seq
	for name, cell := range map[string]abi.Cell{
		"good":   {Parent: parent.UID, At: at},
		"parent": {Parent: other.UID, At: at},
		"at":     {Parent: parent.UID, At: at - 1},
	} {
		cell.UID, cell.Seed = abi.SessionID("sess-"+name), make([]byte, 32)
		event, err := abi.EncodeEvent(&abi.Event{
			Kind: abi.EventLifecycle, SchemaVersion: abi.SchemaVersion, Time: abi.NewTime(row.Created),
			Lifecycle: &abi.Lifecycle{Kind: abi.LifecycleFork}, Cell: &cell,
		})
		if err != nil {
			t.Fatal(err)
		}
		var sum map[string]any
		if err := json.Unmarshal(row.Summary, &sum); err != nil {
			t.Fatal(err)
		}
		sum["closed"] = at + 1
		summary, err := json.Marshal(sum)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.store.Fork(t.Context(), parent.UID, at, row.Created, []journal.ForkChild{{UID: cell.UID, Meta: row.Meta, Event: event, Summary: summary}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Verify(t.Context(), host.VerifyRequest{Session: cell.UID})
		if errors.Is(err, journal.ErrCorrupt) != (name != "good") || name == "good" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

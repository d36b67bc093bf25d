package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// recorded is a session with n outputs of about size bytes.
func recorded(t *testing.T, j *journal.Journal, n, size int) ([]journal.Record, []turn.Staged) {
	t.Helper()
	s, err := j.Create(t.Context(), journal.Session{UID: "sess-0", Project: "p", Created: time.Unix(0, 0), Meta: []byte("{}"), Summary: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	a := journal.Append{Head: s.Head, Summary: []byte("{}")}
	var staged []turn.Staged
	for i := range n {
		m := abi.Text(abi.RoleAssistant, fmt.Sprint(i, strings.Repeat("x", size)))
		st, err := turn.Stage(&abi.Event{Kind: abi.EventOutput, Message: &m})
		if err != nil {
			t.Fatal(err)
		}
		staged = append(staged, st)
		a.Events, a.Blobs = append(a.Events, st.Encoded), append(a.Blobs, st.Blobs...)
	}
	records, err := j.Append(t.Context(), "sess-0", a)
	if err != nil {
		t.Fatal(err)
	}
	return records, staged
}

// S2: of a turn that is run again a window is in memory, however long it is and
// however large its records.
func TestS2_RecoveryHoldsAWindow(t *testing.T) {
	for _, tt := range []struct{ records, size, most int }{
		{200, 10, windowRecords},
		{20, 300 << 10, 4},
		{3, 2 << 20, 1},
	} {
		j := journal.OpenMemory()
		h := &Host{journal: j}
		recorded(t, j, tt.records, tt.size)
		window, err := h.window("sess-0", 1, abi.Seq(tt.records))
		if err != nil || len(window) != tt.most {
			t.Errorf("%d records of %d bytes: a window of %d, %v; want %d", tt.records, tt.size, len(window), err, tt.most)
		}
		last := abi.Seq(tt.records - 1)
		next := h.feed("sess-0", 2, last+1).to(last)
		for seq := abi.Seq(2); ; seq++ {
			r, err := next()
			if err != nil {
				t.Fatal(err)
			}
			if r == nil {
				if seq != abi.Seq(tt.records) {
					t.Errorf("the source ends before seq %d of %d", seq, tt.records)
				}
				break
			}
			if want := fmt.Sprint(int(seq)-1, "x"); r.Seq != seq || !strings.HasPrefix(r.Event.Message.Text(), want) {
				t.Fatalf("seq %d: %.10q at seq %d", seq, r.Event.Message.Text(), r.Seq)
			}
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}

// S2: a slow observer leaves so many bytes waiting and no more; the rest it reads
// from the journal.
func TestS2_ObserversQueueIsBounded(t *testing.T) {
	j := journal.OpenMemory()
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	records, staged := recorded(t, j, 10, 1<<20)
	s := &stream{uid: "sess-0"}
	s.wake.L = &s.mu
	s.delta(Delta{Text: strings.Repeat("x", 1<<20)})
	s.records(records, staged)
	s.delta(Delta{Text: "x"})
	if s.kept != 2 || s.deltas != 1 || s.missed != records[2].Seq || s.bytes > maxQueuedBytes {
		t.Errorf("%d records and %d deltas of %d bytes wait, seq %d was the first missed", s.kept, s.deltas, s.bytes, s.missed)
	}
}

// S2: what is staged counts with its blobs, so that it is committed before it
// grows large.
func TestS2_StagedBlobsCount(t *testing.T) {
	m := abi.Text(abi.RoleAssistant, strings.Repeat("x", maxStagedBytes))
	st, err := turn.Stage(&abi.Event{Kind: abi.EventOutput, Message: &m})
	if err != nil {
		t.Fatal(err)
	}
	x := new(execution)
	x.stage([]turn.Staged{st})
	if len(st.Encoded) > abi.MaxInlineBytes || !x.heavy() {
		t.Errorf("a record of %d bytes with a blob of %d need not be committed", len(st.Encoded), len(st.Blobs[0]))
	}
}

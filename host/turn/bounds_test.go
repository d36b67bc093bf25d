package turn_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// ready is a machine whose harness has called start.
func ready(t *testing.T, record turn.Source) *turn.Machine {
	t.Helper()
	limits := abi.DefaultLimits()
	m := turn.New(turn.Opening{
		Execution: "exec-0", Limits: limits, Tools: map[string]abi.ToolGrant{"read": {}},
	}, turn.Live, record)
	if _, err := m.Call(abi.OpStart, nil, abi.Time{}); err != nil {
		t.Fatal(err)
	}
	return m
}

// S2: what is kept of a request for as long as the turn, or beside the head of
// the session, is short, and so is what an operator is told of it.
func TestS2_RequestsAreBounded(t *testing.T) {
	name := strings.Repeat("n", abi.MaxNameBytes+1)
	list := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	for _, tt := range []struct {
		op      abi.Op
		request string // %s is a name, or a list
		most, n string
	}{
		{abi.OpToolCall, `{"calls":[{"id":"%s","tool":"read","idempotency_key":"k"}]}`, name[1:], name},
		{abi.OpWait, `{"signal":"%s"}`, name[1:], name},
		{abi.OpModel, `{"messages":%s}`, list(`{}`, abi.MaxMessages), list(`{}`, abi.MaxMessages+1)},
		{abi.OpHistory, `{"kinds":%s}`, list(`""`, abi.MaxHistoryKinds), list(`""`, abi.MaxHistoryKinds+1)},
	} {
		t.Run(string(tt.op), func(t *testing.T) {
			r, err := ready(t, nil).Call(tt.op, fmt.Appendf(nil, tt.request, tt.most), abi.Time{})
			if err != nil || r.Reply != nil && r.Reply.Status == abi.StatusInvalid {
				t.Errorf("at the bound: %+v, %v", r, err)
			}
			r, err = ready(t, nil).Call(tt.op, fmt.Appendf(nil, tt.request, tt.n), abi.Time{})
			if err != nil || r.Reply == nil || r.Reply.Status != abi.StatusInvalid || len(r.Stage) != 0 {
				t.Errorf("above it: %+v, %v", r, err)
			}
		})
	}
	r, err := ready(t, nil).Call(abi.OpOutput, []byte(`{"`+strings.Repeat("é", 1<<20)+`":1}`), abi.Time{})
	if err != nil || r.Note == "" || len(r.Note) > 300 {
		t.Errorf("%d bytes are noted of a name that is unknown, %v", len(r.Note), err)
	}
}

// A record is read one ahead of the run and no further, and what cannot be read
// gives the run up: it is no reason to go on live.
func TestRecordIsReadAsItIsServed(t *testing.T) {
	const outputs = 20
	live := ready(t, nil)
	var recorded []turn.Recorded
	say := func(m *turn.Machine) (turn.Ready, error) {
		return m.Call(abi.OpOutput, []byte(`{"parts":[{"text":{"text":"x"}}]}`), abi.Time{})
	}
	for i := range outputs {
		r, err := say(live)
		if err != nil {
			t.Fatal(err)
		}
		recorded = append(recorded, turn.Recorded{Seq: abi.Seq(i + 3), Encoded: r.Stage[0].Encoded, Event: r.Stage[0].Event})
	}
	read, torn := 0, -1
	broken := errors.New("broken")
	next := turn.Records(recorded)
	source := func() (*turn.Recorded, error) {
		if read == torn {
			return nil, broken
		}
		read++
		return next()
	}
	m := ready(t, source)
	for i := range outputs / 2 {
		if read != i+1 {
			t.Errorf("%d records are read when %d are served", read, i)
		}
		if r, err := say(m); err != nil || len(r.Stage) != 0 {
			t.Fatalf("record %d is not served: %+v, %v", i, r, err)
		}
	}
	torn = read
	for range 2 {
		if r, err := say(m); !errors.Is(err, broken) || len(r.Stage) != 0 {
			t.Errorf("behind a record that cannot be read: %+v, %v", r, err)
		}
	}
	if r, err := m.Finish(turn.End{Reason: abi.ReasonCanceled}, abi.Time{}); !errors.Is(err, broken) || len(r.Stage) != 0 {
		t.Errorf("and its end: %+v, %v", r, err)
	}
}

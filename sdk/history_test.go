package sdk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// session has n records: outputs, and an input at every tenth seq.
func session(n int) *sdktest.Host {
	host := new(sdktest.Host)
	for seq := 1; seq <= n; seq++ {
		m := abi.Text(abi.RoleUser, fmt.Sprint(seq))
		e := &abi.Event{Kind: abi.EventOutput, Message: &m}
		if seq%10 == 0 {
			e.Kind = abi.EventInput
		}
		host.Records = append(host.Records, abi.LogRecord{Seq: abi.Seq(seq), Event: e})
	}
	return host
}

func TestHistory(t *testing.T) {
	numbers := func(from, to, step int) (out []abi.Seq) {
		for i := from; step > 0 && i <= to || step < 0 && i >= to; i += step {
			out = append(out, abi.Seq(i))
		}
		return out
	}
	inputs := []abi.EventKind{abi.EventInput}
	tests := []struct {
		name  string
		n     int
		page  int
		query sdk.HistoryQuery
		want  []abi.Seq
	}{
		{"empty", 0, 0, sdk.HistoryQuery{}, nil},
		{"empty, newest first", 0, 0, sdk.HistoryQuery{NewestFirst: true}, nil},
		{"all", 120, 0, sdk.HistoryQuery{}, numbers(1, 120, 1)},
		{"all, newest first", 120, 0, sdk.HistoryQuery{NewestFirst: true}, numbers(120, 1, -1)},
		{"short pages", 120, 7, sdk.HistoryQuery{}, numbers(1, 120, 1)},
		{"short pages, newest first", 120, 7, sdk.HistoryQuery{NewestFirst: true}, numbers(120, 1, -1)},
		{"from", 120, 0, sdk.HistoryQuery{From: 33}, numbers(33, 120, 1)},
		{"from, newest first", 120, 0, sdk.HistoryQuery{From: 33, NewestFirst: true}, numbers(33, 1, -1)},
		{"from beyond", 20, 0, sdk.HistoryQuery{From: 33}, nil},
		{"from beyond, newest first", 20, 0, sdk.HistoryQuery{From: 33, NewestFirst: true}, numbers(20, 1, -1)},
		{"kinds", 120, 3, sdk.HistoryQuery{Kinds: inputs}, numbers(10, 120, 10)},
		{"kinds, newest first", 120, 3, sdk.HistoryQuery{Kinds: inputs, NewestFirst: true}, numbers(120, 10, -10)},
	}
	for _, test := range tests {
		host := session(test.n)
		host.Page = test.page
		var got []abi.Seq
		h := run(func(ctx context.Context, turn *sdk.Turn) error {
			for record, err := range turn.History(ctx, test.query) {
				if err != nil {
					return err
				}
				if record.Event.Message.Text() != fmt.Sprint(record.Seq) {
					t.Errorf("%s: record %d says %q", test.name, record.Seq, record.Event.Message.Text())
				}
				got = append(got, record.Seq)
			}
			return nil
		})
		if _, err := host.Run(t.Context(), h, "this turn is no history"); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestHistoryIsLazy(t *testing.T) {
	host := session(100_000)
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		history := turn.History(ctx, sdk.HistoryQuery{NewestFirst: true})
		if host.Pages != 0 {
			t.Error("History read before it was asked")
		}
		for record, err := range history {
			if err != nil || record.Seq == 99_960 {
				return err
			}
		}
		return nil
	})
	if _, err := host.Run(t.Context(), h); err != nil || host.Pages != 1 {
		t.Errorf("%d pages read, want 1 (%v)", host.Pages, err)
	}
}

// pages is a transport that answers history with the given pages in turn.
type pages struct {
	answers []string
	asked   int
}

func (p *pages) Call(_ context.Context, op abi.Op, _ []byte) (abi.Status, []byte, error) {
	if op == abi.OpStart {
		return abi.StatusOK, []byte(`{}`), nil
	}
	p.asked++
	return abi.StatusOK, []byte(p.answers[(p.asked-1)%len(p.answers)]), nil
}

func (*pages) Random([]byte) {}

// History must end even if the host's pages never do.
func TestHistoryOutOfOrder(t *testing.T) {
	record := func(seqs ...int) string {
		var b []string
		for _, seq := range seqs {
			b = append(b, fmt.Sprintf(`{"seq":"%d","event":{"kind":"EVENT_INPUT"}}`, seq))
		}
		return "[" + strings.Join(b, ",") + "]"
	}
	tests := []struct {
		query sdk.HistoryQuery
		pages []string
		err   string
	}{
		{sdk.HistoryQuery{}, []string{record(1, 2), record(2)}, "history: record 2 is out of order or empty"},
		{sdk.HistoryQuery{}, []string{record(2, 1)}, "history: record 1 is out of order or empty"},
		{sdk.HistoryQuery{}, []string{record(0)}, "history: record 0 is out of order or empty"},
		{sdk.HistoryQuery{From: 5}, []string{record(4)}, "history: record 4 is out of order or empty"},
		{sdk.HistoryQuery{NewestFirst: true}, []string{record(9, 8), record(8)}, "history: record 8 is out of order or empty"},
		{sdk.HistoryQuery{NewestFirst: true}, []string{record(1, 1)}, "history: record 1 is out of order or empty"},
		{sdk.HistoryQuery{NewestFirst: true}, []string{record(-3)}, "history: record -3 is out of order or empty"},
		{sdk.HistoryQuery{}, []string{`[{"seq":"1","event":7}]`}, "history: the host's answer: "},
		{sdk.HistoryQuery{}, []string{`[{"seq":"1"}]`}, "history: record 1 is out of order or empty"},
		{sdk.HistoryQuery{}, []string{`{}`}, "history: the host's answer: "},
	}
	for _, test := range tests {
		var got error
		h := run(func(ctx context.Context, turn *sdk.Turn) error {
			for _, err := range turn.History(ctx, test.query) {
				got = err
			}
			return nil
		})
		if err := sdk.RunTurn(t.Context(), h, &pages{answers: test.pages}); err != nil {
			t.Fatal(err)
		}
		if got == nil || !strings.HasPrefix(got.Error(), test.err) {
			t.Errorf("%+v: got error %v, want %s", test.query, got, test.err)
		}
	}
}

// TestI2_HistoryKeepsNumbers: what a double cannot hold comes back verbatim.
func TestI2_HistoryKeepsNumbers(t *testing.T) {
	const data = `{"n":123456789012345678901234567890,"x":0.10}`
	var got []string
	h := run(func(ctx context.Context, turn *sdk.Turn) error {
		for record, err := range turn.History(ctx, sdk.HistoryQuery{}) {
			if err != nil {
				return err
			}
			got = append(got, string(record.Event.Message.Parts[0].Data.Data))
		}
		return nil
	})
	host := &pages{answers: []string{
		`[{"seq":"1","event":{"kind":"EVENT_INPUT","message":{"role":"user","parts":[{"data":{"data":` + data + `}}]}}}]`, `[]`,
	}}
	if err := sdk.RunTurn(t.Context(), h, host); err != nil || !slices.Equal(got, []string{data}) {
		t.Errorf("got %q, %v", got, err)
	}
}

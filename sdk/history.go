package sdk

import (
	"context"
	"fmt"
	"iter"

	"github.com/agentcell/agentcell/sdk/abi"
)

// HistoryQuery says which records History gives. The zero query gives all of
// them, oldest first.
type HistoryQuery struct {
	// From is the seq of the first record wanted; 0 is the oldest, or with
	// NewestFirst the newest.
	From abi.Seq
	// Kinds are the kinds of events wanted; empty: all.
	Kinds []abi.EventKind
	// NewestFirst turns the order round.
	NewestFirst bool
}

// historyPage is how many records are asked for at once.
const historyPage = 50

// History gives the session's records from before this turn, with those of the
// sessions it was forked from. It is lazy: pages are fetched as the loop asks for
// them, so a loop that stops early never reads the rest. An error is the last
// thing it gives.
func (t *Turn) History(ctx context.Context, q HistoryQuery) iter.Seq2[abi.LogRecord, error] {
	return func(yield func(abi.LogRecord, error) bool) {
		request := abi.HistoryRequest{FromSeq: q.From, Limit: historyPage, Kinds: q.Kinds, Reverse: q.NewestFirst}
		for {
			page, err := t.historyPage(ctx, request)
			if err != nil {
				yield(abi.LogRecord{}, err)
				return
			}
			// Only an empty page is the end: the host may cut one short.
			if len(page) == 0 {
				return
			}
			for _, record := range page {
				if !yield(record, nil) {
					return
				}
			}
			last := page[len(page)-1].Seq
			if request.Reverse {
				request.FromSeq = last - 1
			} else {
				request.FromSeq = last + 1
			}
			if request.FromSeq <= 0 {
				return
			}
		}
	}
}

// historyPage fetches one page and checks that it is what request asks for, so
// that History ends whatever the host says.
func (t *Turn) historyPage(ctx context.Context, request abi.HistoryRequest) ([]abi.LogRecord, error) {
	var page []abi.LogRecord
	if err := t.ask(ctx, opHistory, request, &page); err != nil {
		return nil, err
	}
	from := request.FromSeq
	for _, record := range page {
		ahead := record.Seq >= max(from, 1)
		if request.Reverse {
			ahead = record.Seq >= 1 && (from == 0 || record.Seq <= from)
		}
		if !ahead || record.Event == nil {
			return nil, fmt.Errorf("history: record %d is out of order or empty", record.Seq)
		}
		if from = record.Seq + 1; request.Reverse {
			// Nothing follows seq 1; -1, unlike 0, allows nothing.
			if from = record.Seq - 1; from == 0 {
				from = -1
			}
		}
	}
	return page, nil
}

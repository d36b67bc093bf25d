package edge_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

var hello = []abi.Message{abi.Text(abi.RoleUser, "12")}

func benchSession(b *testing.B, h *edge.Host, harness string) abi.SessionID {
	b.Helper()
	s, err := h.Create(context.Background(), host.CreateRequest{Harness: bundled(b, harness)})
	if err != nil {
		b.Fatal(err)
	}
	benchTurn(b, h, s.UID)
	return s.UID
}

func benchTurn(b *testing.B, h *edge.Host, uid abi.SessionID) host.Execution {
	e, err := h.Exec(context.Background(), host.ExecRequest{Session: uid, Inputs: hello})
	if err != nil || e.State != abi.StateCompleted {
		b.Fatalf("%+v: %v", e, err)
	}
	return e
}

func benchOpen(b *testing.B, flush time.Duration) *edge.Host {
	h, err := edge.Open(b.TempDir(), edge.Options{CacheDir: testCache(b), FlushDelay: flush})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := h.Close(); err != nil {
			b.Error(err)
		}
	})
	return h
}

// BenchmarkTurn is F1 and F2: the smallest turn of one session, warm. "durable"
// is on disk, with the background flush off, so that the commits counted are those
// a turn waits for; "cpu" is the same on a journal in memory, without any sync;
// "memory" is a turn of a harness whose memory is saved, and "repl" one of a
// harness that is an interpreter of 19 MB.
func BenchmarkTurn(b *testing.B) {
	run := func(b *testing.B, h *edge.Host, harness string) {
		uid := benchSession(b, h, harness)
		var took []time.Duration
		var last host.Execution
		before := h.Journal().Commits()
		b.ReportAllocs()
		for b.Loop() {
			start := time.Now()
			last = benchTurn(b, h, uid)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		b.ReportMetric(float64(h.Journal().Commits()-before)/float64(len(took)), "commits/turn")
		b.ReportMetric(float64(last.Fuel), "fuel")
	}
	b.Run("durable", func(b *testing.B) { run(b, benchOpen(b, -1), "echo") })
	b.Run("memory", func(b *testing.B) { run(b, benchOpen(b, -1), "counter") })
	b.Run("repl", func(b *testing.B) { run(b, benchOpen(b, -1), "repl") })
	b.Run("cpu", func(b *testing.B) {
		h, err := edge.OpenMemory(edge.Options{CacheDir: testCache(b)})
		if err != nil {
			b.Fatal(err)
		}
		defer h.Close()
		run(b, h, "echo")
	})
}

// BenchmarkTurns is how many durable turns a second many sessions get together.
func BenchmarkTurns(b *testing.B) {
	for _, sessions := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			h := benchOpen(b, 0)
			uids := make([]abi.SessionID, sessions)
			for i := range uids {
				uids[i] = benchSession(b, h, "echo")
			}
			turns := func(n int) {
				var left atomic.Int64
				left.Store(int64(n))
				var wg sync.WaitGroup
				for _, uid := range uids {
					wg.Go(func() {
						for left.Add(-1) >= 0 && !b.Failed() {
							e, err := h.Exec(context.Background(), host.ExecRequest{Session: uid, Inputs: hello})
							if err != nil || e.State != abi.StateCompleted {
								b.Errorf("%+v: %v", e, err)
							}
						}
					})
				}
				wg.Wait()
			}
			turns(2 * sessions) // until there are cells for all
			b.ReportAllocs()
			b.ResetTimer()
			turns(b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
		})
	}
}

// BenchmarkHistory is F14: a turn of the harness that reads history, against the
// length of that history.
func BenchmarkHistory(b *testing.B) {
	for _, records := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			h := benchOpen(b, 0)
			uid := benchSession(b, h, "chat")
			fill(b, h.Journal(), uid, records)
			b.ReportAllocs()
			for b.Loop() {
				benchTurn(b, h, uid)
			}
		})
	}
}

// fill makes a session's record about so many records long, with turns of which
// each has an input, an output and an end.
func fill(b *testing.B, j *journal.Journal, uid abi.SessionID, records int) {
	b.Helper()
	s, err := j.Session(uid)
	if err != nil {
		b.Fatal(err)
	}
	said := abi.Text(abi.RoleAssistant, "something that was said long ago")
	var events [][]byte
	for i := range 300 {
		id := abi.ExecutionID(fmt.Sprintf("exec-%024x", i))
		for _, e := range []*abi.Event{
			{Kind: abi.EventInput, Message: &said},
			{Kind: abi.EventOutput, Message: &said},
			{Kind: abi.EventEnd, End: &abi.HarnessEnd{State: abi.StateCompleted}, Cell: &abi.Cell{Reason: abi.ReasonCompleted}},
		} {
			e.ExecutionID, e.SchemaVersion, e.Time = id, abi.SchemaVersion, abi.NewTime(s.Created)
			encoded, err := abi.EncodeEvent(e)
			if err != nil {
				b.Fatal(err)
			}
			events = append(events, encoded)
		}
	}
	for n := records - int(s.Head.Seq); n > 0; {
		batch := min(n, len(events))
		done, err := j.Append(context.Background(), uid, journal.Append{
			Head: s.Head, Fence: s.Head.Fence, Events: events[:batch], Summary: s.Summary,
		})
		if err != nil {
			b.Fatal(err)
		}
		last := done[len(done)-1]
		s.Head = journal.Head{Seq: last.Seq, Hash: last.Hash, Fence: last.Fence}
		n -= batch
	}
}

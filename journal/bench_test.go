package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/dgraph-io/badger/v4"
)

// benchEvent makes a record's line 256 bytes long.
var benchEvent = event(strings.Repeat("x", 109))

// percentiles reports the median and the 99th percentile of durations.
func percentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkAppend256Sessions is F3: durable records a second when 256 sessions
// append one record each, again and again. The reference is one goroutine that
// puts as many plain sets of the same size into each badger transaction.
func BenchmarkAppend256Sessions(b *testing.B) {
	const sessions = 256
	b.Run("journal", func(b *testing.B) {
		j := openIn(b, b.TempDir())
		for i := range sessions {
			create(b, j, uidOf(i), "p", "")
		}
		var left atomic.Int64
		left.Store(int64(b.N))
		took := make([][]time.Duration, sessions)
		before := j.Commits()
		b.ReportAllocs()
		b.ResetTimer()
		var wg sync.WaitGroup
		for i := range sessions {
			wg.Go(func() {
				var head Head
				for left.Add(-1) >= 0 {
					start := time.Now()
					records, err := j.Append(context.Background(), uidOf(i), Append{Head: head, Events: [][]byte{benchEvent}})
					if err != nil {
						b.Error(err)
						return
					}
					head = Head{Seq: records[0].Seq, Hash: records[0].Hash}
					took[i] = append(took[i], time.Since(start))
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		b.ReportMetric(float64(b.N)/float64(j.Commits()-before), "records/commit")
		percentiles(b, slices.Concat(took...))
	})
	b.Run("reference", func(b *testing.B) {
		db := benchBadger(b)
		key := make([]byte, 40)
		for n := 0; n < b.N; n += sessions {
			version := uint64(n + 1)
			txn := db.NewTransactionAt(version-1, true)
			for i := range min(sessions, b.N-n) {
				k := slices.Clone(key)
				binary.BigEndian.PutUint64(k, uint64(i))
				binary.BigEndian.PutUint64(k[32:], uint64(n))
				if err := txn.Set(k, make([]byte, 256+recordHeader)); err != nil {
					b.Fatal(err)
				}
			}
			if err := txn.CommitAt(version, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
}

func benchBadger(b *testing.B) *badger.DB {
	db, err := badger.OpenManaged(badgerOptions(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return db
}

// BenchmarkAppendOne is what one session alone waits for an append. The reference
// is one write and fdatasync of a line.
func BenchmarkAppendOne(b *testing.B) {
	b.Run("journal", func(b *testing.B) {
		j := openIn(b, b.TempDir())
		create(b, j, "s", "p", "")
		var head Head
		var took []time.Duration
		b.ReportAllocs()
		for b.Loop() {
			start := time.Now()
			records, err := j.Append(b.Context(), "s", Append{Head: head, Events: [][]byte{benchEvent}})
			if err != nil {
				b.Fatal(err)
			}
			head = Head{Seq: records[0].Seq, Hash: records[0].Hash}
			took = append(took, time.Since(start))
		}
		percentiles(b, took)
	})
	b.Run("reference", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "f"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		line := make([]byte, 256)
		var took []time.Duration
		for b.Loop() {
			start := time.Now()
			if _, err := f.Write(line); err != nil {
				b.Fatal(err)
			}
			if err := datasync(f); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		percentiles(b, took)
	})
}

// history is a session of n records in j.
func history(b *testing.B, j *Journal, uid abi.SessionID, n int) {
	b.Helper()
	create(b, j, uid, "p", "")
	var head Head
	for n > 0 {
		a := Append{Head: head, Events: slices.Repeat([][]byte{benchEvent}, min(n, 4000))}
		records, err := j.Append(b.Context(), uid, a)
		if err != nil {
			b.Fatal(err)
		}
		last := records[len(records)-1]
		head = Head{Seq: last.Seq, Hash: last.Hash}
		n -= len(records)
	}
}

// BenchmarkVerify is F9: records verified a second, from the store and from an
// export. The reference is a bare chain of SHA-256 over lines of that size.
func BenchmarkVerify(b *testing.B) {
	const n = 100_000
	rate := func(b *testing.B) { b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s") }
	j := openIn(b, b.TempDir())
	history(b, j, "s", n)
	b.Run("store", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := j.Verify(b.Context(), "s", VerifyOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		rate(b)
	})
	lines := file(export(b, j, "s"))
	b.Run("export", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := VerifyExport(bytes.NewReader(lines), VerifyOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		rate(b)
	})
	b.Run("reference", func(b *testing.B) {
		line := make([]byte, len(lines)/n)
		for b.Loop() {
			for range n {
				hash := abi.DigestOf(line)
				copy(line, hash[:])
			}
		}
		rate(b)
	})
}

// BenchmarkReadOne reads one record out of histories of different lengths.
func BenchmarkReadOne(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("of=%d", n), func(b *testing.B) {
			j := openIn(b, b.TempDir())
			history(b, j, "s", n)
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range j.Read("s", abi.Seq(n), abi.Seq(n)) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkFork is F4 as far as the journal goes: 128 children of a history.
func BenchmarkFork(b *testing.B) {
	const children = 128
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("history=%d", n), func(b *testing.B) {
			j := openIn(b, b.TempDir())
			history(b, j, "s", n)
			made := 0
			for b.Loop() {
				cs := make([]ForkChild, children)
				for i := range cs {
					made++
					cs[i] = ForkChild{UID: abi.SessionID(fmt.Sprintf("child-%d", made)), Event: benchEvent}
				}
				if _, err := j.Fork(b.Context(), "s", abi.Seq(n), epoch, cs); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N)/children, "µs/child")
		})
	}
}

// BenchmarkOpen opens and closes a journal with some sessions in it, as every
// command does (F13), reading one or writing a record.
func BenchmarkOpen(b *testing.B) {
	for _, write := range []bool{false, true} {
		b.Run(fmt.Sprintf("write=%t", write), func(b *testing.B) {
			dir := b.TempDir()
			j, err := Open(dir, Options{})
			if err != nil {
				b.Fatal(err)
			}
			for i := range 100 {
				history(b, j, uidOf(i), 20)
			}
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
			var opening, closing []time.Duration
			for b.Loop() {
				start := time.Now()
				j, err := Open(dir, Options{})
				if err != nil {
					b.Fatal(err)
				}
				opening = append(opening, time.Since(start))
				if _, err := j.Session(uidOf(7)); err != nil {
					b.Fatal(err)
				}
				if write {
					extend(b, j, uidOf(7), 1)
				}
				start = time.Now()
				if err := j.Close(); err != nil {
					b.Fatal(err)
				}
				closing = append(closing, time.Since(start))
			}
			slices.Sort(opening)
			slices.Sort(closing)
			b.ReportMetric(float64(opening[len(opening)/2].Microseconds()), "open-p50-µs")
			b.ReportMetric(float64(closing[len(closing)/2].Microseconds()), "close-p50-µs")
		})
	}
}

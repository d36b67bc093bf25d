package edge_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// BenchmarkFanOut is 128 forks of an agent that holds so many megabytes, and a turn
// of each: how long both take, and what the children take of memory.
func BenchmarkFanOut(b *testing.B) {
	const children = host.MaxForkCount
	for _, megabytes := range []int{1, 100} {
		b.Run(fmt.Sprintf("MB=%d", megabytes), func(b *testing.B) {
			h := benchOpen(b, 0)
			parent, err := h.Create(context.Background(), host.CreateRequest{Harness: bundled(b, "notebook")})
			if err != nil {
				b.Fatal(err)
			}
			say := func(uid abi.SessionID, text string) {
				e, err := h.Exec(context.Background(), host.ExecRequest{Session: uid, Inputs: []abi.Message{abi.Text(abi.RoleUser, text)}})
				if err != nil || e.State != abi.StateCompleted {
					b.Fatalf("%q: %+v, %v", text, e, err)
				}
			}
			for left := megabytes; left > 0; left -= 50 { // as many as it takes at once
				say(parent.UID, fmt.Sprintf("fill %d", min(left, 50)))
			}
			for b.Loop() {
				before := resident(b)
				begin := b.Elapsed()
				forked, err := h.Fork(context.Background(), host.ForkRequest{Session: parent.UID, Count: children})
				if err != nil {
					b.Fatal(err)
				}
				made := b.Elapsed()
				for i, c := range forked {
					say(c.UID, fmt.Sprintf("edit 20 child %d", i))
				}
				ran := b.Elapsed()
				b.ReportMetric(float64((made-begin).Microseconds())/children, "fork-µs/child")
				b.ReportMetric(float64((ran-made).Microseconds())/1000/children, "turn-ms/child")
				b.ReportMetric(float64(resident(b)-before)/(1<<20)/children, "MB/child")
			}
		})
	}
}

// resident is the memory of this process that is its own alone, and of files in memory.
func resident(b *testing.B) int64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	var sum int64
	for line := range strings.Lines(string(status)) {
		var kB int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kB); n == 1 {
			sum += kB << 10
		}
		if n, _ := fmt.Sscanf(line, "RssShmem: %d kB", &kB); n == 1 {
			sum += kB << 10
		}
	}
	return sum
}

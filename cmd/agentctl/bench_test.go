package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkProcess (F13) runs the built agentctl as a process, with warm caches, and
// beside each figure the start of a process that does nothing ("version").
func BenchmarkProcess(b *testing.B) {
	needHarnesses(b)
	warm(b)
	cache, err := testCache()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	program := filepath.Join(dir, "agentctl")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	run := func(b *testing.B, args ...string) {
		b.Helper()
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "AGENTCTL_DATA="+filepath.Join(dir, "data"), "AGENTCELL_CACHE="+cache)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			b.Fatalf("agentctl %v: %v\n%s", args, err, stderr.String())
		}
	}
	run(b, "create", "--name", "bench")
	for range 10 {
		run(b, "exec", "--session", "bench", "--input", "hello")
	}
	for _, args := range [][]string{
		{"exec", "--session", "bench", "--input", "hello"},
		{"get", "--session", "bench"},
		{"list"},
		{"replay", "--session", "bench", "--from", "1", "--to", "50"},
	} {
		b.Run(args[0], func(b *testing.B) {
			var took, bare []time.Duration
			for b.Loop() {
				start := time.Now()
				run(b, args...)
				took = append(took, time.Since(start))
				b.StopTimer()
				start = time.Now()
				run(b, "version")
				bare = append(bare, time.Since(start))
				b.StartTimer()
			}
			b.ReportMetric(quantile(took, 0.5), "p50-ns")
			b.ReportMetric(quantile(took, 0.99), "p99-ns")
			b.ReportMetric(quantile(bare, 0.5), "version-ns")
		})
	}
}

// quantile is the q-quantile of times, in nanoseconds.
func quantile(times []time.Duration, q float64) float64 {
	slices.Sort(times)
	return float64(times[int(q*float64(len(times)-1))])
}

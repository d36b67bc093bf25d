package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentcell/agentcell/harnesses"
)

// BenchmarkProcess (F13) runs the built agentctl as a process, with warm caches, and
// beside each figure the start of a process that does nothing ("version").
func BenchmarkProcess(b *testing.B) {
	command := built(b)
	run := func(b *testing.B, args ...string) {
		b.Helper()
		cmd := command(args...)
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

// built is agentctl as it is released, on data of its own and a warm cache.
func built(b *testing.B) (command func(args ...string) *exec.Cmd) {
	b.Helper()
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
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "AGENTCTL_DATA="+filepath.Join(dir, "data"), "AGENTCELL_CACHE="+cache)
		return cmd
	}
}

// BenchmarkIdle (F15) is what a process takes that has a store with some sessions and
// nothing to do: of memory, and of a processor's time. Beside it stands what the
// program takes on a disk, without the harnesses in it.
func BenchmarkIdle(b *testing.B) {
	command := built(b)
	for _, args := range [][]string{
		{"exec", "--name", "idle", "--harness", "counter", "--input", "1"},
		{"fork", "idle", "--count", "128"},
	} {
		if out, err := command(args...).CombinedOutput(); err != nil {
			b.Fatalf("agentctl %v: %v\n%s", args, err, out)
		}
	}
	idle := command("resume", "--all", "--follow")
	stderr, err := idle.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := idle.Start(); err != nil {
		b.Fatal(err)
	}
	if _, err := bufio.NewReader(stderr).ReadString('\n'); err != nil { // that it follows
		b.Fatal(err)
	}
	time.Sleep(2 * time.Second) // until what it began with is done
	var used, resident float64
	for b.Loop() {
		before := processorTime(b, idle.Process.Pid)
		time.Sleep(time.Second)
		used += processorTime(b, idle.Process.Pid)
		used -= before
		resident = max(resident, processStatus(b, idle.Process.Pid, "VmRSS"))
	}
	info, err := os.Stat(idle.Path)
	if err != nil {
		b.Fatal(err)
	}
	program := info.Size()
	for _, name := range harnesses.Names() {
		found, err := harnesses.Find(name)
		if err != nil {
			b.Fatal(err)
		}
		program -= found.Held
	}
	b.ReportMetric(resident/1e6, "RSS-MB")
	b.ReportMetric(used/float64(b.N), "CPU-ms/s")
	b.ReportMetric(float64(program)/1e6, "program-MB")
	if err := idle.Process.Signal(os.Interrupt); err != nil {
		b.Fatal(err)
	}
	if err := idle.Wait(); err != nil {
		b.Fatal(err)
	}
}

// processStatus is a figure of a process in bytes, by its name in /proc.
func processStatus(b *testing.B, pid int, name string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		var kB float64
		if n, _ := fmt.Sscanf(line, name+": %f kB", &kB); n == 1 {
			return kB * 1024
		}
	}
	b.Fatalf("no %s of process %d", name, pid)
	return 0
}

// processorTime is what a process has used, in milliseconds.
func processorTime(b *testing.B, pid int) float64 {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		b.Skip("the kernel does not tell what a process has used")
	}
	total := 0.0
	for _, file := range threads {
		var ns float64
		if text, err := os.ReadFile(file); err == nil { // a thread may just have ended
			fmt.Sscan(string(text), &ns)
		}
		total += ns / 1e6
	}
	return total
}

// quantile is the q-quantile of times, in nanoseconds.
func quantile(times []time.Duration, q float64) float64 {
	slices.Sort(times)
	return float64(times[int(q*float64(len(times)-1))])
}

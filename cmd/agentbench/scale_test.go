package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/harnesses"
)

func needHarness(t *testing.T) {
	t.Helper()
	if _, err := harnesses.Module("counter"); err != nil {
		if os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" {
			t.Fatal(err)
		}
		t.Skipf("run `make harnesses` first: %v", err)
	}
}

// The command in small: it measures all that it tells, and leaves nothing behind.
func TestScale(t *testing.T) {
	needHarness(t)
	dir := t.TempDir()
	var out, progress bytes.Buffer
	args := strings.Fields("scale --suspended 50 --warm 20 --parallel 8 --settle 0s --json --data " + dir)
	if code := run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit code %d: %s", code, progress.String())
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	if len(r.Suspended) != 1 || r.Suspended[0].Sessions != 50 {
		t.Fatalf("measured at %+v", r.Suspended)
	}
	p := r.Suspended[0]
	if p.Records == 0 || p.Pages == 0 || p.Tree == 0 || p.Disk < p.Records+p.Pages+p.Tree {
		t.Errorf("on disk: %+v", p)
	}
	for name, l := range map[string]latency{
		"get": p.Get, "list": p.List, "resume": p.Resume, "hot": r.Warm.Hot, "rested": r.Warm.Rested, "cold": r.Warm.Cold, "sync": r.References.Sync,
	} {
		if l.Count == 0 || l.P50 == 0 || l.P99 < l.P50 {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if r.Warm.Kept != 20 || r.Empty.Heap == 0 || r.References.Copy == 0 {
		t.Errorf("%+v", r)
	}
	r.extrapolate(1_000_000)
	if len(r.Suspended) != 1 {
		t.Error("extrapolated from one point")
	}
	var lines bytes.Buffer
	if err := r.benchmark(&lines); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pkg: github.com/agentcell/agentcell/cmd/agentbench\n", "\nBenchmarkSuspended/sessions=50 1 ", "\nBenchmarkWarm/sessions=20 1 "} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("%q is not among\n%s", want, lines.String())
		}
	}
	var text bytes.Buffer
	if err := r.print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"F11", "F12: 20 sessions", "sessions", "at rest"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
	wantEmpty(t, dir)
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("%s is left", left[0].Name())
	}
}

func TestExtrapolate(t *testing.T) {
	r := report{Suspended: []point{{Sessions: 10, Disk: 100}, {Sessions: 20, Disk: 150, Records: 7}}}
	r.extrapolate(100)
	want := point{Sessions: 100, Extrapolated: true, Disk: 550, Records: 63}
	if got := r.Suspended[2]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r.extrapolate(50)
	if len(r.Suspended) != 3 {
		t.Error("extrapolated to what is there")
	}
}

func TestScaleEnds(t *testing.T) {
	needHarness(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, progress bytes.Buffer
	if code := run(ctx, []string{"scale", "--suspended", "5", "--data", dir}, &out, &progress); code != 1 || out.Len() != 0 {
		t.Errorf("exit code %d, said %q", code, out.String())
	}
	wantEmpty(t, dir)
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
	}{
		{"", 2},
		{"help", 0},
		{"scales", 2},
		{"scale -h", 0},
		{"scale --suspended 0", 2},
		{"scale --warm x", 2},
		{"scale 100", 2},
	} {
		var out, progress bytes.Buffer
		if code := run(t.Context(), strings.Fields(test.args), &out, &progress); code != test.code || out.Len()+progress.Len() == 0 {
			t.Errorf("%q: exit code %d, want %d; it said %q and %q", test.args, code, test.code, out.String(), progress.String())
		}
	}
}

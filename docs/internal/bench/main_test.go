package main

import (
	"strings"
	"testing"
	"time"
)

const printed = `goos: linux
goarch: amd64
pkg: github.com/agentcell/agentcell/journal
cpu: Some Processor @ 2.80GHz
BenchmarkAppend256Sessions/journal-2   	     100	  12000000 ns/op	   60000 records/s	 12 allocs/op
BenchmarkAppend256Sessions/journal-2   	     100	  11000000 ns/op	   70000 records/s	 12 allocs/op
BenchmarkAppend256Sessions/journal-2   	     100	  13000000 ns/op	   20000 records/s	 12 allocs/op
BenchmarkAppend256Sessions/reference-2 	     100	  12000000 ns/op	  100000 records/s
pkg: github.com/agentcell/agentcell/cmd/agentctl
BenchmarkProcess/exec-2   	      10	 140000000 ns/op	 130000000 p50-ns
--- SKIP: BenchmarkOther
PASS
ok  	github.com/agentcell/agentcell/journal	3.1s
`

func TestWrite(t *testing.T) {
	results, cpu, err := parse(strings.NewReader(printed))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := write(&b, results, []string{cpu}, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"do not edit. 1 January 1970.",
		"- Some Processor @ 2.80GHz\n",
		"| 60\u202f000 records/s | 100\u202f000 records/s | yes |",
		"| p50 130 ms |  | no |",
		"| not measured |  | – |",
		"| journal.Append256Sessions/journal | 3 | 12 ms/op, 60\u202f000 records/s, 12 allocs/op |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the document lacks %q:\n%s", want, b.String())
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "no benchmark"},
		{"BenchmarkF3-2 1 5 ns/op\n--- FAIL: BenchmarkF4", "go test failed"},
		{"BenchmarkF3-2 1 5 ns/op\nFAIL\texample.com/p\t1s", "go test failed"},
		{"BenchmarkF3-2 1 five ns/op", "invalid syntax"},
		{"BenchmarkF3-2 1 5 ns/op 7", "a value without a unit"},
	} {
		if _, _, err := parse(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: the error is %v, want %q", tt.text, err, tt.want)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, tt := range []struct {
		value      float64
		unit, want string
	}{
		{1234567, "ns/op", "1.23 ms/op"},
		{999.7, "ns/op", "1\u202f000 ns/op"},
		{0.5, "ns/op", "0.5 ns/op"},
		{2.5, "ms", "2.5 ms"},
		{1200, "p99-µs", "p99 1.2 ms"},
		{350, "us/turn", "350 µs/turn"},
		{2, "commits/turn", "2 commits/turn"},
		{1234567.8, "records/s", "1\u202f234\u202f568 records/s"},
		{0, "B/op", "0 B/op"},
	} {
		if got := format(tt.value, tt.unit); got != tt.want {
			t.Errorf("format(%v, %q) = %q, want %q", tt.value, tt.unit, got, tt.want)
		}
	}
}

func TestJudge(t *testing.T) {
	turn, commit := metric{"p.Turn", "ns/op"}, metric{"p.Commit", "ns/op"}
	slack := goal{figure: turn, reference: commit, atMost: 2, slack: 100}
	for _, tt := range []struct {
		name, met string
		goal      goal
		lines     string
	}{
		{"within the slack", "yes", slack, "BenchmarkTurn-2 1 500 ns/op\nBenchmarkCommit-2 1 200 ns/op"},
		{"beyond the slack", "no", slack, "BenchmarkTurn-2 1 501 ns/op\nBenchmarkCommit-2 1 200 ns/op"},
		{"no reference", "–", slack, "BenchmarkTurn-2 1 500 ns/op"},
		{"no figure", "–", slack, "BenchmarkCommit-2 1 500 ns/op"},
		{"at least", "yes", goal{figure: turn, atLeast: 5}, "BenchmarkTurn 1 5 ns/op"},
		{"less", "no", goal{figure: turn, atLeast: 5}, "BenchmarkTurn 1 4 ns/op"},
		{"at most", "yes", goal{figure: turn, atMost: 5}, "BenchmarkTurn 1 5 ns/op"},
		{"more", "no", goal{figure: turn, atMost: 5}, "BenchmarkTurn 1 6 ns/op"},
	} {
		results, _, err := parse(strings.NewReader("pkg: " + module + "/p\n" + tt.lines))
		if err != nil {
			t.Fatal(err)
		}
		if got := tt.goal.judge(results).met; got != tt.met {
			t.Errorf("%s: met is %q, want %q", tt.name, got, tt.met)
		}
	}
}

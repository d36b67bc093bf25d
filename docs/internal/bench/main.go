// Command bench owns docs/benchmarks.md: it reads the output of `go test -bench`
// from standard input and writes the document to standard output, each figure
// beside the goal it is measured against. `make bench` runs it.
//
// The goals are in goals.go: each names the benchmark and the metric it is about.
//
// It imports the standard library only.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(r io.Reader, w io.Writer) error {
	results, cpu, err := parse(r)
	if err != nil {
		return err
	}
	return write(w, results, machine(cpu), time.Now())
}

const module = "github.com/agentcell/agentcell"

// result is one benchmark, named by package and name: what each of its runs measured, by unit.
type result struct {
	name   string
	runs   int
	units  []string // in the order in which they were printed
	values map[string][]float64
}

// median is the median of what was measured in unit.
func (r *result) median(unit string) (float64, bool) {
	values := slices.Sorted(slices.Values(r.values[unit]))
	if len(values) == 0 {
		return 0, false
	}
	half := len(values) / 2
	if len(values)%2 == 1 {
		return values[half], true
	}
	return (values[half-1] + values[half]) / 2, true
}

// parse reads what go test printed. It fails if a package failed, or if there is
// no benchmark.
func parse(r io.Reader) (results []*result, cpu string, err error) {
	byName := map[string]*result{}
	pkg := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "cpu: "):
			cpu = strings.TrimPrefix(line, "cpu: ")
		case strings.HasPrefix(line, "pkg: "):
			pkg = strings.TrimPrefix(line, "pkg: "+module+"/")
		case strings.HasPrefix(line, "FAIL"), strings.HasPrefix(line, "--- FAIL"):
			return nil, "", fmt.Errorf("go test failed: %s", line)
		case strings.HasPrefix(line, "Benchmark") && len(words) >= 4:
			name := pkg + "." + benchmarkName(words[0])
			known := byName[name]
			if known == nil {
				known = &result{name: name, values: map[string][]float64{}}
				byName[name] = known
				results = append(results, known)
			}
			if err := known.add(words[2:]); err != nil {
				return nil, "", fmt.Errorf("%q: %w", line, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, "", err
	}
	if len(results) == 0 {
		return nil, "", fmt.Errorf("no benchmark in the input; want the output of go test -bench")
	}
	return results, cpu, nil
}

// benchmarkName is a name as it stands in the source: without "Benchmark", and
// without the number of processors at its end.
func benchmarkName(printed string) string {
	name := strings.TrimPrefix(printed, "Benchmark")
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		if _, err := strconv.Atoi(name[i+1:]); err == nil {
			return name[:i]
		}
	}
	return name
}

// add takes the values and units of one run.
func (r *result) add(words []string) error {
	if len(words)%2 != 0 {
		return fmt.Errorf("a value without a unit")
	}
	r.runs++
	for i := 0; i < len(words); i += 2 {
		v, err := strconv.ParseFloat(words[i], 64)
		if err != nil {
			return err
		}
		unit := words[i+1]
		if _, seen := r.values[unit]; !seen {
			r.units = append(r.units, unit)
		}
		r.values[unit] = append(r.values[unit], v)
	}
	return nil
}

// machine says what the figures were measured on.
func machine(cpu string) []string {
	if cpu == "" {
		cpu = runtime.GOARCH
	}
	facts := []string{
		fmt.Sprintf("%s, %d processors", cpu, runtime.NumCPU()),
		runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
	}
	if kernel := output("uname", "-sr"); kernel != "" {
		facts = append(facts, kernel)
	}
	if fs := output("stat", "-f", "-c", "%T", os.TempDir()); fs != "" {
		facts = append(facts, "temporary directory on "+fs)
	}
	if commit := output("git", "describe", "--always", "--dirty"); commit != "" {
		facts = append(facts, "commit "+commit)
	}
	return facts
}

// output is what a command prints, empty where it cannot run.
func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

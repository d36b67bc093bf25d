package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/sdk/abi"
)

// limit is a bound of a session's turns by the name it has on the command line.
type limit struct {
	name  string
	bytes bool
	most  int64 // that its type holds
	get   func(abi.Limits) int64
	set   func(*abi.Limits, int64)
}

func limits() []limit {
	return []limit{
		{"memory", true, math.MaxInt64, func(l abi.Limits) int64 { return int64(l.MemoryBytes) }, func(l *abi.Limits, n int64) { l.MemoryBytes = abi.Int64(n) }},
		{"fuel", false, math.MaxInt64, func(l abi.Limits) int64 { return int64(l.Fuel) }, func(l *abi.Limits, n int64) { l.Fuel = abi.Int64(n) }},
		{"depth", false, math.MaxInt32, func(l abi.Limits) int64 { return int64(l.Depth) }, func(l *abi.Limits, n int64) { l.Depth = int32(n) }},
		{"effects", false, math.MaxInt32, func(l abi.Limits) int64 { return int64(l.Effects) }, func(l *abi.Limits, n int64) { l.Effects = int32(n) }},
		{"output", true, math.MaxInt64, func(l abi.Limits) int64 { return int64(l.OutputBytes) }, func(l *abi.Limits, n int64) { l.OutputBytes = abi.Int64(n) }},
		{"request", true, math.MaxInt64, func(l abi.Limits) int64 { return int64(l.RequestBytes) }, func(l *abi.Limits, n int64) { l.RequestBytes = abi.Int64(n) }},
	}
}

func limitNames() []string {
	var names []string
	for _, l := range limits() {
		names = append(names, l.name)
	}
	return names
}

// valueNames completes the name in NAME=VALUE.
func valueNames(names []string) cobra.CompletionFunc {
	var words []string
	for _, name := range names {
		words = append(words, name+"=")
	}
	return func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return beginning(begun, words), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// limitsFlag is a flag that is given once for each limit.
type limitsFlag struct{ limits *abi.Limits }

func (f limitsFlag) Set(s string) error {
	name, value, _ := strings.Cut(s, "=")
	for _, l := range limits() {
		if l.name != name {
			continue
		}
		n, err := l.parse(value)
		if err == nil && l.get(*f.limits) != 0 {
			err = errors.New("it is given twice")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.set(f.limits, n)
		return nil
	}
	return fmt.Errorf("want NAME=VALUE, such as memory=64MiB; the names are %s", strings.Join(limitNames(), ", "))
}

// String is called on the zero value too.
func (f limitsFlag) String() string { return "" }

func (f limitsFlag) Type() string { return "limit" }

// The units of sizes, the largest first.
var sizeUnits = [...]struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func (l limit) parse(value string) (int64, error) {
	want, unit := errors.New("want a whole number above 0"), int64(1)
	if l.bytes {
		want = errors.New("want a number of bytes above 0, such as 65536 or 64MiB")
		for _, u := range sizeUnits {
			if number, ok := strings.CutSuffix(value, u.name); ok {
				value, unit = number, u.bytes
				break
			}
		}
	}
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || n > l.most/unit:
		return 0, errors.New("the number is too large")
	case err != nil || n < 1:
		return 0, want
	}
	return n * unit, nil
}

// text is a limit as one types it.
func (l limit) text(n int64) string {
	if l.bytes {
		for _, u := range sizeUnits {
			if n%u.bytes == 0 {
				return fmt.Sprintf("%s=%d%s", l.name, n/u.bytes, u.name)
			}
		}
	}
	return fmt.Sprintf("%s=%d", l.name, n)
}

// limitsText are the limits that were set.
func limitsText(set abi.Limits) string {
	var words []string
	for _, l := range limits() {
		if n := l.get(set); n != 0 {
			words = append(words, l.text(n))
		}
	}
	return strings.Join(words, " ")
}

// limitsJSON are the limits that were set, in plain numbers.
func limitsJSON(set abi.Limits) map[string]int64 {
	numbers := map[string]int64{}
	for _, l := range limits() {
		if n := l.get(set); n != 0 {
			numbers[l.name] = n
		}
	}
	return numbers
}

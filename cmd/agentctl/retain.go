package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/agentcell/agentcell/host"
)

// retainFlag takes which images of past turns a session keeps.
type retainFlag struct{ keep *host.Retention }

func (f retainFlag) Set(s string) error {
	if s == "all" {
		*f.keep = host.Retention{Every: 1}
		return nil
	}
	var keep host.Retention
	for word := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(word, "=")
		var n *int
		switch name {
		case "last":
			n = &keep.Last
		case "every":
			n = &keep.Every
		default:
			return errors.New("want all, or last=N and every=M, such as last=8,every=16")
		}
		if *n != 0 {
			return fmt.Errorf("%s: it is given twice", name)
		}
		number, err := strconv.ParseInt(value, 10, 32)
		if err != nil || number < 1 {
			return fmt.Errorf("%s: want a whole number from 1 to %d", name, math.MaxInt32)
		}
		*n = int(number)
	}
	*f.keep = keep
	return nil
}

// String is called on the zero value too.
func (f retainFlag) String() string {
	if f.keep == nil {
		return ""
	}
	return retentionText(*f.keep)
}

func (f retainFlag) Type() string { return "retention" }

// retentionText is a retention that was set, as one types it.
func retentionText(r host.Retention) string {
	if r.Every == 1 {
		return "all"
	}
	var words []string
	if r.Last > 0 {
		words = append(words, fmt.Sprintf("last=%d", r.Last))
	}
	if r.Every > 0 {
		words = append(words, fmt.Sprintf("every=%d", r.Every))
	}
	return strings.Join(words, ",")
}

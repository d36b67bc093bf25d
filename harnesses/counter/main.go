// Counter is a harness that holds memory: it sums the numbers it is given and
// asks no model. Its state is an ordinary Go value on an ordinary heap; nothing in
// a turn saves or loads anything, because the cell's memory is saved as it is. Save
// and Load are there for agentctl upgrade, which carries a session over to
// another build.
//
//	$ agentctl exec --harness counter --input '3 4'
//	$ agentctl exec --session … --input total
//
// Each input is one of
//
//	3 -4 …    one or more decimal integers, apart by white space or commas:
//	          they are added; the output is "added -1, total 6"
//	total     the output is the total alone
//	times N   the output is how often N was given
//
// Anything else fails the turn, and so does a sum beyond 64 bits: results are
// exact or there are none. A failed turn changes nothing, since its memory is
// dropped: of its inputs, none has been added.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// counter is all that a session remembers.
type counter struct {
	total int64
	times map[int64]int
}

func newCounter() *counter { return &counter{times: map[int64]int{}} }

func (*counter) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{
		ID:           "counter",
		Version:      "1",
		Capabilities: &abi.Capabilities{Resumability: abi.RequiresMemorySnapshot, ForkSafe: true},
	}
}

func (c *counter) Run(ctx context.Context, t *sdk.Turn) error {
	for _, input := range t.Inputs() {
		answer, err := c.answer(input.Text())
		if err != nil {
			return &abi.Error{Code: abi.CodeInvalidArgument, Description: "counter: " + err.Error()}
		}
		if err := t.OutputText(ctx, answer); err != nil {
			return err
		}
	}
	return nil
}

// answer does what one input says.
func (c *counter) answer(input string) (string, error) {
	words := strings.FieldsFunc(input, func(r rune) bool { return strings.ContainsRune(" \t\r\n,", r) })
	switch {
	case len(words) == 0:
		return "", fmt.Errorf("an empty input; want integers, total, or times N")
	case len(words) == 1 && words[0] == "total":
		return strconv.FormatInt(c.total, 10), nil
	case len(words) == 2 && words[0] == "times":
		n, err := parse(words[1])
		if err != nil {
			return "", err
		}
		return strconv.Itoa(c.times[n]), nil
	}
	before := c.total
	for _, word := range words {
		n, err := parse(word)
		if err != nil {
			return "", err
		}
		if n > 0 && c.total > math.MaxInt64-n || n < 0 && c.total < math.MinInt64-n {
			return "", fmt.Errorf("%d and %d are more than 64 bits hold", c.total, n)
		}
		c.total += n
		c.times[n]++
	}
	return fmt.Sprintf("added %d, total %d", c.total-before, c.total), nil
}

// saved is what one build of counter hands to another. A later one can tell by
// Version what it is given.
type saved struct {
	Version int           `json:"version"`
	Total   int64         `json:"total"`
	Times   map[int64]int `json:"times"`
}

const savedVersion = 1

// Save implements sdk.Portable.
func (c *counter) Save() ([]byte, error) {
	return json.Marshal(saved{Version: savedVersion, Total: c.total, Times: c.times})
}

// Load implements sdk.Portable.
func (c *counter) Load(state []byte) error {
	var s saved
	if err := json.Unmarshal(state, &s); err != nil {
		return fmt.Errorf("counter: the saved state: %w", err)
	}
	if s.Version != savedVersion {
		return fmt.Errorf("counter: a saved state of version %d; this is version %d", s.Version, savedVersion)
	}
	c.total = s.Total
	maps.Copy(c.times, s.Times)
	return nil
}

func parse(word string) (int64, error) {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no 64-bit integer; want integers, total, or times N", word)
	}
	return n, nil
}

var _ sdk.Portable = (*counter)(nil)

func init() { sdk.Register(newCounter()) }

func main() {}

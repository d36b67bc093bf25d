package host

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Amounts are so much of each thing that sessions use. As a budget, zero is no
// bound.
type Amounts struct {
	// Tokens are those of model calls, of requests and answers together.
	Tokens int64 `json:"tokens,omitempty"`
	// Cost is in millionths of the currency of Config.Prices.
	Cost       int64 `json:"cost,omitempty"`
	ModelCalls int64 `json:"model_calls,omitempty"`
	ToolCalls  int64 `json:"tool_calls,omitempty"` // that the host performed
	Turns      int64 `json:"turns,omitempty"`
	Fuel       int64 `json:"fuel,omitempty"`
	// Wall is the time that turns took, their calls included, parked ones not.
	Wall time.Duration `json:"wall,omitempty"` // in nanoseconds
}

// AmountNames names what Amounts has.
func AmountNames() []string { return amountNames[:] }

// In the order of vector.
var amountNames = [...]string{"tokens", "cost", "model_calls", "tool_calls", "turns", "fuel", "wall"}

// vector is a as the counters of an account, which never change their order.
func (a Amounts) vector() []int64 {
	return []int64{a.Tokens, a.Cost, a.ModelCalls, a.ToolCalls, a.Turns, a.Fuel, int64(a.Wall)}
}

func amountsOf(v []int64) Amounts {
	return Amounts{v[0], v[1], v[2], v[3], v[4], v[5], time.Duration(v[6])}
}

// Plus is the sum of both.
func (a Amounts) Plus(b Amounts) Amounts { return a.plus(1, b) }

// plus adds n times b to a.
func (a Amounts) plus(n int64, b Amounts) Amounts {
	v, w := a.vector(), b.vector()
	for i := range v {
		v[i] = saturate(v[i], n*w[i])
	}
	return amountsOf(v)
}

// saturate adds without running over.
func saturate(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// Text is the amount of that name as a person reads it, and Set takes it.
func (a Amounts) Text(name string) string {
	i := slices.Index(amountNames[:], name)
	if i < 0 {
		return ""
	}
	return amountText(i, a.vector()[i])
}

// Has reports whether the amount of that name is not zero.
func (a Amounts) Has(name string) bool {
	i := slices.Index(amountNames[:], name)
	return i >= 0 && a.vector()[i] != 0
}

// String is the amounts that are not zero.
func (a Amounts) String() string {
	var words []string
	for _, name := range amountNames {
		if a.Has(name) {
			words = append(words, name+"="+a.Text(name))
		}
	}
	return cmp.Or(strings.Join(words, " "), "none")
}

func amountText(i int, n int64) string {
	switch amountNames[i] {
	case "wall":
		return time.Duration(n).Round(time.Millisecond).String()
	case "cost":
		text := strings.TrimRight(fmt.Sprintf("%d.%06d", n/1e6, n%1e6), "0")
		return strings.TrimSuffix(text, ".")
	}
	return strconv.FormatInt(n, 10)
}

// Set reads the amount of that name: a whole number, a cost such as 2.50, a time such as
// 1h30m.
func (a *Amounts) Set(name, text string) error {
	i := slices.Index(amountNames[:], name)
	if i < 0 {
		return fmt.Errorf("%w: %q is no amount; the names are %s", ErrInvalid, name, strings.Join(amountNames[:], ", "))
	}
	n, err := parseAmount(name, text)
	if err != nil {
		return fmt.Errorf("%w: %s=%s: %w", ErrInvalid, name, text, err)
	}
	v := a.vector()
	v[i] = n
	*a = amountsOf(v)
	return nil
}

// maxCost is the largest cost in whole units of the currency.
const maxCost = math.MaxInt64/1_000_000 - 1

func parseAmount(name, text string) (int64, error) {
	switch name {
	case "wall":
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return 0, errors.New("want a time of at most 292 years, such as 90s or 1h30m")
		}
		return int64(d), nil
	case "cost":
		whole, part, _ := strings.Cut(text, ".")
		n, err := strconv.ParseUint(whole, 10, 63)
		digits, partErr := strconv.ParseUint((part + "000000")[:max(6, len(part))], 10, 63)
		switch {
		case errors.Is(err, strconv.ErrRange) || err == nil && n > maxCost:
			return 0, fmt.Errorf("the amount is too large; want at most %d", int64(maxCost))
		case err != nil || partErr != nil || len(part) > 6:
			return 0, errors.New("want an amount of money, such as 2.50, with at most 6 decimals")
		}
		return int64(n*1e6 + digits), nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New("the number is too large")
	case err != nil:
		return 0, errors.New("want a whole number")
	}
	return int64(n), nil
}

// Price is what the tokens of a model cost, in millionths of a currency for a
// million tokens.
type Price struct{ Input, Output int64 }

// Price is what the tokens of a model cost here, false where nobody knows.
func (h *Host) Price(model string) (Price, bool) { return h.price(model) }

// Cost is what tokens cost, rounded up.
func (p Price) Cost(input, output int64) int64 {
	return saturate(costOf(p.Input, input), costOf(p.Output, output))
}

// affordable is how many tokens of an answer a cost buys.
func (p Price) affordable(cost int64) int64 {
	high, low := bits.Mul64(uint64(max(0, cost)), 1e6)
	if price := uint64(p.Output); p.Output > 0 && high < price {
		tokens, _ := bits.Div64(high, low, price)
		return int64(min(tokens, math.MaxInt64))
	}
	return math.MaxInt64
}

func costOf(price, tokens int64) int64 {
	high, low := bits.Mul64(uint64(max(0, price)), uint64(max(0, tokens)))
	if high >= 1e6 {
		return math.MaxInt64
	}
	quotient, rest := bits.Div64(high, low, 1e6)
	if rest > 0 {
		quotient++
	}
	return int64(min(quotient, math.MaxInt64))
}

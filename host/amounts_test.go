package host_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host"
)

func TestAmounts_Set(t *testing.T) {
	const number, large = "want a whole number", "the number is too large"
	const money, rich = "want an amount of money, such as 2.50", "the amount is too large; want at most 9223372036853"
	const duration = "want a time of at most 292 years, such as 90s"
	for _, tt := range []struct{ name, text, want, says string }{
		{"tokens", "100000", "tokens=100000", ""},
		{"tokens", "0", "none", ""},
		{"tokens", "-1", "", number},
		{"tokens", "-99999999999999999999", "", number},
		{"tokens", "many", "", number},
		{"tokens", "1.5", "", number},
		{"tokens", "99999999999999999999", "", large},
		{"cost", "2.50", "cost=2.5", ""},
		{"cost", "0.000001", "cost=0.000001", ""},
		{"cost", "10", "cost=10", ""},
		{"cost", "9223372036853.999999", "cost=9223372036853.999999", ""},
		{"cost", "0.0000001", "", money},
		{"cost", "-1", "", money},
		{"cost", "1.-5", "", money},
		{"cost", "", "", money},
		{"cost", "9223372036854", "", rich},
		{"cost", "99999999999999999999", "", rich},
		{"wall", "90s", "wall=1m30s", ""},
		{"wall", "90", "", duration},
		{"wall", "-1s", "", duration},
		{"wall", "9999999h", "", duration},
		{"fuel", "9223372036854775807", "fuel=9223372036854775807", ""},
		{"fuel", "9223372036854775808", "", large},
		{"money", "1", "", "is no amount; the names are tokens, cost,"},
	} {
		var a host.Amounts
		err := a.Set(tt.name, tt.text)
		switch {
		case tt.says != "" && (!errors.Is(err, host.ErrInvalid) || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%s=%s: %v; want %q", tt.name, tt.text, err, tt.says)
		case tt.says == "" && (err != nil || a.String() != tt.want):
			t.Errorf("%s=%s: %s, %v; want %s", tt.name, tt.text, a, err, tt.want)
		}
	}
}

func TestPrice(t *testing.T) {
	for _, tt := range []struct {
		price         host.Price
		input, output int64
		want          int64
	}{
		{host.Price{Input: 3_000_000, Output: 15_000_000}, 1000, 200, 6000},
		{host.Price{Input: 1, Output: 1}, 1, 1, 2}, // each is rounded up
		{host.Price{}, 1 << 40, 1 << 40, 0},
		{host.Price{Input: math.MaxInt64, Output: 1}, math.MaxInt64, 1, math.MaxInt64},
		{host.Price{Input: 1_000_000}, -5, 0, 0},
	} {
		if got := tt.price.Cost(tt.input, tt.output); got != tt.want {
			t.Errorf("%+v for %d and %d: %d, want %d", tt.price, tt.input, tt.output, got, tt.want)
		}
	}
}

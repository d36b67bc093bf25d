package host_test

import (
	"errors"
	"math"
	"testing"

	"github.com/agentcell/agentcell/host"
)

func TestAmounts_Set(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"tokens", "100000", "tokens=100000"},
		{"tokens", "0", "none"},
		{"tokens", "-1", ""},
		{"tokens", "many", ""},
		{"cost", "2.50", "cost=2.5"},
		{"cost", "0.000001", "cost=0.000001"},
		{"cost", "10", "cost=10"},
		{"cost", "0.0000001", ""},
		{"cost", "-1", ""},
		{"cost", "1.-5", ""},
		{"cost", "9223372036854", ""},
		{"cost", "", ""},
		{"wall", "90s", "wall=1m30s"},
		{"wall", "90", ""},
		{"wall", "-1s", ""},
		{"fuel", "9223372036854775807", "fuel=9223372036854775807"},
		{"fuel", "9223372036854775808", ""},
		{"money", "1", ""},
	} {
		var a host.Amounts
		err := a.Set(tt.name, tt.text)
		switch {
		case tt.want == "" && !errors.Is(err, host.ErrInvalid):
			t.Errorf("%s=%s: %v", tt.name, tt.text, err)
		case tt.want != "" && (err != nil || a.String() != tt.want):
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

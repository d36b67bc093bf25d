package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/config"
)

func TestPrice(t *testing.T) {
	const head = "providers: {p: {api: openai}}\nmodels: [{name: m, provider: p, price: {input: "
	for _, tt := range []struct {
		text string
		want config.Money // -1 if it is refused
	}{
		{"2.50", 2_500_000},
		{"3", 3_000_000},
		{"0.000001", 1},
		{"0.0000001", -1},
		{"-1", -1},
		{"1e3", -1},
		{"free", -1},
		{"9999999999", -1},
	} {
		f, err := config.Parse([]byte(head + tt.text + ", output: 1}}]"))
		switch {
		case tt.want < 0 && (!errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), "want an amount such as 2.50")):
			t.Errorf("%s: %v", tt.text, err)
		case tt.want >= 0 && (err != nil || f.Models[0].Price.Input != tt.want || f.Models[0].Price.Output != 1_000_000):
			t.Errorf("%s: %+v, %v", tt.text, f.Models, err)
		}
	}
}

package remote_test

import (
	"testing"

	"github.com/agentcell/agentcell/host/model/remote"
)

func TestObject_AtMost(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params map[string]string
		most   int64
		want   string
	}{
		{"no bound", map[string]string{"max_tokens": "100"}, 0, `{"max_tokens":100}`},
		{"none there", nil, 50, `{"max_tokens":50}`},
		{"a lower one", map[string]string{"max_tokens": "20"}, 50, `{"max_tokens":20}`},
		{"a higher one", map[string]string{"max_tokens": "100"}, 50, `{"max_tokens":50}`},
		{"by the other name", map[string]string{"max_completion_tokens": "100"}, 50, `{"max_completion_tokens":50}`},
		{"both", map[string]string{"max_completion_tokens": "10", "max_tokens": "60"}, 50, `{"max_completion_tokens":10,"max_tokens":50}`},
		{"what is no number", map[string]string{"max_tokens": "many"}, 50, `{"max_tokens":50}`},
		{"a number below one", map[string]string{"max_tokens": "-1"}, 50, `{"max_tokens":50}`},
	} {
		o := remote.Object{}
		if err := o.Params(tt.params, nil); err != nil {
			t.Fatal(err)
		}
		o.AtMost(tt.most, "max_tokens", "max_tokens", "max_completion_tokens")
		if got, err := o.Encode(); err != nil || string(got) != tt.want+"\n" {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}

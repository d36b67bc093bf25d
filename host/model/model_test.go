package model_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/model"
)

func TestPieces(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want []string
	}{
		{"", 3, []string{""}},
		{"a", 3, []string{"a"}},
		{"abcdef", 1, []string{"abcdef"}},
		{"abcdef", 0, []string{"abcdef"}},
		{"abcdefg", 3, []string{"ab", "cd", "efg"}},
		{"héé", 3, []string{"h", "é", "é"}},
		{"日本語🙂", 2, []string{"日本", "語🙂"}},
	} {
		got := model.Pieces(tt.text, tt.n)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("Pieces(%q, %d) (-want +got):\n%s", tt.text, tt.n, diff)
		}
		if joined := strings.Join(got, ""); joined != tt.text {
			t.Errorf("Pieces(%q, %d) join to %q", tt.text, tt.n, joined)
		}
	}
}

func TestStream_EndsWhenWaitFails(t *testing.T) {
	stop := errors.New("stop")
	calls := 0
	var got []model.Delta
	err := model.Stream([]string{"a", "b", "c"}, 2, func(d model.Delta) { got = append(got, d) }, func() error {
		if calls++; calls == 3 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		t.Errorf("the error is %v", err)
	}
	want := []model.Delta{{Attempt: 2, Text: "a"}, {Attempt: 2, Text: "b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deltas (-want +got):\n%s", diff)
	}
}

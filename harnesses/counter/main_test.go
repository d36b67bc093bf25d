package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

func TestCounter(t *testing.T) {
	turns := []struct {
		inputs []string
		want   []string
	}{
		{[]string{"total"}, []string{"0"}},
		{[]string{"3"}, []string{"added 3, total 3"}},
		{[]string{"3 4, -1\n", "total", "times 3"}, []string{"added 6, total 9", "9", "2"}},
		{[]string{"times 5"}, []string{"0"}},
		{nil, nil},
		{[]string{"9223372036854775798"}, []string{"added 9223372036854775798, total 9223372036854775807"}},
		{[]string{"-9223372036854775808"}, []string{"added -9223372036854775808, total -1"}},
	}
	host, c := new(sdktest.Host), newCounter()
	for _, turn := range turns {
		outputs, err := host.Run(t.Context(), c, turn.inputs...)
		if err != nil {
			t.Fatalf("%q: %v", turn.inputs, err)
		}
		var got []string
		for _, m := range outputs {
			got = append(got, m.Text())
		}
		if diff := cmp.Diff(turn.want, got); diff != "" {
			t.Errorf("%q: %s", turn.inputs, diff)
		}
	}
	if len(host.Calls) != 0 || host.Pages != 0 {
		t.Errorf("counter made %d model calls and read %d pages of history", len(host.Calls), host.Pages)
	}
}

func TestCounterUpgrade(t *testing.T) {
	host, old, fresh := new(sdktest.Host), newCounter(), newCounter()
	if _, err := host.Run(t.Context(), old, "3 4 3"); err != nil {
		t.Fatal(err)
	}
	if err := host.Upgrade(old, fresh); err != nil {
		t.Fatal(err)
	}
	outputs, err := host.Run(t.Context(), fresh, "3", "times 3")
	if err != nil || outputs[0].Text() != "added 3, total 13" || outputs[1].Text() != "3" {
		t.Errorf("%v, %v", outputs, err)
	}
	for state, want := range map[string]string{
		`{"version":2}`: "a saved state of version 2; this is version 1",
		`{"version":1`:  "the saved state: unexpected end",
	} {
		if err := newCounter().Load([]byte(state)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", state, err, want)
		}
	}
}

func TestCounterErrors(t *testing.T) {
	tests := []struct{ input, err string }{
		{"", "an empty input"},
		{" , ", "an empty input"},
		{"hello", `"hello" is no 64-bit integer`},
		{"1 two", `"two" is no 64-bit integer`},
		{"1.5", `"1.5" is no 64-bit integer`},
		{"total 1", `"total" is no 64-bit integer`},
		{"times", `"times" is no 64-bit integer`},
		{"times x", `"x" is no 64-bit integer`},
		{"9223372036854775808", `"9223372036854775808" is no 64-bit integer`},
		{"9223372036854775807 1", "9223372036854775807 and 1 are more than 64 bits hold"},
		{"-9223372036854775808 -1", "-9223372036854775808 and -1 are more than 64 bits hold"},
	}
	for _, test := range tests {
		host := new(sdktest.Host)
		outputs, err := host.Run(t.Context(), newCounter(), test.input)
		if err == nil || !strings.HasPrefix(err.Error(), "counter: "+test.err) || sdk.Failure(err).Code != abi.CodeInvalidArgument {
			t.Errorf("%q: got error %v, want counter: %s", test.input, err, test.err)
		}
		if len(outputs) != 0 {
			t.Errorf("%q: got outputs %v", test.input, outputs)
		}
	}
}

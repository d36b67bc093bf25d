package abi_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

func TestTime(t *testing.T) {
	at := func(nanoseconds int) time.Time { return time.Date(2026, 1, 2, 3, 4, 5, nanoseconds, time.UTC) }
	east := time.FixedZone("", 2*60*60)
	tests := []struct {
		time time.Time
		want string
	}{
		{at(0), "2026-01-02T03:04:05Z"},
		{at(999), "2026-01-02T03:04:05Z"},
		{at(1_000), "2026-01-02T03:04:05.000001Z"},
		{at(678_901_234), "2026-01-02T03:04:05.678901Z"},
		{at(678_900_000), "2026-01-02T03:04:05.678900Z"},
		{at(678_000_000), "2026-01-02T03:04:05.678Z"},
		{at(600_000_999), "2026-01-02T03:04:05.600Z"},
		{at(999_999_999), "2026-01-02T03:04:05.999999Z"},
		{time.Date(2026, 1, 1, 1, 0, 0, 0, east), "2025-12-31T23:00:00Z"},
		{time.Date(1, 1, 1, 0, 0, 0, 1_000_000, time.UTC), "0001-01-01T00:00:00.001Z"},
		{time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), "9999-12-31T23:59:59Z"},
		{time.Unix(-1, 999_999_999), "1969-12-31T23:59:59.999999Z"},
	}
	for _, test := range tests {
		for name, instant := range map[string]abi.Time{"NewTime": abi.NewTime(test.time), "bare": {Time: test.time}} {
			got, err := json.Marshal(instant)
			if err != nil || string(got) != `"`+test.want+`"` || instant.String() != test.want {
				t.Errorf("%s %v: got %s and %s, %v, want %s", name, test.time, got, instant, err, test.want)
			}
		}
		var back abi.Time
		if err := json.Unmarshal([]byte(`"`+test.want+`"`), &back); err != nil || !back.Equal(test.time.Truncate(time.Microsecond)) {
			t.Errorf("%s: came back as %v, %v", test.want, back, err)
		}
	}
	for _, year := range []int{0, 10_000} {
		if got, err := json.Marshal(abi.NewTime(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))); err == nil {
			t.Errorf("year %d: got %s", year, got)
		}
	}
	var got abi.Time
	if err := json.Unmarshal([]byte(`"2026-01-02T05:04:05.123456789+02:00"`), &got); err != nil || got != abi.NewTime(at(123_456_000)) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestIntegers(t *testing.T) {
	for n, want := range map[int64]string{
		0: `"0"`, -1: `"-1"`, 9007199254740993: `"9007199254740993"`,
		math.MaxInt64: `"9223372036854775807"`, math.MinInt64: `"-9223372036854775808"`,
	} {
		values := []any{abi.Seq(n), abi.Fence(n), abi.Int64(n)}
		for _, v := range values {
			if got, err := json.Marshal(v); err != nil || string(got) != want {
				t.Errorf("%T: got %s, %v, want %s", v, got, err, want)
			}
		}
		for _, text := range []string{want, want[1 : len(want)-1]} {
			var seq abi.Seq
			var fence abi.Fence
			var integer abi.Int64
			for _, v := range []any{&seq, &fence, &integer} {
				if err := json.Unmarshal([]byte(text), v); err != nil {
					t.Errorf("%T: %s: %v", v, text, err)
				}
			}
			if int64(seq) != n || int64(fence) != n || int64(integer) != n {
				t.Errorf("%s: got %d, %d, %d", text, seq, fence, integer)
			}
		}
	}
	for _, text := range []string{`""`, `"1.5"`, `1.5`, `1e3`, `"x"`, `"9223372036854775808"`, `true`, `{}`, `" 1"`} {
		var n abi.Int64
		if err := json.Unmarshal([]byte(text), &n); err == nil {
			t.Errorf("%s: got %d", text, n)
		}
	}
	n := abi.Int64(7)
	if err := json.Unmarshal([]byte("null"), &n); err != nil || n != 7 {
		t.Errorf("null: got %d, %v", n, err)
	}
}

func TestDigest(t *testing.T) {
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-2, B.1
	d := abi.DigestOf([]byte("abc"))
	if d.String() != abc || d.Short() != abc[:12] || d.IsZero() {
		t.Errorf("got %s, %s, zero %v", d, d.Short(), d.IsZero())
	}
	if back, err := abi.ParseDigest(abc); err != nil || back != d {
		t.Errorf("got %s, %v", back, err)
	}
	var none abi.Digest
	if back, err := abi.ParseDigest(""); err != nil || back != none || none.String() != "" || none.Short() != "" || !none.IsZero() {
		t.Errorf("none: got %s, %v", back, err)
	}
	for _, text := range []string{"a", abc[1:], abc + "0", "BA" + abc[2:], "xx" + abc[2:], " " + abc[1:]} {
		if got, err := abi.ParseDigest(text); err == nil {
			t.Errorf("%q: got %s", text, got)
		}
	}
}

func TestIDs(t *testing.T) {
	random := [12]byte{0, 1, 2, 255, 11: 16}
	if got := abi.NewSessionID(random); got != "sess-000102ff0000000000000010" {
		t.Errorf("got %s", got)
	}
	if got := abi.NewExecutionID(random); got != "exec-000102ff0000000000000010" {
		t.Errorf("got %s", got)
	}
}

func TestMessageText(t *testing.T) {
	text := func(s string) abi.Part { return abi.Part{Text: &abi.TextPart{Text: s}} }
	for _, test := range []struct {
		message abi.Message
		want    string
	}{
		{abi.Message{}, ""},
		{abi.Text(abi.RoleUser, "one"), "one"},
		{abi.Message{Parts: []abi.Part{{Data: &abi.DataPart{}}}}, ""},
		{abi.Message{Parts: []abi.Part{text("one"), {Data: &abi.DataPart{}}, text("two")}}, "onetwo"},
	} {
		if diff := cmp.Diff(test.want, test.message.Text()); diff != "" {
			t.Error(diff)
		}
	}
}

// What a reason means is part of the record's format.
func TestEndReason(t *testing.T) {
	type meaning struct {
		State abi.EndState
		Class abi.EndClass
	}
	want := map[abi.EndReason]meaning{
		"completed": {"COMPLETED", "deterministic"},
		"error":     {"FAILED", "deterministic"},
		"trap":      {"FAILED", "deterministic"},
		"fuel":      {"FAILED", "deterministic"},
		"depth":     {"FAILED", "deterministic"},
		"limit":     {"FAILED", "deterministic"},
		"exit":      {"FAILED", "deterministic"},
		"deadline":  {"FAILED", "external"},
		"canceled":  {"CANCELED", "external"},
		"abandoned": {"CANCELED", "external"},
		"engine":    {"FAILED", "external"},
		"host":      {"FAILED", "external"},
	}
	got := map[abi.EndReason]meaning{}
	for _, r := range []abi.EndReason{
		abi.ReasonCompleted, abi.ReasonError, abi.ReasonTrap, abi.ReasonFuel, abi.ReasonDepth, abi.ReasonLimit,
		abi.ReasonExit, abi.ReasonDeadline, abi.ReasonCanceled, abi.ReasonAbandoned, abi.ReasonEngine, abi.ReasonHost,
	} {
		got[r] = meaning{r.State(), r.Class()}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

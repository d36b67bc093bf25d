package abi_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

func ptr[T any](v T) *T { return &v }

// goldenEvents are the events of testdata/golden-chain.json as Go values. Those
// of its vectors that are no events are only canonicalised.
var goldenEvents = map[string]*abi.Event{
	"output-hello": {
		Kind: abi.EventOutput, ExecutionID: "exec-1", SchemaVersion: 1, Time: abi.NewTime(time.Unix(1_700_000_000, 0)),
		Actor:   &abi.IdentityRef{Principal: "agent://a", Issuer: "entra", Subject: "sub-1"},
		Message: ptr(abi.Text(abi.RoleAssistant, "hello")),
	},
	"execution-start-config-cursor-count2": {
		Kind: abi.EventExecutionStart, ExecutionID: "exec-config",
		ExecutionStart: &abi.ExecutionStart{Config: []byte{0, 255, 32, 10, 9}, InputCount: ptr(abi.Int64(2)), ResumeFromSeq: 9007199254740993},
	},
	"execution-start-default-count0": {
		Kind: abi.EventExecutionStart, ExecutionID: "exec-default",
		ExecutionStart: &abi.ExecutionStart{InputCount: ptr(abi.Int64(0))},
	},
	"execution-start-default-count2": {
		Kind: abi.EventExecutionStart, ExecutionID: "exec-default",
		ExecutionStart: &abi.ExecutionStart{InputCount: ptr(abi.Int64(2))},
	},
	"tool-result-id-only": {Kind: abi.EventToolResult, Result: &abi.ToolResult{ID: "c1"}},
	"approval-result-denied": {
		Kind: abi.EventApprovalResult, ApprovalResult: &abi.ApprovalResult{ToolCallID: "c1", Reason: "no"},
	},
	"execution-start-no-count": {Kind: abi.EventExecutionStart, ExecutionStart: &abi.ExecutionStart{}},
	"execution-start-count0-no-id": {
		Kind: abi.EventExecutionStart, ExecutionStart: &abi.ExecutionStart{InputCount: ptr(abi.Int64(0))},
	},
	"execution-start-large-count": {
		Kind: abi.EventExecutionStart, ExecutionStart: &abi.ExecutionStart{InputCount: ptr(abi.Int64(9007199254740993))},
	},
	"approval-receipt-event-only": {
		Kind: abi.EventToolResult, ExecutionID: "e1",
		Result: &abi.ToolResult{
			ID: "c1", IsError: true, Code: abi.ToolApprovalDenied,
			ApprovalRequestSeq: 9007199254740993, ApprovalDecisionSeq: 9007199254740994,
		},
	},
	"approval-decision-event-only": {
		Kind: abi.EventApprovalResult, ExecutionID: "e1", Actor: &abi.IdentityRef{Principal: "human"},
		ApprovalResult: &abi.ApprovalResult{ToolCallID: "c1", Reason: "no", RequestSeq: 9007199254740993},
	},
	"harness-spec-digest":         nil,
	"session-metadata-proto-only": nil,
}

func TestGoldenChain(t *testing.T) {
	file, err := os.ReadFile("testdata/golden-chain.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Name, Canonical, SHA256 string }
	if err := json.Unmarshal(file, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) != len(goldenEvents) {
		t.Errorf("%d vectors, %d known here", len(vectors), len(goldenEvents))
	}
	for _, v := range vectors {
		again, err := abi.Canonical([]byte(v.Canonical))
		if err != nil || string(again) != v.Canonical {
			t.Errorf("%s: canonicalised to %s, %v", v.Name, again, err)
		}
		if sum := sha256.Sum256(again); hex.EncodeToString(sum[:]) != v.SHA256 || abi.DigestOf(again).String() != v.SHA256 {
			t.Errorf("%s: hash %x, want %s", v.Name, sum, v.SHA256)
		}
		event, known := goldenEvents[v.Name]
		if !known {
			t.Errorf("%s: unknown here", v.Name)
		}
		if event == nil {
			continue
		}
		got, err := abi.EncodeEvent(event)
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
		if !strings.HasSuffix(v.Name, "-event-only") {
			got = []byte(`{"event":` + string(got) + `,"prev_hash":"","seq":"1"}`)
		}
		if diff := cmp.Diff(v.Canonical, string(got)); diff != "" {
			t.Errorf("%s: %s", v.Name, diff)
		}
	}
}

func TestEventRoundTrip(t *testing.T) {
	for name, event := range goldenEvents {
		if event == nil {
			continue
		}
		encoded, err := abi.EncodeEvent(event)
		if err != nil {
			t.Fatal(err)
		}
		back, err := abi.DecodeEvent(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(event, back); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// An identity that says nothing is none.
func TestEncodeEventEmptyActor(t *testing.T) {
	event := &abi.Event{Kind: abi.EventInput, Actor: &abi.IdentityRef{}}
	got, err := abi.EncodeEvent(event)
	if err != nil || string(got) != `{"kind":"EVENT_INPUT"}` {
		t.Errorf("got %s, %v", got, err)
	}
	if event.Actor == nil {
		t.Error("EncodeEvent changed its argument")
	}
}

func toolCall(args string) *abi.Event {
	return &abi.Event{Kind: abi.EventToolCall, Tool: &abi.ToolCall{Tool: "t", Args: abi.Struct(args)}}
}

// TestI2_Numbers: a number that a double cannot hold is recorded as its nearest
// double, beside it verbatim, and comes back verbatim.
func TestI2_Numbers(t *testing.T) {
	thirty := "123456789012345678901234567890"
	tests := []struct {
		name, args string
		recorded   string // args in the record
		numbers    map[string]string
		back       string // args as they come back
	}{
		{"exact", `{"n":9007199254740992}`, `{"n":9007199254740992}`, nil, `{"n":9007199254740992}`},
		{
			"2^53+1", `{"n":9007199254740993}`, `{"n":9007199254740992}`,
			map[string]string{"/tool/args/n": "9007199254740993"},
			`{"n":9007199254740993}`,
		},
		{
			"30 digits", `{"n":` + thirty + `}`, `{"n":1.2345678901234568e+29}`,
			map[string]string{"/tool/args/n": thirty},
			`{"n":` + thirty + `}`,
		},
		{
			"negative", `{"n":-9007199254740993}`, `{"n":-9007199254740992}`,
			map[string]string{"/tool/args/n": "-9007199254740993"},
			`{"n":-9007199254740993}`,
		},
		{
			"17 digits and more", `{"n":0.12345678901234567890}`, `{"n":0.12345678901234568}`,
			map[string]string{"/tool/args/n": "0.12345678901234567890"},
			`{"n":0.12345678901234567890}`,
		},
		{"another way to write it is no loss", `{"a":0.10,"b":1E3,"c":-0,"d":100e-2}`, `{"a":0.1,"b":1000,"c":0,"d":1}`, nil, `{"a":0.1,"b":1000,"c":0,"d":1}`},
		{"1e21 is exact", `{"n":1000000000000000000000}`, `{"n":1e+21}`, nil, `{"n":1e+21}`},
		{
			"too small", `{"n":1e-400}`, `{"n":0}`,
			map[string]string{"/tool/args/n": "1e-400"},
			`{"n":1e-400}`,
		},
		{
			"far too small", `{"n":-1e-99999999999}`, `{"n":0}`,
			map[string]string{"/tool/args/n": "-1e-99999999999"},
			`{"n":-1e-99999999999}`,
		},
		{
			"deep, and names that need escapes", `{"b":[0,{"x/y":[9007199254740993]}],"a~b":9007199254740995,"":9007199254740997}`,
			`{"":9007199254740996,"a~b":9007199254740996,"b":[0,{"x/y":[9007199254740992]}]}`,
			map[string]string{
				"/tool/args/b/1/x~1y/0": "9007199254740993",
				"/tool/args/a~0b":       "9007199254740995",
				"/tool/args/":           "9007199254740997",
			},
			`{"":9007199254740997,"a~b":9007199254740995,"b":[0,{"x/y":[9007199254740993]}]}`,
		},
	}
	for _, test := range tests {
		encoded, err := abi.EncodeEvent(toolCall(test.args))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var record struct {
			Cell struct{ Numbers map[string]string }
			Tool struct{ Args json.RawMessage }
		}
		if err := json.Unmarshal(encoded, &record); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.recorded, string(record.Tool.Args)); diff != "" {
			t.Errorf("%s: recorded: %s", test.name, diff)
		}
		if diff := cmp.Diff(test.numbers, record.Cell.Numbers); diff != "" {
			t.Errorf("%s: numbers: %s", test.name, diff)
		}
		if canonical, err := abi.Canonical(encoded); err != nil || !bytes.Equal(canonical, encoded) {
			t.Errorf("%s: %s is not canonical: %v", test.name, encoded, err)
		}
		back, err := abi.DecodeEvent(encoded)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if diff := cmp.Diff(test.back, string(back.Tool.Args)); diff != "" {
			t.Errorf("%s: came back: %s", test.name, diff)
		}
		if again, err := abi.EncodeEvent(back); err != nil || !bytes.Equal(again, encoded) {
			t.Errorf("%s: encoded again: %s, %v, want %s", test.name, again, err, encoded)
		}
	}
}

// The event that a record is decoded to keeps what else Cell has, and gets none
// if it had none.
func TestI2_NumbersKeepCell(t *testing.T) {
	for _, cell := range []*abi.Cell{nil, {CallID: "c"}} {
		event := toolCall(`{"n":9007199254740993}`)
		event.Cell = cell
		encoded, err := abi.EncodeEvent(event)
		if err != nil {
			t.Fatal(err)
		}
		if cell != nil && cell.Numbers != nil {
			t.Error("EncodeEvent changed its argument")
		}
		back, err := abi.DecodeEvent(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(event, back); diff != "" {
			t.Error(diff)
		}
	}
}

func TestEncodeEventRefuses(t *testing.T) {
	for args, want := range map[string]string{
		`{"n":1e400}`:          "outside the range of a double",
		`{"n":-1e99999999999}`: "outside the range of a double",
		`{"n":NaN}`:            "invalid character",
		`{"a":1,"a":2}`:        "stands twice",
		`{"a":"\ud800"}`:       "lone surrogate",
		strings.Repeat("[", 501) + strings.Repeat("]", 501): "nested deeper",
	} {
		if got, err := abi.EncodeEvent(toolCall(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %s, error %v, want %s", args, got, err, want)
		}
	}
}

// S3: names that are long and numbers that are many do not multiply, neither in
// what is kept of them nor in the time to find that nothing is.
func TestS3_NumbersUnderLongNames(t *testing.T) {
	const exact = "12345678901234567890"
	name := func(n int) string { return strings.Repeat("n", n) }
	for _, tt := range []struct{ args, want string }{
		{`{"` + name(1<<20) + `":[` + strings.Repeat(exact+",", 100_000) + `1]}`, "a pointer to it has"},
		{`{"` + name(4000) + `":[` + strings.Repeat(exact+",", 10_000) + `1]}`, "bytes to keep"},
		{`{"` + name(4000) + `":[` + strings.Repeat(exact+",", 100) + `1]}`, ""},
		{`{"` + name(1<<20) + `":[` + strings.Repeat("1,", 1_000_000) + `1],"z":` + exact + `}`, ""},
	} {
		event := toolCall(tt.args)
		encoded, err := abi.EncodeEvent(event)
		if tt.want != "" {
			if !errors.Is(err, abi.ErrJSON) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%.20s: error %v, want %s", tt.args, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		back, err := abi.DecodeEvent(encoded)
		if err != nil || string(back.Tool.Args) != tt.args {
			t.Errorf("%.20s came back as %.20s, %v", tt.args, back.Tool.Args, err)
		}
	}
}

func TestDecodeEventRefuses(t *testing.T) {
	for src, want := range map[string]string{
		``:                           "unexpected end",
		`[]`:                         "cannot unmarshal array",
		`{"seq":1} x`:                "invalid character",
		`{"ts":"yesterday"}`:         "",
		`{"cell":{"at":"1.5"}}`:      "not a 64-bit integer",
		`{"cell":{"module":"ABCD"}}`: "not a digest",
		`{"cell":{"numbers":{"/tool/args/n":"1 "}},"tool":{"args":{"n":1}}}`:                          "kept for",
		`{"cell":{"numbers":{"/tool/args/n":"7"}},"tool":{"args":{"n":1}}}`:                           "kept for",
		`{"cell":{"numbers":{"/tool/args/n":"1e400"}},"tool":{"args":{"n":1}}}`:                       "kept for",
		`{"cell":{"numbers":{"/tool/args/n":"9007199254740993"}},"tool":{"args":{"n":"x"}}}`:          "kept for",
		`{"cell":{"numbers":{"/tool/args/n":"1.0"}},"tool":{"args":{"n":1}}}`:                         "kept for",
		`{"cell":{"numbers":{"/nowhere":"9007199254740993"}},"tool":{"args":{"n":9007199254740992}}}`: "kept for",
	} {
		if got, err := abi.DecodeEvent([]byte(src)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, error %v, want %s", src, got, err, want)
		}
	}
}

func TestRecordBody(t *testing.T) {
	small := &abi.Event{Kind: abi.EventOutput, Message: ptr(abi.Text(abi.RoleAssistant, "x"))}
	encoded, body, err := abi.EncodeRecord(small)
	if want, _ := abi.EncodeEvent(small); err != nil || body != nil || !bytes.Equal(encoded, want) {
		t.Errorf("small: got %s, body %s, %v", encoded, body, err)
	}

	large := &abi.Event{
		Kind: abi.EventToolCall, ExecutionID: "exec-1", Cell: &abi.Cell{CallID: "c"},
		Tool: &abi.ToolCall{Tool: "t", Args: abi.Struct(`{"n":9007199254740993,"s":"` + strings.Repeat("x", abi.MaxInlineBytes) + `"}`)},
	}
	encoded, body, err = abi.EncodeRecord(large)
	if err != nil || len(encoded) > 1000 || len(body) < abi.MaxInlineBytes {
		t.Fatalf("large: %d bytes, body %d bytes, %v", len(encoded), len(body), err)
	}
	if large.Tool == nil || !large.Cell.Body.IsZero() {
		t.Error("EncodeRecord changed its argument")
	}
	back, err := abi.DecodeRecord(encoded, func(d abi.Digest) ([]byte, error) {
		if d != abi.DigestOf(body) {
			t.Errorf("asked for blob %s", d)
		}
		return body, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if back.Cell.Body != abi.DigestOf(body) {
		t.Error("the decoded event does not name its body")
	}
	if diff := cmp.Diff(large.Tool, back.Tool); diff != "" {
		t.Error(diff)
	}
	lost := errors.New("lost")
	if _, err := abi.DecodeRecord(encoded, func(abi.Digest) ([]byte, error) { return nil, lost }); !errors.Is(err, lost) {
		t.Errorf("got error %v", err)
	}
}

func TestLossless(t *testing.T) {
	type value struct {
		Args abi.Struct `json:"args"`
		A    int        `json:"a,omitempty"`
	}
	for args, want := range map[string]string{
		`{"n":1}`:                `{"a":5,"args":{"n":1}}`,
		`{"n":9007199254740993}`: `{"a":5,"args":{"n":9007199254740992},"numbers":{"/args/n":"9007199254740993"}}`,
	} {
		in := value{Args: abi.Struct(args), A: 5}
		encoded, err := abi.MarshalLossless(in)
		if err != nil || string(encoded) != want {
			t.Errorf("%s: got %s, %v, want %s", args, encoded, err, want)
		}
		var back value
		if err := abi.UnmarshalLossless(encoded, &back); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if diff := cmp.Diff(in, back); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
}

// Any bytes: refused, or an event that is encoded to what it decodes from.
func FuzzDecodeEvent(f *testing.F) {
	for _, event := range goldenEvents {
		if event == nil {
			continue
		}
		encoded, err := abi.EncodeEvent(event)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	numbers, err := abi.EncodeEvent(toolCall(`{"n":[9007199254740993,1e-400]}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(numbers)
	f.Add([]byte(`{"cell":{"numbers":{"/cell/abi":"1"}}}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		event, err := abi.DecodeEvent(src)
		if err != nil {
			return
		}
		encoded, err := abi.EncodeEvent(event)
		if err != nil {
			return // say, a name that stands twice, which only Canonical notices
		}
		if canonical, err := abi.Canonical(encoded); err != nil || !bytes.Equal(canonical, encoded) {
			t.Fatalf("%q is not canonical: %v", encoded, err)
		}
		back, err := abi.DecodeEvent(encoded)
		if err != nil {
			t.Fatalf("%q: %v", encoded, err)
		}
		again, err := abi.EncodeEvent(back)
		if err != nil || !bytes.Equal(again, encoded) {
			t.Fatalf("encoded again: %q, %v, want %q", again, err, encoded)
		}
	})
}

// I2: edited arguments that are long stand in the body, and come back as they were.
func TestI2_RecordBodyTakesEditedArguments(t *testing.T) {
	args := abi.Struct(`{"n":12345678901234567890,"s":"` + strings.Repeat("x", abi.MaxInlineBytes) + `"}`)
	event := &abi.Event{
		Kind: abi.EventApprovalResult, ApprovalResult: &abi.ApprovalResult{ToolCallID: "c", Approved: true},
		Cell: &abi.Cell{Rule: "r", Args: args},
	}
	encoded, body, err := abi.EncodeRecord(event)
	if err != nil || len(encoded) > 1000 {
		t.Fatalf("%d bytes, %v", len(encoded), err)
	}
	if !bytes.Equal(event.Cell.Args, args) || event.ApprovalResult == nil {
		t.Error("EncodeRecord changed its argument")
	}
	back, err := abi.DecodeRecord(encoded, func(abi.Digest) ([]byte, error) { return body, nil })
	if err != nil {
		t.Fatal(err)
	}
	event.Cell.Body = abi.DigestOf(body)
	if diff := cmp.Diff(event, back); diff != "" {
		t.Error(diff)
	}
}

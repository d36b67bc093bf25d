package host_test

import (
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Code that a model or a person writes may do what it likes in a console: what cannot be
// an exception ends its turn, for the reason that there is, and the next turn has the
// variables from before it (S3).
func TestS3_HostileJavaScript(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a big module")
	}
	r := newRig(t).open()
	s, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "repl"), Limits: abi.Limits{Fuel: 50_000_000, MemoryBytes: 48 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	r.exec(s.UID, "let kept = { of: [1, 2] }; const next = () => kept.of.push(0)")
	for _, tt := range []struct {
		name, code string
		want       abi.EndReason
	}{
		{"an endless loop", "kept = 0; for (;;);", abi.ReasonFuel},
		{"a loop that catches all", "kept = 0; for (;;) try { throw 1 } catch {}", abi.ReasonFuel},
		{"a getter of an argument", "kept = 0; JSON.stringify({ get a() { for (;;); } })", abi.ReasonFuel},
		{"a regular expression that goes back and forth", `kept = 0; /^(?=(a+)+$)\1$/.test("a".repeat(50) + "b")`, abi.ReasonFuel},
		{"all memory, bit by bit", "kept = 0; const all = []; for (;;) all.push(new Uint8Array(1e6))", abi.ReasonLimit},
		{"a string of all memory", "kept = 0; 'x'.repeat(1e9)", abi.ReasonLimit},
		{"a string that doubles", "kept = 0; let s = 'x'; for (;;) s += s", abi.ReasonLimit},
		{"a buffer of all memory", "kept = 0; new ArrayBuffer(1e9)", abi.ReasonLimit},
		{"JSON that goes deep", "kept = 0; JSON.parse('['.repeat(1e5))", abi.ReasonDepth},
		{"code that goes deep", "kept = 0; eval('('.repeat(1e5))", abi.ReasonDepth},
	} {
		e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say(tt.code)})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if e.State != abi.StateFailed || e.Reason != tt.want {
			t.Errorf("%s: ended %s for %q: %v; want %q", tt.name, e.State, e.Reason, e.Err, tt.want)
		}
	}
	out := r.exec(s.UID, "next(); kept")
	if len(out) != 1 || !strings.HasPrefix(out[0], "[A turn before this one ended as FAILED") || !strings.HasSuffix(out[0], "]\n{ of: [1, 2, 0] }") {
		t.Errorf("after it all: %q", out)
	}
	if v := r.verify(s.UID); v.Reexecuted == 0 {
		t.Errorf("verified %+v", v)
	}
}

// TestReplRecursion: in a cell, too, calls find the bound of the console before that
// of the cell, whatever functions of the interpreter they go through.
func TestReplRecursion(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a big module")
	}
	r := newRig(t).open()
	s, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "repl"), Limits: abi.Limits{Depth: 5_000}})
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{
		"function a() { return a() } a()",
		"function b() { return [1].map(b) } b()",
		"c = new Proxy({}, { get(t, k, r) { return r[k] } }); c.x",
		"d = { toJSON() { return JSON.stringify(this) } }; JSON.stringify(d)",
		"[1, 2].sort(function e() { return [2, 1].sort(e), 1 })",
		"'a'.replace(/a/, function f() { return 'a'.replace(/a/, f) })",
		"g = { toString() { return String([this]) } }; `${g}`",
		"class H { constructor() { return Reflect.construct(H, []) } }; new H()",
		"i = { get [Symbol.iterator]() { return [...i] } }; [...i]",
	} {
		if out := r.exec(s.UID, code); !strings.HasPrefix(out[0], "Uncaught RangeError: too many calls within calls") {
			t.Errorf("%s: %.200q", code, out[0])
		}
	}
}

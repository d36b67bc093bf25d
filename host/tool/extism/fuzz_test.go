package extism

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

// FuzzResult: whatever a plug-in answers is a result that is recorded and read back as it
// was, with every byte of the answer in it but for space around an object (I2).
func FuzzResult(f *testing.F) {
	for _, seed := range []string{"", " ", "text", `{"n":12345678901234567890,"f":1.50}`, ` {"a":{}} `, `{"a":1,"a":2}`, "{", "[1]", "null", "\x89PNG", "\xff{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		r, err := result(output)
		if err != nil {
			t.Fatal(err)
		}
		b, err := abi.MarshalLossless(&r)
		if err != nil {
			t.Fatalf("it cannot be recorded: %v", err)
		}
		var back abi.ToolResult
		if err := abi.UnmarshalLossless(b, &back); err != nil {
			t.Fatalf("%s is no result: %v", b, err)
		}
		var said []byte
		switch {
		case r.Output != nil:
			said, output = r.Output, bytes.TrimSpace(output)
			if again, err := abi.MarshalLossless(&back); err != nil || !bytes.Equal(b, again) {
				t.Fatalf("recorded %s, and again %s, %v", b, again, err)
			}
		case len(r.Content) == 1 && r.Content[0].Text != nil:
			said = []byte(back.Content[0].Text.Text)
		case len(r.Content) == 1 && r.Content[0].File != nil:
			if said = back.Content[0].File.Bytes; utf8.Valid(said) {
				t.Error("a text is a file")
			}
		}
		if diff := cmp.Diff(string(output), string(said)); diff != "" {
			t.Fatalf("the answer (-given +recorded):\n%s", diff)
		}
	})
}

// FuzzInput: whatever arguments a model writes, the plug-in is given them, or the one that
// it wants, or the call is an error.
func FuzzInput(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"text":"a"}`, `{"text":1.50}`, `{"text":null}`, `{"text":"\ud800"}`, `{"TEXT":"a"}`, "[]", `"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		whole, err := Manifest{}.input(args)
		if err != nil || len(args) > 0 && !bytes.Equal(whole, args) {
			t.Fatalf("all arguments: %q, %v", whole, err)
		}
		one, err := Manifest{Input: "text"}.input(args)
		if err == nil && !bytes.Contains(args, []byte("text")) && !bytes.Contains(args, []byte(`\`)) {
			t.Fatalf("%q is given, and nobody has said it", one)
		}
	})
}

package journal

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
)

// A mark is there with the append that has it and with none that is refused, is its
// session's own, and of two of one name the later counts.
func TestMarks(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		mark := func(uid abi.SessionID, name string, want abi.Seq) {
			t.Helper()
			got, err := j.Mark(uid, name)
			if got != want || (err != nil) != (want == 0) || want == 0 && !errors.Is(err, ErrNotFound) {
				t.Errorf("mark %q of %s: %d, %v, want %d", name, uid, got, err, want)
			}
		}
		event := []byte(`{"kind":"EVENT_INPUT"}`)
		for _, uid := range []abi.SessionID{"s", "s1"} {
			if _, err := j.Create(t.Context(), Session{UID: uid, Project: "p"}); err != nil {
				t.Fatal(err)
			}
		}
		add := func(head Head, marks ...Mark) (Head, error) {
			records, err := j.Append(t.Context(), "s", Append{Head: head, Events: [][]byte{event}, Marks: marks})
			if err != nil {
				return head, err
			}
			return Head{Seq: records[0].Seq, Hash: records[0].Hash}, nil
		}
		head, err := add(Head{}, Mark{"a", 1}, Mark{"1\x00b", 1})
		if err != nil {
			t.Fatal(err)
		}
		mark("s", "a", 1)
		mark("s", "1\x00b", 1)
		mark("s1", "\x00b", 0)
		mark("s1", "a", 0)
		mark("s", "none", 0)

		if _, err := add(Head{}, Mark{"refused", 1}); !errors.Is(err, ErrConflict) {
			t.Fatalf("an append to an old head: %v", err)
		}
		mark("s", "refused", 0)
		for _, name := range []string{"", strings.Repeat("n", maxName+1)} {
			if _, err := add(head, Mark{name, 1}); err == nil {
				t.Errorf("a mark of %d bytes was taken", len(name))
			}
		}
		if _, err := add(head, Mark{"a", 2}); err != nil {
			t.Fatal(err)
		}
		mark("s", "a", 2)
		child := ForkChild{UID: "c", Event: event}
		if _, err := j.Fork(t.Context(), "s", 2, epoch, []ForkChild{child}); err != nil {
			t.Fatal(err)
		}
		mark("c", "a", 0)
	})
}

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

func TestTree(t *testing.T) {
	for name, tt := range map[string]struct{ refs, want string }{
		"empty":   {"", ""},
		"roots":   {"a b", "a/b"},
		"unknown": {"b<a c<b", "b/└─ c"},
		"order":   {"d<a c<b b<a a", "a/├─ d/└─ b/   └─ c"},
		"bars":    {"a b<a c<b d<a e<d", "a/├─ b/│  └─ c/└─ d/   └─ e"},
	} {
		t.Run(name, func(t *testing.T) {
			var refs []ref
			for _, text := range strings.Fields(tt.refs) {
				uid, parent, _ := strings.Cut(text, "<")
				refs = append(refs, ref{uid: abi.SessionID(uid), parent: abi.SessionID(parent)})
			}
			var got []string
			for p := range tree(refs) {
				got = append(got, p.branch+string(p.UID))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "/")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A long line of forks does not run out of the right of the screen.
func TestTreeDeep(t *testing.T) {
	refs := []ref{{uid: "0"}}
	for i := range 10_000 {
		refs = append(refs, ref{uid: abi.SessionID(fmt.Sprint(i + 1)), parent: abi.SessionID(fmt.Sprint(i))})
	}
	n := 0
	for p := range tree(refs) {
		if p.depth != n || len([]rune(p.branch)) > 3*maxIndent {
			t.Fatalf("session %d: depth %d, branch %q", n, p.depth, p.branch)
		}
		n++
	}
	if n != len(refs) {
		t.Errorf("%d sessions of %d", n, len(refs))
	}
	for p := range tree(refs) { // who has seen enough may go
		if p.depth == 5 {
			break
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"echo":        "echo",
		"a b":         "'a b'",
		"$(rm)":       "'$(rm)'",
		"it's":        `'it'\''s'`,
		"x;\nreboot ": "'x;\nreboot '",
		"":            "''",
	} {
		if got := shellWord(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1 << 10: "1.0 KiB", 3 << 19: "1.5 MiB", 68 << 30: "68.0 GiB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

package host_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
)

// A memory of tens of megabytes is saved, mapped in another process, forked and
// reached again like a small one; each child has its own (M3).
func TestNotebook(t *testing.T) {
	if testing.Short() {
		t.Skip("saves tens of megabytes")
	}
	r := newRig(t).open()
	s := r.create("notebook")
	r.exec(s.UID, "note buy milk")
	if diff := cmp.Diff([]string{"32769 notes, 33554440 bytes"}, r.exec(s.UID, "fill 32")); diff != "" {
		t.Fatal(diff)
	}
	want := r.exec(s.UID, "sum")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.open()
	if diff := cmp.Diff(want, r.exec(s.UID, "sum")); diff != "" {
		t.Errorf("after a restart: %s", diff)
	}
	children, err := r.Fork(t.Context(), host.ForkRequest{Session: s.UID, Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	// A small change of a large memory is a small image.
	e, err := r.Exec(t.Context(), host.ExecRequest{Session: children[0].UID, Inputs: say("edit 20000 nothing")})
	const few = 500
	if err != nil || e.Pages < 1 || e.Pages > few {
		t.Errorf("an edit of one note changed %d pages: %v", e.Pages, err)
	}
	if diff := cmp.Diff([]string{"nothing"}, r.exec(children[0].UID, "read 20000")); diff != "" {
		t.Errorf("the child that was changed: %s", diff)
	}
	for _, beside := range []host.Session{s, children[1]} {
		if diff := cmp.Diff(want, r.exec(beside.UID, "sum")); diff != "" {
			t.Errorf("beside a changed child: %s", diff)
		}
	}
	r.verify(children[0].UID)
}

package journal

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

func TestPageToken(t *testing.T) {
	j := OpenMemory()
	defer j.Close()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	for i := range byte(5) {
		// Two of each time.
		s := Session{UID: abi.NewSessionID([12]byte{i}), Project: "p", Created: at.Add(time.Duration(i/2) * time.Microsecond)}
		if _, err := j.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := j.List("p", "", 10)
	if err != nil {
		t.Fatal(err)
	}
	uids := func(sessions []Session) (out []abi.SessionID) {
		for _, s := range sessions {
			out = append(out, s.UID)
		}
		return out
	}
	for i, s := range whole.Sessions {
		page, err := j.List("p", PageToken(s), 10)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(uids(whole.Sessions[i+1:]), uids(page.Sessions)); diff != "" {
			t.Errorf("behind session %d (-want +got):\n%s", i, diff)
		}
	}
	first, err := j.List("p", "", 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := PageToken(first.Sessions[1]); got != first.Next {
		t.Errorf("token %q, List gives %q", got, first.Next)
	}
}

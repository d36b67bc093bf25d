package host_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

func TestPushHarness(t *testing.T) {
	r := newRig(t)
	r.still = true
	r.open()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	echo, counter := harness(t, "echo"), harness(t, "counter")
	pushed := func(name string, h host.Harness) host.PushedHarness {
		return host.PushedHarness{Name: name, Module: abi.DigestOf(h.Code), Size: int64(len(h.Code)), Pushed: at}
	}
	push := func(name string, h host.Harness) {
		t.Helper()
		got, err := r.PushHarness(t.Context(), host.Harness{Name: name, Code: h.Code})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(pushed(name, h), got); diff != "" {
			t.Error(diff)
		}
	}
	list := func(want ...host.PushedHarness) {
		t.Helper()
		got, err := r.PushedHarnesses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Times differ once the clock runs.
		for i := range got {
			got[i].Pushed = at
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}
	create := func() host.Session {
		t.Helper()
		h, err := r.PushedHarness(t.Context(), "mine")
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Create(t.Context(), host.CreateRequest{Harness: h})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	list()
	push("mine", counter)
	push("also", echo)
	list(pushed("also", echo), pushed("mine", counter))
	first := create()
	r.exec(first.UID, "3")

	// The name stands for another module; the session does not.
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.still = false // or the second session would have the first one's uid
	r.open()
	replaced, err := r.PushHarness(t.Context(), host.Harness{Name: "mine", Code: echo.Code})
	if err != nil || replaced.Module != abi.DigestOf(echo.Code) {
		t.Fatalf("%+v, %v", replaced, err)
	}
	second := create()
	if diff := cmp.Diff([]string{"added 4, total 7"}, r.exec(first.UID, "4")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"echo:4"}, r.exec(second.UID, "4")); diff != "" {
		t.Error(diff)
	}
	if first.Harness != "mine" || second.Harness != "mine" || first.Module == second.Module {
		t.Errorf("%+v and %+v", first, second)
	}

	// Without its name, too.
	if err := r.RemoveHarness(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	list(pushed("also", echo))
	if diff := cmp.Diff([]string{"7"}, r.exec(first.UID, "total")); diff != "" {
		t.Error(diff)
	}
	r.verify(first.UID)
	if _, err := r.PushedHarness(t.Context(), "mine"); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("got error %v, want ErrNotFound", err)
	}
	if err := r.RemoveHarness(t.Context(), "mine"); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("got error %v, want ErrNotFound", err)
	}

	// What cannot run has no name.
	before := r.store.Commits()
	for _, bad := range []struct {
		harness host.Harness
		want    error
	}{
		{host.Harness{Name: "text", Code: []byte("remember the milk")}, runtimes.ErrModule},
		{host.Harness{Name: "a/b", Code: echo.Code}, host.ErrInvalid},
		{host.Harness{Name: "sess-1", Code: echo.Code}, host.ErrInvalid},
		{host.Harness{Code: echo.Code}, host.ErrInvalid},
	} {
		if _, err := r.PushHarness(t.Context(), bad.harness); !errors.Is(err, bad.want) {
			t.Errorf("push %q: got error %v, want %v", bad.harness.Name, err, bad.want)
		}
	}
	list(pushed("also", echo))
	if n := r.store.Commits() - before; n != 0 {
		t.Errorf("%d commits for what was refused", n)
	}
}

// A harness's cost shows in the pages a turn changes, whether they are saved or
// not.
func TestExecutionPages(t *testing.T) {
	r := newRig(t).open()
	run := func(name, input string) host.Execution {
		t.Helper()
		e, err := r.Exec(t.Context(), host.ExecRequest{Session: r.create(name).UID, Inputs: say(input)})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	const many = 1000
	for _, name := range []string{"echo", "counter"} {
		if e := run(name, "3"); e.Pages < 1 || e.Pages > many {
			t.Errorf("a turn of %s changed %d pages", name, e.Pages)
		}
	}
	if e := run("counter", "not a number"); e.State != abi.StateFailed || e.Pages != 0 {
		t.Errorf("a failed turn, %s, changed %d pages", e.State, e.Pages)
	}
}
